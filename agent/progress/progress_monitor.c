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

    /* of the epoch; pages is NULL while there is none */
    struct group *group;
    struct guard *guard;
    const struct status_pages *pages;
    uint32_t first_rank;
    bool somebody_wrote, hang_told, ranks_told;
    uint32_t lagging; /* told; or STRAGGLERS_NONE */
    double lagging_speed;
    struct hang_sight *sight;
    struct hang *hang;
    struct stragglers *lag;
    struct step_rate pace;
    struct msg_heartbeat progress;
    struct loop_timer timer;

    /* the checkpoint asked for; 0: none */
    uint64_t ask_until;
    uint32_t ask; /* how many there were */
    struct loop_timer ask_timer;
};

/* -- looking -------------------------------------------------------------------- */

/* Of ranks that all wait in the same step, a stopped one is the one waited for. */
static bool is_stopped_while_it_waits(const struct hang_sight *s, pid_t pid)
{
    struct proc_stat stat;

    return !s->changed && s->alive && s->progress.phase == PROGRESS_COMMUNICATING &&
           proc_read_stat(pid, &stat) && (stat.state == 'T' || stat.state == 't');
}

static void look(struct progress_monitor *w)
{
    for (uint32_t i = 0; i < w->pages->count; i++) {
        struct hang_sight *s = &w->sight[i];

        s->changed = page_reader_read(&s->progress, w->pages->page[i]);
        s->alive = group_pid(w->group, i) != 0;
        s->stopped = is_stopped_while_it_waits(s, group_pid(w->group, i));
        w->somebody_wrote |= s->progress.written;
    }
    hang_look(w->hang, w->sight, clock_ms());
}

static bool shows(const struct hang_sight *s)
{
    return s->alive && s->progress.written;
}

/* The one that is behind all others, or NULL if nobody shows anything. */
static const struct page_values *slowest(const struct progress_monitor *w)
{
    const struct page_values *p = NULL;

    for (uint32_t i = 0; i < w->pages->count; i++)
        if (shows(&w->sight[i]) && (!p || w->sight[i].progress.step < p->step))
            p = &w->sight[i].progress;
    return p;
}

static void note_pace(struct progress_monitor *w)
{
    const struct page_values *p = slowest(w);

    if (p)
        step_rate_add(&w->pace, p->step, clock_ms());
}

/* Moments that have nothing to do with the steps, so that a step of exactly a second is
 * not always seen in the same phase. */
static uint64_t next_look(void)
{
    return clock_ms() + HANG_LOOK_MS + (uint64_t)rand() % (HANG_LOOK_MS / 4);
}

static void arm(struct progress_monitor *w)
{
    uint64_t next = next_look(), deadline = hang_deadline(w->hang);

    if (w->somebody_wrote || w->config->hang_auto || w->config->hang_timeout_ms)
        loop_timer_arm(&w->timer, deadline < next ? deadline : next);
}

/* -- what is seen --------------------------------------------------------------- */

static void remark(const struct progress_monitor *w, enum note_kind kind,
                   const char *text)
{
    w->calls.remark(w->calls.arg, kind, text);
}

static void judge(struct progress_monitor *w)
{
    uint32_t local_rank = w->hang_told ? HANG_NONE : hang_verdict(w->hang);
    const struct page_values *p;
    char what[128], still[32];

    if (local_rank == HANG_NONE)
        return;
    w->hang_told = true;
    p = &w->sight[local_rank].progress;
    clock_format_duration(hang_still_ms(w->hang, local_rank), still, sizeof(still));
    if (p->written)
        snprintf(what, sizeof(what), "no progress for %s at step %" PRIu64 ", %s",
                 still, p->step, progress_phase_name(p->phase));
    else
        snprintf(what, sizeof(what),
                 "nothing on its status page in the %s since its start", still);
    group_report_hang(w->group, local_rank, what);
}

static void sample_lag(struct progress_monitor *w)
{
    uint32_t local_rank;
    char text[160];

    for (uint32_t i = 0; i < w->pages->count; i++)
        if (shows(&w->sight[i]))
            stragglers_sample(w->lag, i, w->sight[i].progress.phase);
    local_rank = stragglers_find(w->lag, &w->lagging_speed);
    if (local_rank != STRAGGLERS_NONE && local_rank != w->lagging) {
        snprintf(text, sizeof(text),
                 "rank %" PRIu32 " lags: it computes at %.0f %% of the median speed of "
                 "this node's ranks, which wait for it",
                 w->first_rank + local_rank, 100 * w->lagging_speed);
        remark(w, NOTE_STRAGGLER, text);
    }
    w->lagging = local_rank;
}

static void on_look(void *arg)
{
    struct progress_monitor *w = arg;

    look(w);
    note_pace(w);
    sample_lag(w);
    judge(w);
    if (w->pages) /* whoever was told may have ended it */
        arm(w);
}

/* -- what the heartbeats say ---------------------------------------------------- */

static void format_pace(double pace, char *buf, size_t size)
{
    *buf = '\0';
    if (pace >= 0)
        snprintf(buf, size, "%.*f", pace >= 100 ? 0 : pace >= 10 ? 1 : 2, pace);
}

static void format_loss(const struct progress_monitor *w, char *buf, size_t size)
{
    *buf = '\0';
    for (uint32_t i = 0; i < w->pages->count; i++) {
        const struct page_values *p = &w->sight[i].progress;

        if (!shows(&w->sight[i]) || p->step == 0 || isnan(p->loss))
            continue;
        snprintf(buf, size, "%.4g", p->loss);
        return;
    }
}

static void format_note(const struct progress_monitor *w, char *buf, size_t size)
{
    double waiting = stragglers_waiting(w->lag);

    *buf = '\0';
    if (w->lagging != STRAGGLERS_NONE)
        snprintf(buf, size, "rank %" PRIu32 " lags, %.0f %% of the median",
                 w->first_rank + w->lagging, 100 * w->lagging_speed);
    else if (waiting >= 0)
        snprintf(buf, size, "waits %.0f %% of the time", 100 * waiting);
}

static void note_progress(struct progress_monitor *w)
{
    const struct page_values *p = slowest(w);

    if (!p)
        return;
    w->progress.step = p->step;
    format_pace(step_rate_per_s(&w->pace), w->progress.steps_per_s,
                sizeof(w->progress.steps_per_s));
    format_loss(w, w->progress.loss, sizeof(w->progress.loss));
    format_note(w, w->progress.note, sizeof(w->progress.note));
}

void progress_monitor_progress(struct progress_monitor *w,
                               struct msg_heartbeat *progress)
{
    if (w->pages) {
        look(w);
        note_progress(w);
        if (!w->timer.armed)
            arm(w);
    }
    *progress = w->progress;
}

/* -- a checkpoint is asked for -------------------------------------------------- */

static bool is_saved(const struct progress_monitor *w, const struct hang_sight *s)
{
    if (!s->alive || s->progress.phase == PROGRESS_DONE)
        return true;
    if (!s->progress.written) /* where nobody writes, the signal gets its time */
        return w->somebody_wrote;
    return s->progress.saved == w->ask;
}

static bool all_saved(const struct progress_monitor *w)
{
    for (uint32_t i = 0; i < w->pages->count; i++)
        if (!is_saved(w, &w->sight[i]))
            return false;
    return true;
}

static void end_ask(struct progress_monitor *w)
{
    w->ask_until = 0;
    loop_timer_cancel(&w->ask_timer);
    w->calls.checkpointed(w->calls.arg);
}

static void on_ask_look(void *arg)
{
    struct progress_monitor *w = arg;
    uint64_t now = clock_ms(), next = now + CHECKPOINT_LOOK_MS;

    look(w);
    if (now >= w->ask_until || all_saved(w))
        end_ask(w);
    else
        loop_timer_arm(&w->ask_timer, next < w->ask_until ? next : w->ask_until);
}

static void ask_workers(struct progress_monitor *w, uint32_t within_ms)
{
    w->ask++;
    for (uint32_t i = 0; i < w->pages->count; i++) {
        w->pages->page[i]->save_within_ms = within_ms;
        __atomic_store_n(&w->pages->page[i]->save, w->ask, __ATOMIC_RELEASE);
        if (w->config->checkpoint_signal && w->sight[i].alive)
            guard_signal_worker(w->guard, i, w->config->checkpoint_signal);
    }
}

void progress_monitor_ask_checkpoint(struct progress_monitor *w, uint32_t within_ms)
{
    if (w->ask_until)
        return;
    if (w->pages)
        look(w);
    if (!w->pages || (!w->somebody_wrote && !w->config->checkpoint_signal)) {
        w->calls.checkpointed(w->calls.arg);
        return;
    }
    ask_workers(w, within_ms);
    w->ask_until = clock_ms() + within_ms;
    loop_timer_arm(&w->ask_timer, clock_ms());
}

/* -- what every rank does ------------------------------------------------------- */

static void describe_page(const struct progress_monitor *w, uint32_t i, char *buf,
                          size_t size)
{
    const struct page_values *p = &w->sight[i].progress;
    char still[32];

    clock_format_duration(hang_still_ms(w->hang, i), still, sizeof(still));
    if (!p->written)
        snprintf(buf, size, "nothing on its status page for %s", still);
    else
        snprintf(buf, size, "step %" PRIu64 ", %s, no change for %s", p->step,
                 progress_phase_name(p->phase), still);
}

static void tell_rank(struct progress_monitor *w, uint32_t i)
{
    char text[ERROR_TEXT_MAX_BYTES + 1], page[96], state[256];
    pid_t pid = group_pid(w->group, i);

    if (pid) {
        describe_page(w, i, page, sizeof(page));
        proc_state_describe(pid, state, sizeof(state));
        snprintf(text, sizeof(text), "rank %" PRIu32 " (pid %d): %s; process %s",
                 w->first_rank + i, (int)pid, page, *state ? state : "gone");
    } else {
        snprintf(text, sizeof(text), "rank %" PRIu32 ": has ended", w->first_rank + i);
    }
    remark(w, NOTE_RANK, text);
}

void progress_monitor_tell_ranks(struct progress_monitor *w)
{
    char text[64];

    if (!w->pages || w->ranks_told)
        return;
    w->ranks_told = true;
    look(w);
    for (uint32_t i = 0; i < w->pages->count && i < HANG_RANKS_TOLD; i++)
        tell_rank(w, i);
    if (w->pages->count <= HANG_RANKS_TOLD)
        return;
    snprintf(text, sizeof(text), "and %" PRIu32 " more ranks of this node",
             w->pages->count - HANG_RANKS_TOLD);
    remark(w, NOTE_RANK, text);
}

/* -- the whole ------------------------------------------------------------------ */

struct progress_monitor *
progress_monitor_create(struct loop *loop, const struct config *config,
                        const struct progress_monitor_calls *calls)
{
    struct progress_monitor *w = xcalloc(1, sizeof(*w));

    w->config = config;
    w->calls = *calls;
    w->sight = xcalloc(config->workers, sizeof(*w->sight));
    w->hang = hang_create(config->workers);
    w->lag = stragglers_create(config->workers);
    loop_timer_init(&w->timer, loop, on_look, w);
    loop_timer_init(&w->ask_timer, loop, on_ask_look, w);
    return w;
}

void progress_monitor_destroy(struct progress_monitor *w)
{
    if (!w)
        return;
    loop_timer_fini(&w->timer);
    loop_timer_fini(&w->ask_timer);
    hang_destroy(w->hang);
    stragglers_destroy(w->lag);
    free(w->sight);
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
    w->somebody_wrote = w->hang_told = w->ranks_told = false;
    w->lagging = STRAGGLERS_NONE;
    w->ask = 0;
    w->pace = (struct step_rate){ .count = 0 };
    memset(w->sight, 0, w->config->workers * sizeof(*w->sight));
    hang_begin(w->hang, &rule, start->world_size > w->config->workers, clock_ms());
    stragglers_begin(w->lag);
    arm(w);
}

void progress_monitor_end(struct progress_monitor *w)
{
    w->pages = NULL;
    w->ask_until = 0;
    loop_timer_cancel(&w->timer);
    loop_timer_cancel(&w->ask_timer);
}
