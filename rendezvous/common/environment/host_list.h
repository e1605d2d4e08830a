/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/common/base/err.h"

#define HOST_LIST_MAX 65536

/*
 * The hosts of a list as Slurm, pdsh, PBS and LSF write it: names, separated by commas
 * or blanks, with ranges in brackets. "gpu[01-16],n[0-3,5]-ib,x[1-2]y[0-1]": the names
 * of an item with several brackets are all combinations, the last bracket changes
 * first. A number has as many digits as the first number of its range.
 */
struct host_list {
    char **name;
    size_t count;
};

/* The list may be empty. On an error *l is empty. */
int host_list_expand(const char *list, struct host_list *l, struct err *e) MUST_CHECK;
void host_list_clear(struct host_list *l);

/* The same host: letters count alike in both cases, and a name without a domain is the
 * same as that name with one. */
bool host_list_is_same(const char *a, const char *b);
/* The index of the host, or -1. */
long host_list_find(const struct host_list *l, const char *host);
