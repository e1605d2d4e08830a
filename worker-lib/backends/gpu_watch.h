/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_BACKENDS_GPU_WATCH_H
#define WORKER_LIB_BACKENDS_GPU_WATCH_H

#include <pthread.h>

#include "worker-lib/device/gpu_calls.h"
#include "worker-lib/engine/backend.h"

/*
 * Lets threads use a GPU that may hang. They wait by polling, until a deadline or the
 * end of the world. A call of CUDA may hang as well: a thread, the watch, notices that
 * a call does not return, and ends the world.
 */
struct gpu_watch {
    const struct gpu_calls *gpu;
    const struct team *team;
    struct backend *informs; /* its abort informs the other ranks */
    int device;
    _Atomic bool stuck; /* the GPU may use its memory forever: nothing is freed */

    pthread_mutex_t lock;
    pthread_cond_t changed;         /* by the monotonic clock */
    struct watched_call *under_way; /* calls of CUDA */
    pthread_t thread;
    bool opened, stopping;
};

/* `informs` and `team` live as long as the watch. */
crun_status gpu_watch_open(struct gpu_watch *w, const struct gpu_calls *gpu, int device,
                           const struct team *team, struct backend *informs,
                           struct err *e);
void gpu_watch_close(struct gpu_watch *w); /* a watch of zeros is fine */

/* Before and after each call of CUDA; a thread is in one at a time. */
void gpu_watch_enter(struct gpu_watch *w, const char *call);
int gpu_watch_leave(struct gpu_watch *w, int code); /* returns the code */
crun_status gpu_watch_check(struct gpu_watch *w, const char *call, int code,
                            struct err *e);
#define WATCHED(w, name, call)                                                         \
    gpu_watch_check(w, name, (gpu_watch_enter(w, name), gpu_watch_leave(w, (call))), e)

/* Waits until the GPU has reached the event. CRUN_TIMEOUT: not by the deadline. */
crun_status gpu_watch_await(struct gpu_watch *w, struct gpu_event *event,
                            uint64_t deadline_ms, struct err *e);

/* After a failure `s`, whose error is e: informs the other ranks and waits until the
 * stream has done its work, which may still use the program's buffers. If it never
 * does, the process is stuck. Returns the status of e. */
crun_status gpu_watch_settle(struct gpu_watch *w, struct gpu_stream *stream,
                             struct gpu_event *event, crun_status s, struct err *e);

#endif
