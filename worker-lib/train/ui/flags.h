/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_UI_FLAGS_H
#define WORKER_LIB_TRAIN_UI_FLAGS_H

#include <stdbool.h>
#include <stdio.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"
#include "worker-lib/train/net/models.h"

/* The command line of train. */
struct train_flags {
    const struct model *model;
    const char *data; /* NULL: drawn digits */
    long long passes, batch, accumulate, seed, threads, train_limit;
    float lr; /* 0: the optimizer's default */
    crun_optimizer optimizer;
    const char *optimizer_name;
    crun_dtype precision;
    const char *backend;
    const char *device; /* "auto", "cpu", "cuda" */
    bool tf32, graph;
    const char *checkpoints; /* NULL: none are written */
    long long checkpoint_every;
    const char *resume; /* "": the newest; NULL: begin anew; else a file */
    const char *metrics;
    long long metrics_every; /* steps; 0: only after each pass */
    long long bucket_mb;
    bool zero, help, version;
};

/* Fills in defaults, too. */
int train_flags_parse(struct train_flags *f, int argc, char **argv,
                      struct err *e) MUST_CHECK;
void train_flags_print_help(FILE *out);

#endif
