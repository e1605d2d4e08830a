/* SPDX-License-Identifier: MIT */
#include "agent/progress/stragglers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/progress/limits.h"
#include "rendezvous/base/xalloc.h"

#define LAG_SPEED_MIN 0.7

struct stragglers {
    uint32_t workers;
    struct tally {
        bool trains; /* it has said so: it does say what it does */
        uint32_t samples, waiting;
    } * tally;
    double *share; /* scratch, for the median */
};

struct stragglers *stragglers_create(uint32_t workers)
{
    struct stragglers *l = xcalloc(1, sizeof(*l));

    l->workers = workers;
    l->tally = xcalloc(workers, sizeof(*l->tally));
    l->share = xcalloc(workers, sizeof(*l->share));
    return l;
}

void stragglers_destroy(struct stragglers *l)
{
    if (!l)
        return;
    free(l->tally);
    free(l->share);
    free(l);
}

void stragglers_begin(struct stragglers *l)
{
    memset(l->tally, 0, l->workers * sizeof(*l->tally));
}

void stragglers_sample(struct stragglers *l, uint32_t local_rank,
                       enum progress_phase phase)
{
    struct tally *t = &l->tally[local_rank];

    if (phase != PROGRESS_TRAINING && phase != PROGRESS_COMMUNICATING)
        return;
    t->trains |= phase == PROGRESS_TRAINING;
    t->samples++;
    t->waiting += phase == PROGRESS_COMMUNICATING;
    if (t->samples >= 2 * LAG_SAMPLES_MIN) {
        t->samples /= 2;
        t->waiting /= 2;
    }
}

static bool counts(const struct tally *t)
{
    return t->trains && t->samples >= LAG_SAMPLES_MIN;
}

/* The share of its own work. One that always waits has some, too: no more than one
 * sample could have missed. */
static double own_share(const struct tally *t)
{
    uint32_t own = t->samples - t->waiting;

    return (double)(own ? own : 1) / t->samples;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of two in the middle the faster one's: of two ranks, one may lag. -1: of nobody. */
static double median_share(const struct stragglers *l)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < l->workers; i++)
        if (counts(&l->tally[i]))
            l->share[n++] = own_share(&l->tally[i]);
    if (n == 0)
        return -1;
    qsort(l->share, n, sizeof(*l->share), by_value);
    return l->share[(n - 1) / 2];
}

uint32_t stragglers_find(const struct stragglers *l, double *speed)
{
    double median = median_share(l);
    uint32_t slowest = STRAGGLERS_NONE;

    *speed = LAG_SPEED_MIN;
    for (uint32_t i = 0; i < l->workers; i++) {
        if (!counts(&l->tally[i]) || median / own_share(&l->tally[i]) >= *speed)
            continue;
        *speed = median / own_share(&l->tally[i]);
        slowest = i;
    }
    return slowest;
}

double stragglers_waiting(const struct stragglers *l)
{
    double median = median_share(l);

    return median < 0 ? -1 : 1 - median;
}
