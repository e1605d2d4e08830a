/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/crun/worker.h"

/*
 * The ranks' inputs: small integers, so that each type can represent the result
 * exactly, in any order of additions.
 */
unsigned rank_value(int rank, size_t element, crun_op op);
/* The result over all ranks' values of this element. */
unsigned reduced_value(int ranks, size_t element, crun_op op);

void store_value(void *to, size_t index, crun_dtype type, unsigned value);
bool stored_value_is(const void *in, size_t index, crun_dtype type, unsigned value);
