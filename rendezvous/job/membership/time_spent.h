/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/progress_page.h"

/*
 * Where the time of a job went. Every millisecond from its first JOIN to its result
 * belongs to exactly one phase, so the sums of all phases are the age of the job.
 * PROTOCOL.md defines where a phase begins and ends.
 *
 * Pure: the caller says what happens, and when. The clock may begin anew or wrap, as
 * only differences of times count. No boundary comes before the one before it.
 */
enum job_phase {
    JOB_PHASE_PRODUCTIVE,
    JOB_PHASE_DETECT,
    JOB_PHASE_STOP,
    JOB_PHASE_FORM,
    JOB_PHASE_START,
    JOB_PHASE_FIRST_STEP,
    JOB_PHASE_REWORK,
    JOB_PHASE_COUNT
};

struct time_spent_sums {
    uint64_t ms[JOB_PHASE_COUNT];
    uint64_t steps_again; /* steps that were done again */
    uint64_t unplaced;    /* epochs whose first step has no place among those before:
                           * productive time and rework cannot be told apart, and count
                           * as productive, and steps_again lacks theirs */
};

struct time_spent {
    bool over; /* the job has its result: nothing is open */
    enum job_phase phase;
    uint64_t since;
    bool reports_steps; /* a step was told once; before, running time is productive */
    uint64_t top_step;
    uint64_t past_step;          /* the greatest of the epochs before */
    enum job_phase before;       /* the phase that an error told late may shorten, */
    uint64_t before_ms;          /* and how much of it came right before this one */
    struct time_spent_sums all;  /* without the phase that is open */
    struct time_spent_sums last; /* likewise since the last error or planned stop: the
                                  * restart that is under way, or the last one */
};

void time_spent_begin(struct time_spent *t, uint64_t now);

/* A worker has failed, or a node is lost: since `at`, which may be in the past. */
void time_spent_error(struct time_spent *t, uint64_t at, uint64_t now);
void time_spent_stopping(struct time_spent *t, uint64_t now);
void time_spent_stopped(struct time_spent *t, uint64_t now);
void time_spent_formed(struct time_spent *t, uint64_t now);
void time_spent_started(struct time_spent *t, uint64_t now);
void time_spent_ended(struct time_spent *t, uint64_t now);

/* The caller did not run for so long: all that time belongs to the phase that is
 * open. */
void time_spent_add_away(struct time_spent *t, uint64_t ms);

/* The greatest step that any worker has told of. */
void time_spent_note_step(struct time_spent *t, uint64_t step);
/* The epoch's first step, done at `at`. True if that ends the restart, but for steps
 * done again. */
bool time_spent_first_step(struct time_spent *t, uint64_t step, uint64_t at,
                           uint64_t now);
/* The epoch has reached `step`, at `at`. True if no steps are left to be done again. */
bool time_spent_reached(struct time_spent *t, uint64_t step, uint64_t at, uint64_t now);

/* With the phase that is open. */
struct time_spent_sums time_spent_all(const struct time_spent *t, uint64_t now);
struct time_spent_sums time_spent_last(const struct time_spent *t, uint64_t now);
uint64_t time_spent_age(const struct time_spent_sums *sums);
uint64_t time_spent_lost(const struct time_spent_sums *sums);
