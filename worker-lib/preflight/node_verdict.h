/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_PREFLIGHT_NODE_VERDICT_H
#define WORKER_LIB_PREFLIGHT_NODE_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Which nodes reach which: a row for each node with a letter for each other one. A node
 * that has said nothing has a row of VERDICT_SILENT.
 */
enum verdict_letter {
    VERDICT_REACHED = '+',
    VERDICT_UNREACHED = '-',
    VERDICT_STUCK = '~', /* connected, but what is sent does not all arrive */
    VERDICT_SILENT = '?',
};

/*
 * Which nodes are to go, so that those that remain reach each other: one after the
 * other the node that most others have trouble with, the later one where two have as
 * much. Node 0, by which all of them are heard, goes if it hears of fewer than half.
 */
void verdict_find(const char *letters, unsigned nodes, bool *unfit);

/* Why that node goes: "has no connection with a, b; loses large packets (MTU?) to or
 * from c". Returns buf. */
typedef const char *verdict_name_fn(const void *arg, unsigned node, char *buf,
                                    size_t size);
char *verdict_reason(const char *letters, unsigned nodes, unsigned node,
                     verdict_name_fn *name, const void *arg, char *buf, size_t size);

#endif
