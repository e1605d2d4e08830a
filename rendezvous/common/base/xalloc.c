/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/xalloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* abort, not exit: no exit handler may run, because it could allocate memory */
static void *checked_alloc(void *memory, size_t size)
{
    if (!memory && size > 0) {
        fprintf(stderr, "crun: out of memory (wanted %zu bytes)\n", size);
        abort();
    }
    return memory;
}

void *xmalloc(size_t size)
{
    return checked_alloc(malloc(size), size);
}

void *xcalloc(size_t count, size_t size)
{
    return checked_alloc(calloc(count, size), count ? size : 0);
}

void *xrealloc(void *old, size_t size)
{
    return checked_alloc(realloc(old, size), size);
}

char *xstrdup(const char *text)
{
    return xmemdup(text, strlen(text) + 1);
}

void *xmemdup(const void *data, size_t size)
{
    void *copy = xmalloc(size);

    return size ? memcpy(copy, data, size) : copy;
}

char *xasprintf(const char *fmt, ...)
{
    char *text;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return checked_alloc(n < 0 ? NULL : text, 1);
}
