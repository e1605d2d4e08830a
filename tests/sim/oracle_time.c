/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <string.h>

#include "rendezvous/job/history/job_history.h"
#include "rendezvous/job/registry/job.h"
#include "tests/sim/agent.h"
#include "tests/sim/daemon.h"
#include "tests/sim/facts.h"
#include "tests/sim/sim.h"

/*
 * The oracle's view of where the time of a job went. It paints each phase on a line as
 * it becomes known, over what was painted there before, and adds up the spans. The
 * membership keeps sums only, and moves amounts between them.
 */
/* The clock of a machine begins anew when it does, and ages are kept. */
static bool is_before(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b) < 0;
}

static void paint(struct oracle *o, struct time_facts *t, uint64_t from,
                  enum job_phase phase)
{
    if (t->over || (t->spans && t->span[t->spans - 1].phase == phase))
        return;
    if (t->spans == TIME_SPANS_MAX) {
        VIOLATION(o, "a job of more than %d phases", TIME_SPANS_MAX);
        return;
    }
    if (t->spans && is_before(from, t->span[t->spans - 1].from))
        from = t->span[t->spans - 1].from;
    t->span[t->spans].from = from;
    t->span[t->spans++].phase = phase;
}

static enum job_phase open_phase(const struct time_facts *t)
{
    return t->span[t->spans - 1].phase;
}

/* An error is painted back to where it happened, but not beyond the span before. */
static void paint_error(struct oracle *o, struct time_facts *t, uint64_t at)
{
    unsigned last = t->spans - 1;

    if (open_phase(t) == JOB_PHASE_STOP || open_phase(t) == JOB_PHASE_FORM)
        return;
    if (open_phase(t) != JOB_PHASE_DETECT) {
        paint(o, t, at, JOB_PHASE_DETECT);
        return;
    }
    if (last > 0 && is_before(at, t->span[last - 1].from))
        at = t->span[last - 1].from;
    else if (last == 0 && is_before(at, t->span[0].from))
        return;
    if (is_before(at, t->span[last].from))
        t->span[last].from = at;
}

/* Without a step ever told, running time was productive: it stays so when it ends. */
static void settle(struct time_facts *t)
{
    if (open_phase(t) == JOB_PHASE_FIRST_STEP && !t->reports_steps)
        t->span[t->spans - 1].phase = JOB_PHASE_PRODUCTIVE;
}

static void paint_entry(struct oracle *o, struct time_facts *t, uint64_t now,
                        enum job_state state)
{
    static const enum job_phase phases[JOB_STATE_COUNT] = {
        [JOB_FORMING] = JOB_PHASE_FORM,
        [JOB_RUNNING] = JOB_PHASE_START,
        [JOB_STOPPING] = JOB_PHASE_STOP,
        [JOB_DONE] = JOB_PHASE_COUNT, /* what follows counts for nothing */
    };

    settle(t);
    if (state == JOB_RUNNING)
        t->past_step = t->top_step;
    paint(o, t, now, phases[state]);
    t->over = state == JOB_DONE;
}

static void sum_spans(const struct time_facts *t, uint64_t now, uint64_t *ms)
{
    memcpy(ms, t->base_ms, sizeof(t->base_ms));
    for (unsigned i = 0; i < t->spans; i++) {
        uint64_t until = i + 1 < t->spans ? t->span[i + 1].from : now;
        enum job_phase phase = t->span[i].phase;

        if (phase == JOB_PHASE_FIRST_STEP && !t->reports_steps)
            phase = JOB_PHASE_PRODUCTIVE;
        if (phase < JOB_PHASE_COUNT)
            ms[phase] += until - t->span[i].from;
    }
}

static void check_sums(struct oracle *o, const struct time_facts *t,
                       const struct membership *r)
{
    struct time_spent_sums sums = time_spent_all(&r->time, r->clock.now);
    uint64_t ms[JOB_PHASE_COUNT], age = 0;

    sum_spans(t, r->clock.now, ms);
    for (unsigned i = 0; i < JOB_PHASE_COUNT; i++) {
        uint64_t off = ms[i] > sums.ms[i] ? ms[i] - sums.ms[i] : sums.ms[i] - ms[i];

        age += ms[i];
        if (off > t->slack_ms)
            VIOLATION(o, "%" PRIu64 " ms of phase %u, not %" PRIu64, sums.ms[i], i,
                      ms[i]);
    }
    if (time_spent_age(&sums) != age)
        VIOLATION(o, "the phases are %" PRIu64 " ms long, the job is %" PRIu64,
                  time_spent_age(&sums), age);
    if (sums.steps_again != t->steps_again)
        VIOLATION(o, "%" PRIu64 " steps done again, not %" PRIu64, sums.steps_again,
                  t->steps_again);
    if (sums.unplaced != t->unplaced)
        VIOLATION(o, "%" PRIu64 " epochs without a place, not %" PRIu64, sums.unplaced,
                  t->unplaced);
}

static void add_sums(struct time_spent_sums *to, const struct time_spent_sums *sums)
{
    for (unsigned i = 0; i < JOB_PHASE_COUNT; i++)
        to->ms[i] += sums->ms[i];
    to->steps_again += sums->steps_again;
}

/* The epochs that people are shown are all of the job's time, with the restart that is
 * under way. The history does not survive the daemon here: it has no archive. */
static void check_epochs(struct oracle *o, struct time_facts *t,
                         const struct membership *r)
{
    const struct job *job = facts_find_job(o, &r->instance);
    struct epochs *line = job ? &job->history->epochs : NULL;
    struct time_spent_sums all = time_spent_all(&r->time, r->clock.now);
    struct time_spent_sums last = time_spent_last(&r->time, r->clock.now);
    struct time_spent_sums sum;

    if (!line || line->count == 0 || line->left_out > 0)
        return;
    if (line->count == 1)
        t->before_line = line->base;
    sum = t->before_line;
    epochs_refresh(line, &r->time, r->clock.now);
    for (unsigned i = 0; i < line->count; i++)
        add_sums(&sum, &line->epoch[i].time);
    if (r->time.phase == JOB_PHASE_DETECT || r->time.phase == JOB_PHASE_STOP ||
        r->time.phase == JOB_PHASE_FORM)
        add_sums(&sum, &last);
    for (unsigned i = 0; i < JOB_PHASE_COUNT; i++)
        if (sum.ms[i] != all.ms[i])
            VIOLATION(o, "%" PRIu64 " ms of phase %u in all epochs, not %" PRIu64,
                      sum.ms[i], i, all.ms[i]);
    if (sum.steps_again != all.steps_again)
        VIOLATION(o, "%" PRIu64 " steps done again in all epochs, not %" PRIu64,
                  sum.steps_again, all.steps_again);
}

/* The first node that the running epoch cannot do without is why it stops. */
static void note_loss(struct oracle *o, const struct membership *r,
                      struct time_facts *t, uint32_t node)
{
    const struct sim_agent *a = agent_find(o->sim, &r->node[node].incarnation);
    uint64_t now = daemon_awake_ms(o->sim->daemon);

    if (!a || r->state != JOB_RUNNING || t->lost_at ||
        (r->node[node].state != MEMBERSHIP_NODE_ACTIVE && node != r->leader))
        return;
    t->lost_at = r->clock.now -
                 (now - (a->facts.connected ? a->facts.heard_ms : a->facts.gone_ms));
    t->slack_ms += 2 * facts_slack_ms(r);
}

void time_acts(struct oracle *o, const struct membership *r,
               const struct membership_action *a)
{
    struct time_facts *t = &facts_of_job(o, &r->instance)->time;

    if (a->type == MEMBERSHIP_ACT_EVICTED)
        note_loss(o, r, t, a->node);
    if (a->type == MEMBERSHIP_ACT_ENTERED && t->entries < 4)
        t->entered[t->entries++] = r->state;
}

static void learn_steps(struct oracle *o, struct time_facts *t,
                        const struct membership_event *ev, uint64_t now)
{
    enum job_phase phase = open_phase(t);

    if (ev->first_step && (phase == JOB_PHASE_START || phase == JOB_PHASE_FIRST_STEP)) {
        uint64_t again = ev->first_step <= t->past_step
                             ? t->past_step - ev->first_step + 1
                             : 0;

        t->reports_steps = true;
        t->steps_again += again;
        t->unplaced += ev->first_step == STEP_UNPLACED && t->past_step > 0;
        paint(o, t, now - ev->first_ms,
              again ? JOB_PHASE_REWORK : JOB_PHASE_PRODUCTIVE);
        phase = open_phase(t);
    }
    if (phase == JOB_PHASE_REWORK && ev->first_step && ev->step >= t->past_step)
        paint(o, t, now - ev->reached_ms, JOB_PHASE_PRODUCTIVE);
}

void time_stepped(struct oracle *o, const struct membership *before,
                  const struct membership *after, const struct membership_event *ev)
{
    struct time_facts *t = &facts_of_job(o, &after->instance)->time;
    uint64_t now = after->clock.now;
    bool of_epoch = ev->epoch == before->epoch && before->state == JOB_RUNNING;

    if (t->spans == 0) {
        t->begun_at = before->clock.now;
        paint(o, t, before->clock.now, JOB_PHASE_FORM);
    }
    if (ev->type == MEMBERSHIP_EV_FAILED && of_epoch &&
        after->stop.failures > before->stop.failures)
        paint_error(o, t, now - ev->age_ms - ev->still_ms);
    if (t->lost_at)
        paint_error(o, t, t->lost_at);
    if (ev->type == MEMBERSHIP_EV_STORE_READY && !before->store_ready &&
        after->store_ready && open_phase(t) == JOB_PHASE_START)
        paint(o, t, now, JOB_PHASE_FIRST_STEP);
    if (ev->type == MEMBERSHIP_EV_HEARTBEAT && of_epoch && ev->node < after->capacity &&
        after->node[ev->node].state == MEMBERSHIP_NODE_ACTIVE &&
        id128_equal(&after->node[ev->node].incarnation, &ev->incarnation))
        learn_steps(o, t, ev, now);
    if (after->progress.step > t->top_step)
        t->top_step = after->progress.step;
    for (unsigned i = 0; i < t->entries; i++)
        paint_entry(o, t, now, t->entered[i]);
    t->lost_at = t->entries = 0;
    check_sums(o, t, after);
    check_epochs(o, t, after);
}

void time_committed(struct job_facts *f, const struct membership *r)
{
    f->time.committed = time_spent_all(&r->time, r->clock.now);
    f->time.committed_phase = r->time.phase;
}

/* The open phase has gone on; all others are as they were. */
void time_restored(struct oracle *o, struct job_facts *f, const struct membership *r)
{
    struct time_spent_sums sums = time_spent_all(&r->time, r->clock.now);
    struct time_facts *t = &f->time;

    for (unsigned i = 0; i < JOB_PHASE_COUNT && !f->in_doubt; i++)
        if (i != t->committed_phase && sums.ms[i] != t->committed.ms[i] &&
            (i != JOB_PHASE_PRODUCTIVE || t->committed_phase != JOB_PHASE_FIRST_STEP))
            VIOLATION(o, "%" PRIu64 " ms of phase %u after a crash, were %" PRIu64,
                      sums.ms[i], i, t->committed.ms[i]);
    memcpy(t->base_ms, r->time.all.ms, sizeof(t->base_ms));
    t->base_ms[r->time.before] -= r->time.before_ms; /* an error may still move it */
    t->spans = 2;
    t->span[0].from = r->time.since - r->time.before_ms;
    t->span[0].phase = r->time.before;
    t->span[1].from = r->time.since;
    t->over = r->time.over;
    t->span[1].phase = t->over ? JOB_PHASE_COUNT : r->time.phase;
    t->reports_steps = r->time.reports_steps;
    t->top_step = r->time.top_step;
    t->past_step = r->time.past_step;
    t->steps_again = sums.steps_again;
    t->unplaced = sums.unplaced;
    t->lost_at = t->entries = 0;
}
