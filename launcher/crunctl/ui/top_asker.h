/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/crunctl/ui/top_look.h"

/*
 * A thread that looks at the jobs again and again, so that a rendezvous which does not
 * answer holds up no key. It ends with the process.
 */
struct top_asker;

/* What it asks, and of whom; called by its thread alone. -1 with e. */
struct top_source {
    void *arg;
    int (*jobs)(void *arg, struct job_views *v, struct err *e);
    /* its history, see rendezvous/job/history/; NULL: there is none */
    cJSON *(*history)(void *arg, const struct job_view *job);
    int (*stacks)(void *arg, const struct job_view *job, const char *ranks,
                  struct stack_groups *stacks, struct err *e);
    /* the last lines of the ranks, added to the node */
    int (*output)(void *arg, const struct job_view *job, const char *ranks,
                  struct top_node *node, struct err *e);
};

struct top_asker *top_asker_start(const struct top_source *source, uint64_t every_ms);

/* Readable when there is a new look. */
int top_asker_fd(const struct top_asker *a);
/* The newest look, for the caller to free; NULL: there has been none since. */
struct top_look *top_asker_take(struct top_asker *a);
/* The node or job that is looked at closely, by its name; "": none. */
void top_asker_open(struct top_asker *a, const char *name);
