/* SPDX-License-Identifier: MIT */
#include "agent/progress/progress_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/guard/guard.h"
#include "agent/guard/status_pages.h"
#include "agent/workers/torch_recorder.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/proc.h"
#include "rendezvous/common/base/xalloc.h"

/* -- reading the pages ---------------------------------------------------------- */

/* If all ranks wait in the same step, they wait for the rank that is stopped. */
static bool is_stopped_while_it_waits(const struct hang_observation *s, pid_t pid)
{
    struct proc_stat stat;

    return !s->changed && s->alive && s->progress.phase == PROGRESS_COMMUNICATING &&
           proc_read_stat(pid, &stat) && (stat.state == 'T' || stat.state == 't');
}

/* A page that is not written is as good as the steps that the worker prints. */
static void read_progress(struct progress_monitor *m, uint32_t i,
                          struct hang_observation *s)
{
    uint64_t step, first, before = s->progress.step;

    s->changed = page_reader_read(&m->page[i], m->pages->page[i]);
    s->progress = m->page[i];
    if (s->progress.written || !output_steps_get(m->output, i, &step, &first))
        return;
    s->changed |= step != before;
    s->progress.written = true;
    s->progress.phase = PROGRESS_TRAINING;
    s->progress.step = step;
    s->progress.first_step = first;
    s->progress.loss = NAN;
}

bool progress_monitor_shows(const struct hang_observation *s)
{
    return s->alive && s->progress.written;
}

const struct page_values *
progress_monitor_find_slowest(const struct progress_monitor *m)
{
    const struct page_values *p = NULL;

    for (uint32_t i = 0; i < m->pages->count; i++)
        if (progress_monitor_shows(&m->observation[i]) &&
            (!p || m->observation[i].progress.step < p->step))
            p = &m->observation[i].progress;
    return p;
}

/* When the epoch made its first step, and when it had caught up with those before. */
static void note_steps(struct progress_monitor *m)
{
    const struct page_values *p = m->reached_at_ms ? NULL
                                                   : progress_monitor_find_slowest(m);

    if (!p || p->step == 0)
        return;
    if (!m->first_step) {
        m->first_step = p->first_step && (p->first_step <= p->step ||
                                          p->first_step == STEP_UNPLACED)
                            ? p->first_step
                            : p->step;
        m->first_at_ms = clock_ms();
        m->has_news = true;
    }
    if (p->step >= m->past_step || m->first_step == STEP_UNPLACED) {
        m->reached_at_ms = clock_ms();
        m->has_news = true;
    }
}

static void report_nan(struct progress_monitor *m, uint32_t i)
{
    const struct page_values *p = &m->observation[i].progress;
    char text[96];

    if (m->nan_reported || !p->loss_is_nan)
        return;
    m->nan_reported = true;
    snprintf(text, sizeof(text), "the loss of rank %" PRIu32 " is NaN at step %" PRIu64,
             m->first_rank + i, p->step);
    m->calls.remark(m->calls.arg, NOTE_NAN, text);
}

void progress_monitor_read(struct progress_monitor *m)
{
    for (uint32_t i = 0; i < m->pages->count; i++) {
        struct hang_observation *s = &m->observation[i];
        const struct page_values before = s->progress;

        read_progress(m, i, s);
        s->alive = group_pid(m->group, i) != 0;
        s->stopped = is_stopped_while_it_waits(s, group_pid(m->group, i));
        checkpoints_note(&m->checkpoints, &before, s);
        report_nan(m, i);
        m->any_page_written |= s->progress.written;
        if (s->changed)
            silence_break(m->silence);
    }
    checkpoints_time(&m->checkpoints, m->observation, m->pages->count);
    note_steps(m);
    hang_observe(m->hang, m->observation, clock_ms());
}

/*
 * How soon to look for the epoch's first step, and for the end of the steps that are
 * done again: the later, the less often. 0: no sooner than for other things. Workers
 * may never tell of a step, but those of a job that was restarted are known to do so.
 */
static uint64_t news_reading_ms(const struct progress_monitor *m)
{
    uint64_t ms = (clock_ms() - m->begun_ms) / NEWS_READS;

    if (m->reached_at_ms || (m->past_step == 0 && ms >= HANG_READ_MS))
        return 0;
    return ms < NEWS_READ_MS_MIN ? NEWS_READ_MS_MIN
           : ms < HANG_READ_MS   ? ms
                                 : HANG_READ_MS;
}

/* Reads at moments unrelated to the steps, so that a step of exactly a second is not
 * always sampled in the same phase. */
void progress_monitor_arm(struct progress_monitor *m)
{
    uint64_t soon = news_reading_ms(m), deadline = hang_deadline(m->hang);
    uint64_t next = soon ? soon
                         : STRAGGLERS_READ_MS +
                               (uint64_t)rand() % (STRAGGLERS_READ_MS / 4);

    next += clock_ms();
    if (soon || m->any_page_written || m->output || m->config->hang_auto ||
        m->config->hang_timeout_ms)
        loop_timer_arm(&m->timer, deadline < next ? deadline : next);
}

/* -- hangs ----------------------------------------------------------------------- */

void progress_monitor_remark(const struct progress_monitor *m, enum note_kind kind,
                             const char *text)
{
    m->calls.remark(m->calls.arg, kind, text);
}

static void report_hang(struct progress_monitor *m)
{
    uint32_t local_rank = m->hang_reported ? HANG_NONE : hang_find(m->hang);
    const struct page_values *p;
    uint64_t still_ms;
    char what[128], still[32];

    if (local_rank == HANG_NONE)
        return;
    m->hang_reported = true;
    p = &m->observation[local_rank].progress;
    still_ms = hang_unchanged_ms(m->hang, local_rank);
    clock_format_duration(still_ms, still, sizeof(still));
    if (p->written)
        snprintf(what, sizeof(what), "no progress for %s at step %" PRIu64 ", %s",
                 still, p->step, progress_phase_name(p->phase));
    else
        snprintf(what, sizeof(what),
                 "nothing on its status page in the %s since its start", still);
    group_report_hang(m->group, local_rank, what, still_ms);
}

static void on_page_timer(void *arg)
{
    struct progress_monitor *m = arg;

    progress_monitor_read(m);
    if (clock_ms() - m->rated_ms >= HANG_READ_MS) {
        const struct page_values *p = progress_monitor_find_slowest(m);

        m->rated_ms = clock_ms();
        if (p)
            step_rate_add(&m->step_rate, p->step, clock_ms());
    }
    if (clock_ms() - m->sampled_ms >= STRAGGLERS_READ_MS) {
        m->sampled_ms = clock_ms();
        progress_monitor_sample_stragglers(m);
    }
    if (m->has_news)
        m->calls.stepped(m->calls.arg);
    m->has_news = false;
    report_hang(m);
    if (m->pages) /* a callback may have ended the monitoring */
        progress_monitor_arm(m);
}

void progress_monitor_note_output(struct progress_monitor *m, uint32_t local_rank,
                                  int stream, const char *data, size_t size)
{
    silence_break(m->silence);
    output_steps_read(m->output, local_rank, stream, data, size);
}

/* -- stacks --------------------------------------------------------------------- */

void progress_monitor_ask_stacks(struct progress_monitor *m,
                                 const struct msg_ask_stacks *ask)
{
    stacks_ask(m->stacks, ask);
}

bool progress_monitor_takes_stacks(const struct progress_monitor *m)
{
    return stacks_are_asked(m->stacks) || m->recorders_until_ms;
}

static void on_stacks_answer(void *arg, const struct msg *answer)
{
    struct progress_monitor *m = arg;
    const struct msg_stacks *s = &answer->stacks;

    if (s->ask != STRAGGLER_ASK) {
        m->calls.stacks(m->calls.arg, answer);
        return;
    }
    progress_monitor_note_straggler_stack(m, s);
}

static void on_stacks_idle(void *arg)
{
    struct progress_monitor *m = arg;

    if (!m->recorders_until_ms)
        m->calls.stacks_taken(m->calls.arg);
}

static void on_recorder_timer(void *arg)
{
    struct progress_monitor *m = arg;
    char text[ERROR_TEXT_MAX_BYTES + 1];

    if (torch_recorder_awaited(group_torch_recorder(m->group)) &&
        clock_ms() < m->recorders_until_ms) {
        loop_timer_arm(&m->recorder_timer, clock_ms() + RECORDER_READ_MS);
        return;
    }
    torch_recorder_describe(group_torch_recorder(m->group), text, sizeof(text));
    if (*text)
        progress_monitor_remark(m, NOTE_RANK, text);
    m->recorders_until_ms = 0;
    if (!stacks_are_asked(m->stacks))
        m->calls.stacks_taken(m->calls.arg);
}

void progress_monitor_ask_recorders(struct progress_monitor *m)
{
    if (!m->pages || m->recorders_until_ms ||
        !torch_recorder_ask(group_torch_recorder(m->group)))
        return;
    m->recorders_until_ms = clock_ms() + RECORDER_TAKE_MS;
    loop_timer_arm(&m->recorder_timer, clock_ms() + RECORDER_READ_MS);
}

/* -- the whole ------------------------------------------------------------------ */

struct progress_monitor *
progress_monitor_create(struct loop *loop, const struct config *config,
                        const struct progress_monitor_calls *calls)
{
    struct progress_monitor *m = xcalloc(1, sizeof(*m));
    struct stacks_calls stacks_calls = { .answer = on_stacks_answer,
                                         .idle = on_stacks_idle,
                                         .arg = m };

    m->config = config;
    m->calls = *calls;
    m->observation = xcalloc(config->workers, sizeof(*m->observation));
    m->hang = hang_create(config->workers);
    m->stragglers = stragglers_create(config->workers);
    m->silence = silence_create(loop, config->workers, config->silence_warning_ms);
    m->output = output_steps_create(config->workers, config->progress_pattern);
    m->page = xcalloc(config->workers, sizeof(*m->page));
    m->stacks = stacks_create(loop, config->workers, &stacks_calls);
    loop_timer_init(&m->timer, loop, on_page_timer, m);
    loop_timer_init(&m->checkpoint_timer, loop, progress_monitor_on_checkpoint_timer,
                    m);
    loop_timer_init(&m->recorder_timer, loop, on_recorder_timer, m);
    return m;
}

void progress_monitor_destroy(struct progress_monitor *m)
{
    if (!m)
        return;
    loop_timer_fini(&m->timer);
    loop_timer_fini(&m->checkpoint_timer);
    loop_timer_fini(&m->recorder_timer);
    hang_destroy(m->hang);
    stragglers_destroy(m->stragglers);
    stacks_destroy(m->stacks);
    silence_destroy(m->silence);
    output_steps_destroy(m->output);
    free(m->page);
    free(m->observation);
    free(m);
}

void progress_monitor_begin(struct progress_monitor *m, struct group *group,
                            struct guard *guard, const struct msg_start *start)
{
    const struct hang_rule rule = { m->config->hang_timeout_ms, m->config->hang_auto };

    progress_monitor_end(m);
    m->last = (struct msg_stopped){ 0 };
    m->progress = (struct msg_heartbeat){ .step = 0 };
    if (guard_pages(guard)->count < m->config->workers)
        return;
    m->group = group;
    m->guard = guard;
    m->pages = guard_pages(guard);
    m->first_rank = start->first_rank;
    m->any_page_written = m->hang_reported = m->ranks_reported = false;
    m->nan_reported = false;
    m->straggler = STRAGGLERS_NONE;
    m->straggler_asks = 0;
    m->checkpoints.requests = 0;
    m->step_rate = (struct step_rate){ .count = 0 };
    m->begun_ms = m->sampled_ms = m->rated_ms = clock_ms();
    m->past_step = start->past_step;
    m->first_step = m->first_at_ms = m->reached_at_ms = 0;
    m->has_news = false;
    memset(m->observation, 0, m->config->workers * sizeof(*m->observation));
    hang_begin(m->hang, &rule, start->world_size > m->config->workers, clock_ms());
    stragglers_begin(m->stragglers);
    memset(m->page, 0, m->config->workers * sizeof(*m->page));
    output_steps_begin(m->output);
    silence_begin(m->silence, group);
    stacks_begin(m->stacks, group, m->pages, m->first_rank);
    progress_monitor_arm(m);
}

struct msg_stopped progress_monitor_last_steps(const struct progress_monitor *m)
{
    return m->last;
}

void progress_monitor_end(struct progress_monitor *m)
{
    for (uint32_t i = 0; m->pages && i < m->pages->count; i++) {
        struct hang_observation *s = &m->observation[i];

        read_progress(m, i, s);
        if (s->progress.written && s->progress.step > m->last.step)
            m->last = (struct msg_stopped){ .step = s->progress.step,
                                            .first_step = s->progress.first_step };
    }
    stacks_end(m->stacks);
    silence_end(m->silence);
    m->pages = NULL;
    m->progress.first_step = 0; /* is about this epoch alone */
    m->checkpoint_until_ms = m->recorders_until_ms = 0;
    loop_timer_cancel(&m->recorder_timer);
    loop_timer_cancel(&m->timer);
    loop_timer_cancel(&m->checkpoint_timer);
}
