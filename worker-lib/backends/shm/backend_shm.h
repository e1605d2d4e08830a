/* SPDX-License-Identifier: MIT */
#pragma once

#include <sched.h>
#include <stdalign.h>
#include <sys/types.h>

#include "worker-lib/engine/backend.h"

/*
 * The ranks of one node in shared memory: one anonymous file that all of them have
 * mapped, so that nothing can be left behind. In it every rank has a seat, which only
 * that rank writes (except its bell), buffers for data to be copied, and for each other
 * rank a ring for messages to it. Memory of crun_alloc follows in the same file.
 *
 * An operation begins with a meeting: every rank writes a description of its call,
 * increments its `come` and waits for the others'. Two places for descriptions are used
 * in turn: a rank that is at the second meeting after this one has seen that all ranks
 * have left this one. Within an operation `step` is incremented, equally often in all
 * ranks.
 */
#define SHM_SMALL_BYTES 16384u /* of a rank, in an operation that is one meeting */
#define SHM_SLOT_BYTES 262144u /* of a rank, in one step of a larger one */
#define SHM_CELLS 4u           /* of a ring */
#define SHM_LINE 64u
#define SHM_RANKS_MAX 4096 /* on one node */

struct shm_flag {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

struct shm_call {
    uint32_t kind, type, op;
    int32_t peer;
    uint64_t count;
    uint64_t in, out; /* offsets of the buffers in the file; 0: not in the file */
};

struct shm_turn {
    alignas(SHM_LINE) struct shm_flag come;
    struct shm_call call;
};

enum shm_state { SHM_ABSENT, SHM_JOINED, SHM_LEFT };

struct shm_seat {
    alignas(2 * SHM_LINE) struct shm_turn turn[2];
    alignas(2 * SHM_LINE) struct shm_flag step;
    struct shm_flag bell; /* others ring it when a ring changes that this rank awaits */
    alignas(2 * SHM_LINE) _Atomic uint32_t state;
    int32_t pid;
    uint64_t pids; /* the namespace of its pid */
    cpu_set_t cpus;
};

struct shm_head {
    uint64_t magic, nonce[2];
    uint32_t size;
    struct abort_word aborted;
};

/* A ring: the sender counts cells up in `written`, the receiver in `taken`. */
struct shm_ring {
    alignas(SHM_LINE) struct shm_flag written;
    alignas(SHM_LINE) struct shm_flag taken;
};

/* Offsets and sizes of everything in the file. */
struct shm_layout {
    size_t seats, cores, small, slots, results, rings, cells, cell_bytes, bytes;
};

/* A range of the file that is mapped: memory of one crun_alloc, of all ranks. */
struct shm_area {
    struct shm_area *next;
    uint64_t offset;
    size_t stride; /* of one rank's part */
    char *address;
    bool freed; /* by this rank; others may still use their parts */
};

struct shm {
    struct backend backend;
    struct team team;
    struct shm_layout at;
    int fd;
    char *base;
    uint32_t round, step; /* meetings and steps so far */
    uint64_t end;         /* of the file */
    struct shm_area *areas;
    bool crowded;       /* more ranks than cores */
    unsigned no_yields; /* waits left without a yield, since yields had no effect */
};

/* -- layout ------------------------------------------------------------------------ */
struct shm_layout shm_layout_of(unsigned size);
struct shm_head *shm_head(const struct shm *s);
struct shm_seat *shm_seat(const struct shm *s, unsigned place);
char *shm_small(const struct shm *s, unsigned place, unsigned parity);
char *shm_slot(const struct shm *s, unsigned place, unsigned parity);
char *shm_result(const struct shm *s, unsigned parity);
struct shm_ring *shm_ring(const struct shm *s, unsigned from, unsigned to);
char *shm_cell(const struct shm *s, unsigned from, unsigned to, uint32_t cell);

/* -- region: all ranks get the file ------------------------------------------------ */
crun_status shm_region_open(struct shm *s, uint64_t deadline_ms, struct err *e);
void shm_region_close(struct shm *s);
/* Whether the process of that rank still runs. */
bool shm_is_alive(const struct shm *s, unsigned place);

/* -- cores: where the ranks run ---------------------------------------------------- */
/* All ranks have taken their seats: counts the cores that they may use, and moves to
 * one of them if there are fewer cores than ranks. */
void shm_cores_share(struct shm *s);
/* The number of that core: ranks are spread evenly. -1: none. */
int shm_cores_choose(const struct shm *s);
/* Publishes the core of this thread. */
void shm_core_say(const struct shm *s);
/* The first rank from that place on that was last seen on this thread's core. The
 * team's size: none. */
unsigned shm_core_sharer(const struct shm *s, unsigned from);

/* -- areas ------------------------------------------------------------------------- */
crun_status shm_area_add(struct shm *s, size_t bytes, uint64_t deadline_ms,
                         void **memory, struct err *e);
bool shm_area_remove(struct shm *s, void *memory);
void shm_area_close(struct shm *s);
/* The offset of this memory in the file; 0: it is not shared. */
uint64_t shm_area_find(const struct shm *s, const void *memory, size_t bytes);
/* The reverse. NULL: no area of this rank contains it. */
void *shm_area_at(const struct shm *s, uint64_t offset);

/* -- messages: all messages of an operation together ------------------------------- */
/* The messages of one direction to or from one rank: they use its ring in turn. */
struct shm_lane {
    const struct op *op, *end; /* the present message, and the end of all */
    struct shm_flag *awaited;  /* the other rank's, until it reaches `target` */
    struct shm_flag *own;
    uint32_t target;
    uint32_t cell;
    size_t at, bytes; /* of the present message's data */
};

struct shm_exchange {
    struct shm *s;
    const struct op *op;
    struct shm_lane *lane, only;
    unsigned lanes; /* that are not done */
};

/* CRUN_NO_MEMORY only. */
crun_status shm_exchange_begin(struct shm_exchange *x, struct shm *s,
                               const struct op *op, struct err *e);
void shm_exchange_end(struct shm_exchange *x);
/* Moves what can be moved without waiting. */
crun_status shm_exchange_step(struct shm_exchange *x, bool *moved, struct err *e);
/* Waits until something can be moved. */
crun_status shm_exchange_await(struct shm_exchange *x, struct err *e);
/* Whether it can still succeed: not after an abort, the deadline, or the end of a rank
 * that it waits for. */
crun_status shm_exchange_check(struct shm_exchange *x, struct err *e);
/* All of it. */
crun_status shm_exchange_run(struct shm *s, const struct op *op, struct err *e);

/* -- sync: waiting for others ------------------------------------------------------ */
enum shm_stage { SHM_COME, SHM_STEP, SHM_LANES };

void shm_raise(struct shm_flag *f, uint32_t value);
/* The same for a ring's flag, which the rank at this place may await. */
void shm_raise_ring(const struct shm *s, struct shm_flag *f, uint32_t value,
                    unsigned place);
bool shm_flag_reached(const struct shm_flag *f, uint32_t target);
/* Waits for the flag of that rank at this stage. */
crun_status shm_await(struct shm *s, enum shm_stage stage, unsigned place,
                      uint32_t target, const struct op *op, struct err *e);
/* Increments the step and waits until all others have done so. */
crun_status shm_step(struct shm *s, const struct op *op, struct err *e);
/* Wakes all sleepers to check again. */
void shm_wake_all(struct shm *s);
/* CRUN_OK, or the status with which this world, or another world of the team, has
 * ended. */
crun_status shm_check_abort(const struct shm *s, struct err *e);

/* -- meeting: arrive, then meet ---------------------------------------------------- */
/* All ranks that meet see everything written before this call. */
void shm_arrive(struct shm *s, const struct op *op, uint64_t in, uint64_t out);
/* Waits until all ranks have arrived with the same operation. */
crun_status shm_meet(struct shm *s, const struct op *op, struct err *e);
const struct shm_call *shm_call_of(const struct shm *s, unsigned place);

/* -- operations -------------------------------------------------------------------- */
crun_status shm_collective(struct shm *s, const struct op *op, struct err *e);
/* Operations of one meeting in two parts: see backend_calls. */
bool shm_post(struct shm *s, const struct op *op);
crun_status shm_complete(struct shm *s, const struct op *op, struct err *e);
