/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* How many living processes were executed with this text in their environment. */
unsigned procs_with(const char *cookie);

/* Wait until there are none. How long it took, or UINT64_MAX after limit_ms. */
uint64_t procs_wait_none(const char *cookie, uint64_t limit_ms);

/* "<build tree>/bin/<name>" of the build tree that this test is in. */
const char *procs_program(const char *name);

/* Deadlines are for a machine that is not slowed down by a sanitizer. */
uint64_t procs_patience(uint64_t ms);

/* How many runnable threads share a core: 1 on a machine with cores to spare. */
unsigned procs_crowd(void);
