/* SPDX-License-Identifier: MIT */
#include "worker-lib/preflight/node_verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/xalloc.h"

static char at(const char *letters, unsigned nodes, unsigned from, unsigned to)
{
    return letters[(size_t)from * nodes + to];
}

static bool is_silent(const char *letters, unsigned nodes, unsigned node)
{
    return at(letters, nodes, node, node) == VERDICT_SILENT;
}

/* In either direction. */
static bool is_broken(const char *letters, unsigned nodes, unsigned a, unsigned b)
{
    return a != b && (at(letters, nodes, a, b) != VERDICT_REACHED ||
                      at(letters, nodes, b, a) != VERDICT_REACHED);
}

static bool is_connected(char letter)
{
    return letter == VERDICT_REACHED || letter == VERDICT_STUCK;
}

/* They are connected, both ways, and yet it is broken. */
static bool is_stuck(const char *letters, unsigned nodes, unsigned a, unsigned b)
{
    return is_broken(letters, nodes, a, b) && is_connected(at(letters, nodes, a, b)) &&
           is_connected(at(letters, nodes, b, a));
}

static void count_troubles(const char *letters, unsigned nodes, unsigned *troubles)
{
    for (unsigned a = 0; a < nodes; a++)
        for (unsigned b = 0; b < a; b++)
            if (is_broken(letters, nodes, a, b)) {
                troubles[a]++;
                troubles[b]++;
            }
}

static bool hears_enough(const char *letters, unsigned nodes)
{
    unsigned silent = 0;

    for (unsigned node = 1; node < nodes; node++)
        silent += is_silent(letters, nodes, node);
    return 2 * silent <= nodes;
}

/* The one that goes: others need not mind it any more. */
static void let_go(const char *letters, unsigned nodes, unsigned node, bool *unfit,
                   unsigned *troubles)
{
    unfit[node] = true;
    troubles[node] = 0;
    for (unsigned other = 0; other < nodes; other++)
        if (!unfit[other] && is_broken(letters, nodes, node, other))
            troubles[other]--;
}

void verdict_find(const char *letters, unsigned nodes, bool *unfit)
{
    unsigned *troubles = xcalloc(nodes, sizeof(*troubles)), worst;

    memset(unfit, 0, nodes * sizeof(*unfit));
    if (hears_enough(letters, nodes)) {
        count_troubles(letters, nodes, troubles);
        for (;;) {
            worst = 0;
            for (unsigned node = 1; node < nodes; node++)
                worst = troubles[node] >= troubles[worst] ? node : worst;
            if (!troubles[worst])
                break;
            let_go(letters, nodes, worst, unfit, troubles);
        }
    } else {
        unfit[0] = true;
    }
    free(troubles);
}

struct reason {
    const char *letters;
    unsigned nodes, node;
    verdict_name_fn *name;
    const void *arg;
    char *buf;
    size_t size, used;
};

static void add(struct reason *r, const char *before, const char *text)
{
    if (r->used < r->size)
        r->used += (size_t)snprintf(r->buf + r->used, r->size - r->used, "%s%s", before,
                                    text);
}

/* "begin a, b": with whom it is stuck, or has no connection. */
static void add_nodes(struct reason *r, bool stuck, const char *begin)
{
    const char *before = r->used ? "; " : "";
    char text[64];
    bool any = false;

    for (unsigned other = 0; other < r->nodes; other++) {
        if (!is_broken(r->letters, r->nodes, r->node, other) ||
            is_stuck(r->letters, r->nodes, r->node, other) != stuck)
            continue;
        if (!any)
            add(r, before, begin);
        add(r, any ? ", " : " ", r->name(r->arg, other, text, sizeof(text)));
        any = true;
    }
}

char *verdict_reason(const char *letters, unsigned nodes, unsigned node,
                     verdict_name_fn *name, const void *arg, char *buf, size_t size)
{
    struct reason r = { letters, nodes, node, name, arg, buf, size, 0 };

    if (is_silent(letters, nodes, node)) {
        snprintf(buf, size, "has said nothing");
        return buf;
    }
    add_nodes(&r, false, "has no connection with");
    add_nodes(&r, true, "loses large packets (MTU?) to or from");
    return buf;
}
