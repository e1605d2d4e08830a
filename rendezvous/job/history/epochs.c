/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/history/epochs.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

void epochs_fini(struct epochs *t)
{
    free(t->epoch);
    *t = (struct epochs){ .count = 0 };
}

/* The epoch that runs, or NULL. */
static struct past_epoch *running_epoch(const struct epochs *t)
{
    struct past_epoch *newest = t->count ? &t->epoch[t->count - 1] : NULL;

    return newest && !newest->ended_ms ? newest : NULL;
}

static struct time_spent_sums subtract_sums(struct time_spent_sums from,
                                            const struct time_spent_sums *sums)
{
    for (unsigned i = 0; i < JOB_PHASE_COUNT; i++)
        from.ms[i] -= sums->ms[i] < from.ms[i] ? sums->ms[i] : from.ms[i];
    from.steps_again -= sums->steps_again < from.steps_again ? sums->steps_again
                                                             : from.steps_again;
    from.unplaced -= sums->unplaced < from.unplaced ? sums->unplaced : from.unplaced;
    return from;
}

static uint64_t wall_before(uint64_t wall_ms, uint64_t age_ms)
{
    return wall_ms > age_ms ? wall_ms - age_ms : 0;
}

/* When the restart under way, or the last one, has begun. */
static uint64_t restart_begun(const struct time_spent *time, uint64_t now,
                              uint64_t wall_ms)
{
    struct time_spent_sums last = time_spent_last(time, now);

    return wall_before(wall_ms, time_spent_age(&last));
}

/* Without the restart that a failure or a planned stop has begun already: its phases
 * are of the next epoch. */
static struct time_spent_sums sums_before_stop(const struct time_spent *time,
                                               uint64_t now)
{
    struct time_spent_sums all = time_spent_all(time, now),
                           last = time_spent_last(time, now);

    return time->phase == JOB_PHASE_DETECT || time->phase == JOB_PHASE_STOP ||
                   time->phase == JOB_PHASE_FORM
               ? subtract_sums(all, &last)
               : all;
}

static void set_base(struct epochs *t, const struct time_spent *time, uint64_t now)
{
    struct time_spent_sums last = time_spent_last(time, now);

    t->base = subtract_sums(time_spent_all(time, now), &last);
}

static struct past_epoch *make_room_for_epoch(struct epochs *t)
{
    struct past_epoch *oldest_new;

    if (t->count == EPOCHS_KEPT) {
        oldest_new = &t->epoch[EPOCHS_KEPT_FIRST];
        memmove(oldest_new, oldest_new + 1,
                (EPOCHS_KEPT - EPOCHS_KEPT_FIRST - 1) * sizeof(*oldest_new));
        t->left_out++;
        return &t->epoch[EPOCHS_KEPT - 1];
    }
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 1;
        t->epoch = xrealloc(t->epoch, t->room * sizeof(*t->epoch));
    }
    return &t->epoch[t->count++];
}

void epochs_add_formed(struct epochs *t, const struct past_epoch *epoch,
                       const struct time_spent *time, uint64_t now, uint64_t wall_ms)
{
    uint64_t ended_ms = t->count ? t->epoch[t->count - 1].ended_ms : 0;
    struct past_epoch *e = make_room_for_epoch(t);

    *e = *epoch; /* the two clocks do not count quite alike */
    e->begun_ms = ended_ms ? ended_ms : restart_begun(time, now, wall_ms);
    e->formed_ms = wall_ms;
    set_base(t, time, now);
    epochs_refresh(t, time, now);
}

void epochs_add_start(struct epochs *t, uint64_t wall_ms)
{
    struct past_epoch *e = running_epoch(t);

    if (e && !e->started_ms)
        e->started_ms = wall_ms;
}

void epochs_add_first_step(struct epochs *t, const struct time_spent *time,
                           uint64_t now, uint64_t wall_ms)
{
    struct past_epoch *e = running_epoch(t);

    if (e && !e->first_step_ms) /* the phase after it began with it */
        e->first_step_ms = wall_before(wall_ms, now - time->since);
    epochs_refresh(t, time, now);
}

void epochs_add_end(struct epochs *t, const struct time_spent *time, uint64_t now,
                    uint64_t wall_ms)
{
    struct past_epoch *e = running_epoch(t);

    if (!e)
        return;
    epochs_refresh(t, time, now);
    e->ended_ms = time->over ? wall_ms : restart_begun(time, now, wall_ms);
}

void epochs_refresh(struct epochs *t, const struct time_spent *time, uint64_t now)
{
    struct past_epoch *e = running_epoch(t);

    if (e)
        e->time = subtract_sums(sums_before_stop(time, now), &t->base);
}

void epochs_restore_epoch(struct epochs *t, const struct past_epoch *epoch)
{
    *make_room_for_epoch(t) = *epoch;
}

void epochs_restored(struct epochs *t, const struct past_epoch *newest, bool is_over,
                     const struct time_spent *time, uint64_t now, uint64_t wall_ms)
{
    struct past_epoch *e;

    while (t->count > 0 && t->epoch[t->count - 1].epoch > newest->epoch)
        t->count--; /* the job has forgotten them with its rendezvous */
    e = t->count ? &t->epoch[t->count - 1] : NULL;
    if (newest->epoch > 0 && (!e || e->epoch < newest->epoch)) {
        if (e && !e->ended_ms) /* nothing tells when the missing one began */
            e->ended_ms = e->first_step_ms ? e->first_step_ms : e->formed_ms;
        epochs_restore_epoch(t, newest);
    }
    e = running_epoch(t);
    if (e && is_over)
        e->ended_ms = time->over ? wall_ms : restart_begun(time, now, wall_ms);
    else if (e && time->phase == JOB_PHASE_DETECT) {
        struct time_spent_sums sums = sums_before_stop(time, now);

        t->base = subtract_sums(sums, &e->time);
    } else {
        set_base(t, time, now);
    }
}
