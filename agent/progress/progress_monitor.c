/* SPDX-License-Identifier: MIT */
#include "agent/progress/progress_monitor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/guard/guard.h"
#include "agent/guard/status_pages.h"
#include "agent/progress/checkpoints.h"
#include "agent/progress/hang.h"
#include "agent/progress/limits.h"
#include "agent/progress/output_steps.h"
#include "agent/progress/proc_state.h"
#include "agent/progress/silence.h"
#include "agent/progress/stacks.h"
#include "agent/progress/step_rate.h"
#include "agent/progress/stragglers.h"
#include "agent/workers/torch_recorder.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/proc.h"
#include "rendezvous/common/base/xalloc.h"

#define STRAGGLER_ASK UINT64_MAX /* for stacks, of this module; others count from 1 */

struct progress_monitor {
    const struct config *config;
    struct progress_monitor_calls calls;

    /* of the epoch; pages is NULL between epochs */
    struct group *group;
    struct guard *guard;
    const struct status_pages *pages;
    uint32_t first_rank;
    bool any_page_written, hang_reported, ranks_reported, nan_reported;
    uint32_t straggler; /* reported; or STRAGGLERS_NONE */
    double straggler_speed;
    unsigned straggler_asks; /* for its stack, that are still to be sent */
    int straggler_votes; /* how much more often that was at this place than elsewhere */
    char straggler_place[STACKS_BRIEF_MAX_BYTES + 1];
    struct hang_observation *observation;
    struct hang *hang;
    struct stragglers *stragglers;
    struct stacks *stacks;
    struct silence *silence;
    struct output_steps *output; /* NULL: no --progress-pattern */
    struct page_values *page;    /* as last read */
    struct step_rate step_rate;
    uint64_t begun_ms, sampled_ms, rated_ms;
    uint64_t past_step; /* the greatest of the epochs before */
    uint64_t first_step, first_at_ms, reached_at_ms; /* see HEARTBEAT; 0: not yet */
    bool has_news;                                   /* of these */
    struct msg_heartbeat progress;
    struct loop_timer timer;

    /* the requested checkpoint; 0: none */
    uint64_t checkpoint_until_ms;
    struct loop_timer checkpoint_timer;
    struct checkpoints checkpoints;
    struct msg_stopped last; /* the steps of the epoch; set when it has ended */

    uint64_t recorders_until_ms; /* 0: PyTorch's flight recorders are not waited for */
    struct loop_timer recorder_timer;
};

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

static bool shows_progress(const struct hang_observation *s)
{
    return s->alive && s->progress.written;
}

/* The rank that is behind all others, or NULL if no rank shows progress. */
static const struct page_values *find_slowest(const struct progress_monitor *m)
{
    const struct page_values *p = NULL;

    for (uint32_t i = 0; i < m->pages->count; i++)
        if (shows_progress(&m->observation[i]) &&
            (!p || m->observation[i].progress.step < p->step))
            p = &m->observation[i].progress;
    return p;
}

/* When the epoch made its first step, and when it had caught up with those before. */
static void note_steps(struct progress_monitor *m)
{
    const struct page_values *p = m->reached_at_ms ? NULL : find_slowest(m);

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

static void read_pages(struct progress_monitor *m)
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
static void arm_page_timer(struct progress_monitor *m)
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

/* -- hangs and stragglers ------------------------------------------------------- */

static void send_remark(const struct progress_monitor *m, enum note_kind kind,
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

static void report_straggler(const struct progress_monitor *m)
{
    char text[256 + STACKS_BRIEF_MAX_BYTES];

    snprintf(text, sizeof(text),
             "rank %" PRIu32 " lags: it works at %.0f %% of the median speed of this "
             "node's ranks, which wait for it%s%s",
             m->first_rank + m->straggler, 100 * m->straggler_speed,
             m->straggler_votes > 0 ? "; it is mostly in " : "",
             m->straggler_votes > 0 ? m->straggler_place : "");
    send_remark(m, NOTE_STRAGGLER, text);
}

/* Of the places where its stack was found, the one of most of them. */
static void note_straggler_stack(struct progress_monitor *m,
                                 const struct msg_stacks *stack)
{
    if (stack->kind == STACKS_PYTHON && !stack->waits && *stack->ranks) {
        if (m->straggler_votes == 0)
            memcpy(m->straggler_place, stack->brief, sizeof(m->straggler_place));
        m->straggler_votes += strcmp(m->straggler_place, stack->brief) == 0 ? 1 : -1;
    }
    if (stack->last && m->straggler_asks == 0 && m->straggler != STRAGGLERS_NONE)
        report_straggler(m);
}

/* While it works, so that its stack shows at what. */
static void ask_straggler(struct progress_monitor *m)
{
    struct msg_ask_stacks ask = { .ask = STRAGGLER_ASK };

    if (m->observation[m->straggler].progress.phase == PROGRESS_COMMUNICATING)
        return;
    m->straggler_asks--;
    snprintf(ask.ranks, sizeof(ask.ranks), "%" PRIu32, m->first_rank + m->straggler);
    stacks_ask(m->stacks, &ask);
}

static void sample_stragglers(struct progress_monitor *m)
{
    uint32_t local_rank;

    for (uint32_t i = 0; i < m->pages->count; i++)
        if (shows_progress(&m->observation[i]))
            stragglers_sample(m->stragglers, i, m->observation[i].progress.phase,
                              m->observation[i].progress.step);
    local_rank = stragglers_find(m->stragglers, &m->straggler_speed);
    if (local_rank != m->straggler) {
        m->straggler_asks = local_rank != STRAGGLERS_NONE ? STRAGGLERS_ASKS : 0;
        m->straggler_votes = 0;
    }
    m->straggler = local_rank;
    if (m->straggler_asks > 0)
        ask_straggler(m);
}

static void rate_steps(struct progress_monitor *m)
{
    const struct page_values *p = find_slowest(m);

    m->rated_ms = clock_ms();
    if (p)
        step_rate_add(&m->step_rate, p->step, clock_ms());
}

static void on_page_timer(void *arg)
{
    struct progress_monitor *m = arg;

    read_pages(m);
    if (clock_ms() - m->rated_ms >= HANG_READ_MS)
        rate_steps(m);
    if (clock_ms() - m->sampled_ms >= STRAGGLERS_READ_MS) {
        m->sampled_ms = clock_ms();
        sample_stragglers(m);
    }
    if (m->has_news)
        m->calls.stepped(m->calls.arg);
    m->has_news = false;
    report_hang(m);
    if (m->pages) /* a callback may have ended the monitoring */
        arm_page_timer(m);
}

/* -- heartbeats ----------------------------------------------------------------- */

/* Without a worker that tells one now, the last of this epoch stays. */
static void format_loss(const struct progress_monitor *m, char *buf, size_t size)
{
    for (uint32_t i = 0; i < m->pages->count; i++) {
        const struct page_values *p = &m->observation[i].progress;

        if (!shows_progress(&m->observation[i]) || p->step == 0 ||
            (isnan(p->loss) && !p->loss_is_nan))
            continue;
        snprintf(buf, size, "%.4g", p->loss);
        return;
    }
}

static void format_note(const struct progress_monitor *m, char *buf, size_t size)
{
    double waiting = stragglers_waiting_share(m->stragglers);

    *buf = '\0';
    if (m->straggler != STRAGGLERS_NONE)
        snprintf(buf, size, "rank %" PRIu32 " lags, %.0f %% of the median",
                 m->first_rank + m->straggler, 100 * m->straggler_speed);
    else if (waiting >= 0)
        snprintf(buf, size, "waits %.0f %% of the time", 100 * waiting);
}

/* Of something that has happened; else 0. */
static uint32_t age_ms(uint64_t at_ms)
{
    uint64_t age = at_ms ? clock_ms() - at_ms : 0;

    return age < UINT32_MAX ? (uint32_t)age : UINT32_MAX;
}

static void update_heartbeat(struct progress_monitor *m)
{
    const struct page_values *p = find_slowest(m);
    double slowest, median, rate = step_rate_per_s(&m->step_rate);

    if (!p)
        return;
    m->progress.step = p->step;
    m->progress.steps = p->steps;
    if (stragglers_own_shares(m->stragglers, &slowest, &median)) {
        m->progress.busy = (uint32_t)(1000 * slowest + 0.5);
        m->progress.usual_busy = (uint32_t)(1000 * median + 0.5);
    }
    m->progress.first_step = m->first_step;
    m->progress.first_ms = age_ms(m->first_at_ms);
    m->progress.reached_ms = age_ms(m->reached_at_ms);
    *m->progress.steps_per_s = '\0';
    if (rate >= 0)
        snprintf(m->progress.steps_per_s, sizeof(m->progress.steps_per_s), "%.*f",
                 rate >= 100  ? 0
                 : rate >= 10 ? 1
                              : 2,
                 rate);
    format_loss(m, m->progress.loss, sizeof(m->progress.loss));
    format_note(m, m->progress.note, sizeof(m->progress.note));
}

void progress_monitor_fill_heartbeat(struct progress_monitor *m,
                                     struct msg_heartbeat *progress)
{
    if (m->pages) {
        read_pages(m);
        update_heartbeat(m);
        if (!m->timer.armed)
            arm_page_timer(m);
    }
    *progress = m->progress;
    progress->silent_ms = silence_lasts_ms(m->silence);
    if (m->checkpoints.saved_at_ms) /* at least 1, because 0 is not known */
        progress->checkpoint_ms = age_ms(m->checkpoints.saved_at_ms - 1);
}

void progress_monitor_note_output(struct progress_monitor *m, uint32_t local_rank,
                                  int stream, const char *data, size_t size)
{
    silence_break(m->silence);
    output_steps_read(m->output, local_rank, stream, data, size);
}

void progress_monitor_note_gpus(struct progress_monitor *m,
                                struct msg_heartbeat *progress)
{
    if (progress->gpus.count == 0 || progress->gpus.percent < SILENCE_GPU_PERCENT)
        return;
    silence_break(m->silence);
    progress->silent_ms = 0;
}

/* -- checkpoint requests -------------------------------------------------------- */

static void on_checkpoint_timer(void *arg)
{
    struct progress_monitor *m = arg;
    uint64_t now = clock_ms(), next = now + CHECKPOINT_READ_MS;

    read_pages(m);
    if (now < m->checkpoint_until_ms &&
        !checkpoints_are_written(&m->checkpoints, m->observation, m->pages->count,
                                 m->any_page_written)) {
        loop_timer_arm(&m->checkpoint_timer,
                       next < m->checkpoint_until_ms ? next : m->checkpoint_until_ms);
        return;
    }
    m->checkpoint_until_ms = 0;
    loop_timer_cancel(&m->checkpoint_timer);
    m->calls.checkpointed(m->calls.arg);
}

uint64_t progress_monitor_checkpoint_ms(const struct progress_monitor *m)
{
    return m->checkpoints.longest_ms;
}

void progress_monitor_request_checkpoint(struct progress_monitor *m, uint32_t within_ms)
{
    if (m->checkpoint_until_ms)
        return;
    if (m->pages)
        read_pages(m);
    if (!m->pages || (!m->any_page_written && !m->config->checkpoint_signal)) {
        m->calls.checkpointed(m->calls.arg);
        return;
    }
    checkpoints_request(&m->checkpoints, m->pages, within_ms);
    for (uint32_t i = 0; m->config->checkpoint_signal && i < m->pages->count; i++)
        if (m->observation[i].alive)
            guard_signal(m->guard, i, m->config->checkpoint_signal);
    m->checkpoint_until_ms = clock_ms() + within_ms;
    loop_timer_arm(&m->checkpoint_timer, clock_ms());
}

/* -- the state of every rank ---------------------------------------------------- */

static void describe_progress(const struct progress_monitor *m, uint32_t i, char *buf,
                              size_t size)
{
    const struct page_values *p = &m->observation[i].progress;
    const char *where = m->pages->page[i]->where;
    char still[32];
    size_t used;

    clock_format_duration(hang_unchanged_ms(m->hang, i), still, sizeof(still));
    if (!p->written)
        snprintf(buf, size, "nothing on its status page for %s", still);
    else
        snprintf(buf, size, "step %" PRIu64 ", %s, no change for %s", p->step,
                 progress_phase_name(p->phase), still);
    used = strlen(buf);
    if (*where) /* the operation of the worker library */
        snprintf(buf + used, size - used, ", in %.*s", (int)PROGRESS_WHERE_BYTES - 1,
                 where);
}

static void send_rank_state(struct progress_monitor *m, uint32_t i)
{
    char text[ERROR_TEXT_MAX_BYTES + 1], page[96 + PROGRESS_WHERE_BYTES], state[256];
    pid_t pid = group_pid(m->group, i);

    if (pid) {
        describe_progress(m, i, page, sizeof(page));
        proc_state_describe(pid, state, sizeof(state));
        snprintf(text, sizeof(text), "rank %" PRIu32 " (pid %d): %s; process %s",
                 m->first_rank + i, (int)pid, page, *state ? state : "gone");
    } else {
        snprintf(text, sizeof(text), "rank %" PRIu32 ": has ended", m->first_rank + i);
    }
    send_remark(m, NOTE_RANK, text);
}

void progress_monitor_report_ranks(struct progress_monitor *m)
{
    uint32_t count = 0;
    char text[64];

    if (!m->pages || m->ranks_reported)
        return;
    m->ranks_reported = true;
    read_pages(m);
    for (uint32_t i = 0; i < m->pages->count; i++) {
        if (stacks_has_handler(m->stacks, i))
            continue;
        if (count++ < HANG_RANKS_REPORTED)
            send_rank_state(m, i);
    }
    if (count <= HANG_RANKS_REPORTED)
        return;
    snprintf(text, sizeof(text), "and %" PRIu32 " more ranks of this node",
             count - HANG_RANKS_REPORTED);
    send_remark(m, NOTE_RANK, text);
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
    note_straggler_stack(m, s);
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
        send_remark(m, NOTE_RANK, text);
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
    loop_timer_init(&m->checkpoint_timer, loop, on_checkpoint_timer, m);
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
    arm_page_timer(m);
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
