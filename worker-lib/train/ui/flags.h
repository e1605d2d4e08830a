/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_UI_FLAGS_H
#define WORKER_LIB_TRAIN_UI_FLAGS_H

#include <stdbool.h>
#include <stdio.h>

#include "rendezvous/base/err.h"
#include "worker-lib/crun/worker.h"
#include "worker-lib/train/net/models.h"

/* What train was asked to do. */
struct flags {
    const struct model *model;
    const char *data; /* NULL: drawn digits */
    long long passes, batch, accumulate, seed, threads, train_limit;
    float lr; /* 0: what suits the optimizer */
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
    long long bucket_mb;
    bool zero, help, version;
};

/* Fills in defaults too. */
int flags_parse(struct flags *f, int argc, char **argv, struct err *e) MUST_CHECK;
void flags_print_help(FILE *out);

#endif
