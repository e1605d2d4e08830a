/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/bytes.h"
#include "rendezvous/base/hash.h"
#include "worker-lib/training/ddp.h"
#include "worker-lib/core/status.h"

/* Where everything lies, in which buckets, and whether all ranks think so. */

static size_t place(struct ddp_parameter *list, unsigned count)
{
    size_t at = 0;

    for (unsigned i = 0; i < count; i++) {
        list[i].at = at;
        at += bytes_round_up(list[i].count, DDP_ALIGN);
    }
    return at;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names tell parameters and buffers apart in checkpoints. */
static crun_status check_names(const crun_ddp *ddp)
{
    unsigned n = 0;
    char **name = calloc((size_t)ddp->parameters + ddp->buffers, sizeof(*name));
    crun_status s = CRUN_OK;

    if (!name)
        return fail(CRUN_NO_MEMORY, "no memory for %u names", ddp->parameters);
    for (unsigned i = 0; i < ddp->parameters; i++)
        name[n++] = ddp->parameter[i].name;
    for (unsigned i = 0; i < ddp->buffers; i++)
        name[n++] = ddp->buffer[i].name;
    qsort(name, n, sizeof(*name), by_name);
    for (unsigned i = 1; i < n && s == CRUN_OK; i++)
        if (strcmp(name[i - 1], name[i]) == 0)
            s = fail(CRUN_BAD_ARGUMENT, "two parameters or buffers are called \"%s\"",
                     name[i]);
    free(name);
    return s;
}

/*
 * From the end of the arena to its begin: a bucket is closed by the parameter that
 * fills it. The cut is then moved up to the next multiple of what all slices need, so
 * the elements that change sides go to the bucket that is complete later anyway. Called
 * with bucket NULL it only counts.
 */
static unsigned cut(const crun_ddp *ddp, struct ddp_bucket *bucket)
{
    size_t unit = (size_t)DDP_ALIGN * ddp->size, end = ddp->length;
    size_t limit = ddp->options.first_bucket_bytes;
    unsigned n = 0;

    for (unsigned i = ddp->parameters; i-- > 0;) {
        size_t at = i ? bytes_round_up(ddp->parameter[i].at, unit) : 0;

        if (at >= end || (i && (end - at) * ddp->element < limit))
            continue;
        if (bucket) {
            bucket[n].at = at;
            bucket[n].count = end - at;
        }
        n++;
        end = at;
        limit = ddp->options.bucket_bytes;
    }
    return n;
}

static bool overlaps(const struct ddp_parameter *p, const struct ddp_bucket *b)
{
    return p->at < b->at + b->count && b->at < p->at + p->count;
}

/* Both lists are in the order of the arena, one from its end. */
static void assign(crun_ddp *ddp)
{
    unsigned first = 0;

    for (unsigned i = ddp->parameters; i-- > 0;) {
        struct ddp_parameter *p = &ddp->parameter[i];
        unsigned last;

        while (!overlaps(p, &ddp->bucket[first]))
            first++;
        for (last = first; last < ddp->buckets && overlaps(p, &ddp->bucket[last]);
             last++)
            ddp->bucket[last].parameters++;
        p->first_bucket = first;
        p->last_bucket = last - 1;
    }
}

crun_status ddp_lay_out(crun_ddp *ddp)
{
    crun_status s = check_names(ddp);
    size_t used = place(ddp->parameter, ddp->parameters);

    if (s != CRUN_OK)
        return s;
    ddp->length = bytes_round_up(used, (size_t)DDP_ALIGN * ddp->size);
    ddp->buffer_length = place(ddp->buffer, ddp->buffers);
    ddp->count = 0;
    for (unsigned i = 0; i < ddp->parameters; i++)
        ddp->count += ddp->parameter[i].count;
    ddp->buckets = cut(ddp, NULL);
    ddp->bucket = calloc(ddp->buckets, sizeof(*ddp->bucket));
    ddp->order = calloc(ddp->buckets, sizeof(*ddp->order));
    if (!ddp->bucket || !ddp->order) {
        ddp->buckets = 0;
        return fail(CRUN_NO_MEMORY, "no memory for a list of buckets");
    }
    cut(ddp, ddp->bucket);
    for (unsigned i = 0; i < ddp->buckets; i++)
        ddp->order[i] = i;
    assign(ddp);
    return CRUN_OK;
}

/* -- comparing ------------------------------------------------------------------- */

/* What is compared, in words that name it: the options, parameters, buffers. */
#define ENTRY_BYTES 224

static void entry(const crun_ddp *ddp, uint64_t i, char text[ENTRY_BYTES])
{
    const crun_ddp_options *o = &ddp->options;

    memset(text, 0, ENTRY_BYTES);
    if (i == 0)
        snprintf(text, ENTRY_BYTES,
                 "%s gradients, buckets of %zu and %zu bytes, %s, %s",
                 crun_dtype_name(o->grad_type), o->first_bucket_bytes, o->bucket_bytes,
                 o->shard        ? "sharded"
                 : o->share_step ? "sharing steps"
                                 : "not sharded",
                 o->find_unused ? "finding unused" : "all used");
    else if (--i < ddp->parameters)
        snprintf(text, ENTRY_BYTES, "parameter %" PRIu64 " \"%.120s\" of %zu elements",
                 i, ddp->parameter[i].name, ddp->parameter[i].count);
    else if ((i -= ddp->parameters) < ddp->buffers)
        snprintf(text, ENTRY_BYTES, "buffer %" PRIu64 " \"%.120s\" of %zu elements", i,
                 ddp->buffer[i].name, ddp->buffer[i].count);
    else
        snprintf(text, ENTRY_BYTES, "nothing more");
}

/* 62 bits, so that its negative is a number too. */
static int64_t shorten(uint64_t h)
{
    return (int64_t)(h >> 2);
}

/* Texts of all ranks for the first entry that differs: who stands out from rank 0? */
static crun_status tell(crun_ddp *ddp, uint64_t which)
{
    char *all = malloc((size_t)ENTRY_BYTES * ddp->size), own[ENTRY_BYTES];
    unsigned other = 0;
    crun_status s;

    if (!all)
        return fail(CRUN_NO_MEMORY, "no memory to compare the ranks' parameters");
    entry(ddp, which, own);
    s = crun_all_gather(ddp->world, own, all, ENTRY_BYTES, CRUN_U8, NULL);
    while (s == CRUN_OK && other + 1 < ddp->size &&
           memcmp(all, all + (size_t)ENTRY_BYTES * other, ENTRY_BYTES) == 0)
        other++;
    if (s == CRUN_OK)
        s = fail(CRUN_MISMATCH,
                 "the ranks' models differ: rank 0 has %s, rank %u has %s", all, other,
                 all + (size_t)ENTRY_BYTES * other);
    free(all);
    return s;
}

/* Minimum and, as the minimum of negatives, maximum of every entry's hash at once. */
static crun_status find_difference(crun_ddp *ddp, uint64_t entries)
{
    int64_t *h = malloc(2 * entries * sizeof(*h));
    char text[ENTRY_BYTES];
    uint64_t first = 0;
    crun_status s;

    if (!h)
        return fail(CRUN_NO_MEMORY, "no memory to compare the ranks' parameters");
    for (uint64_t i = 0; i < entries; i++) {
        entry(ddp, i, text);
        h[2 * i] = shorten(hash_fnv1a(0, text, strlen(text)));
        h[2 * i + 1] = -h[2 * i];
    }
    s = crun_all_reduce(ddp->world, h, h, 2 * entries, CRUN_I64, CRUN_MIN, NULL);
    while (s == CRUN_OK && first < entries - 1 && h[2 * first] == -h[2 * first + 1])
        first++;
    free(h);
    return s == CRUN_OK ? tell(ddp, first) : s;
}

crun_status ddp_compare(crun_ddp *ddp)
{
    uint64_t entries = 2 + (uint64_t)ddp->parameters + ddp->buffers;
    uint64_t h = HASH_FNV1A_BASIS;
    char text[ENTRY_BYTES];
    int64_t low[3];
    crun_status s;

    if (ddp->size == 1)
        return CRUN_OK;
    for (uint64_t i = 0; i < entries; i++) {
        entry(ddp, i, text);
        h = hash_fnv1a(h, text, strlen(text));
    }
    low[0] = shorten(h);
    low[1] = -low[0];
    low[2] = -(int64_t)entries;
    s = crun_all_reduce(ddp->world, low, low, 3, CRUN_I64, CRUN_MIN, NULL);
    if (s != CRUN_OK || low[0] == -low[1])
        return s;
    return find_difference(ddp, (uint64_t)-low[2]);
}

/* -- the order of launching ------------------------------------------------------ */

struct seen {
    unsigned bucket, place;
};

static int by_place(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;

    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->bucket < y->bucket ? -1 : x->bucket > y->bucket;
}

/* A bucket is complete with the last of its parameters; one that was not used comes
 * last of all. */
static void watch(crun_ddp *ddp, struct seen *seen)
{
    for (unsigned b = 0; b < ddp->buckets; b++)
        seen[b] = (struct seen){ b, 0 };
    for (unsigned i = 0; i < ddp->parameters; i++) {
        const struct ddp_parameter *p = &ddp->parameter[i];
        bool used = atomic_load(&p->ready) == atomic_load(&ddp->step);
        unsigned at = used ? atomic_load(&p->place) : UINT32_MAX;

        for (unsigned b = p->first_bucket; b <= p->last_bucket; b++)
            if (seen[b].place < at)
                seen[b].place = at;
    }
    qsort(seen, ddp->buckets, sizeof(*seen), by_place);
}

crun_status ddp_reorder(crun_ddp *ddp)
{
    struct seen *seen;
    crun_status s;

    if (ddp->size == 1 || ddp->buckets == 1)
        return CRUN_OK;
    seen = malloc(ddp->buckets * sizeof(*seen));
    if (!seen)
        return fail(CRUN_NO_MEMORY, "no memory for the order of %u buckets",
                    ddp->buckets);
    watch(ddp, seen);
    for (unsigned i = 0; i < ddp->buckets; i++)
        ddp->order[i] = seen[i].bucket;
    free(seen);
    s = crun_broadcast(ddp->world, ddp->order, ddp->buckets, CRUN_I32, 0, NULL);
    return s;
}
