/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/bytes.h"
#include "rendezvous/common/base/hash.h"
#include "rendezvous/common/base/text.h"
#include "worker-lib/core/status.h"
#include "worker-lib/training/ddp.h"

#define FIRST_BUCKET_BYTES ((size_t)1 << 20)
#define BUCKET_BYTES ((size_t)25 << 20)

void ddp_default_buckets(crun_ddp_options *o)
{
    if (o->first_bucket_bytes == 0)
        o->first_bucket_bytes = FIRST_BUCKET_BYTES;
    if (o->bucket_bytes == 0)
        o->bucket_bytes = BUCKET_BYTES;
}

/* The layout of the arena and its buckets, and its comparison between the ranks. */

static size_t place_in_arena(struct ddp_parameter *list, unsigned count)
{
    size_t at = 0;

    for (unsigned i = 0; i < count; i++) {
        list[i].at = at;
        at += bytes_round_up(list[i].count, DDP_ALIGN);
    }
    return at;
}

/* With windows a parameter lies in one bucket, so each bucket begins with one. */
static size_t place_for_windows(crun_ddp *ddp)
{
    size_t unit = (size_t)DDP_ALIGN * ddp->size, at = 0, bytes = 0;
    size_t limit = ddp->options.first_bucket_bytes;

    for (unsigned i = ddp->parameters; i-- > 0;) {
        struct ddp_parameter *p = &ddp->parameter[i];

        bytes += bytes_round_up(p->count, DDP_ALIGN) * ddp->element;
        p->opens_bucket = i == 0 || bytes >= limit;
        if (!p->opens_bucket)
            continue;
        bytes = 0;
        limit = ddp->options.bucket_bytes;
    }
    for (unsigned i = 0; i < ddp->parameters; i++) {
        struct ddp_parameter *p = &ddp->parameter[i];

        p->at = p->opens_bucket ? bytes_round_up(at, unit) : at;
        at = p->at + bytes_round_up(p->count, DDP_ALIGN);
    }
    return at;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In a file of a checkpoint "NAME@7" is the range of an array from number 7 on. */
static crun_status check_name(const char *name)
{
    static const char *const reserved[] = { "__metadata__", "optimizer.m",
                                            "optimizer.v" };
    const char *at = strrchr(name, '@');

    if (strlen(name) > STATE_NAME_MAX)
        return status_fail(CRUN_BAD_ARGUMENT,
                           "the name of a parameter or buffer is longer than %d bytes: "
                           "\"%.120s...\"",
                           STATE_NAME_MAX, name);
    if (!text_is_utf8(name, strlen(name)))
        return status_fail(CRUN_BAD_ARGUMENT,
                           "the name of a parameter or buffer is not text in UTF-8: "
                           "\"%s\"",
                           name);
    for (unsigned i = 0; i < sizeof(reserved) / sizeof(*reserved); i++)
        if (strcmp(name, reserved[i]) == 0)
            return status_fail(CRUN_BAD_ARGUMENT,
                               "a parameter or buffer is called \"%s\", which files of "
                               "checkpoints use for something else",
                               name);
    if (at && at[1] && at[1 + strspn(at + 1, "0123456789")] == '\0')
        return status_fail(CRUN_BAD_ARGUMENT,
                           "a parameter or buffer is called \"%s\": @ and a number at "
                           "the end mean a range in files of checkpoints",
                           name);
    return CRUN_OK;
}

/* Checkpoints identify parameters and buffers by their names. */
static crun_status check_names(const crun_ddp *ddp)
{
    unsigned n = 0;
    char **name = calloc((size_t)ddp->parameters + ddp->buffers, sizeof(*name));
    crun_status s = CRUN_OK;

    if (!name)
        return status_fail(CRUN_NO_MEMORY, "no memory for %u names", ddp->parameters);
    for (unsigned i = 0; i < ddp->parameters; i++)
        name[n++] = ddp->parameter[i].name;
    for (unsigned i = 0; i < ddp->buffers; i++)
        name[n++] = ddp->buffer[i].name;
    qsort(name, n, sizeof(*name), compare_names);
    for (unsigned i = 0; i < n && s == CRUN_OK; i++)
        s = check_name(name[i]);
    for (unsigned i = 1; i < n && s == CRUN_OK; i++)
        if (strcmp(name[i - 1], name[i]) == 0)
            s = status_fail(CRUN_BAD_ARGUMENT,
                            "two parameters or buffers are called \"%s\"", name[i]);
    free(name);
    return s;
}

/*
 * From the end of the arena to its beginning: a parameter that fills a bucket closes
 * it. The cut is then rounded up to a multiple of the slices' alignment, so that the
 * elements in between go to the next bucket, which completes later. With bucket NULL
 * the buckets are only counted.
 */
static unsigned cut_buckets(const crun_ddp *ddp, struct ddp_bucket *bucket)
{
    size_t unit = (size_t)DDP_ALIGN * ddp->size, end = ddp->arena.length;
    size_t limit = ddp->options.first_bucket_bytes;
    unsigned n = 0;

    for (unsigned i = ddp->parameters; i-- > 0;) {
        size_t at = i ? bytes_round_up(ddp->parameter[i].at, unit) : 0;

        if (ddp->windowed ? !ddp->parameter[i].opens_bucket
                          : at >= end || (i && (end - at) * ddp->element < limit))
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

static bool parameter_is_in_bucket(const struct ddp_parameter *p,
                                   const struct ddp_bucket *b)
{
    return p->at < b->at + b->count && b->at < p->at + p->count;
}

/* Parameters are in the order of the arena, buckets from its end. */
static void assign_to_buckets(crun_ddp *ddp)
{
    unsigned first = 0;

    for (unsigned i = ddp->parameters; i-- > 0;) {
        struct ddp_parameter *p = &ddp->parameter[i];
        unsigned last;

        while (!parameter_is_in_bucket(p, &ddp->bucket[first]))
            first++;
        for (last = first;
             last < ddp->buckets && parameter_is_in_bucket(p, &ddp->bucket[last]);
             last++)
            ddp->bucket[last].parameters++;
        p->first_bucket = first;
        p->last_bucket = last - 1;
    }
}

crun_status ddp_lay_out(crun_ddp *ddp)
{
    crun_status s = check_names(ddp);
    size_t used = ddp->windowed ? place_for_windows(ddp)
                                : place_in_arena(ddp->parameter, ddp->parameters);

    if (s != CRUN_OK)
        return s;
    ddp->arena.length = bytes_round_up(used, (size_t)DDP_ALIGN * ddp->size);
    ddp->arena.buffer_length = place_in_arena(ddp->buffer, ddp->buffers);
    ddp->count = 0;
    for (unsigned i = 0; i < ddp->parameters; i++)
        ddp->count += ddp->parameter[i].count;
    ddp->buckets = cut_buckets(ddp, NULL);
    ddp->bucket = calloc(ddp->buckets, sizeof(*ddp->bucket));
    ddp->launch_order = calloc(ddp->buckets, sizeof(*ddp->launch_order));
    if (!ddp->bucket || !ddp->launch_order) {
        ddp->buckets = 0;
        return status_fail(CRUN_NO_MEMORY, "no memory for a list of buckets");
    }
    cut_buckets(ddp, ddp->bucket);
    for (unsigned i = 0; i < ddp->buckets; i++)
        ddp->launch_order[i] = (struct ddp_launch){ i, i };
    assign_to_buckets(ddp);
    return CRUN_OK;
}

/* -- comparing --------------------------------------------------------------------- */

/* The ranks compare texts: of the options, of each parameter, of each buffer. */
#define ENTRY_BYTES (STATE_NAME_MAX + 97)

static void describe_entry(const crun_ddp *ddp, uint64_t i, char text[ENTRY_BYTES])
{
    const crun_ddp_options *o = &ddp->options;

    memset(text, 0, ENTRY_BYTES);
    if (i == 0)
        snprintf(text, ENTRY_BYTES,
                 "%s gradients, buckets of %zu and %zu bytes, %s, %s%s",
                 crun_dtype_name(o->grad_type), o->first_bucket_bytes, o->bucket_bytes,
                 o->shard == 2   ? "sharded with gradients"
                 : o->shard      ? "sharded"
                 : o->share_step ? "sharing steps"
                                 : "not sharded",
                 o->gather_half ? "gathering half values, " : "",
                 o->find_unused ? "finding unused" : "all used");
    else if (--i < ddp->parameters)
        snprintf(text, ENTRY_BYTES, "parameter %" PRIu64 " \"%s\" of %zu elements", i,
                 ddp->parameter[i].name, ddp->parameter[i].count);
    else if ((i -= ddp->parameters) < ddp->buffers)
        snprintf(text, ENTRY_BYTES, "buffer %" PRIu64 " \"%s\" of %zu elements", i,
                 ddp->buffer[i].name, ddp->buffer[i].count);
    else
        snprintf(text, ENTRY_BYTES, "nothing more");
}

/* 62 bits, so that its negative can be represented. */
static int64_t hash_to_int64(uint64_t h)
{
    return (int64_t)(h >> 2);
}

/* Compares all ranks' texts of this entry with rank 0's. */
static crun_status report_difference(crun_ddp *ddp, uint64_t which)
{
    char *all = malloc((size_t)ENTRY_BYTES * ddp->size), own[ENTRY_BYTES];
    unsigned other = 0;
    crun_status s;

    if (!all)
        return status_fail(CRUN_NO_MEMORY,
                           "no memory to compare the ranks' parameters");
    describe_entry(ddp, which, own);
    s = crun_all_gather(ddp->world, own, all, ENTRY_BYTES, CRUN_U8, NULL);
    while (s == CRUN_OK && other + 1 < ddp->size &&
           memcmp(all, all + (size_t)ENTRY_BYTES * other, ENTRY_BYTES) == 0)
        other++;
    if (s == CRUN_OK)
        s = status_fail(CRUN_MISMATCH,
                        "the ranks' models differ: rank 0 has %s, rank %u has %s", all,
                        other, all + (size_t)ENTRY_BYTES * other);
    free(all);
    return s;
}

/* One all-reduce gets the minimum and the maximum (as the minimum of the negatives) of
 * each entry's hash. */
static crun_status find_difference(crun_ddp *ddp, uint64_t entries)
{
    int64_t *h = malloc(2 * entries * sizeof(*h));
    char text[ENTRY_BYTES];
    uint64_t first = 0;
    crun_status s;

    if (!h)
        return status_fail(CRUN_NO_MEMORY,
                           "no memory to compare the ranks' parameters");
    for (uint64_t i = 0; i < entries; i++) {
        describe_entry(ddp, i, text);
        h[2 * i] = hash_to_int64(hash_fnv1a(0, text, strlen(text)));
        h[2 * i + 1] = -h[2 * i];
    }
    s = crun_all_reduce(ddp->world, h, h, 2 * entries, CRUN_I64, CRUN_MIN, NULL);
    while (s == CRUN_OK && first < entries - 1 && h[2 * first] == -h[2 * first + 1])
        first++;
    free(h);
    return s == CRUN_OK ? report_difference(ddp, first) : s;
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
        describe_entry(ddp, i, text);
        h = hash_fnv1a(h, text, strlen(text));
    }
    low[0] = hash_to_int64(h);
    low[1] = -low[0];
    low[2] = -(int64_t)entries;
    s = crun_all_reduce(ddp->world, low, low, 3, CRUN_I64, CRUN_MIN, NULL);
    if (s != CRUN_OK || low[0] == -low[1])
        return s;
    return find_difference(ddp, (uint64_t)-low[2]);
}
