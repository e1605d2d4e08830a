/* SPDX-License-Identifier: MIT */
#ifndef AGENT_PROGRESS_HANG_H
#define AGENT_PROGRESS_HANG_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/progress/page_reader.h"

/*
 * Which of a node's workers has come to a halt, if any: decided from what their status
 * pages showed when, and nothing else. Pure; time is a parameter.
 *
 * A worker is overdue when its page has not changed for its allowance. That is
 * --hang-timeout; with `auto` it is ten times the longest step of late, at least
 * HANG_AUTO_MS_MIN, once HANG_AUTO_STEPS steps have been seen. While it loads,
 * evaluates or writes a checkpoint it has ten times as long (with `auto` at least
 * HANG_AUTO_LONG_MS_MIN). Who waits for others has a quarter more, so that the one
 * waited for is found first, and is not judged while another of this node does anything
 * else than wait; with `auto`, and others elsewhere, it has the long allowance, for
 * they may be evaluating. Who is done is never overdue. One that never wrote may be
 * loading: it is judged only with a timeout given as a number, after ten times that
 * from the start on, if another of this node has written.
 *
 * Time in which nobody looked (this process was stopped, the machine slept) counts for
 * nobody: see HANG_LOOK_MS.
 */
#define HANG_NONE UINT32_MAX

struct hang_rule {
    uint64_t timeout_ms; /* 0: none */
    bool is_auto;
};

struct hang;

struct hang *hang_create(uint32_t workers);
void hang_destroy(struct hang *h); /* NULL is fine */

/* A new epoch; others: there are ranks on other nodes. */
void hang_begin(struct hang *h, const struct hang_rule *rule, bool others,
                uint64_t now_ms);

/* All pages were read: what they show, and which have changed. Dead workers (alive is
 * false) are never overdue. */
struct hang_sight {
    struct page_values progress;
    bool changed, alive;
    bool stopped; /* by a signal or a debugger: it waits for nobody */
};
void hang_look(struct hang *h, const struct hang_sight *sight, uint64_t now_ms);

/* After a look: the local rank that hangs, which is of those that are overdue the one
 * that is behind; or HANG_NONE. */
uint32_t hang_verdict(const struct hang *h);

/* When somebody is overdue if no page changes any more; UINT64_MAX: never. */
uint64_t hang_deadline(const struct hang *h);

/* Since its page changed, or since the start; of time that counts. */
uint64_t hang_still_ms(const struct hang *h, uint32_t local_rank);

#endif
