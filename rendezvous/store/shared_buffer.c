/* SPDX-License-Identifier: MIT */
#include "rendezvous/store/shared_buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct blob *blob_create(size_t cap, uint64_t *account)
{
    struct blob *b = malloc(sizeof(*b) + cap);

    if (!b)
        return NULL;
    *b = (struct blob){ .account = account, .cap = cap, .refs = 1 };
    *account += blob_cost(cap);
    return b;
}

struct blob *blob_copy(struct span data, uint64_t *account)
{
    struct blob *b = blob_create(data.size, account);

    if (!b)
        return NULL;
    if (data.size > 0)
        memcpy(b->bytes, data.data, data.size);
    b->size = data.size;
    return b;
}

struct blob *blob_resize(struct blob *b, size_t cap)
{
    size_t old_cap = b->cap;
    struct blob *moved;

    assert(b->refs == 1 && b->at + b->size <= cap);
    moved = realloc(b, sizeof(*b) + cap);
    if (!moved)
        return NULL;
    *moved->account += cap;
    *moved->account -= old_cap;
    moved->cap = cap;
    return moved;
}

void blob_unref(struct blob *b)
{
    if (!b || --b->refs > 0)
        return;
    *b->account -= blob_cost(b->cap);
    free(b);
}
