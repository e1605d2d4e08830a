/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/id128.h"

/*
 * Where one of two nodes claims to go on without the other. For each pair there is one
 * claim, and the first one has it for ever. It is
 * - a directory that both share. No file is removed, because whoever lost the other one
 *   may ask years later.
 * - WITNESS_LAUNCHER: the crun -H that has started both, at the other end of `line`.
 */
struct witness;

/* Leaves the job's mark in a directory; or (expected) it must be there, left by the
 * other node. */
int witness_check(const char *where, int line, const struct id128 *job, bool expected,
                  struct err *e) MUST_CHECK;

enum witness_answer { WITNESS_WAITS, WITNESS_YES, WITNESS_NO, WITNESS_FAILED };

/* In a thread: a directory on a network may take long. `self` claims the pair. */
struct witness *witness_ask(const char *where, int line, const struct id128 *job,
                            uint64_t pair, uint64_t self);
/* why: of WITNESS_FAILED. */
enum witness_answer witness_answer(struct witness *w, const char **why);
void witness_forget(struct witness *w); /* NULL is fine */
