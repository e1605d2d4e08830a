/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "rendezvous/wire/protocol/message.h"

/*
 * Whether a worker failed by itself or because another rank did, from its signal and
 * from what it wrote. A rank that ends closes its connections, so the other ranks often
 * end first. The texts are in one table, and no other code reads them.
 */

/* What a failed worker wrote, and when, by CLOCK_BOOTTIME; 0: not known. */
struct failure_output {
    const char *text;
    const char *summary;   /* says the same if `text` has no traceback; NULL: none */
    uint64_t written_ms;   /* the last of it */
    uint64_t traceback_ms; /* its last traceback */
};

/*
 * Sets f->origin, f->error and, if there is a traceback, the times of f to those of the
 * error. They must be those at which the worker ended.
 */
void failure_origin_read(struct failure *f, const struct failure_output *output);

/* The way in which the worker ended leaves open who failed, unlike most signals. */
bool failure_needs_text(const struct failure *f);
