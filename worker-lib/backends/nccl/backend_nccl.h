/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include "worker-lib/backends/nccl/nccl_calls.h"
#include "worker-lib/backends/nccl/nccl_gpu.h"
#include "worker-lib/backends/nccl/nccl_turn.h"
#include "worker-lib/backends/nccl/nccl_work.h"
#include "worker-lib/engine/backend.h"

/*
 * NCCL. One thread, the communication thread, makes all calls of NCCL, and takes its
 * tasks from a queue. Another thread, the watch, calls neither NCCL nor CUDA: it
 * detects that a deadline has passed, that a call does not return or that another rank
 * has died, and then ends everything. It informs the other ranks and has ncclCommAbort
 * called in a third thread, since that may hang as well. A thread of the program waits
 * until one of the first two sets the result of its operation.
 */
#define NCCL_STUCK "NCCL hangs and cannot be aborted: this process must end"

#define NCCL_INTERFACES_SIZE 128

struct nccl_area { /* of crun_alloc */
    void *memory;
    size_t bytes;
    struct nccl_window *window; /* NULL: */
    void *registration;         /* NULL: it is not registered */
};

/* A rank on this node. */
struct nccl_peer {
    unsigned place;
    int pid;
    int fd; /* a pidfd; -1: not known yet */
    bool known;
};

struct nccl {
    struct backend backend;
    struct team team;
    struct nccl_gpu gpu;
    char *prefix;                          /* a copy: the team's may be freed earlier */
    char interfaces[NCCL_INTERFACES_SIZE]; /* by the lock; for the texts of errors */
    struct abort_word last_word;           /* for a thread that still hangs */
    _Atomic bool outlives;                 /* after the team has been freed */

    pthread_mutex_t lock;
    /* both by the monotonic clock */
    pthread_cond_t changed;         /* for the program's threads and the watch */
    pthread_cond_t queue_changed;   /* for the communication thread */
    struct nccl_work *first, *last; /* queued */
    struct nccl_work *flight_first, *flight_last; /* launched, not over */
    struct nccl_work *current;                    /* the communication thread's */
    struct nccl_work *spare, *all;
    struct nccl_area **area; /* by address */
    size_t area_count, area_room;
    struct op_counter counter;
    uint64_t numbered;      /* works that have a number */
    struct nccl_line *line; /* of this process' launches on the GPU */
    unsigned unfinished;    /* operations that were started */
    bool busy;              /* the communication thread may be in a call of NCCL */
    _Atomic bool aborting;  /* it makes no more such calls before the end */
    bool ended;             /* the end: a work that is not OVER never will be */
    bool gone;              /* the communication thread has returned */
    bool stuck;             /* memory that threads use can never be freed */

    /* the communication thread's */
    pthread_t thread;
    struct nccl_comm *_Atomic comm;
    struct gpu_stream *stream;
    void *staging[2];
    size_t staging_bytes[2];
    uint64_t looked_ms;
    uint64_t progress_ms; /* the last change of the works in flight */
    bool blocking;        /* CRUN_NCCL_BLOCKING: calls return when they are done */
    bool check;           /* CRUN_CHECK: compare calls before they are made */

    /* the call of NCCL or CUDA that it is in, and its start */
    const char *_Atomic call;
    _Atomic uint64_t call_ms;
    _Atomic uint64_t flight_seen_ms; /* when it last queried the first work in flight */

    /* the watch's */
    pthread_t watch;
    int wake; /* an eventfd: look at the abort word, or end */
    _Atomic bool stopping;
    struct nccl_peer *peer;
    unsigned peers;
    _Atomic unsigned lost; /* 1 + the rank that has died */
    uint64_t lost_ms;      /* when that was seen; used only by the watch */

    /* the third thread's */
    pthread_t aborter;
    sem_t abort_asked; /* to begin, or to end */
    bool abort_begun;
    bool abort_over;
};

/* -- nccl_thread.c ----------------------------------------------------------------- */
void *nccl_communicate(void *arg);
/* Whether it may continue. Sleeps a little; checks NCCL's own errors now and then. */
crun_status nccl_pause(struct nccl *n, unsigned *turn, struct err *e);
/* After a call that has returned `result`: waits while it is in progress. */
crun_status nccl_settle(struct nccl *n, const char *call, int result, struct err *e);
/* The same inside a group, where calls begin only at the group's end. */
crun_status nccl_settle_in_group(struct nccl *n, const char *call, int result,
                                 struct err *e);
/* Whether everything ends, and its reason. */
bool nccl_is_ending(struct nccl *n);
crun_status nccl_fail_ended(struct nccl *n, struct err *e);
/* Waits until the GPU has reached it. */
crun_status nccl_await(struct nccl *n, struct gpu_event *event, struct err *e);
/* Waits until all operations in our stream are done. */
crun_status nccl_idle(struct nccl *n, struct err *e);
/* Removes the works that the GPU has done from the works in flight, in order. */
crun_status nccl_retire(struct nccl *n, struct err *e);
/* The communication thread notes each call of NCCL and of CUDA, and never makes one
 * under the lock: any of them may hang, and the watch must notice that. */
void nccl_enter(struct nccl *n, const char *call);
/* For a call that uses the communicator. False: it may be aborted at the same time. */
bool nccl_enter_comm(struct nccl *n, const char *call);
int nccl_leave(struct nccl *n, int code); /* returns the code */
crun_status nccl_settle_gpu(struct nccl *n, const char *call, int code, struct err *e);
#define NCCL_CALL(n, name, call)                                                       \
    nccl_settle(n, name, nccl_enter_comm(n, name) ? (call) : NCCL_IN_PROGRESS, e)
#define GPU_CALL(n, name, call)                                                        \
    nccl_settle_gpu(n, name, (nccl_enter(n, name), (call)), e)

/* -- nccl_comm.c ------------------------------------------------------------------- */
/* Meets the other ranks, unless the communicator is there already, and connects. */
crun_status nccl_comm_open(struct nccl *n, struct nccl_work *w, struct err *e);
crun_status nccl_comm_split(struct nccl *n, struct nccl_work *w, struct err *e);
crun_status nccl_comm_close(struct nccl *n, struct nccl_work *w, struct err *e);

/* -- nccl_interface.c -------------------------------------------------------------- */
/* On rank 0: the interfaces that NCCL and the rendezvous use, if there are several
 * nodes, else "". Warns if they differ, and the user has chosen none. */
void nccl_find_interfaces(const struct team *team, const struct nccl_id *id,
                          char text[NCCL_INTERFACES_SIZE]);

/* -- nccl_ops.c -------------------------------------------------------------------- */
crun_status nccl_run(struct nccl *n, struct nccl_work *w, struct err *e);

/* -- nccl_memory.c ----------------------------------------------------------------- */
crun_status nccl_add_area(struct nccl *n, struct nccl_work *w, struct err *e);
void nccl_remove_area(struct nccl *n, struct nccl_work *w);
/* Whether an area begins at this address, and whether one contains it. */
bool nccl_has_area(struct nccl *n, const void *memory);
bool nccl_owns(struct nccl *n, const void *memory);
/* GPU memory, 0 for input and 1 for output, that is valid until the next call. */
crun_status nccl_stage(struct nccl *n, int which, size_t bytes, void **memory,
                       struct err *e);
void nccl_free_memory(struct nccl *n, struct nccl_work *w);

/* -- nccl_peers.c ------------------------------------------------------------------ */
bool nccl_list_peers(struct nccl *n); /* false: no memory */
/* This rank's process, in the store: the watches of other ranks observe it. */
crun_status nccl_tell_pid(const struct nccl *n, uint64_t deadline_ms, struct err *e);
void nccl_forget_pid(const struct nccl *n);
void nccl_close_peers(struct nccl *n);
/* Opens the peers whose pids have come into the store. */
void nccl_read_pids(struct nccl *n);
void nccl_lose_peer(struct nccl *n, unsigned index);

/* -- nccl_watch.c ------------------------------------------------------------------ */
void *nccl_watch(void *arg);
/* The third thread: aborts the communicator once it is asked to. */
void *nccl_abort_comm(void *arg);
/* While the ranks meet: how long a call that waits for no other rank may take. */
uint64_t nccl_call_ms(uint64_t timeout_ms);
/* How long leaving and aborting may take. */
uint64_t nccl_leave_ms(const struct nccl *n);
