/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

/*
 * The small list syntaxes of torchrun's flags. A local rank that this node does not
 * have is accepted, because nodes with the same command line may have different numbers
 * of workers.
 */

/* "3", or "0:1,12:3" for each local rank (others: 0), into streams[workers]. */
int rank_lists_streams(const char *text, uint8_t *streams, uint32_t workers,
                       struct err *e) MUST_CHECK;

/* "0,1,12" into shown[workers]; "" shows all. */
int rank_lists_shown(const char *text, bool *shown, uint32_t workers,
                     struct err *e) MUST_CHECK;

/* "a,b,,c" is "a" and "b,c". NULL-ended, in one allocation;
 * empty items are left out. */
const char **rank_lists_words(const char *text);
