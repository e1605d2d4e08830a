/* SPDX-License-Identifier: MIT */
#include "rendezvous/tcpstore/shared_buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct shared_buffer *shared_buffer_create(size_t cap, uint64_t *account)
{
    struct shared_buffer *b = malloc(sizeof(*b) + cap);

    if (!b)
        return NULL;
    *b = (struct shared_buffer){ .account = account, .cap = cap, .refs = 1 };
    *account += shared_buffer_cost(cap);
    return b;
}

struct shared_buffer *shared_buffer_copy(struct span data, uint64_t *account)
{
    struct shared_buffer *b = shared_buffer_create(data.size, account);

    if (!b)
        return NULL;
    if (data.size > 0)
        memcpy(b->bytes, data.data, data.size);
    b->size = data.size;
    return b;
}

struct shared_buffer *shared_buffer_resize(struct shared_buffer *b, size_t cap)
{
    size_t old_cap = b->cap;
    struct shared_buffer *moved;

    assert(b->refs == 1 && b->at + b->size <= cap);
    moved = realloc(b, sizeof(*b) + cap);
    if (!moved)
        return NULL;
    *moved->account += cap;
    *moved->account -= old_cap;
    moved->cap = cap;
    return moved;
}

void shared_buffer_unref(struct shared_buffer *b)
{
    if (!b || --b->refs > 0)
        return;
    *b->account -= shared_buffer_cost(b->cap);
    free(b);
}
