/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/err.h"
#include "worker-lib/engine/op.h"

/* Functions of a world for the rest of the library, in addition to crun/worker.h. */
struct device_ops;

/* A collective as crun_all_reduce and the others describe it; op.start is as given. Or
 * an OP_GROUP of such calls: op.group is the callee's from here on, also on failure. */
crun_status world_call(crun_world *w, struct op op, crun_work **work);

/* For calls that cannot be in a group: fails between crun_group_begin and
 * crun_group_end. */
crun_status world_refuse_in_group(const crun_world *w, const char *call);

/* This rank's number in the world of crun_init. */
unsigned world_own_number(const crun_world *w);

/* Whether all ranks share memory, so that data in it needs no copy. */
bool world_is_one_memory(const crun_world *w);

/* CRUN_OK: no rank has ended the world so far, so what a GPU has computed by now is
 * right: failure_notice_check. */
crun_status world_is_whole(crun_world *w, struct err *e);
/* For the agent: a checkpoint of this rank is being written, or is no more. */
void world_set_saves(crun_world *w, bool saves);

/* Microseconds that collectives have run while the program computed, so far. */
uint64_t world_overlap_us(crun_world *w);

/* The device of crun_alloc's memory (NULL: a GPU for which this build has no kernels),
 * and the stream of crun_set_stream. */
const struct device_ops *world_device(const crun_world *w);
void *world_queue(const crun_world *w);
