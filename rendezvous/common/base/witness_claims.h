/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/id128.h"

/*
 * What a witness knows: of two nodes that have lost each other, which one was first to
 * claim that it goes on. It has the claim for ever, as the other one may ask late.
 * Between two processes a claim is these bytes, in the byte order of its sender.
 */
struct pair_claim {
    struct id128 job;
    uint64_t pair;   /* of nodes of that job */
    uint64_t self;   /* the one that claims */
    uint64_t holder; /* the one that was first */
};

struct claims {
    struct pair_claim *list;
    size_t count;
};

#define CLAIMS_MAX 65536

/* Fills in the holder; *is_new: the pair had no claim before. False: there is no room.
 */
bool witness_claims_take(struct claims *all, struct pair_claim *c, bool *is_new);
void witness_claims_free(struct claims *all);
