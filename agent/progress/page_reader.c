/* SPDX-License-Identifier: MIT */
#include "agent/progress/page_reader.h"

#include <string.h>

#define READ_TRIES 100

/* The worker's half of the page, not checked yet. */
struct worker_half {
    uint32_t writing, phase;
    uint64_t step, steps, samples;
    double loss;
    uint64_t changed_ns;
    uint32_t saved, flags;
};

_Static_assert(sizeof(struct worker_half) ==
                   offsetof(struct progress_page, save) -
                       offsetof(struct progress_page, writing),
               "the worker's half");

/* False if it was being written in every try. */
static bool copy_consistently(struct worker_half *r, const struct progress_page *page)
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

/* The flags are no progress: the bootstrap of a Python worker sets them. */
static bool is_blank(const struct worker_half *r)
{
    static const struct worker_half blank;
    struct worker_half progress = *r;

    progress.flags = 0;
    if (r->flags)
        progress.writing = 0;
    return memcmp(&progress, &blank, sizeof(blank)) == 0;
}

bool page_reader_read(struct page_values *p, const struct progress_page *page)
{
    struct page_values before = *p;
    struct worker_half r;

    if (!copy_consistently(
            &r, page)) { /* the worker died while it wrote, or writes all the time */
        p->written = true;
        p->writing = r.writing;
        return p->writing != before.writing || !before.written;
    }
    memset(p, 0, sizeof(*p)); /* the padding too, because it is compared */
    p->written = before.written || !is_blank(&r);
    p->watched = r.flags & PROGRESS_WATCHED;
    p->raised = r.flags & PROGRESS_RAISED;
    p->ends = r.flags & PROGRESS_ENDS;
    p->loss_is_nan = r.flags & PROGRESS_LOSS_IS_NAN;
    p->phase = r.phase < PROGRESS_PHASE_COUNT ? (enum progress_phase)r.phase
                                              : PROGRESS_UNKNOWN;
    p->step = r.step;
    p->steps = r.steps;
    p->samples = r.samples;
    p->loss = r.loss;
    p->saved = r.saved;
    p->checkpoints = __atomic_load_n(&page->checkpoints, __ATOMIC_RELAXED);
    p->first_step = __atomic_load_n(&page->first_step, __ATOMIC_RELAXED);
    p->writing = r.writing;
    return memcmp(p, &before, sizeof(*p)) != 0;
}

static const char *const phase_names[PROGRESS_PHASE_COUNT] = {
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
    return phase_names[phase];
}

bool progress_phase_is_long(enum progress_phase phase)
{
    return phase == PROGRESS_EVALUATING || phase == PROGRESS_CHECKPOINTING ||
           phase == PROGRESS_LOADING;
}
