/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A set of CPUs or of NUMA nodes, as many as Linux can be built for. */
#define ID_SET_MAX 8192

struct id_set {
    uint64_t word[ID_SET_MAX / 64];
};

/* Adds a list such as "0-3,8,10-11\n". False if text is anything else. */
bool id_set_parse(struct id_set *set, const char *text);

void id_set_add(struct id_set *set, int id);
bool id_set_has(const struct id_set *set, int id);
/* The lowest member that is not below `from`, or -1. */
int id_set_next(const struct id_set *set, int from);
unsigned id_set_count(const struct id_set *set);

void id_set_join(struct id_set *set, const struct id_set *other);
/* Keeps only the members that are in other too. */
void id_set_keep(struct id_set *set, const struct id_set *other);
void id_set_drop(struct id_set *set, const struct id_set *other);
