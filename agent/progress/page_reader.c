/* SPDX-License-Identifier: MIT */
#include "agent/progress/page_reader.h"

#include <string.h>

#define READ_TRIES 100

/* The worker's half, before anything is made of it. */
struct raw {
    uint32_t writing, phase;
    uint64_t step, steps, samples;
    double loss;
    uint64_t changed_ns;
    uint32_t saved, pad;
};

_Static_assert(sizeof(struct raw) == offsetof(struct progress_page, save) -
                                         offsetof(struct progress_page, writing),
               "the worker's half");

/* False if it was being written all the time. */
static bool copy(struct raw *r, const struct progress_page *page)
{
    for (int i = 0; i < READ_TRIES; i++) {
        uint32_t before = __atomic_load_n(&page->writing, __ATOMIC_ACQUIRE);

        memcpy(r, &page->writing, sizeof(*r));
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        r->writing = __atomic_load_n(&page->writing, __ATOMIC_RELAXED);
        if (r->writing == before && before % 2 == 0)
            return true;
    }
    return false;
}

static bool is_blank(const struct raw *r)
{
    static const struct raw blank;

    return memcmp(r, &blank, sizeof(*r)) == 0;
}

bool page_reader_read(struct page_values *p, const struct progress_page *page)
{
    struct page_values before = *p;
    struct raw r;

    if (!copy(&r, page)) { /* one that died within, or writes all the time */
        p->written = true;
        p->writing = r.writing;
        return p->writing != before.writing || !before.written;
    }
    memset(p, 0, sizeof(*p)); /* the holes too: it is compared */
    p->written = before.written || !is_blank(&r);
    p->phase = r.phase < PROGRESS_PHASE_COUNT ? (enum progress_phase)r.phase
                                              : PROGRESS_UNKNOWN;
    p->step = r.step;
    p->steps = r.steps;
    p->samples = r.samples;
    p->loss = r.loss;
    p->saved = r.saved;
    p->writing = r.writing;
    return memcmp(p, &before, sizeof(*p)) != 0;
}

static const char *const names[PROGRESS_PHASE_COUNT] = {
    [PROGRESS_UNKNOWN] = "running",
    [PROGRESS_TRAINING] = "training",
    [PROGRESS_EVALUATING] = "evaluating",
    [PROGRESS_CHECKPOINTING] = "checkpointing",
    [PROGRESS_COMMUNICATING] = "communicating",
    [PROGRESS_LOADING] = "loading",
    [PROGRESS_DONE] = "done",
};

const char *progress_phase_name(enum progress_phase phase)
{
    return names[phase];
}

bool progress_phase_is_long(enum progress_phase phase)
{
    return phase == PROGRESS_EVALUATING || phase == PROGRESS_CHECKPOINTING ||
           phase == PROGRESS_LOADING;
}
