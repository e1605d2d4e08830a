/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/history/curve.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"

void curve_fini(struct curve *c)
{
    free(c->point);
    *c = (struct curve){ .count = 0 };
}

static double mean_of_known(double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : (a + b) / 2;
}

/* The first and the last point stay, as a reader looks at these. */
static void curve_thin(struct curve *c)
{
    unsigned to = 1, last = c->count - 1;

    for (unsigned from = 1; from < last; from += 2, to++) {
        const struct curve_point *a = &c->point[from];
        const struct curve_point *b = from + 1 < last ? a + 1 : a;

        struct curve_point mean = { .wall_ms = b->wall_ms, .step = b->step };

        for (unsigned i = 0; i < CURVE_VALUES; i++)
            mean.value[i] = mean_of_known(a->value[i], b->value[i]);
        c->point[to] = mean;
    }
    c->point[to++] = c->point[last];
    c->count = to;
    c->every_ms *= 2;
}

/* The wall clock was set back: times stay in order, as nothing after now has been. */
static void curve_clamp(struct curve *c, uint64_t wall_ms)
{
    for (unsigned i = c->count; i-- > 0 && c->point[i].wall_ms > wall_ms;)
        c->point[i].wall_ms = wall_ms;
}

static void curve_allocate(struct curve *c)
{
    if (c->point)
        return;
    c->point = xcalloc(CURVE_POINTS_MAX, sizeof(*c->point));
    c->every_ms = CURVE_EVERY_MS;
}

void curve_add(struct curve *c, const struct curve_point *point)
{
    struct curve_point *newest;

    curve_allocate(c);
    curve_clamp(c, point->wall_ms);
    if (c->count < 2 ||
        c->point[c->count - 1].wall_ms - c->point[c->count - 2].wall_ms >= c->every_ms)
        c->count++;
    newest = &c->point[c->count - 1];
    *newest = *point;
    for (unsigned i = 0; i < CURVE_VALUES; i++)
        newest->value[i] = isfinite(newest->value[i]) ? newest->value[i] : NAN;
    if (c->count == CURVE_POINTS_MAX)
        curve_thin(c);
}

/* A curve that was thinned has half of its points at least. */
void curve_restore_point(struct curve *c, const struct curve_point *point)
{
    curve_allocate(c);
    assert(c->count < CURVE_POINTS_MAX - 1);
    c->point[c->count++] = *point;
    while (c->count > CURVE_POINTS_MAX / 2 &&
           c->every_ms * CURVE_POINTS_MAX < point->wall_ms - c->point[0].wall_ms)
        c->every_ms *= 2;
}
