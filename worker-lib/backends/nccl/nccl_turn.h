/* SPDX-License-Identifier: MIT */
#pragma once

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
 * still uses the event of its last launch, which must not be destroyed. */
bool nccl_line_leave(struct nccl_line *line, const void *world);

/* Call it before the event of a finished launch is destroyed. False: it must stay for
 * now, since another world's launch is about to wait for it. */
bool nccl_line_forget(struct nccl_line *line, const struct gpu_event *launched);

void nccl_turn_take(struct nccl_line *line, struct nccl_turn *t);
/* Also true if no turn was taken. */
bool nccl_turn_has_come(struct nccl_line *line, const struct nccl_turn *t);
/* The event of the last launch, if that was another world's, else NULL. The event stays
 * valid until the turn is given back. */
struct gpu_event *nccl_turn_previous(struct nccl_line *line, const struct nccl_turn *t,
                                     const void *world);
/* Ends the turn, and the next one begins. `launched` is the event of the launch; NULL:
 * there was none. No effect if no turn was taken or it has ended. */
void nccl_turn_give_back(struct nccl_line *line, struct nccl_turn *t, const void *world,
                         struct gpu_event *launched);
