/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

/*
 * Allocation for programs: never returns NULL, but ends the process with one line.
 * Not for the worker library, which must not end its program.
 */
void *xmalloc(size_t size) __attribute__((malloc));
void *xcalloc(size_t count, size_t size) __attribute__((malloc));
void *xrealloc(void *old, size_t size);
char *xstrdup(const char *text) __attribute__((malloc));
void *xmemdup(const void *data, size_t size) __attribute__((malloc));
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2), malloc));
