/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/witness_claims.h"
#include "rendezvous/server/witness.h"

struct server;
struct witness_crund;

/* A crund --witness is asked on a connection of its own; as in witness.h. */
struct witness_crund *witness_crund_ask(struct server *s, const char *at,
                                        const struct id128 *id,
                                        const struct pair_claim *claim);
enum witness_answer witness_crund_answer(const struct witness_crund *w,
                                         const char **why, struct id128 *id);
void witness_crund_forget(struct witness_crund *w); /* NULL is fine */
