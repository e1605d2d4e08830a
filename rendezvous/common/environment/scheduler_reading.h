/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/environment/host_list.h"
#include "rendezvous/common/environment/scheduler.h"

struct scheduler_row;

/* One source's variables are read into a node. An error of each function here names the
 * variable. A name may be NULL: the variable is not set. */
struct scheduler_reading {
    const struct scheduler_env *env;
    const struct scheduler_row *row;
    struct scheduler_node *n;
    struct err *e;
};

/* The value of a variable that tells the place, which is noted. */
const char *reading_value(struct scheduler_reading *r, const char *name);
/* *number stays if the variable is not set. */
int reading_number(struct scheduler_reading *r, const char *name, uint64_t min,
                   uint64_t max, uint64_t *number) MUST_CHECK;
int reading_u32(struct scheduler_reading *r, const char *name, uint64_t min,
                uint64_t max, uint32_t *number) MUST_CHECK;
/* Appends the value to the job's id; letters that an id has not become "-". */
void reading_add_to_id(struct scheduler_reading *r, const char *name);

/* The hosts of a list, which is the value of `name`. */
int reading_expand_hosts(struct scheduler_reading *r, const char *name,
                         const char *text, struct host_list *l) MUST_CHECK;
/* The hosts of the file that a variable names. An empty list: it cannot be read. */
int reading_host_file(struct scheduler_reading *r, const char *name,
                      struct host_list *l) MUST_CHECK;
/* The list's first host is rank 0's; an empty list changes nothing. */
void scheduler_node_set_host(struct scheduler_node *n, const struct host_list *l);
