/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <signal.h>

#include "agent/cleanup/freezer.h"
#include "agent/guard/limits.h"
#include "agent/guard/status_pages.h"
#include "agent/workers/group_internal.h"
#include "agent/workers/limits.h"
#include "agent/workers/torch_recorder.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"

static void kill_group(struct group *g)
{
    g->killed = true;
    guard_kill(g->guard);
    loop_timer_arm(&g->kill_timer, clock_ms() + GUARD_LAST_MS);
}

static void log_frozen_workers(const struct group *g)
{
    char path[512];

    for (uint32_t i = 0; i < g->started; i++)
        if (group_pid(g, i) && freezer_holds(group_pid(g, i), path, sizeof(path)))
            log_error("rank %" PRIu32 " (pid %d) cannot be killed while it is frozen: "
                      "see %s",
                      g->start.first_rank + i, (int)group_pid(g, i), path);
}

static bool group_saves(const struct group *g)
{
    const struct status_pages *pages = guard_pages(g->guard);

    for (uint32_t i = 0; i < g->started; i++)
        if (!g->worker[i].exited && status_pages_saves(pages, i))
            return true;
    return false;
}

void group_on_kill_time(void *arg)
{
    struct group *g = arg;

    if (!g->killed) {
        if (clock_ms() < g->kill_at_ms && group_saves(g))
            loop_timer_arm(&g->kill_timer, clock_ms() + SAVING_LOOK_MS);
        else
            kill_group(g);
        return;
    }
    log_error("processes of the workers still live %d s after KILL: ending their guard",
              GUARD_LAST_MS / 1000);
    log_frozen_workers(g);
    guard_force(g->guard);
}

void group_on_empty(void *arg)
{
    struct group *g = arg;

    if (!g->running || g->alive || g->undrained)
        return;
    group_report_leftovers(g);
    g->running = g->sweeping = false;
    torch_recorder_end(g->recorder);
    loop_timer_cancel(&g->kill_timer);
    if (g->stopping)
        g->calls.stopped(g->calls.arg);
    else if (!g->failed)
        g->calls.finished(g->calls.arg);
}

void group_stop(struct group *g, int signo, bool lost_rank, uint32_t quick_ms,
                uint32_t grace_ms)
{
    uint64_t now = clock_ms();
    uint64_t kill_at = now + (quick_ms < grace_ms ? quick_ms : grace_ms);

    if (!g->stopping || now + grace_ms < g->kill_at_ms)
        g->kill_at_ms = now + grace_ms;
    g->stopping = true;
    if (!g->running) {
        g->calls.stopped(g->calls.arg);
        return;
    }
    if (g->killed)
        return;
    if (grace_ms == 0) {
        kill_group(g);
        return;
    }
    guard_signal(g->guard, GUARD_ALL, signo);
    for (uint32_t i = 0; lost_rank && i < g->started; i++)
        if (!g->worker[i].exited &&
            status_pages_saves_together(guard_pages(g->guard), i))
            guard_signal(g->guard, i, SIGKILL);
    if (!g->kill_timer.armed || kill_at < g->kill_timer.at_ms)
        loop_timer_arm(&g->kill_timer, kill_at);
    if (g->delays_term)
        g->sweeping = g->delays_term = false; /* sweeps again, at once */
    group_sweep_if_over(g);
}
