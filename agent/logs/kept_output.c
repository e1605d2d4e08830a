/* SPDX-License-Identifier: MIT */
#include "agent/logs/kept_output.h"

#include <stdlib.h>
#include <string.h>

#include "agent/logs/limits.h"
#include "agent/logs/log_writer.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"

#define TRACEBACK "Traceback (most recent call last)"

static void clear_attempt(struct kept_attempt *a, uint32_t workers)
{
    size_t share = KEPT_OUTPUT_BYTES / (2 * (size_t)workers); /* of two attempts */
    size_t capacity[LOG_STREAMS] = {
        [LOG_OUT] = share < LOG_TAIL_BYTES ? share : LOG_TAIL_BYTES,
        [LOG_ERR] = LOG_TAIL_BYTES,
    };

    for (uint32_t i = 0; i < workers; i++)
        for (int k = 0; k < LOG_STREAMS; k++) {
            struct kept_stream *s = &a->worker[i][k];

            free(s->ring.bytes);
            outlet_release(s->file);
            free(s->path);
            *s = (struct kept_stream){ .ring.capacity = capacity[k] };
        }
    a->epoch = 0;
}

void kept_output_init(struct kept_output *k, uint32_t workers)
{
    *k = (struct kept_output){ .workers = workers };
    k->now.worker = xcalloc(workers, sizeof(*k->now.worker));
    k->previous.worker = xcalloc(workers, sizeof(*k->previous.worker));
    clear_attempt(&k->now, workers);
    clear_attempt(&k->previous, workers);
}

void kept_output_fini(struct kept_output *k)
{
    clear_attempt(&k->now, k->workers);
    clear_attempt(&k->previous, k->workers);
    free(k->now.worker);
    free(k->previous.worker);
}

void kept_output_begin(struct kept_output *k, uint64_t epoch, uint32_t first_rank)
{
    struct kept_attempt oldest = k->previous;

    for (uint32_t i = 0; i < k->workers; i++)
        kept_output_end(k, i);
    k->previous = k->now;
    k->now = oldest;
    clear_attempt(&k->now, k->workers);
    k->now.epoch = epoch;
    k->now.first_rank = first_rank;
}

void kept_output_set_file(struct kept_output *k, uint32_t local_rank, int which,
                          struct outlet *file, char *path)
{
    k->now.worker[local_rank][which].file = file;
    k->now.worker[local_rank][which].path = path;
}

void kept_output_merge(struct kept_output *k, uint32_t local_rank)
{
    struct kept_stream *s = k->now.worker[local_rank];

    s[LOG_ERR].kind = LOGS_MERGED;
    s[LOG_OUT].ring.capacity = LOG_TAIL_BYTES;
}

void kept_output_add(struct kept_output *k, uint32_t local_rank, int which,
                     const char *data, size_t size)
{
    struct kept_stream *s = &k->now.worker[local_rank][which];

    if (s->kind == LOGS_MERGED)
        s = &k->now.worker[local_rank][LOG_OUT];
    else if (which == LOG_OUT && s->file)
        return;
    log_ring_add(&s->ring, data, size);
    s->written_ms = clock_ms();
    if (memmem(data, size, TRACEBACK, strlen(TRACEBACK)))
        s->traceback_ms = s->written_ms;
}

void kept_output_end(struct kept_output *k, uint32_t local_rank)
{
    for (int i = 0; i < LOG_STREAMS; i++)
        k->now.worker[local_rank][i].ended = true;
}

const struct kept_stream *kept_output_stderr(const struct kept_output *k,
                                             uint32_t local_rank)
{
    const struct kept_stream *s = k->now.worker[local_rank];

    return &s[s[LOG_ERR].kind == LOGS_MERGED ? LOG_OUT : LOG_ERR];
}

const struct kept_attempt *kept_output_find(const struct kept_output *k, uint64_t epoch)
{
    if (epoch == 0)
        return NULL;
    return epoch == k->now.epoch        ? &k->now
           : epoch == k->previous.epoch ? &k->previous
                                        : NULL;
}

struct kept_view kept_stream_view(const struct kept_stream *s)
{
    struct kept_view v = { .size = s->ring.total, .ended = s->ended };

    if (s->file) {
        v.pending = !outlet_find_parts(s->file, &v.parts);
        v.size = v.parts.written;
        v.ended = s->ended && !v.pending;
    }
    return v;
}
