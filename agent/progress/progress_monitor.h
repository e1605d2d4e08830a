/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"
#include "agent/workers/group.h"

struct guard;
struct loop;
struct progress_monitor;

/*
 * Monitors the status pages of this node's workers: their progress, for the heartbeats;
 * hangs, which it reports to the group; stragglers; and whether a requested checkpoint
 * is written. Reads the pages twice a second while there is something to see, more
 * often before the first step, and not at all while no worker has written and no
 * --hang-timeout is given.
 */
struct progress_monitor_calls {
    /* A remark about a rank, for the log and the rendezvous' events. */
    void (*remark)(void *arg, enum note_kind kind, const char *text);
    /* Part of the answer to a question for stacks. */
    void (*stacks)(void *arg, const struct msg *m);
    /* All questions for stacks are answered, and flight recorders are written. */
    void (*stacks_taken)(void *arg);
    /* The requested checkpoint is written, or no longer waited for. */
    void (*checkpointed)(void *arg);
    /* The first step of the epoch, or all steps of before are done again. The next
     * heartbeat tells of it. */
    void (*stepped)(void *arg);
    void *arg;
};

struct progress_monitor *
progress_monitor_create(struct loop *loop, const struct config *config,
                        const struct progress_monitor_calls *calls);
void progress_monitor_destroy(struct progress_monitor *m); /* NULL is fine */

/* The group has started. It and the guard must outlive the next
 * progress_monitor_end. */
void progress_monitor_begin(struct progress_monitor *m, struct group *group,
                            struct guard *guard, const struct msg_start *start);
void progress_monitor_end(struct progress_monitor *m); /* also if not begun */

/* Fills in the next heartbeat. */
void progress_monitor_fill_heartbeat(struct progress_monitor *m,
                                     struct msg_heartbeat *progress);

/* A worker has printed; stream: 0 or 1. */
void progress_monitor_note_output(struct progress_monitor *m, uint32_t local_rank,
                                  int stream, const char *data, size_t size);
/* A GPU of this node is in use. */
void progress_monitor_note_gpus(struct progress_monitor *m,
                                struct msg_heartbeat *progress);

/* The stacks of the workers: see stacks.h. */
void progress_monitor_ask_stacks(struct progress_monitor *m,
                                 const struct msg_ask_stacks *ask);
bool progress_monitor_takes_stacks(const struct progress_monitor *m);

/* The job stops for a hang: asks PyTorch's flight recorders (torch_recorder.h). */
void progress_monitor_ask_recorders(struct progress_monitor *m);

/* Sends remarks on the state of every rank of this node that cannot show its stacks;
 * once an epoch. */
void progress_monitor_report_ranks(struct progress_monitor *m);

/* The steps of the last epoch, once it has been stopped. */
struct msg_stopped progress_monitor_last_steps(const struct progress_monitor *m);

/* How long the longest checkpoint of a worker took, as far as it was seen; 0: none. */
uint64_t progress_monitor_checkpoint_ms(const struct progress_monitor *m);

/* Asks the workers for a checkpoint; `checkpointed` follows, perhaps before this
 * returns. A second request before that is the same one. */
void progress_monitor_request_checkpoint(struct progress_monitor *m,
                                         uint32_t within_ms);
