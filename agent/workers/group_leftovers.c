/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>

#include "agent/workers/group_internal.h"
#include "agent/workers/limits.h"
#include "rendezvous/common/base/clock.h"

uint32_t group_leftovers_ms(const struct group *g)
{
    return g->config->job.shutdown_grace_ms / LEFTOVERS_PART;
}

/* The rest of that time, which begins with the exit of the last worker. */
static uint32_t leftovers_left_ms(const struct group *g)
{
    uint64_t until_ms = 0, now_ms = clock_ms();

    for (uint32_t i = 0; i < g->started; i++)
        if (g->worker[i].exit.at_ms + group_leftovers_ms(g) > until_ms)
            until_ms = g->worker[i].exit.at_ms + group_leftovers_ms(g);
    return until_ms > now_ms ? (uint32_t)(until_ms - now_ms) : 0;
}

void group_report_leftovers(void *arg)
{
    struct group *g = arg;
    char who[160], text[256];

    loop_timer_cancel(&g->left_timer);
    if (g->left.count == 0 || g->stopping)
        return;
    leftover_names_describe(&g->left, who, sizeof(who));
    snprintf(text, sizeof(text),
             "%s: ended, as %s still ran after %" PRIu32 ".%" PRIu32 " s", who,
             g->left.count == 1 ? "it" : "they", group_leftovers_ms(g) / 1000,
             group_leftovers_ms(g) % 1000 / 100);
    leftover_names_clear(&g->left);
    g->calls.left(g->calls.arg, text);
}

void group_sweep_if_over(struct group *g)
{
    uint32_t term_delay_ms = 0, grace_ms = g->config->job.failure_grace_ms;

    if (!g->running || g->alive || g->undrained || g->sweeping)
        return;
    g->sweeping = true;
    g->delays_term = !g->stopping && !g->failed;
    if (g->delays_term) {
        term_delay_ms = leftovers_left_ms(g);
        grace_ms = g->config->job.shutdown_grace_ms - group_leftovers_ms(g);
    }
    guard_sweep(g->guard, term_delay_ms, grace_ms);
    if (g->running && !g->kill_timer.armed)
        loop_timer_arm(&g->kill_timer, clock_ms() + term_delay_ms + grace_ms);
}

void group_on_leftover(void *arg, pid_t session, const char *name)
{
    struct group *g = arg;
    int64_t rank = -1;

    if (!g->delays_term)
        return;
    for (uint32_t i = 0; i < g->started; i++) /* each has a session of its own */
        if (g->worker[i].pid == session || g->started == 1)
            rank = g->start.first_rank + i;
    leftover_names_add(&g->left, rank, name);
    if (!g->left_timer.armed)
        loop_timer_arm(&g->left_timer, clock_ms() + LEFTOVERS_REPORT_MS);
}
