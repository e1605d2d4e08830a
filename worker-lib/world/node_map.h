/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * The node of each rank, as rank 0 publishes it in the store. Nodes are numbered in the
 * order of their first ranks.
 *
 * Launchers assign ranks to nodes by a pattern: so many ranks to each node, in turn.
 * Then only the pattern is published: with thousands of nodes the whole map would
 * burden the server, which sends it to every rank. A value that is as long as a pattern
 * is a pattern: the map of two ranks always is one.
 */
#define NODE_MAP_BYTES(ranks) ((ranks) * sizeof(unsigned) + 2 * sizeof(unsigned))

/* Returns the size of the value, at most NODE_MAP_BYTES(ranks). */
size_t node_map_format(const unsigned *node, unsigned ranks, void *value);

/* Fills in the node of each rank. False: it is not the value of any map of so many
 * ranks, and `node` is undefined. */
bool node_map_parse(const void *value, size_t size, unsigned ranks, unsigned *node);
