/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct msg;
struct sim_world;

/*
 * What has happened, for people. Silent by default: a seed that fails is run again to
 * be told, since it always takes the same course.
 */
struct trace {
    const struct sim_world *world;
    FILE *out; /* NULL: silent */
    bool violated;
    char invariant[512]; /* the first that was violated */
};

void trace_line(struct trace *t, const char *who, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* "who -> whom START epoch 3 ..." */
void trace_message(struct trace *t, const char *from, const char *to,
                   const struct msg *m);

/* An invariant does not hold. The first one counts; the simulation ends soon. */
void trace_violation(struct trace *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
