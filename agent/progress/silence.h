/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/workers/group.h"

struct loop;
struct silence;

/*
 * For how long nothing has moved on this node: no output, no step, no worker and no
 * process that it started uses a CPU, no GPU is in use. Looks at /proc a few times
 * within after_ms; 0: never.
 */
struct silence *silence_create(struct loop *loop, uint32_t workers, uint32_t after_ms);
void silence_destroy(struct silence *s); /* NULL is fine */

void silence_begin(struct silence *s, const struct group *group);
void silence_end(struct silence *s);

/* Something moves. */
void silence_break(struct silence *s);

/* 0 before after_ms. The time in which this process was suspended does not count. */
uint32_t silence_lasts_ms(const struct silence *s);
