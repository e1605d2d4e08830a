/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/crun/worker.h"

/*
 * Collectives against a plain reference. All ranks call these with the same seed: it
 * decides what is called, with which lengths, types, operations and roots, in place or
 * not, in memory of crun_alloc or other, waited for at once or later.
 */
void random_calls(crun_world *world, unsigned seed, unsigned calls, size_t count_max);

/* Messages of all sizes around the ring of ranks, and back. */
void random_messages(crun_world *world, unsigned seed, unsigned calls,
                     size_t count_max);
