/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/devices/gpu_monitor.h"
#include "agent/logs/logs.h"
#include "agent/progress/progress_monitor.h"
#include "agent/workers/group.h"
#include "agent/workers/warm.h"

/*
 * The state of this node's workers over all epochs: their group, the guard that is
 * their parent, their output, and the monitors of their progress and GPUs. A guard that
 * dies, and its workers with it, is replaced.
 */
struct local_workers_calls {
    struct group_calls group;
    struct progress_monitor_calls progress;
    struct gpu_monitor_calls gpu;
    /* The guard ends the workers, because the rendezvous is unreachable. */
    void (*fenced)(void *arg);
    /* The guard has died. e: why there cannot be another one, or an empty text. */
    void (*guard_died)(void *arg, const char *why, const struct err *e);
    void *arg;
};

struct local_workers {
    struct loop *loop;
    const struct config *config;
    struct local_workers_calls calls;
    struct group *group;
    struct guard *guard; /* NULL: there cannot be one */
    struct logs *logs;
    struct progress_monitor *progress;
    struct gpu_monitor *gpus; /* NULL: none */
    struct warm *warm;
};

/* Call it before this process has any thread. Fini in any case; zeroed is fine. Fini
 * returns how the output has ended. */
int local_workers_init(struct local_workers *w, struct loop *loop,
                       const struct config *config,
                       const struct local_workers_calls *calls,
                       struct err *e) MUST_CHECK;
struct logs_end local_workers_fini(struct local_workers *w);
/* All workers have ended and none will be started: the guard may end. That is faster if
 * it finds no empty log folders to remove. */
void local_workers_release(struct local_workers *w);

/* CRUN_MEMORY of the workers, or ""; it must stay. */
void local_workers_set_memory(struct local_workers *w, const char *memory);
int local_workers_start(struct local_workers *w, const struct msg_start *start,
                        uint64_t epoch, const struct id128 *instance,
                        struct err *e) MUST_CHECK;
/* As guard_containment, and "+warm" if workers are forked from a template now. The
 * guard must not be NULL. Returns buf. */
const char *local_workers_containment(const struct local_workers *w, char *buf,
                                      size_t size);
/* As group_stop, with no more monitoring of progress. */
void local_workers_stop(struct local_workers *w, int signo, bool lost_rank,
                        uint32_t quick_ms, uint32_t grace_ms);
