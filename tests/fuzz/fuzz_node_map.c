/* SPDX-License-Identifier: MIT */
/*
 * node_map_parse and net_parse, with values that another process has set in the store.
 * A map numbers its nodes in the order of their first ranks, and formatting and parsing
 * it again gives the same one. An address that is accepted prints as one that is
 * accepted again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/net.h"
#include "worker-lib/world/node_map.h"

#define RANKS_MAX 256

static void check_value(int holds)
{
    if (!holds)
        abort();
}

static void check_map(const uint8_t *data, size_t size, unsigned ranks)
{
    unsigned node[RANKS_MAX], again[RANKS_MAX], nodes = 0;
    uint8_t value[NODE_MAP_BYTES(RANKS_MAX)];

    if (!node_map_parse(data, size, ranks, node))
        return;
    for (unsigned r = 0; r < ranks; r++) {
        check_value(node[r] <= nodes);
        nodes += node[r] == nodes;
    }
    check_value(
        node_map_parse(value, node_map_format(node, ranks, value), ranks, again));
    check_value(memcmp(node, again, ranks * sizeof(*node)) == 0);
}

static void check_address(const uint8_t *data, size_t size)
{
    struct net_addr addr, again;
    char text[NET_TEXT_SIZE];
    struct err e;

    memcpy(text, data, size);
    text[size] = '\0';
    if (net_parse(text, &addr, &e) < 0)
        return;
    check_value(net_port(&addr) != 0);
    if (memchr(data, '%', size)) /* an interface's number prints as its name */
        return;
    check_value(net_parse(net_format(&addr, text, sizeof(text)), &again, &e) == 0);
    check_value(net_same_host(&addr, &again) && net_port(&addr) == net_port(&again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    check_map(data + 1, size - 1, 1u + data[0]);
    if (size < NET_TEXT_SIZE)
        check_address(data, size);
    return 0;
}
