/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SHOW_PAGE_PHASES_H
#define RENDEZVOUS_SHOW_PAGE_PHASES_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* What the time of a job went to, in the order in which it passes in a restart;
 * PROTOCOL.md defines the phases. */
enum page_phase {
    PAGE_PHASE_DETECT,
    PAGE_PHASE_STOP,
    PAGE_PHASE_FORM,
    PAGE_PHASE_START,
    PAGE_PHASE_FIRST_STEP,
    PAGE_PHASE_REWORK,
    PAGE_PHASE_PRODUCTIVE,
    PAGE_PHASE_COUNT
};

struct page_phase_row {
    const char *field, *word, *what, *class;
};
extern const struct page_phase_row page_phases[PAGE_PHASE_COUNT];

struct page_times {
    uint64_t ms[PAGE_PHASE_COUNT], lost_ms, all_ms, steps_again;
    bool is_unplaced; /* no one knows which part of the productive time was */
};

/* Productive time is in one object, what was lost in the other. */
struct page_times page_times_read(const cJSON *productive, const cJSON *lost);

#endif
