/* SPDX-License-Identifier: MIT */
#include "agent/progress/progress_monitor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/guard/guard.h"
#include "agent/progress/hang.h"
#include "agent/progress/stragglers.h"
#include "agent/progress/step_rate.h"
#include "agent/guard/status_pages.h"
#include "agent/progress/proc_state.h"
#include "rendezvous/base/clock.h"
#include "agent/progress/limits.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/proc.h"
#include "rendezvous/base/xalloc.h"

struct progress_monitor {
    const struct config *config;
    struct progress_monitor_calls calls;

    /* of the epoch; pages is NULL between epochs */
    struct group *group;
    struct guard *guard;
    const struct status_pages *pages;
    uint32_t first_rank;
    bool any_page_written, hang_reported, ranks_reported;
    uint32_t straggler; /* reported; or STRAGGLERS_NONE */
    double straggler_speed;
    struct hang_observation *observation;
    struct hang *hang;
    struct stragglers *stragglers;
    struct step_rate step_rate;
    struct msg_heartbeat progress;
    struct loop_timer timer;

    /* the requested checkpoint; 0: none */
    uint64_t checkpoint_until_ms;
    uint32_t checkpoint_requests; /* of this epoch */
    struct loop_timer checkpoint_timer;
};

/* -- reading the pages ---------------------------------------------------------- */

/* If all ranks wait in the same step, they wait for the one that is stopped. */
static bool is_stopped_while_it_waits(const struct hang_observation *s, pid_t pid)
{
    struct proc_stat stat;

    return !s->changed && s->alive && s->progress.phase == PROGRESS_COMMUNICATING &&
           proc_read_stat(pid, &stat) && (stat.state == 'T' || stat.state == 't');
}

static void read_pages(struct progress_monitor *w)
{
    for (uint32_t i = 0; i < w->pages->count; i++) {
        struct hang_observation *s = &w->observation[i];

        s->changed = page_reader_read(&s->progress, w->pages->page[i]);
        s->alive = group_pid(w->group, i) != 0;
        s->stopped = is_stopped_while_it_waits(s, group_pid(w->group, i));
        w->any_page_written |= s->progress.written;
    }
    hang_observe(w->hang, w->observation, clock_ms());
}

static bool shows_progress(const struct hang_observation *s)
{
    return s->alive && s->progress.written;
}

/* The rank that is behind all others, or NULL if no rank shows progress. */
static const struct page_values *find_slowest(const struct progress_monitor *w)
{
    const struct page_values *p = NULL;

    for (uint32_t i = 0; i < w->pages->count; i++)
        if (shows_progress(&w->observation[i]) &&
            (!p || w->observation[i].progress.step < p->step))
            p = &w->observation[i].progress;
    return p;
}

static void sample_step_rate(struct progress_monitor *w)
{
    const struct page_values *p = find_slowest(w);

    if (p)
        step_rate_add(&w->step_rate, p->step, clock_ms());
}

/* At moments unrelated to the steps, so that a step of exactly a second is not always
 * sampled in the same phase. */
static uint64_t next_reading_ms(void)
{
    return clock_ms() + HANG_READ_MS + (uint64_t)rand() % (HANG_READ_MS / 4);
}

static void arm_page_timer(struct progress_monitor *w)
{
    uint64_t next = next_reading_ms(), deadline = hang_deadline(w->hang);

    if (w->any_page_written || w->config->hang_auto || w->config->hang_timeout_ms)
        loop_timer_arm(&w->timer, deadline < next ? deadline : next);
}

/* -- hangs and stragglers ------------------------------------------------------- */

static void send_remark(const struct progress_monitor *w, enum note_kind kind,
                        const char *text)
{
    w->calls.remark(w->calls.arg, kind, text);
}

static void report_hang(struct progress_monitor *w)
{
    uint32_t local_rank = w->hang_reported ? HANG_NONE : hang_find(w->hang);
    const struct page_values *p;
    char what[128], still[32];

    if (local_rank == HANG_NONE)
        return;
    w->hang_reported = true;
    p = &w->observation[local_rank].progress;
    clock_format_duration(hang_unchanged_ms(w->hang, local_rank), still, sizeof(still));
    if (p->written)
        snprintf(what, sizeof(what), "no progress for %s at step %" PRIu64 ", %s",
                 still, p->step, progress_phase_name(p->phase));
    else
        snprintf(what, sizeof(what),
                 "nothing on its status page in the %s since its start", still);
    group_report_hang(w->group, local_rank, what);
}

static void sample_stragglers(struct progress_monitor *w)
{
    uint32_t local_rank;
    char text[160];

    for (uint32_t i = 0; i < w->pages->count; i++)
        if (shows_progress(&w->observation[i]))
            stragglers_sample(w->stragglers, i, w->observation[i].progress.phase);
    local_rank = stragglers_find(w->stragglers, &w->straggler_speed);
    if (local_rank != STRAGGLERS_NONE && local_rank != w->straggler) {
        snprintf(text, sizeof(text),
                 "rank %" PRIu32 " lags: it computes at %.0f %% of the median speed of "
                 "this node's ranks, which wait for it",
                 w->first_rank + local_rank, 100 * w->straggler_speed);
        send_remark(w, NOTE_STRAGGLER, text);
    }
    w->straggler = local_rank;
}

static void on_page_timer(void *arg)
{
    struct progress_monitor *w = arg;

    read_pages(w);
    sample_step_rate(w);
    sample_stragglers(w);
    report_hang(w);
    if (w->pages) /* a callback may have ended the monitoring */
        arm_page_timer(w);
}

/* -- heartbeats ----------------------------------------------------------------- */

static void format_step_rate(double rate, char *buf, size_t size)
{
    int digits = rate >= 100 ? 0 : rate >= 10 ? 1 : 2;

    *buf = '\0';
    if (rate >= 0)
        snprintf(buf, size, "%.*f", digits, rate);
}

static void format_loss(const struct progress_monitor *w, char *buf, size_t size)
{
    *buf = '\0';
    for (uint32_t i = 0; i < w->pages->count; i++) {
        const struct page_values *p = &w->observation[i].progress;

        if (!shows_progress(&w->observation[i]) || p->step == 0 || isnan(p->loss))
            continue;
        snprintf(buf, size, "%.4g", p->loss);
        return;
    }
}

static void format_note(const struct progress_monitor *w, char *buf, size_t size)
{
    double waiting = stragglers_waiting_share(w->stragglers);

    *buf = '\0';
    if (w->straggler != STRAGGLERS_NONE)
        snprintf(buf, size, "rank %" PRIu32 " lags, %.0f %% of the median",
                 w->first_rank + w->straggler, 100 * w->straggler_speed);
    else if (waiting >= 0)
        snprintf(buf, size, "waits %.0f %% of the time", 100 * waiting);
}

static void update_heartbeat(struct progress_monitor *w)
{
    const struct page_values *p = find_slowest(w);

    if (!p)
        return;
    w->progress.step = p->step;
    format_step_rate(step_rate_per_s(&w->step_rate), w->progress.steps_per_s,
                     sizeof(w->progress.steps_per_s));
    format_loss(w, w->progress.loss, sizeof(w->progress.loss));
    format_note(w, w->progress.note, sizeof(w->progress.note));
}

void progress_monitor_fill_heartbeat(struct progress_monitor *w,
                                     struct msg_heartbeat *progress)
{
    if (w->pages) {
        read_pages(w);
        update_heartbeat(w);
        if (!w->timer.armed)
            arm_page_timer(w);
    }
    *progress = w->progress;
}

/* -- checkpoint requests -------------------------------------------------------- */

static bool is_saved(const struct progress_monitor *w, const struct hang_observation *s)
{
    if (!s->alive || s->progress.phase == PROGRESS_DONE)
        return true;
    if (!s->progress.written) /* if no rank writes, the signal gets its time */
        return w->any_page_written;
    return s->progress.saved == w->checkpoint_requests;
}

static bool all_saved(const struct progress_monitor *w)
{
    for (uint32_t i = 0; i < w->pages->count; i++)
        if (!is_saved(w, &w->observation[i]))
            return false;
    return true;
}

static void finish_checkpoint_request(struct progress_monitor *w)
{
    w->checkpoint_until_ms = 0;
    loop_timer_cancel(&w->checkpoint_timer);
    w->calls.checkpointed(w->calls.arg);
}

static void on_checkpoint_timer(void *arg)
{
    struct progress_monitor *w = arg;
    uint64_t now = clock_ms(), next = now + CHECKPOINT_READ_MS;

    read_pages(w);
    if (now >= w->checkpoint_until_ms || all_saved(w))
        finish_checkpoint_request(w);
    else
        loop_timer_arm(&w->checkpoint_timer,
                       next < w->checkpoint_until_ms ? next : w->checkpoint_until_ms);
}

static void request_checkpoints(struct progress_monitor *w, uint32_t within_ms)
{
    w->checkpoint_requests++;
    for (uint32_t i = 0; i < w->pages->count; i++) {
        w->pages->page[i]->save_within_ms = within_ms;
        __atomic_store_n(&w->pages->page[i]->save, w->checkpoint_requests,
                         __ATOMIC_RELEASE);
        if (w->config->checkpoint_signal && w->observation[i].alive)
            guard_signal_worker(w->guard, i, w->config->checkpoint_signal);
    }
}

void progress_monitor_request_checkpoint(struct progress_monitor *w, uint32_t within_ms)
{
    if (w->checkpoint_until_ms)
        return;
    if (w->pages)
        read_pages(w);
    if (!w->pages || (!w->any_page_written && !w->config->checkpoint_signal)) {
        w->calls.checkpointed(w->calls.arg);
        return;
    }
    request_checkpoints(w, within_ms);
    w->checkpoint_until_ms = clock_ms() + within_ms;
    loop_timer_arm(&w->checkpoint_timer, clock_ms());
}

/* -- the state of every rank ---------------------------------------------------- */

static void describe_progress(const struct progress_monitor *w, uint32_t i, char *buf,
                              size_t size)
{
    const struct page_values *p = &w->observation[i].progress;
    char still[32];

    clock_format_duration(hang_unchanged_ms(w->hang, i), still, sizeof(still));
    if (!p->written)
        snprintf(buf, size, "nothing on its status page for %s", still);
    else
        snprintf(buf, size, "step %" PRIu64 ", %s, no change for %s", p->step,
                 progress_phase_name(p->phase), still);
}

static void send_rank_state(struct progress_monitor *w, uint32_t i)
{
    char text[ERROR_TEXT_MAX_BYTES + 1], page[96], state[256];
    pid_t pid = group_pid(w->group, i);

    if (pid) {
        describe_progress(w, i, page, sizeof(page));
        proc_state_describe(pid, state, sizeof(state));
        snprintf(text, sizeof(text), "rank %" PRIu32 " (pid %d): %s; process %s",
                 w->first_rank + i, (int)pid, page, *state ? state : "gone");
    } else {
        snprintf(text, sizeof(text), "rank %" PRIu32 ": has ended", w->first_rank + i);
    }
    send_remark(w, NOTE_RANK, text);
}

void progress_monitor_report_ranks(struct progress_monitor *w)
{
    char text[64];

    if (!w->pages || w->ranks_reported)
        return;
    w->ranks_reported = true;
    read_pages(w);
    for (uint32_t i = 0; i < w->pages->count && i < HANG_RANKS_REPORTED; i++)
        send_rank_state(w, i);
    if (w->pages->count <= HANG_RANKS_REPORTED)
        return;
    snprintf(text, sizeof(text), "and %" PRIu32 " more ranks of this node",
             w->pages->count - HANG_RANKS_REPORTED);
    send_remark(w, NOTE_RANK, text);
}

/* -- the whole ------------------------------------------------------------------ */

struct progress_monitor *
progress_monitor_create(struct loop *loop, const struct config *config,
                        const struct progress_monitor_calls *calls)
{
    struct progress_monitor *w = xcalloc(1, sizeof(*w));

    w->config = config;
    w->calls = *calls;
    w->observation = xcalloc(config->workers, sizeof(*w->observation));
    w->hang = hang_create(config->workers);
    w->stragglers = stragglers_create(config->workers);
    loop_timer_init(&w->timer, loop, on_page_timer, w);
    loop_timer_init(&w->checkpoint_timer, loop, on_checkpoint_timer, w);
    return w;
}

void progress_monitor_destroy(struct progress_monitor *w)
{
    if (!w)
        return;
    loop_timer_fini(&w->timer);
    loop_timer_fini(&w->checkpoint_timer);
    hang_destroy(w->hang);
    stragglers_destroy(w->stragglers);
    free(w->observation);
    free(w);
}

void progress_monitor_begin(struct progress_monitor *w, struct group *group,
                            struct guard *guard, const struct msg_start *start)
{
    const struct hang_rule rule = { w->config->hang_timeout_ms, w->config->hang_auto };

    progress_monitor_end(w);
    w->progress = (struct msg_heartbeat){ .step = 0 };
    if (guard_pages(guard)->count < w->config->workers)
        return;
    w->group = group;
    w->guard = guard;
    w->pages = guard_pages(guard);
    w->first_rank = start->first_rank;
    w->any_page_written = w->hang_reported = w->ranks_reported = false;
    w->straggler = STRAGGLERS_NONE;
    w->checkpoint_requests = 0;
    w->step_rate = (struct step_rate){ .count = 0 };
    memset(w->observation, 0, w->config->workers * sizeof(*w->observation));
    hang_begin(w->hang, &rule, start->world_size > w->config->workers, clock_ms());
    stragglers_begin(w->stragglers);
    arm_page_timer(w);
}

void progress_monitor_end(struct progress_monitor *w)
{
    w->pages = NULL;
    w->checkpoint_until_ms = 0;
    loop_timer_cancel(&w->timer);
    loop_timer_cancel(&w->checkpoint_timer);
}
