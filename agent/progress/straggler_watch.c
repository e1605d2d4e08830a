/* SPDX-License-Identifier: MIT */
#include "agent/progress/progress_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void report_straggler(const struct progress_monitor *m)
{
    char text[256 + STACKS_BRIEF_MAX_BYTES];

    snprintf(text, sizeof(text),
             "rank %" PRIu32 " lags: it works at %.0f %% of the median speed of this "
             "node's ranks, which wait for it%s%s",
             m->first_rank + m->straggler, 100 * m->straggler_speed,
             m->straggler_votes > 0 ? "; it is mostly in " : "",
             m->straggler_votes > 0 ? m->straggler_place : "");
    progress_monitor_remark(m, NOTE_STRAGGLER, text);
}

/* Of the places where its stack was found, the one of most of them. */
void progress_monitor_note_straggler_stack(struct progress_monitor *m,
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

void progress_monitor_sample_stragglers(struct progress_monitor *m)
{
    uint32_t local_rank;

    for (uint32_t i = 0; i < m->pages->count; i++)
        if (progress_monitor_shows(&m->observation[i]))
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
