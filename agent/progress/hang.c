/* SPDX-License-Identifier: MIT */
#include "agent/progress/hang.h"

#include <stdlib.h>
#include <string.h>

#include "agent/progress/limits.h"
#include "rendezvous/common/base/xalloc.h"

#define NEVER UINT64_MAX
#define STEPS_KEPT 16
#define LONG_FACTOR 10
#define WAIT_MARGIN_MS_MIN 2000

/* One worker. Times are on the module's own clock, which does not count time without
 * observations. */
struct hang_rank {
    struct page_values progress;
    bool alive, stopped, stepped;
    uint64_t changed_at, step_at;
    uint64_t seen;                /* steps */
    uint64_t longest[STEPS_KEPT]; /* ring: longest step time between observations */
    unsigned next;
};

struct hang {
    struct hang_rule rule;
    bool others;
    uint32_t workers;
    uint64_t observed_at; /* on the caller's clock */
    uint64_t time;        /* on our clock, from 0 */
    struct hang_rank *rank;
};

struct hang *hang_create(uint32_t workers)
{
    struct hang *h = xcalloc(1, sizeof(*h));

    h->workers = workers;
    h->rank = xcalloc(workers, sizeof(*h->rank));
    return h;
}

void hang_destroy(struct hang *h)
{
    if (!h)
        return;
    free(h->rank);
    free(h);
}

void hang_begin(struct hang *h, const struct hang_rule *rule, bool others,
                uint64_t now_ms)
{
    h->rule = *rule;
    h->others = others;
    h->observed_at = now_ms;
    h->time = 0;
    memset(h->rank, 0, h->workers * sizeof(*h->rank));
}

/* -- observing ------------------------------------------------------------------ */

static void update_rank(struct hang_rank *r, const struct hang_observation *s,
                        uint64_t now)
{
    r->alive = s->alive;
    r->stopped = s->stopped;
    if (!s->changed)
        return;
    if (s->progress.written && (!r->stepped || s->progress.step != r->progress.step)) {
        if (r->stepped && s->progress.step > r->progress.step) {
            r->seen += s->progress.step - r->progress.step;
            r->longest[r->next++ % STEPS_KEPT] = now - r->step_at;
        }
        r->stepped = true;
        r->step_at = now;
    }
    r->changed_at = now;
    r->progress = s->progress;
}

void hang_observe(struct hang *h, const struct hang_observation *observation,
                  uint64_t now_ms)
{
    uint64_t gap = now_ms > h->observed_at ? now_ms - h->observed_at : 0;

    h->time += gap > HANG_STALL_MS ? HANG_READ_MS : gap;
    h->observed_at = now_ms;
    for (uint32_t i = 0; i < h->workers; i++)
        update_rank(&h->rank[i], &observation[i], h->time);
}

/* -- judging -------------------------------------------------------------------- */

/* The allowance for one step. */
static uint64_t step_allowance(const struct hang *h, const struct hang_rank *r)
{
    uint64_t longest = HANG_AUTO_MS_MIN;

    if (!h->rule.is_auto)
        return h->rule.timeout_ms;
    if (r->seen < HANG_AUTO_STEPS)
        return NEVER;
    for (unsigned i = 0; i < STEPS_KEPT; i++)
        if (10 * r->longest[i] > longest)
            longest = 10 * r->longest[i];
    return longest;
}

static uint64_t long_allowance(const struct hang *h, uint64_t step_ms)
{
    uint64_t ms = LONG_FACTOR * step_ms;

    return h->rule.is_auto && ms < HANG_AUTO_LONG_MS_MIN ? HANG_AUTO_LONG_MS_MIN : ms;
}

/* Before that it may compile or start libraries, as long as others wait for it. */
static bool has_made_step(const struct hang_rank *r)
{
    return r->seen > 0 || r->progress.step > 0;
}

static bool is_waiting(const struct hang_rank *r)
{
    return r->progress.phase == PROGRESS_COMMUNICATING && !r->stopped;
}

static bool is_over(const struct hang_rank *r)
{
    return r->progress.phase == PROGRESS_DONE || r->progress.raised || r->progress.ends;
}

static bool is_ending(const struct hang_rank *r)
{
    return r->alive && is_over(r);
}

static bool is_failing(const struct hang_rank *r)
{
    return r->alive && r->progress.raised;
}

static bool is_busy(const struct hang_rank *r)
{
    return r->alive && r->progress.written && !is_over(r) && !is_waiting(r);
}

static bool any_rank(const struct hang *h, bool (*is)(const struct hang_rank *r))
{
    for (uint32_t i = 0; i < h->workers; i++)
        if (is(&h->rank[i]))
            return true;
    return false;
}

static bool has_written(const struct hang_rank *r)
{
    return r->progress.written;
}

static uint64_t wait_allowance(const struct hang *h, uint64_t step_ms)
{
    uint64_t margin = step_ms / 4;

    if (any_rank(h, is_busy))
        return NEVER;
    if (h->rule.is_auto && h->others)
        return long_allowance(h, step_ms);
    return step_ms + (margin > WAIT_MARGIN_MS_MIN ? margin : WAIT_MARGIN_MS_MIN);
}

/* Between its steps a watched program may do what no hook sees, as plotting. */
static uint64_t busy_allowance(const struct hang *h, const struct hang_rank *r,
                               uint64_t step_ms)
{
    bool is_guess = h->rule.is_auto && r->progress.watched;

    /* --watch does not see what a program does before, between and after its epochs. */
    if (!has_made_step(r) || progress_phase_is_long(r->progress.phase) ||
        (r->progress.watched && r->progress.phase == PROGRESS_UNKNOWN))
        return long_allowance(h, step_ms);
    return is_guess && step_ms < HANG_AUTO_LONG_MS_MIN ? HANG_AUTO_LONG_MS_MIN
                                                       : step_ms;
}

static uint64_t rank_allowance(const struct hang *h, const struct hang_rank *r)
{
    uint64_t step_ms;

    if ((!h->rule.is_auto && !h->rule.timeout_ms) || !r->alive || is_over(r))
        return NEVER;
    if (!r->progress.written) /* its program may be one that never writes */
        return h->rule.is_auto || !any_rank(h, has_written)
                   ? NEVER
                   : long_allowance(h, h->rule.timeout_ms);
    step_ms = step_allowance(h, r);
    if (step_ms == NEVER)
        return NEVER;
    if (is_waiting(r))
        return wait_allowance(h,
                              has_made_step(r) ? step_ms : long_allowance(h, step_ms));
    return busy_allowance(h, r, step_ms);
}

/* How long until the rank is overdue; 0: it is overdue. */
static uint64_t time_left(const struct hang *h, const struct hang_rank *r)
{
    uint64_t allowed = rank_allowance(h, r), still = h->time - r->changed_at;

    if (allowed == NEVER)
        return NEVER;
    if (allowed < HANG_ENDING_MS && any_rank(h, is_waiting(r) ? is_ending : is_failing))
        allowed = HANG_ENDING_MS;
    return still < allowed ? allowed - still : 0;
}

/* Whether b waits for a, if both are overdue. */
static bool is_behind(const struct hang_rank *a, const struct hang_rank *b)
{
    if (is_waiting(a) != is_waiting(b))
        return !is_waiting(a);
    return a->progress.step < b->progress.step;
}

uint32_t hang_find(const struct hang *h)
{
    uint32_t worst = HANG_NONE;

    for (uint32_t i = 0; i < h->workers; i++)
        if (time_left(h, &h->rank[i]) == 0 &&
            (worst == HANG_NONE || is_behind(&h->rank[i], &h->rank[worst])))
            worst = i;
    return worst;
}

uint64_t hang_deadline(const struct hang *h)
{
    uint64_t soonest = NEVER;

    for (uint32_t i = 0; i < h->workers; i++) {
        uint64_t left = time_left(h, &h->rank[i]);

        if (left < soonest)
            soonest = left;
    }
    return soonest == NEVER ? NEVER : h->observed_at + soonest;
}

uint64_t hang_unchanged_ms(const struct hang *h, uint32_t local_rank)
{
    return h->time - h->rank[local_rank].changed_at;
}
