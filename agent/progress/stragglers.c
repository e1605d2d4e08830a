/* SPDX-License-Identifier: MIT */
#include "agent/progress/stragglers.h"

#include <stdlib.h>
#include <string.h>

#include "agent/progress/limits.h"
#include "rendezvous/common/base/xalloc.h"

#define SPEED_MIN 0.7
#define SPEED_CLEAR 0.25

struct stragglers {
    uint32_t workers;
    struct phase_counts {
        bool trains; /* it has reported training, so it reports its phases */
        uint32_t samples, waiting, steps; /* steps: not in that of the one before */
        uint64_t step;
    } * counts;
    double *share; /* space to compute the median */
};

struct stragglers *stragglers_create(uint32_t workers)
{
    struct stragglers *s = xcalloc(1, sizeof(*s));

    s->workers = workers;
    s->counts = xcalloc(workers, sizeof(*s->counts));
    s->share = xcalloc(workers, sizeof(*s->share));
    return s;
}

void stragglers_destroy(struct stragglers *s)
{
    if (!s)
        return;
    free(s->counts);
    free(s->share);
    free(s);
}

void stragglers_begin(struct stragglers *s)
{
    memset(s->counts, 0, s->workers * sizeof(*s->counts));
}

void stragglers_sample(struct stragglers *s, uint32_t local_rank,
                       enum progress_phase phase, uint64_t step)
{
    struct phase_counts *t = &s->counts[local_rank];

    if (phase != PROGRESS_TRAINING && phase != PROGRESS_COMMUNICATING &&
        (phase != PROGRESS_LOADING || !t->trains))
        return;
    t->trains |= phase == PROGRESS_TRAINING;
    t->samples++;
    t->steps += step != t->step;
    t->step = step;
    t->waiting += phase == PROGRESS_COMMUNICATING;
    if (t->samples >= 2 * STRAGGLERS_SAMPLES_MIN) {
        t->samples /= 2;
        t->waiting /= 2;
        t->steps /= 2;
    }
}

static bool takes_part(const struct phase_counts *t, uint32_t samples)
{
    return t->trains && t->samples >= samples;
}

/* Whether it would be found now if its speed is below *limit. */
static bool may_be_found(const struct phase_counts *t, double *limit)
{
    bool is_sure = takes_part(t, STRAGGLERS_SAMPLES_MIN);

    *limit = is_sure ? SPEED_MIN : SPEED_CLEAR;
    return is_sure ||
           (takes_part(t, STRAGGLERS_SAMPLES_CLEAR) && 2 * t->steps >= t->samples);
}

/* The share of samples in its own work: at least one sample, which a rank that always
 * waits could just have missed. */
static double own_share(const struct phase_counts *t)
{
    uint32_t own = t->samples - t->waiting;

    return (double)(own ? own : 1) / t->samples;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of two in the middle the faster one's, so that one of two ranks can lag. -1: no rank
 * takes part. */
static double median_share(const struct stragglers *s, uint32_t samples)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->workers; i++)
        if (takes_part(&s->counts[i], samples))
            s->share[n++] = own_share(&s->counts[i]);
    if (n == 0)
        return -1;
    qsort(s->share, n, sizeof(*s->share), by_value);
    return s->share[(n - 1) / 2];
}

uint32_t stragglers_find(const struct stragglers *s, double *speed)
{
    double median = median_share(s, STRAGGLERS_SAMPLES_CLEAR), limit;
    uint32_t slowest = STRAGGLERS_NONE;

    *speed = 1;
    for (uint32_t i = 0; i < s->workers; i++) {
        double own = median / own_share(&s->counts[i]);

        if (!may_be_found(&s->counts[i], &limit) || own >= limit || own >= *speed)
            continue;
        *speed = own;
        slowest = i;
    }
    return slowest;
}

bool stragglers_own_shares(const struct stragglers *s, double *slowest, double *median)
{
    *median = *slowest = median_share(s, STRAGGLERS_SAMPLES_MIN);
    for (uint32_t i = 0; i < s->workers; i++)
        if (takes_part(&s->counts[i], STRAGGLERS_SAMPLES_MIN) &&
            own_share(&s->counts[i]) > *slowest)
            *slowest = own_share(&s->counts[i]);
    return *median >= 0;
}

double stragglers_waiting_share(const struct stragglers *s)
{
    double median = median_share(s, STRAGGLERS_SAMPLES_MIN);

    return median < 0 ? -1 : 1 - median;
}
