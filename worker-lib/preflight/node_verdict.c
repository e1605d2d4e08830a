/* SPDX-License-Identifier: MIT */
#include "worker-lib/preflight/node_verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

static char link_between(const char *letters, unsigned nodes, unsigned from,
                         unsigned to)
{
    return letters[(size_t)from * nodes + to];
}

static bool is_unknown(const char *letters, unsigned nodes, unsigned node)
{
    return link_between(letters, nodes, node, node) == LINK_UNKNOWN;
}

/* In either direction. */
static bool is_broken(const char *letters, unsigned nodes, unsigned a, unsigned b)
{
    return a != b && (link_between(letters, nodes, a, b) != LINK_REACHED ||
                      link_between(letters, nodes, b, a) != LINK_REACHED);
}

static bool is_connected(char letter)
{
    return letter == LINK_REACHED || letter == LINK_STUCK;
}

/* Connected in both directions, but data does not arrive. */
static bool is_stuck(const char *letters, unsigned nodes, unsigned a, unsigned b)
{
    return is_broken(letters, nodes, a, b) &&
           is_connected(link_between(letters, nodes, a, b)) &&
           is_connected(link_between(letters, nodes, b, a));
}

static bool has_enough_rows(const char *letters, unsigned nodes)
{
    unsigned silent = 0;

    for (unsigned node = 1; node < nodes; node++)
        silent += is_unknown(letters, nodes, node);
    return 2 * silent <= nodes;
}

void node_verdict_find_unfit(const char *letters, unsigned nodes, bool *unfit)
{
    unsigned *troubles = xcalloc(nodes, sizeof(*troubles)), worst;

    memset(unfit, 0, nodes * sizeof(*unfit));
    if (has_enough_rows(letters, nodes)) {
        for (unsigned a = 0; a < nodes; a++)
            for (unsigned b = 0; b < a; b++)
                if (is_broken(letters, nodes, a, b)) {
                    troubles[a]++;
                    troubles[b]++;
                }
        for (;;) {
            worst = 0;
            for (unsigned node = 1; node < nodes; node++)
                worst = troubles[node] >= troubles[worst] ? node : worst;
            if (!troubles[worst])
                break;
            /* Its links no longer count for the other nodes. */
            unfit[worst] = true;
            troubles[worst] = 0;
            for (unsigned other = 0; other < nodes; other++)
                if (!unfit[other] && is_broken(letters, nodes, worst, other))
                    troubles[other]--;
        }
    } else {
        unfit[0] = true;
    }
    free(troubles);
}

struct verdict_reason {
    const char *letters;
    unsigned nodes, node;
    node_name_fn *name;
    const void *arg;
    char *buf;
    size_t size, used;
};

static void reason_add_text(struct verdict_reason *r, const char *before,
                            const char *text)
{
    if (r->used < r->size)
        r->used += (size_t)snprintf(r->buf + r->used, r->size - r->used, "%s%s", before,
                                    text);
}

/* "begin a, b": the nodes with a stuck link, or without a connection. */
static void reason_add_nodes(struct verdict_reason *r, bool stuck, const char *begin)
{
    const char *before = r->used ? "; " : "";
    char text[64];
    bool any = false;

    for (unsigned other = 0; other < r->nodes; other++) {
        if (!is_broken(r->letters, r->nodes, r->node, other) ||
            is_stuck(r->letters, r->nodes, r->node, other) != stuck)
            continue;
        if (!any)
            reason_add_text(r, before, begin);
        reason_add_text(r, any ? ", " : " ",
                        r->name(r->arg, other, text, sizeof(text)));
        any = true;
    }
}

char *node_verdict_reason(const char *letters, unsigned nodes, unsigned node,
                          node_name_fn *name, const void *arg, char *buf, size_t size)
{
    struct verdict_reason r = { letters, nodes, node, name, arg, buf, size, 0 };

    if (is_unknown(letters, nodes, node)) {
        snprintf(buf, size, "has not answered");
        return buf;
    }
    reason_add_nodes(&r, false, "has no connection with");
    reason_add_nodes(&r, true, "loses large packets (MTU?) to or from");
    return buf;
}
