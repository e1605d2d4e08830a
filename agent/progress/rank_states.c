/* SPDX-License-Identifier: MIT */
#include "agent/progress/progress_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/progress/proc_state.h"
#include "rendezvous/common/base/clock.h"

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
    progress_monitor_remark(m, NOTE_RANK, text);
}

void progress_monitor_report_ranks(struct progress_monitor *m)
{
    uint32_t count = 0;
    char text[64];

    if (!m->pages || m->ranks_reported)
        return;
    m->ranks_reported = true;
    progress_monitor_read(m);
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
    progress_monitor_remark(m, NOTE_RANK, text);
}
