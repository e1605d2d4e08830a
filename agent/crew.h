/* SPDX-License-Identifier: MIT */
#ifndef AGENT_CREW_H
#define AGENT_CREW_H

#include "agent/config/config.h"
#include "agent/workers/failure.h"
#include "rendezvous/base/err.h"

struct fence_terms;
struct loop;

/*
 * All that belongs to the workers of this node, over all epochs: the guard that is
 * their parent, what they write, the group of the epoch, and the watch over their
 * status pages and their GPUs. A guard that dies, and its workers with it, is replaced.
 */
struct crew_calls {
    /* As in group_calls; a worker that hangs has failed too. */
    void (*failed)(void *arg, const struct failure *f);
    void (*finished)(void *arg);
    void (*stopped)(void *arg);
    /* As in watch_calls and gpu_care_calls. */
    void (*remark)(void *arg, const char *kind, const char *text);
    void (*checkpointed)(void *arg);
    /* The guard has ended the workers of a node that is cut off. */
    void (*fenced)(void *arg);
    /* The guard has died; e holds a text if there cannot be another one. */
    void (*lost)(void *arg, const char *why, const struct err *e);
    void *arg;
};

struct crew {
    struct loop *loop;
    const struct config *config;
    struct crew_calls calls;
    struct logs *logs;
    struct guard *guard; /* NULL: there cannot be one */
    struct group *group;
    struct progress_monitor *watch;
    struct gpu_monitor *gpus; /* NULL: none */
};

/* Before this process has any thread. Fini in any case; zeroed memory is fine. */
int crew_init(struct crew *c, struct loop *loop, const struct config *config,
              const struct crew_calls *calls, struct err *e) MUST_CHECK;
void crew_fini(struct crew *c);
/* Nobody is left, and nobody comes: the guard may end. It takes its time, and less of
 * it when it finds no empty folders of logs. */
void crew_leave(struct crew *c);

int crew_start(struct crew *c, const struct msg_start *start, uint64_t epoch,
               struct err *e) MUST_CHECK;
/* As gpu_monitor_check. */
void crew_check(struct crew *c, void (*done)(void *arg, const char *unfit), void *arg);
/* What the next heartbeat is to say. */
void crew_progress(struct crew *c, struct msg_heartbeat *progress);
/* As group_stop; what each does is told first if that is asked for. */
void crew_stop(struct crew *c, int signo, uint32_t grace_ms, bool tell_ranks);

#endif
