/* SPDX-License-Identifier: MIT */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/wire/protocol/job_name.h"
#include "rendezvous/wire/protocol/message.h"

/* Jobs and their nodes, as crunctl status and the page show them. */
struct job_view {
    struct msg_job_status status;
    char name[JOB_NAME_SIZE]; /* as shown */
    uint32_t pid; /* of the job's crun on this machine, 0: none or unknown */
    /* its state is another than the status can say: "killed", "left", "silent"; NULL */
    const char *odd_state;
    /* its crun does not answer: what is in the status is from its record; the end of
     * one that was killed is the last sign of it */
    bool is_silent;
    char *report;     /* of its failure, NULL: none; freed with the view */
    uint64_t wall_ms; /* when it was looked at; 0: now */
    cJSON *
        history; /* see rendezvous/job/history/; NULL: not known; freed with the view */
    struct msg_node_status *node;
    size_t nodes;
    /* of the slowest node, and of the whole job, where the view has no nodes; 0: not
     * known */
    uint64_t step, steps;
};

struct job_views {
    struct job_view *job;
    size_t count;
};

/* A new job at the end; its nodes are added to it until the next one. */
struct job_view *job_views_add(struct job_views *v, const struct msg_job_status *s);
void job_views_add_node(struct job_views *v, const struct msg_node_status *s);
/* Those of `from` come to the end of v; it has none then. */
void job_views_move(struct job_views *v, struct job_views *from);
void job_views_clear(struct job_views *v);

/* Those that have not ended first, the newest first; then those that ended last. */
void job_views_sort(struct job_views *v);

/* It is a member of the epoch and tells its step. */
bool job_view_takes_part(const struct msg_node_status *n);

/* The least step of the nodes that take part and tell one, 0: none. */
uint64_t job_view_step(const struct job_view *job);
/* Of the whole job, 0: no node tells. */
uint64_t job_view_steps(const struct job_view *job);

/* The sum of all its phases; 0: they are not told. */
uint64_t job_view_age_ms(const struct msg_job_time *t);

/* "running", "waiting", "restarting", "stopping", "finished", "failed", "stopped",
 * "not started" or what is odd. */
const char *job_view_state(const struct job_view *job);
