/* SPDX-License-Identifier: MIT */
#include "worker-lib/world/node_map.h"

#include <stdint.h>
#include <string.h>

struct node_pattern {
    uint32_t ranks, nodes;
};

static unsigned pattern_node(const struct node_pattern *p, unsigned rank)
{
    return rank / p->ranks % p->nodes;
}

static bool find_pattern(const unsigned *node, unsigned ranks, struct node_pattern *p)
{
    *p = (struct node_pattern){ 1, 1 };
    while (p->ranks < ranks && node[p->ranks] == node[0])
        p->ranks++;
    for (unsigned r = 0; r < ranks; r++)
        p->nodes = node[r] + 1 > p->nodes ? node[r] + 1 : p->nodes;
    for (unsigned r = 0; r < ranks; r++)
        if (node[r] != pattern_node(p, r))
            return false;
    return true;
}

size_t node_map_format(const unsigned *node, unsigned ranks, void *value)
{
    struct node_pattern p;

    if (find_pattern(node, ranks, &p)) {
        memcpy(value, &p, sizeof(p));
        return sizeof(p);
    }
    memcpy(value, node, ranks * sizeof(*node));
    return ranks * sizeof(*node);
}

bool node_map_parse(const void *value, size_t size, unsigned ranks, unsigned *node)
{
    struct node_pattern p;
    unsigned nodes = 0;

    if (size == sizeof(p)) {
        memcpy(&p, value, sizeof(p));
        if (p.ranks == 0 || p.nodes == 0)
            return false;
        for (unsigned r = 0; r < ranks; r++)
            node[r] = pattern_node(&p, r);
        return true;
    }
    if (size != ranks * sizeof(*node))
        return false;
    memcpy(node, value, size);
    for (unsigned r = 0; r < ranks; r++) {
        if (node[r] > nodes)
            return false;
        nodes += node[r] == nodes;
    }
    return true;
}
