/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/job/stacks/stack_groups.h"
#include "rendezvous/show/views/job_view.h"

/* What one look at the jobs has found. Plain data, of one owner at a time. */
#define TOP_NAME_BYTES (RUN_ID_MAX + ID128_HEX_SIZE + HOST_NAME_MAX_BYTES + 16)
#define TOP_CURVE_MAX 256

/* What is known of a job in addition to its view. */
struct top_job {
    char name[TOP_NAME_BYTES];                      /* in all looks the same */
    float rate[TOP_CURVE_MAX], loss[TOP_CURVE_MAX]; /* NaN: not known */
    unsigned points;
    uint64_t still_ms; /* since its last step, if that is suspiciously long; else 0 */
    char awaited[128]; /* then: "all other ranks wait for rank 3"; "": cannot be told */
    struct rank_range culprit; /* the first ranks of it; first > last: none */
};

/* The end of one stream of a rank. */
struct top_output {
    uint32_t rank;
    bool is_error;
    char *text;                     /* whole lines; NULL: none */
    char why[ERROR_TEXT_MAX_BYTES]; /* there is none */
};

/* Of one node that is looked at closely, or of a job, without its output. */
struct top_node {
    char name[TOP_NAME_BYTES]; /* as top_node_name has it, or top_job_name */
    struct stack_groups stacks;
    struct top_output *output;
    size_t outputs;
    char error[ERROR_TEXT_MAX_BYTES];
};

struct top_look {
    struct job_views jobs;
    struct top_job *more;             /* of each of them */
    struct top_node *node;            /* NULL: none is looked at, or not yet */
    char error[ERROR_TEXT_MAX_BYTES]; /* why the jobs are those of an earlier look */
};

void top_look_free(struct top_look *l); /* NULL is fine */
void top_node_free(struct top_node *n); /* NULL is fine */
void top_node_forget_output(struct top_node *n);

/* Names that stay: of a job, and of one of its nodes. Both return buf. */
char *top_job_name(const struct job_view *job, char *buf, size_t size);
char *top_node_name(const struct job_view *job, const struct msg_node_status *n,
                    char *buf, size_t size);

/* The job of this name, or that of the node of this name; NULL: gone. */
const struct job_view *top_look_find(const struct top_look *look, const char *name,
                                     const struct msg_node_status **node,
                                     const struct top_job **more);

/* What is wrong with it, the more the greater; 0: nothing. The word is its state, or
 * its fault: "lost", "slow 1.4x". */
unsigned top_job_fault(const struct job_view *job, const struct top_job *more);
unsigned top_node_fault(const struct msg_node_status *n, const struct top_job *more,
                        char *word, size_t size);
