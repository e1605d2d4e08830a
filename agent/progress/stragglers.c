/* SPDX-License-Identifier: MIT */
#include "agent/progress/stragglers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/progress/limits.h"
#include "rendezvous/base/xalloc.h"

#define SPEED_MIN 0.7

struct stragglers {
    uint32_t workers;
    struct phase_counts {
        bool trains; /* it has reported training, so it reports its phases */
        uint32_t samples, waiting;
    } * counts;
    double *share; /* space to compute the median */
};

struct stragglers *stragglers_create(uint32_t workers)
{
    struct stragglers *l = xcalloc(1, sizeof(*l));

    l->workers = workers;
    l->counts = xcalloc(workers, sizeof(*l->counts));
    l->share = xcalloc(workers, sizeof(*l->share));
    return l;
}

void stragglers_destroy(struct stragglers *l)
{
    if (!l)
        return;
    free(l->counts);
    free(l->share);
    free(l);
}

void stragglers_begin(struct stragglers *l)
{
    memset(l->counts, 0, l->workers * sizeof(*l->counts));
}

void stragglers_sample(struct stragglers *l, uint32_t local_rank,
                       enum progress_phase phase)
{
    struct phase_counts *t = &l->counts[local_rank];

    if (phase != PROGRESS_TRAINING && phase != PROGRESS_COMMUNICATING)
        return;
    t->trains |= phase == PROGRESS_TRAINING;
    t->samples++;
    t->waiting += phase == PROGRESS_COMMUNICATING;
    if (t->samples >= 2 * STRAGGLERS_SAMPLES_MIN) {
        t->samples /= 2;
        t->waiting /= 2;
    }
}

static bool takes_part(const struct phase_counts *t)
{
    return t->trains && t->samples >= STRAGGLERS_SAMPLES_MIN;
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
static double median_share(const struct stragglers *l)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < l->workers; i++)
        if (takes_part(&l->counts[i]))
            l->share[n++] = own_share(&l->counts[i]);
    if (n == 0)
        return -1;
    qsort(l->share, n, sizeof(*l->share), by_value);
    return l->share[(n - 1) / 2];
}

uint32_t stragglers_find(const struct stragglers *l, double *speed)
{
    double median = median_share(l);
    uint32_t slowest = STRAGGLERS_NONE;

    *speed = SPEED_MIN;
    for (uint32_t i = 0; i < l->workers; i++) {
        if (!takes_part(&l->counts[i]) || median / own_share(&l->counts[i]) >= *speed)
            continue;
        *speed = median / own_share(&l->counts[i]);
        slowest = i;
    }
    return slowest;
}

double stragglers_waiting_share(const struct stragglers *l)
{
    double median = median_share(l);

    return median < 0 ? -1 : 1 - median;
}
