/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/time_spent.h"

/* How long ago `at` was: not before `since`, and not after `now`. */
static uint64_t age_within(uint64_t at, uint64_t since, uint64_t now)
{
    uint64_t open = now - since, age = now - at;

    if (age > UINT64_MAX / 2) /* `at` is after `now` */
        return 0;
    return age < open ? age : open;
}

/* What the open phase counts as. */
static enum job_phase settled_phase(const struct time_spent *t)
{
    return t->phase == JOB_PHASE_FIRST_STEP && !t->reports_steps ? JOB_PHASE_PRODUCTIVE
                                                                 : t->phase;
}

static void close_phase(struct time_spent *t, uint64_t at, uint64_t now)
{
    t->before = settled_phase(t);
    t->before_ms = now - t->since - age_within(at, t->since, now);
    t->all.ms[t->before] += t->before_ms;
    t->last.ms[t->before] += t->before_ms;
    t->since += t->before_ms;
}

static void enter_phase(struct time_spent *t, enum job_phase phase, uint64_t at,
                        uint64_t now)
{
    if (t->over || t->phase == phase)
        return;
    close_phase(t, at, now);
    t->phase = phase;
}

/* The restart begins with the phase that has just been entered. */
static void begin_restart(struct time_spent *t)
{
    t->last = (struct time_spent_sums){ .steps_again = 0 };
}

void time_spent_begin(struct time_spent *t, uint64_t now)
{
    *t = (struct time_spent){ .phase = JOB_PHASE_FORM,
                              .before = JOB_PHASE_FORM,
                              .since = now };
}

/* Until the job stops, an earlier error may still be told. */
static void move_detect_back(struct time_spent *t, uint64_t at, uint64_t now)
{
    uint64_t more = age_within(at, t->since - t->before_ms, now);
    uint64_t open = now - t->since;

    if (more <= open)
        return;
    more -= open;
    t->all.ms[t->before] -= more;
    t->before_ms -= more;
    t->since -= more;
}

void time_spent_error(struct time_spent *t, uint64_t at, uint64_t now)
{
    if (t->phase == JOB_PHASE_DETECT)
        move_detect_back(t, at, now);
    else if (t->phase != JOB_PHASE_STOP && t->phase != JOB_PHASE_FORM && !t->over) {
        enter_phase(t, JOB_PHASE_DETECT, at, now);
        begin_restart(t);
    }
}

void time_spent_stopping(struct time_spent *t, uint64_t now)
{
    bool planned = t->phase != JOB_PHASE_DETECT;

    enter_phase(t, JOB_PHASE_STOP, now, now);
    if (planned)
        begin_restart(t);
}

void time_spent_stopped(struct time_spent *t, uint64_t now)
{
    enter_phase(t, JOB_PHASE_FORM, now, now);
}

void time_spent_formed(struct time_spent *t, uint64_t now)
{
    t->past_step = t->top_step;
    enter_phase(t, JOB_PHASE_START, now, now);
}

void time_spent_started(struct time_spent *t, uint64_t now)
{
    if (t->phase == JOB_PHASE_START)
        enter_phase(t, JOB_PHASE_FIRST_STEP, now, now);
}

void time_spent_ended(struct time_spent *t, uint64_t now)
{
    if (!t->over)
        close_phase(t, now, now);
    t->over = true;
}

void time_spent_add_away(struct time_spent *t, uint64_t ms)
{
    if (!t->over)
        t->since -= ms;
}

void time_spent_note_step(struct time_spent *t, uint64_t step)
{
    if (step > t->top_step)
        t->top_step = step;
}

bool time_spent_first_step(struct time_spent *t, uint64_t step, uint64_t at,
                           uint64_t now)
{
    uint64_t again = t->past_step >= step ? t->past_step - step + 1 : 0;
    uint64_t unplaced = step == STEP_UNPLACED && t->past_step > 0;

    if (t->over || (t->phase != JOB_PHASE_FIRST_STEP && t->phase != JOB_PHASE_START))
        return false;
    t->reports_steps = true;
    enter_phase(t, again ? JOB_PHASE_REWORK : JOB_PHASE_PRODUCTIVE, at, now);
    t->all.steps_again += again;
    t->last.steps_again += again;
    t->all.unplaced += unplaced;
    t->last.unplaced += unplaced;
    if (step != STEP_UNPLACED)
        time_spent_note_step(t, step);
    return true;
}

bool time_spent_reached(struct time_spent *t, uint64_t step, uint64_t at, uint64_t now)
{
    if (t->over || t->phase != JOB_PHASE_REWORK || step < t->past_step)
        return false;
    enter_phase(t, JOB_PHASE_PRODUCTIVE, at, now);
    return true;
}

static struct time_spent_sums add_open_phase(const struct time_spent *t, uint64_t now,
                                             struct time_spent_sums sums)
{
    if (!t->over)
        sums.ms[settled_phase(t)] += now - t->since;
    return sums;
}

struct time_spent_sums time_spent_all(const struct time_spent *t, uint64_t now)
{
    return add_open_phase(t, now, t->all);
}

struct time_spent_sums time_spent_last(const struct time_spent *t, uint64_t now)
{
    return add_open_phase(t, now, t->last);
}

uint64_t time_spent_age(const struct time_spent_sums *sums)
{
    return sums->ms[JOB_PHASE_PRODUCTIVE] + time_spent_lost(sums);
}

uint64_t time_spent_lost(const struct time_spent_sums *sums)
{
    uint64_t lost = 0;

    for (unsigned i = JOB_PHASE_PRODUCTIVE + 1; i < JOB_PHASE_COUNT; i++)
        lost += sums->ms[i];
    return lost;
}
