/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/memory_slot.h"
#include "rendezvous/wire/protocol/limits.h"

/*
 * Which parts of checkpoints in memory the nodes of one job hold, as they report it,
 * and the newest set that is whole: all its own sections are held, and its shared one
 * if it has one. Pure.
 *
 * A report is a text, the newest set first: "3.1200.8:0-3+ 3.1199.8:0-3+ 3.1200.8:4-7-"
 * is epoch, step and world, a colon, ranks, and then: + the set has a shared section,
 * and it is here; - it has one, and it is not here.
 */
struct memory_sets;

struct memory_sets *memory_sets_create(void);
void memory_sets_destroy(struct memory_sets *s); /* NULL is fine */

/* The node reports what it holds, in place of all that it has reported before. False:
 * the text makes no sense, and the node counts as one that holds nothing. */
bool memory_sets_put(struct memory_sets *s, uint32_t node, const char *text);
/* The node is gone, and its memory with it. */
void memory_sets_forget(struct memory_sets *s, uint32_t node);

/* The newest whole set of an epoch up to newest_epoch: the one with the greatest epoch,
 * and of these the one with the greatest step. World 0: there is none. */
struct memory_set memory_sets_choose(const struct memory_sets *s,
                                     uint64_t newest_epoch);

/* What the node holds of the set: "0-3+", or "" for nothing. Returns buf. */
char *memory_sets_held(const struct memory_sets *s, uint32_t node,
                       const struct memory_set *set, char *buf, size_t size);
/* It holds some of these ranks' own sections, or with count 0 the shared one. */
bool memory_sets_has(const struct memory_sets *s, uint32_t node,
                     const struct memory_set *set, uint32_t first, uint32_t count);
/* It lacks a part of what it needs to start these ranks from the set. */
bool memory_sets_lacks(const struct memory_sets *s, uint32_t node,
                       const struct memory_set *set, uint32_t first, uint32_t count);

/* "3.1200.8"; "" for world 0. Returns buf. */
char *memory_set_print(const struct memory_set *set, char *buf, size_t size);
/* False, and world 0, if the text is none, or "". */
bool memory_set_parse(const char *text, struct memory_set *set);
