/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"
#include "worker-lib/engine/abort.h"
#include "worker-lib/engine/failure_notice.h"
#include "worker-lib/engine/op.h"
#include "worker-lib/meeting/store_client.h"

/*
 * The interface of backends, by which ranks communicate. A backend serves one team:
 * some ranks of the world, each with its own place in it. A backend over shared memory
 * serves the ranks of a node, one over TCP those of several nodes, and a hierarchical
 * backend consists of both.
 *
 * The engine starts operations, in order, and finishes them. Most backends only run one
 * operation at a time, in the thread that calls them, and leave `start`, `finish` and
 * `is_done` NULL: op_queue.h wraps such a backend into one that has them.
 */
struct flight_recorder;

struct team {
    unsigned rank, size;
    const unsigned *world_rank; /* of each place, for messages: rank 5, not place 1 */
    const unsigned *node;       /* of each place: ranks of one node can share memory */
    struct store_client *store; /* to meet; keys begin with the prefix */
    const char *prefix;
    /* Shared by the world and its groups: the failure notice, late ranks, and the token
     * by which ranks recognize each other. */
    const struct notice_board *board;
    bool is_group; /* there may be many: once they have met, they delete their keys */
    struct abort_word *aborted;
    const char *address; /* the address of this node for the others */
    /* for a backend with `start`: */
    const char *device; /* as in crun_options */
    unsigned local_rank, local_size;
    uint64_t timeout_ms;            /* of an operation */
    struct flight_recorder *flight; /* NULL: nothing is recorded */
    /* The abort word was set outside of any call: the other ranks must be informed. */
    void (*failed)(void *arg);
    void *failed_arg;
};

struct backend;
struct engine;

/* An operation that was started: the first member of the backend's own struct. */
struct crun_work {
    struct engine *engine;
};

struct backend_calls {
    const char *name;
    /* All ranks of the team together. */
    crun_status (*open)(struct backend **b, const struct team *team,
                        uint64_t deadline_ms, struct err *e);
    /* Opens the backends of groups of the team's ranks, all ranks of the team together:
     * `group` and `team` are of this rank's group, NULL if it has none; then its color
     * is negative. NULL: the ranks of each group call open. */
    crun_status (*split)(struct backend *b, struct backend **group, int color,
                         const struct team *team, uint64_t deadline_ms, struct err *e);
    /* Waits at most until op->deadline_ms, and checks the abort word while it waits. Of
     * a group it gets only the messages, sorted by op_group_sort, and moves their data
     * in any order. A message is a group of one. After any failure except
     * CRUN_BAD_ARGUMENT and CRUN_UNSUPPORTED the backend is broken: only call close. */
    crun_status (*run)(struct backend *b, const struct op *op, struct err *e);
    /* The abort word is set: inform the other ranks now, and make all waits in run, on
     * all ranks, check it. Called from any thread and from a signal handler, during
     * run. */
    void (*abort)(struct backend *b);
    /* Memory that needs no copying, all ranks together; NULL if there is none. */
    crun_status (*alloc)(struct backend *b, size_t bytes, uint64_t deadline_ms,
                         void **memory, struct err *e);
    /* This rank alone; false: it is not from this backend. */
    bool (*free)(struct backend *b, void *memory);
    void (*close)(struct backend *b);

    /* -- of a backend that runs one operation at a time; either may be NULL -- */
    /* Does, without waiting, the part that the other ranks need from this one; run,
     * with op->posted, does the rest, and no other operation runs in between. False:
     * not possible for this operation. */
    bool (*post)(struct backend *b, const struct op *op);
    /* The operation was requested, and will be run: records the position of the
     * caller's stream in op->mark. In order, by any thread. */
    crun_status (*mark)(struct backend *b, struct op *op, struct err *e);

    /* -- of a backend that runs operations by itself -- */
    /* In order, by any thread. CRUN_NO_MEMORY, CRUN_UNSUPPORTED: nothing was started. A
     * failure may come at any time: the backend sets the abort word and calls
     * team.failed. */
    crun_status (*start)(struct backend *b, const struct op *op, crun_work **work,
                         struct err *e);
    /* Once for each work, which it frees: waits until the caller, or its stream, may
     * use the result. */
    crun_status (*finish)(struct backend *b, crun_work *work, struct err *e);
    bool (*is_done)(struct backend *b, crun_work *work);
};

struct backend {
    const struct backend_calls *calls;
    bool cores_are_scarce; /* an operation takes a core from the program */
    bool has_device;
    int device;               /* if it has one; else 0 */
    void *stream;             /* of the program, on the device */
    _Atomic bool measured;    /* a caller has asked for the time */
    _Atomic uint64_t busy_us; /* total time of operations started since then */
};

/* backend_hierarchical: shm within each node and tcp between them, "shm+tcp". */
extern const struct backend_calls backend_self, backend_shm, backend_tcp,
    backend_hierarchical, backend_nccl;
