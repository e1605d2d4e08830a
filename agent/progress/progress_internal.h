/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/progress/checkpoint_times.h"
#include "agent/progress/hang.h"
#include "agent/progress/limits.h"
#include "agent/progress/output_steps.h"
#include "agent/progress/progress_monitor.h"
#include "agent/progress/silence.h"
#include "agent/progress/stacks.h"
#include "agent/progress/step_rate.h"
#include "agent/progress/stragglers.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/loop.h"

/*
 * Shared by the files of the monitor: progress_monitor.c (when the pages are read, and
 * hangs), straggler_watch.c (the rank that lags, and where), progress_heartbeat.c (what
 * a heartbeat says), checkpoint_request.c (whether a requested checkpoint is written),
 * rank_states.c (what every rank does, of a job that hangs).
 */
#define STRAGGLER_ASK UINT64_MAX /* for stacks, of this module; others count from 1 */

struct progress_monitor {
    const struct config *config;
    struct progress_monitor_calls calls;

    /* of the epoch; pages is NULL between epochs */
    struct group *group;
    struct guard *guard;
    const struct status_pages *pages;
    uint32_t first_rank;
    bool any_page_written, hang_reported, ranks_reported, nan_reported;
    uint32_t straggler; /* reported; or STRAGGLERS_NONE */
    double straggler_speed;
    unsigned straggler_asks; /* for its stack, that are still to be sent */
    int straggler_votes; /* how much more often that was at this place than elsewhere */
    char straggler_place[STACKS_BRIEF_MAX_BYTES + 1];
    struct hang_observation *observation;
    struct hang *hang;
    struct stragglers *stragglers;
    struct stacks *stacks;
    struct silence *silence;
    struct output_steps *output; /* NULL: no --progress-pattern */
    struct page_values *page;    /* as last read */
    struct step_rate step_rate;
    uint64_t begun_ms, sampled_ms, rated_ms;
    uint64_t past_step; /* the greatest of the epochs before */
    uint64_t first_step, first_at_ms, reached_at_ms; /* see HEARTBEAT; 0: not yet */
    bool has_news;                                   /* of these */
    struct msg_heartbeat progress;
    struct loop_timer timer;

    /* the requested checkpoint; 0: none */
    uint64_t checkpoint_until_ms;
    struct loop_timer checkpoint_timer;
    struct checkpoints checkpoints;
    struct msg_stopped last; /* the steps of the epoch; set when it has ended */

    uint64_t recorders_until_ms; /* 0: PyTorch's flight recorders are not waited for */
    struct loop_timer recorder_timer;
};

/* -- progress_monitor.c ------------------------------------------------------------ */

void progress_monitor_read(struct progress_monitor *m);
void progress_monitor_arm(struct progress_monitor *m);
bool progress_monitor_shows(const struct hang_observation *s);
/* The rank that is behind all others, or NULL if no rank shows progress. */
const struct page_values *
progress_monitor_find_slowest(const struct progress_monitor *m);
void progress_monitor_remark(const struct progress_monitor *m, enum note_kind kind,
                             const char *text);

/* -- straggler_watch.c ------------------------------------------------------------- */

void progress_monitor_sample_stragglers(struct progress_monitor *m);
/* An answer to STRAGGLER_ASK. */
void progress_monitor_note_straggler_stack(struct progress_monitor *m,
                                           const struct msg_stacks *stack);

/* -- checkpoint_request.c ---------------------------------------------------------- */

void progress_monitor_on_checkpoint_timer(void *arg);
