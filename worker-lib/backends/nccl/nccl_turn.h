/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_BACKENDS_NCCL_NCCL_TURN_H
#define WORKER_LIB_BACKENDS_NCCL_NCCL_TURN_H

#include <stdbool.h>

/*
 * The order in which the worlds of this process launch operations on a GPU. Each world
 * has a communication thread of its own, but NCCL's operations of several communicators
 * must start in the same order on all ranks, on the host and on the GPU: a kernel that
 * waits for other ranks may leave no room for the kernel that these wait for. So each
 * call takes a turn when it is queued, operations are launched in the order of their
 * turns, and one waits on the GPU for the one before it if that is another world's.
 */
struct gpu_event;
struct nccl_line; /* of a GPU */

struct nccl_turn {
    struct nccl_turn *next;
    bool taken;
};

/* A world begins to use the GPU. NULL: no memory. */
struct nccl_line *nccl_line_join(int device);
/* `world` is the address of anything that belongs to the world. False: another world
 * still uses its event, which must not be destroyed. */
bool nccl_line_leave(struct nccl_line *line, const void *world);

/* This event of a launch that is over will be destroyed. False: not yet, a launch of
 * another world is about to wait for it. */
bool nccl_line_forget(struct nccl_line *line, const struct gpu_event *launched);

void nccl_turn_take(struct nccl_line *line, struct nccl_turn *t);
/* True of a turn that is not taken. */
bool nccl_turn_has_come(struct nccl_line *line, const struct nccl_turn *t);
/* Of the last launch, if that was another world's; NULL: none. The event stays valid
 * until the turn is given back. */
struct gpu_event *nccl_turn_previous(struct nccl_line *line, const struct nccl_turn *t,
                                     const void *world);
/* The next turn comes. With the event of the launch, or NULL: there was none. A turn
 * that was not taken, or was given back, stays so. */
void nccl_turn_give_back(struct nccl_line *line, struct nccl_turn *t, const void *world,
                         struct gpu_event *launched);

#endif
