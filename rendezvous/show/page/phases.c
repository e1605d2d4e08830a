/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/page/phases.h"

#include "rendezvous/show/page/fields.h"

const struct page_phase_row page_phases[PAGE_PHASE_COUNT] = {
    [PAGE_PHASE_DETECT] = { "detect_ms", "detect", "until the failure was known",
                            "p1" },
    [PAGE_PHASE_STOP] = { "stop_ms", "stop", "until all workers were gone", "p2" },
    [PAGE_PHASE_FORM] = { "form_ms", "form", "until enough nodes were there", "p3" },
    [PAGE_PHASE_START] = { "start_ms", "start", "until all workers ran", "p4" },
    [PAGE_PHASE_FIRST_STEP] = { "first_step_ms", "first step", "until the first step",
                                "p5" },
    [PAGE_PHASE_REWORK] = { "rework_ms", "rework", "steps done again", "p6" },
    [PAGE_PHASE_PRODUCTIVE] = { "productive_ms", "productive", "new steps", "p0" },
};

struct page_times page_times_read(const cJSON *productive, const cJSON *lost)
{
    struct page_times t = { .steps_again = field_count(lost, "steps_again") };

    for (int i = 0; i < PAGE_PHASE_COUNT; i++) {
        t.ms[i] = field_count(i == PAGE_PHASE_PRODUCTIVE ? productive : lost,
                              page_phases[i].field);
        t.all_ms += t.ms[i];
    }
    t.is_unplaced = cJSON_IsNull(
        cJSON_GetObjectItemCaseSensitive(productive, "productive_ms"));
    if (t.is_unplaced) {
        t.ms[PAGE_PHASE_PRODUCTIVE] = field_count(productive, "ran_ms");
        t.all_ms += t.ms[PAGE_PHASE_PRODUCTIVE];
    }
    t.lost_ms = t.all_ms - t.ms[PAGE_PHASE_PRODUCTIVE];
    return t;
}
