/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/id128.h"

/*
 * Where one of two nodes claims to go on without the other. For each pair there is one
 * claim, and the first one has it for ever. It is
 * - a directory that both share. No file is removed, because a node that lost the
 *   other one may ask years later.
 * - WITNESS_LAUNCHER: the crun -H that has started both, at the other end of
 *   server_config.witness_fd;
 * - HOST:PORT of a crund --witness. One that has begun anew without its journal is
 *   another one, by its id, as it may have forgotten a claim.
 */
struct server;
struct witness;

bool witness_is_crund(const char *where);

/* Leaves the job's mark in a directory; or (expected) it must be there, left by the
 * other node. Of a crund nothing is known yet. */
int witness_check(const struct server *s, const char *where, bool expected,
                  struct err *e) MUST_CHECK;

enum witness_answer { WITNESS_WAITS, WITNESS_YES, WITNESS_NO, WITNESS_FAILED };

/* `self` claims the pair; 0: only whether the crund is there. id: of the crund; zero:
 * any. */
struct witness *witness_ask(struct server *s, const char *where, const struct id128 *id,
                            uint64_t pair, uint64_t self);
/* why: of WITNESS_FAILED; id: of the crund, if it has answered. */
enum witness_answer witness_answer(struct witness *w, const char **why,
                                   struct id128 *id);
void witness_forget(struct witness *w); /* NULL is fine */
