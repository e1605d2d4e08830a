/* SPDX-License-Identifier: MIT */
#include "agent/progress/progress_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"

/* Without a worker that tells one now, the last of this epoch stays. */
static void format_loss(const struct progress_monitor *m, char *buf, size_t size)
{
    for (uint32_t i = 0; i < m->pages->count; i++) {
        const struct page_values *p = &m->observation[i].progress;

        if (!progress_monitor_shows(&m->observation[i]) || p->step == 0 ||
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
    const struct page_values *p = progress_monitor_find_slowest(m);
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
        progress_monitor_read(m);
        update_heartbeat(m);
        if (!m->timer.armed)
            progress_monitor_arm(m);
    }
    *progress = m->progress;
    progress->silent_ms = silence_lasts_ms(m->silence);
    if (m->checkpoints.saved_at_ms) /* at least 1, because 0 is not known */
        progress->checkpoint_ms = age_ms(m->checkpoints.saved_at_ms - 1);
}

void progress_monitor_note_gpus(struct progress_monitor *m,
                                struct msg_heartbeat *progress)
{
    if (progress->gpus.count == 0 || progress->gpus.percent < SILENCE_GPU_PERCENT)
        return;
    silence_break(m->silence);
    progress->silent_ms = 0;
}
