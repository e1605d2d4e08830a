/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_UI_METRICS_H
#define WORKER_LIB_TRAIN_UI_METRICS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "rendezvous/common/base/err.h"

/* --metrics: one line of JSON about each pass, with --metrics-every about some steps,
 * and one about the end. */
struct metrics {
    uint64_t pass, step; /* passes are counted from 1 */
    double train_loss, train_accuracy, test_loss, test_accuracy;
    double samples_per_s, seconds;
    double communication_s, exposed_s, skew_s; /* as crun_ddp_stats has them */
    int ranks, restarts;
    const char *backend;
    bool may_be_there; /* the process before this one has perhaps written the line */
};

struct metrics_steps {
    uint64_t after, step; /* the steps after `after`, up to `step` */
    double train_loss;
    int restarts;
    uint64_t time_ms; /* wall clock */
};

/* Whether the file can be written, so that a mistake is reported before the first
 * pass. */
int metrics_check(const char *path, struct err *e) MUST_CHECK;
/* Appends one line. */
int metrics_append(const char *path, const struct metrics *m, struct err *e) MUST_CHECK;
int metrics_append_steps(const char *path, const struct metrics_steps *m,
                         struct err *e) MUST_CHECK;
int metrics_append_end(const char *path, uint64_t step, const char *digest,
                       struct err *e) MUST_CHECK;

#endif
