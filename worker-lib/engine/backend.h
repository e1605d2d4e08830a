/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_ENGINE_BACKEND_H
#define WORKER_LIB_ENGINE_BACKEND_H

#include "rendezvous/base/err.h"
#include "worker-lib/crun/worker.h"
#include "worker-lib/engine/abort.h"
#include "worker-lib/meeting/store_client.h"

/*
 * How ranks talk. A backend serves one team: some ranks of the world, each with a place
 * of its own in it. It runs one operation at a time, in the order of the calls, in
 * whichever thread calls it; queues, threads and work handles are the engine's. So a
 * backend over shared memory serves the ranks of a node, one over TCP those of several,
 * and a hierarchical one is made of the two.
 */
enum op_kind {
    OP_ALL_REDUCE,
    OP_BROADCAST,
    OP_REDUCE_SCATTER,
    OP_ALL_GATHER,
    OP_ALL_TO_ALL,
    OP_BARRIER,
    OP_SEND,
    OP_RECEIVE,
    OP_KIND_COUNT
};

/* When an operation begins that nobody waits for yet. */
enum op_start {
    OP_SOON,
    OP_IF_IT_GAINS, /* by running beside the program; else with the wait for it */
    OP_WHEN_WAITED
};

struct op {
    enum op_kind kind;
    crun_dtype type;
    crun_op op;
    int peer; /* root, or the other rank; a rank of the team */
    const void *in;
    void *out;
    size_t count;
    /* How many threads of the program wait for results: if none does, they compute, and
     * need the core more than we do. NULL: the caller waits. */
    const _Atomic unsigned *waiting;
    enum op_start start;
    /* Nobody touches its buffers before the next operation of the team has ended, which
     * then says for both that all ranks are done. */
    bool followed;
    void *mark;           /* of backend_calls.mark */
    uint64_t sequence;    /* of the team's collectives; of the pair for SEND, RECEIVE */
    uint64_t deadline_ms; /* by clock_ms() */
    uint64_t timeout_ms;  /* how long that was from the start, for messages */
};

const char *op_name(enum op_kind kind); /* "all_reduce" */
/* "all_reduce 4096 x f32 sum", "broadcast 3 x u8 from rank 5". Returns text. */
char *op_describe(const struct op *op, const unsigned *world_rank, char *text,
                  size_t size);

struct flight_recorder;

struct team {
    unsigned rank, size;
    const unsigned *world_rank; /* of each place, for messages: rank 5, not place 1 */
    const unsigned *node;       /* of each place: equal ones can share memory */
    struct store_client *store; /* to meet; keys begin with the prefix */
    const char *prefix;
    struct abort_word *aborted;
    const char *address; /* what the others reach this node by */
    /* for a backend with `start`: */
    const char *device; /* as in crun_options */
    unsigned local_rank, local_size;
    uint64_t timeout_ms;            /* of an operation */
    struct flight_recorder *flight; /* NULL: nothing is recorded */
    /* The abort word was set beside all calls: tell the others. Once is enough. */
    void (*failed)(void *arg);
    void *failed_arg;
};

/* Is the program busy with something else meanwhile? */
static inline bool op_is_beside(const struct op *op)
{
    return op->waiting && atomic_load_explicit(op->waiting, memory_order_relaxed) == 0;
}

struct backend;
struct backend_work; /* an operation that was started */

struct backend_calls {
    const char *name;
    /* All ranks of the team together. */
    crun_status (*open)(struct backend **b, const struct team *team,
                        uint64_t deadline_ms, struct err *e);
    /* Waits at most until op->deadline_ms, and looks at the abort word while it waits.
     * After any failure but CRUN_BAD_ARGUMENT the backend is broken: only close. */
    crun_status (*run)(struct backend *b, const struct op *op, struct err *e);
    /*
     * An operation in two parts, or both NULL: post does, without waiting, all that the
     * others need of this rank, and complete the rest; nothing runs in between. False:
     * not this one.
     */
    bool (*post)(struct backend *b, const struct op *op);
    crun_status (*complete)(struct backend *b, const struct op *op, struct err *e);
    /* False: what runs beside the program takes the core from it. NULL: true. */
    bool (*gains_beside)(const struct backend *b);
    /* The team's abort word is set: tell the others now, and let who waits in run, here
     * or there, see it. From any thread and from a signal handler, beside run. */
    void (*abort)(struct backend *b);
    /* Memory that needs no copying, all ranks together; NULL where there is no such. */
    crun_status (*alloc)(struct backend *b, size_t bytes, uint64_t deadline_ms,
                         void **memory, struct err *e);
    /* This rank alone; false: it is not from here. */
    bool (*free)(struct backend *b, void *memory);
    void (*close)(struct backend *b);
    /*
     * Where a device runs operations beside the host; NULL in other backends.
     * Operations are started in order, by any thread, and each is finished by one call,
     * which waits until the caller's stream may use the result, and frees the work. A
     * failure may come at any time: the backend sets the abort word and calls
     * team.failed.
     */
    crun_status (*start)(struct backend *b, const struct op *op,
                         struct backend_work **work, struct err *e);
    crun_status (*finish)(struct backend *b, struct backend_work *work, struct err *e);
    bool (*is_done)(struct backend *b, struct backend_work *work);
    uint64_t (*busy_us)(struct backend *b); /* that operations took, all together */
    /* Of a backend without `start`, or NULL: an operation is called for, by any thread
     * but in order, and will be run; note in it how far the caller's stream is. */
    crun_status (*mark)(struct backend *b, struct op *op, struct err *e);
    void (*set_stream)(struct backend *b, void *stream);
    int (*device)(const struct backend *b);
};

struct backend {
    const struct backend_calls *calls;
};

/* backend_nodes: shm within each node and tcp between them, "shm+tcp". */
extern const struct backend_calls backend_self, backend_shm, backend_tcp, backend_nodes,
    backend_nccl, backend_cuda_host;

#endif
