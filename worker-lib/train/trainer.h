/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdio.h>

#include "worker-lib/train/net.h"

/* The command line of train. */
struct train_flags {
    int model;        /* of the table */
    const char *data; /* NULL: drawn digits */
    long long passes, batch, seed, train_limit;
    float lr;
    int optimizer, precision_number; /* of the flags' words */
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

/* Fills in defaults, too. */
int train_flags_parse(struct train_flags *f, int argc, char **argv,
                      struct err *e) MUST_CHECK;
void train_flags_print_help(FILE *out);

#define TEST_BATCH 64 /* the net has memory for at least so many samples */

/* The sums over all ranks after a step: so all write a checkpoint, or stop, after the
 * same step. The all-reduce of these numbers overlaps with the next step. */
struct sums {
    struct score score;
    double save; /* the ranks that want a checkpoint */
    double stop; /* those that received a signal */
};

/*
 * One rank's training. After a step all fields but samples_own have the same values on
 * all ranks.
 */
struct trainer {
    const struct train_flags *flags;
    struct data train, test;

    crun_world *world;
    crun_ddp *ddp;
    crun_optim *optim;
    crun_sampler *sampler;
    crun_checkpoints *checkpoints; /* NULL: none are written */
    bool warned;                   /* of checkpoints that cannot be loaded */

    crun_work *exchange; /* NULL: no exchange of sums is in progress */
    struct sums own, all;
    bool save, stop; /* the ranks have agreed to do so after this step */

    const struct compute *compute;
    struct net net;
    float *gradients; /* NULL: the net computes into those of ddp */
    float *values;    /* of a parameter, in memory of the host */
    uint64_t *sample; /* this rank's samples of a step */

    /* --cuda-graph: the parts of a step that are recorded; the first parameter of each,
     * while the ones after it are in earlier parts */
    unsigned parts, part_begin[LAYERS_MAX];

    uint64_t step, pass;  /* that are finished */
    uint64_t samples_own; /* samples of this rank since the process started */
    struct score score;   /* of this pass, over all ranks */
    struct {
        struct score score;    /* of the steps since the last line of metrics */
        uint64_t after, asked; /* the last step before them; the newest exchanged */
    } recent;
    uint64_t pass_began_ms;
    crun_ddp_stats stats_before; /* at the start of this pass */
    double samples_here; /* of this pass, since the process started, over all ranks */

    crun_status status; /* of the call that failed last */
};

/* *t is static, and all zero. Returns -1 with *e and t->status; call trainer_close in
 * any case. */
int trainer_open(struct trainer *t, const struct train_flags *f,
                 struct err *e) MUST_CHECK;
void trainer_close(struct trainer *t);

/* Runs the remaining passes. Returns 0, the signal that stopped it, or -1 with *e. */
int trainer_run(struct trainer *t, struct err *e) MUST_CHECK;

/* Returns 0 if status is CRUN_OK, else records the library's error and returns -1. */
int trainer_check(struct trainer *t, crun_status status, struct err *e) MUST_CHECK;

/* SIGTERM or SIGINT, if it was received since trainer_open, or 0. */
int trainer_signal(void);

/* One step of the optimizer from `count` samples of this rank, in t->sample, whose
 * score is added to *score. */
int step_run(struct trainer *t, size_t count, struct score *score,
             struct err *e) MUST_CHECK;

/* Adds the score of this rank's part of the test set. */
int step_evaluate(struct trainer *t, struct score *own, struct err *e) MUST_CHECK;

/* Opens the folder of checkpoints and resumes from it, as the flags say. */
int checkpoints_open(struct trainer *t, struct err *e) MUST_CHECK;
/* In memory, if one is due, or in files; `safe`: return only when it is on disk. */
int checkpoints_write(struct trainer *t, bool memory, bool safe,
                      struct err *e) MUST_CHECK;

/* Rank 0 prints a line; on a terminal, one that shows the progress, below all others.
 * Without a terminal, the progress is a line every ten seconds. */
void report_line(const struct trainer *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void report_progress(const struct trainer *t);
double report_samples_per_s(const struct trainer *t);

/* --metrics: rank 0 appends to the file; "%s" with "" tests whether it can. */
int report_metrics(const struct trainer *t, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))) MUST_CHECK;
