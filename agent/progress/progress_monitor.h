/* SPDX-License-Identifier: MIT */
#ifndef AGENT_PROGRESS_PROGRESS_MONITOR_H
#define AGENT_PROGRESS_PROGRESS_MONITOR_H

#include "agent/config/config.h"
#include "agent/workers/group.h"

struct guard;
struct loop;
struct progress_monitor;

/*
 * The agent's eye on the status pages of its workers: how far they are, for the
 * heartbeats; which of them hangs, which the group reports; which lags; and whether the
 * checkpoint that was asked for is written. Looks once a second while there is
 * something to be seen, and not at all while nobody has written and no --hang-timeout
 * is given.
 */
struct progress_monitor_calls {
    /* A remark about a rank, for the log and the rendezvous' events. */
    void (*remark)(void *arg, enum note_kind kind, const char *text);
    /* The checkpoint asked for is written, or is not waited for any more. */
    void (*checkpointed)(void *arg);
    void *arg;
};

struct progress_monitor *
progress_monitor_create(struct loop *loop, const struct config *config,
                        const struct progress_monitor_calls *calls);
void progress_monitor_destroy(struct progress_monitor *w); /* NULL is fine */

/* The group has started. It and the guard must outlive the watch's next end. */
void progress_monitor_begin(struct progress_monitor *w, struct group *group,
                            struct guard *guard, const struct msg_start *start);
void progress_monitor_end(
    struct progress_monitor *w); /* one that has not begun is fine */

/* What the next heartbeat is to say. */
void progress_monitor_progress(struct progress_monitor *w,
                               struct msg_heartbeat *progress);

/* Remarks on what every rank of this node does; once an epoch. */
void progress_monitor_tell_ranks(struct progress_monitor *w);

/* Workers are to write a checkpoint; `checkpointed` follows, perhaps before this
 * returns. A second ask before that is the same one. */
void progress_monitor_ask_checkpoint(struct progress_monitor *w, uint32_t within_ms);

#endif
