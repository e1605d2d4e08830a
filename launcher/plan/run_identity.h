/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"

/* Completes the run id of a job without --rdzv-id, and what its nodes say of
 * themselves, so that jobs which meet at one port are not merged: the user, and the
 * scheduler's batch job ("": none). */
void run_identity_fill(struct config *c, const char *batch_job);

/* Adds a word of the command line to a CRC of them. What a node has to itself is left
 * out: the value of a flag such as --node_rank, and its host name. `value`: the word
 * before it was such a flag; returns whether this one is. */
bool run_identity_hash_word(unsigned long *crc, const char *word, bool value,
                            const char *host);
