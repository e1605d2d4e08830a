/* SPDX-License-Identifier: MIT */
#include "agent/logs/kept_output.h"

#include <stdlib.h>

#include "agent/logs/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"

/* Rings of two streams and of two attempts. */
static size_t ring_capacity(uint32_t workers)
{
    size_t each = KEPT_OUTPUT_BYTES / (4 * (size_t)workers);

    return each < KEPT_RING_BYTES_MAX ? each : KEPT_RING_BYTES_MAX;
}

static void init_attempt(struct kept_attempt *a, uint32_t workers)
{
    a->worker = xcalloc(workers, sizeof(*a->worker));
    for (uint32_t i = 0; i < workers; i++)
        for (int k = 0; k < LOG_STREAMS; k++)
            a->worker[i][k].ring.capacity = ring_capacity(workers);
}

static void clear_attempt(struct kept_attempt *a, uint32_t workers)
{
    for (uint32_t i = 0; i < workers; i++)
        for (int k = 0; k < LOG_STREAMS; k++) {
            struct kept_stream *s = &a->worker[i][k];

            log_ring_fini(&s->ring);
            free(s->file);
            *s = (struct kept_stream){ .ring.capacity = s->ring.capacity };
        }
    a->epoch = 0;
}

void kept_output_init(struct kept_output *k, uint32_t workers)
{
    *k = (struct kept_output){ .workers = workers };
    init_attempt(&k->now, workers);
    init_attempt(&k->before, workers);
}

void kept_output_fini(struct kept_output *k)
{
    clear_attempt(&k->now, k->workers);
    clear_attempt(&k->before, k->workers);
    free(k->now.worker);
    free(k->before.worker);
}

void kept_output_begin(struct kept_output *k, uint64_t epoch, uint32_t first_rank)
{
    struct kept_attempt oldest = k->before;

    for (uint32_t i = 0; i < k->workers; i++)
        kept_output_end(k, i);
    k->before = k->now;
    k->now = oldest;
    clear_attempt(&k->now, k->workers);
    k->now.epoch = epoch;
    k->now.first_rank = first_rank;
}

void kept_output_set(struct kept_output *k, uint32_t local_rank, int which,
                     enum logs_kind kind, const char *file)
{
    struct kept_stream *s = &k->now.worker[local_rank][which];

    free(s->file);
    s->kind = kind;
    s->file = file ? xstrdup(file) : NULL;
}

void kept_output_move(struct kept_output *k, uint32_t local_rank)
{
    struct kept_stream *s = k->now.worker[local_rank];

    kept_output_set(k, local_rank, LOG_OUT, s[LOG_ERR].kind, s[LOG_ERR].file);
    kept_output_set(k, local_rank, LOG_ERR, LOGS_MERGED, NULL);
}

void kept_output_add(struct kept_output *k, uint32_t local_rank, int which,
                     const char *data, size_t size)
{
    log_ring_add(&k->now.worker[local_rank][which].ring, data, size);
}

void kept_output_end(struct kept_output *k, uint32_t local_rank)
{
    for (int i = 0; i < LOG_STREAMS; i++)
        if (!k->now.worker[local_rank][i].ended_ms)
            k->now.worker[local_rank][i].ended_ms = clock_ms();
}

const struct kept_attempt *kept_output_find(const struct kept_output *k, uint64_t epoch)
{
    if (epoch == 0)
        return NULL;
    return epoch == k->now.epoch      ? &k->now
           : epoch == k->before.epoch ? &k->before
                                      : NULL;
}
