/* SPDX-License-Identifier: MIT */
#include "worker-lib/preflight/verdict.h"

#include <stdio.h>
#include <string.h>

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

static unsigned troubles_of(const char *letters, unsigned nodes, unsigned node,
                            const bool *unfit)
{
    unsigned count = 0;

    for (unsigned other = 0; other < nodes; other++)
        count += !unfit[other] && is_broken(letters, nodes, node, other);
    return count;
}

static bool hears_enough(const char *letters, unsigned nodes)
{
    unsigned silent = 0;

    for (unsigned node = 1; node < nodes; node++)
        silent += is_silent(letters, nodes, node);
    return 2 * silent <= nodes;
}

void verdict_find(const char *letters, unsigned nodes, bool *unfit)
{
    memset(unfit, 0, nodes * sizeof(*unfit));
    if (!hears_enough(letters, nodes)) {
        unfit[0] = true;
        return;
    }
    for (;;) {
        unsigned worst = 0, most = 0;

        for (unsigned node = 0; node < nodes; node++) {
            unsigned count = unfit[node] ? 0 : troubles_of(letters, nodes, node, unfit);

            if (count && count >= most) {
                worst = node;
                most = count;
            }
        }
        if (!most)
            return;
        unfit[worst] = true;
    }
}

char *verdict_reason(const char *letters, unsigned nodes, unsigned node,
                     verdict_name_fn *name, const void *arg, char *buf, size_t size)
{
    const char *before = "";
    char text[64];
    size_t used;

    if (is_silent(letters, nodes, node)) {
        snprintf(buf, size, "has said nothing");
        return buf;
    }
    used = (size_t)snprintf(buf, size, "has no connection with");
    for (unsigned other = 0; other < nodes && used < size; other++)
        if (is_broken(letters, nodes, node, other)) {
            used += (size_t)snprintf(buf + used, size - used, "%s %s", before,
                                     name(arg, other, text, sizeof(text)));
            before = ",";
        }
    return buf;
}
