/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/wire/protocol/message.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

/*
 * The stacks of many ranks, merged: the ranks that do the same are one group. An agent
 * merges those of its node, the rendezvous or crunctl those of the job. Groups above
 * STACK_GROUPS_MAX are dropped. Zero-initialise.
 */
#define STACK_GROUPS_MAX 1024
#define RANKS_SHOWN_BYTES 120 /* of a list of ranks in a line */

/* The brief of a process whose interpreter begins or ends. */
#define STACKS_NO_FUNCTION "no Python function"

struct stack_group {
    enum stacks_kind kind;
    bool waits;
    char host[HOST_NAME_MAX_BYTES + 1]; /* of its first rank; "": this node */
    uint32_t pid;                       /* likewise */
    char *log;                          /* likewise; "": none */
    struct rank_ranges ranks;           /* none: a node that has not answered */
    char *brief, *threads;
};

struct stack_groups {
    struct stack_group *group;
    unsigned count, room;
    bool briefly; /* equal briefs are enough, the first threads are kept */
};

void stack_groups_fini(struct stack_groups *s);

/* Adds what a message says; one without ranks counts only if its node is missing. */
void stack_groups_add(struct stack_groups *s, const struct msg_stacks *m);

/* Sorts: most ranks first, then by rank; nodes that have not answered last. */
void stack_groups_sort(struct stack_groups *s);

/* Why the other ranks do not continue. */
enum stack_culprit {
    STACK_CULPRIT_NONE,    /* cannot be told */
    STACK_CULPRIT_AWAITED, /* all other ranks wait, these do not */
    STACK_CULPRIT_APART, /* all ranks wait, and these somewhere else than the others */
    STACK_CULPRIT_ELSEWHERE /* none is known to wait (JAX); not where most ranks are */
};

/* The group that the others wait for; its index in *group. */
enum stack_culprit stack_groups_find_culprit(const struct stack_groups *s,
                                             unsigned *group);

/* "ranks 0, 1, 3 wait in all_reduce (train.py:91, in step)". Returns buf. */
char *stack_group_describe(const struct stack_group *g, char *buf, size_t size);

/* All of them in one line, with "; " between. Returns buf. */
char *stack_groups_describe(const struct stack_groups *s, char *buf, size_t size);

/* "all other ranks wait for rank 2", or "". Returns buf. */
char *stack_groups_describe_culprit(const struct stack_groups *s, char *buf,
                                    size_t size);
