/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"

/* The command line of train. */
struct train_flags {
    enum { MODEL_MLP, MODEL_CNN } model;
    const char *data; /* NULL: drawn digits */
    long long passes, batch, seed, train_limit;
    float lr; /* 0: the optimizer's default */
    crun_optimizer optimizer;
    int precision_number; /* of the flag's words */
    crun_dtype precision;
    const char *backend;
    enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA } device;
    const char *checkpoints;                  /* NULL: none are written */
    long long checkpoint_every, memory_every; /* steps; 0: never */
    const char *metrics;
    long long metrics_every; /* steps; 0: only after each pass */
    bool cuda_graph, help, version;
    int zero; /* 0, or the stage of ZeRO */
};

extern const char *const train_optimizers[];

/* Fills in defaults, too. */
int train_flags_parse(struct train_flags *f, int argc, char **argv,
                      struct err *e) MUST_CHECK;
void train_flags_print_help(FILE *out);
