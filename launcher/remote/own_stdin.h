/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct loop;
struct own_stdin;

/* The launcher's standard input, for a worker on another host: read only as fast as
 * that reads it. */
struct own_stdin *
own_stdin_create(struct loop *loop,
                 /* size 0: it has ended */
                 void (*data)(void *arg, const void *data, size_t size), void *arg);
void own_stdin_destroy(struct own_stdin *s); /* NULL is fine */
void own_stdin_start(struct own_stdin *s);
/* The worker has read so many of the bytes. */
void own_stdin_taken(struct own_stdin *s, uint32_t bytes);
