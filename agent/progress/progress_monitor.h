/* SPDX-License-Identifier: MIT */
#ifndef AGENT_PROGRESS_PROGRESS_MONITOR_H
#define AGENT_PROGRESS_PROGRESS_MONITOR_H

#include "agent/config/config.h"
#include "agent/workers/group.h"

struct guard;
struct loop;
struct watch;

/*
 * The agent's eye on the status pages of its workers: how far they are, for the
 * heartbeats; which of them hangs; which lags; and whether the checkpoint that was
 * asked for is written. Looks once a second while there is something to be seen, and
 * not at all while nobody has written and no --hang-timeout is given.
 */
struct watch_calls {
    /* A worker hangs; once an epoch at most. */
    void (*hung)(void *arg, uint32_t local_rank, const char *what);
    /* A remark about a rank, for the log and the rendezvous' events. */
    void (*remark)(void *arg, const char *kind, const char *text);
    /* The checkpoint asked for is written, or is not waited for any more. */
    void (*checkpointed)(void *arg);
    void *arg;
};

struct watch *watch_create(struct loop *loop, const struct config *config,
                           const struct watch_calls *calls);
void watch_destroy(struct watch *w); /* NULL is fine */

/* The group has started. It and the guard must outlive the watch's next end. */
void watch_begin(struct watch *w, const struct group *group, struct guard *guard,
                 const struct msg_start *start);
void watch_end(struct watch *w); /* one that has not begun is fine */

/* What the next heartbeat is to say. */
void watch_progress(struct watch *w, struct msg_heartbeat *progress);

/* Remarks on what every rank of this node does; once an epoch. */
void watch_tell_ranks(struct watch *w);

/* Workers are to write a checkpoint; `checkpointed` follows, perhaps before this
 * returns. A second ask before that is the same one. */
void watch_ask_checkpoint(struct watch *w, uint32_t within_ms);

#endif
