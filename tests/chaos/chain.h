/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * A training that shows what went wrong: the value of every step is a hash of the value
 * before, the step and the epoch it was made in, so two that went different ways can
 * never look alike. What is kept of it is in a folder that all nodes share:
 *
 *   generation-E       claimed by epoch E's rank 0, once
 *   disk/checkpoint-E-S  step S as epoch E made it, with how it came there
 *   steps, commits     a line each, in the order they were made
 *   hangs              who has been told to hang and does: NODE PID
 *   violations         what must not be and was seen by a worker
 *   alive/NODE.E       locked as long as anything of epoch E lives on the node
 *   order/NODE.L       what local rank L is to do wrong next
 */
#define CHAIN_LINEAGE_MAX 4096

struct chain {
    uint64_t value, step, epoch;
    struct chain_part { /* epoch `epoch` went on from `step` */
        uint64_t epoch, step;
    } lineage[CHAIN_LINEAGE_MAX];
    unsigned parts;
};

uint64_t chain_next(uint64_t value, uint64_t step, uint64_t epoch);

/* A line to a file of the folder. */
void chain_note(const char *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void chain_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Rank 0's claim of its epoch's generation. False: a newer world has begun. */
bool chain_claim(uint64_t epoch);
bool chain_superseded(uint64_t epoch);
/* The newest checkpoint, or the beginning; this epoch goes on from there. */
void chain_load(struct chain *c, uint64_t epoch);
/* False: refused, a newer world has begun. A disk that cannot take it is no reason. */
bool chain_commit(const struct chain *c);

/* chain-order.c: what this worker was told to do wrong, if anything; may not return. */
void chain_obey(const char *node, unsigned local_rank);
