/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * The links between nodes: a matrix with a letter for the link from each node (row) to
 * each other node. A node that has not answered has a row of LINK_UNKNOWN.
 */
enum link_state {
    LINK_REACHED = '+',
    LINK_UNREACHED = '-',
    LINK_STUCK = '~', /* connected, but not all data arrives */
    LINK_UNKNOWN = '?',
};

/*
 * Finds the nodes to remove so that the others reach each other: repeatedly the node
 * with the most broken links, the later one of equals. If fewer than half of the nodes
 * have answered node 0, which collects the rows, node 0 is unfit.
 */
void node_verdict_find_unfit(const char *letters, unsigned nodes, bool *unfit);

/* The reason why a node is unfit: "has no connection with a, b; loses large packets
 * (MTU?) to or from c". Returns buf. */
typedef const char *node_name_fn(const void *arg, unsigned node, char *buf,
                                 size_t size);
char *node_verdict_reason(const char *letters, unsigned nodes, unsigned node,
                          node_name_fn *name, const void *arg, char *buf, size_t size);
