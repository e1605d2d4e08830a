/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_UI_METRICS_H
#define WORKER_LIB_TRAIN_UI_METRICS_H

#include <stdint.h>
#include <stdio.h>

#include "rendezvous/base/err.h"

/* --metrics: one line of JSON about each pass. */
struct metrics {
    uint64_t pass, step; /* passes are counted from 1 */
    double train_loss, train_accuracy, test_loss, test_accuracy;
    double samples_per_s, seconds;
    double communication_s, exposed_s, skew_s; /* as crun_ddp_stats has them */
    int ranks, restarts;
    const char *backend;
};

/* Whether the file can be written, so that a mistake is reported before the first
 * pass. */
int metrics_check(const char *path, struct err *e) MUST_CHECK;
/* Appends one line. */
int metrics_append(const char *path, const struct metrics *m, struct err *e) MUST_CHECK;

#endif
