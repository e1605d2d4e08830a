/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/progress/page_reader.h"

/*
 * Finds the worker of a node that hangs, from the history of the status pages. Pure;
 * time is a parameter.
 *
 * A worker is overdue when its page has not changed for its allowance. That is
 * --hang-timeout; with `auto` it is ten times the longest recent step, at least
 * HANG_AUTO_MS_MIN, once HANG_AUTO_STEPS steps were seen. A worker that loads,
 * has not made its first step, evaluates or writes a checkpoint, or is followed by
 * --watch and does none of what that can see, gets ten times that long (with `auto` at
 * least HANG_AUTO_LONG_MS_MIN). With `auto`, one that is followed by --watch and trains
 * gets HANG_AUTO_LONG_MS_MIN at least, because what it does between two steps need not
 * be a step.
 *
 * A worker that waits for others gets a quarter more, so that the worker it waits for
 * is found first, and is never overdue while another worker of this node does not wait.
 * With `auto`, and ranks on other nodes, it gets the long allowance, because those
 * ranks may be evaluating.
 *
 * A worker that is done, or that an exception ends, is never overdue, and while it ends
 * the others have HANG_ENDING_MS: it may have failed, and is named then. A worker that
 * never wrote may still be loading: it is overdue only with a timeout given as a
 * number, after ten times that since its start, if another worker of this node has
 * written.
 *
 * Time without observations (this process was stopped, the machine slept) does not
 * count: see HANG_READ_MS.
 */
#define HANG_NONE UINT32_MAX

struct hang_rule {
    uint64_t timeout_ms; /* 0: none */
    bool is_auto;
};

struct hang;

struct hang *hang_create(uint32_t workers);
void hang_destroy(struct hang *h); /* NULL is fine */

/* Begins an epoch; others: there are ranks on other nodes. */
void hang_begin(struct hang *h, const struct hang_rule *rule, bool others,
                uint64_t now_ms);

/* The content of one reading of a page. A worker that is not alive is never overdue. */
struct hang_observation {
    struct page_values progress;
    bool changed, alive;
    bool stopped; /* by a signal or a debugger: it waits for no other rank */
};
void hang_observe(struct hang *h, const struct hang_observation *observation,
                  uint64_t now_ms);

/* The local rank that hangs, as of the last observation: the overdue worker that is
 * behind the others. Or HANG_NONE. */
uint32_t hang_find(const struct hang *h);

/* When a worker will be overdue if no page changes any more; UINT64_MAX: never. */
uint64_t hang_deadline(const struct hang *h);

/* For how long its page has not changed, or since the start. */
uint64_t hang_unchanged_ms(const struct hang *h, uint32_t local_rank);
