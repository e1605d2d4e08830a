/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/job/history/limits.h"
#include "rendezvous/job/membership/time_spent.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * The epochs of a job. An epoch begins with what has ended the one before it, a failure
 * or a planned stop, so that the epochs follow each other without a gap. Its time is
 * then all of the time up to its own end: the phases of the restart that led to it, and
 * what was productive. Of many epochs the first ones and the newest are kept. Pure;
 * wall times are 0 until they are known.
 */
struct past_epoch {
    uint64_t epoch;
    enum job_cause cause; /* of the restart, FIRST: there was no epoch before */
    bool hang;            /* the cause is a failure that is a hang */
    char text[EPOCH_TEXT_MAX_BYTES + 1]; /* the cause as a sentence, or "" */
    uint64_t begun_ms, formed_ms, started_ms, first_step_ms, ended_ms;
    uint32_t nodes, workers;
    struct time_spent_sums time;
};

struct epochs {
    struct past_epoch *epoch; /* oldest first */
    unsigned count, room;
    uint64_t left_out;           /* after the first ones */
    struct time_spent_sums base; /* of the job when the newest epoch began */
};

void epochs_fini(struct epochs *t); /* zeroes: there are none */

/* Each event below is at `now` in the clock of `time`, the account of the job, which
 * has noted it, and at wall_ms. */

/* The nodes of an epoch are chosen: its number, cause, text, nodes and workers. */
void epochs_add_formed(struct epochs *t, const struct past_epoch *epoch,
                       const struct time_spent *time, uint64_t now, uint64_t wall_ms);
/* Its store is open. */
void epochs_add_start(struct epochs *t, uint64_t wall_ms);
void epochs_add_first_step(struct epochs *t, const struct time_spent *time,
                           uint64_t now, uint64_t wall_ms);
/* It stops, or the job is done. */
void epochs_add_end(struct epochs *t, const struct time_spent *time, uint64_t now,
                    uint64_t wall_ms);
/* The time of an epoch that runs, up to now. */
void epochs_refresh(struct epochs *t, const struct time_spent *time, uint64_t now);

/* An epoch that was read from a file. They come in order. */
void epochs_restore_epoch(struct epochs *t, const struct past_epoch *epoch);
/* All were read: the newest epoch of the job may be missing, or its end. is_over: the
 * epoch does not run any more. */
void epochs_restored(struct epochs *t, const struct past_epoch *newest, bool is_over,
                     const struct time_spent *time, uint64_t now, uint64_t wall_ms);
