/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/job/registry/job.h"
#include "rendezvous/show/views/metrics.h"
#include "rendezvous/show/views/sample_writer.h"

/* What has one sample, or one for each of a label's words. */
enum metric_subject {
    METRIC_OF_PROGRAM,
    METRIC_OF_DAEMON,
    METRIC_OF_JOB,
    METRIC_OF_NODE
};

/* A job or a node of it, looked at once for all metrics. */
struct metric_source {
    const struct metrics_view *view;
    const struct job *job;
    uint32_t node;                      /* the membership's index */
    const struct time_spent_sums *told; /* of the job: see job_report_time */
    uint64_t step, steps;               /* of the job; 0: not known */
    double steps_per_s, loss;           /* of the job; NaN: not known */
    uint32_t nodes_in[NODE_STATE_COUNT];
};

struct metric {
    const char *name; /* as a family: without _total and _info */
    enum metric_type type;
    enum metric_subject subject;
    const char *label; /* one more than its subject has, or NULL */
    const char *help;
    void (*write)(struct sample_writer *w, const struct metric_source *s);
};

extern const struct metric metrics_table[];
extern const unsigned metrics_count;
