/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/config.h"
#include "rendezvous/common/base/loop.h"

/*
 * The end of this node's time (--time-limit, or that of its Slurm job). A margin before
 * it, `due` is called once: the job is to write a checkpoint and end. The margin is
 * that of --time-limit-margin. Without the flag it is enough for a checkpoint and then
 * the shutdown grace, but at most a quarter of the time.
 */
struct deadline {
    const struct config *config;
    uint64_t began_ms, ends_ms; /* of clock_ms */
    struct loop_timer timer;
    /* How long the workers' checkpoints take; 0: not known. */
    uint64_t (*checkpoint_ms)(void *arg);
    /* within_ms: the longest wait for the checkpoint. */
    void (*due)(void *arg, uint32_t within_ms);
    void *arg;
    bool is_over;
};

/* d->checkpoint_ms, due and arg are set. */
void deadline_init(struct deadline *d, struct loop *loop, const struct config *config);
/* If it was not initialised, it must be zeroed. */
void deadline_fini(struct deadline *d);

/* total_ms: from the start to the end. */
uint64_t deadline_margin_ms(const struct config *config, uint64_t total_ms,
                            uint64_t checkpoint_ms);

/* "the job ends at ...: a checkpoint is asked for 60 s before". Returns buf. */
char *deadline_plan(const struct config *config, char *buf, size_t size);

/* "14:05:00 (SLURM_JOB_END_TIME)". Returns buf. */
char *deadline_describe(const struct config *config, char *buf, size_t size);
