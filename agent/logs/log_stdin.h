/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/config.h"
#include "rendezvous/common/base/err.h"

/* The standard input of crun as the workers of each attempt read it. Zero-initialise.
 */
struct log_stdin {
    bool begun, is_over; /* is_over: there was nothing to read from the start */
    off_t start;         /* of a file: where the first attempt began; -1: no file */
};

/* Before the workers of an attempt are started: a file is read again from where the
 * first attempt began. Of a pipe that cannot be read again a line says so. */
void log_stdin_begin(struct log_stdin *s, const struct config *c);

/* What a worker reads: STDIN_FILENO, or /dev/null, which the caller closes. */
int log_stdin_open(const struct config *c, uint32_t local_rank,
                   struct err *e) MUST_CHECK;
