/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "worker-lib/core/status.h"
#include "worker-lib/training/ddp.h"

/* The memory of gradients with shard 2: of a few buckets at a time. */

static size_t window_bytes(const crun_ddp *ddp)
{
    size_t most = 0;

    for (unsigned i = 0; i < ddp->buckets; i++)
        if (ddp->bucket[i].count > most)
            most = ddp->bucket[i].count;
    return most * ddp->element;
}

/* `of_all`: all ranks together, so that backends know the memory. */
static crun_status window_add(crun_ddp *ddp, bool of_all)
{
    struct ddp_window *w = calloc(1, sizeof(*w));
    crun_status s;

    if (!w)
        return status_fail(CRUN_NO_MEMORY, "no memory for gradients");
    w->of_all = of_all;
    s = of_all ? crun_alloc(ddp->world, window_bytes(ddp), &w->memory)
               : ddp->ops->alloc(window_bytes(ddp), &w->memory);
    if (s != CRUN_OK) {
        free(w);
        return s;
    }
    w->next = ddp->window;
    ddp->window = w;
    return CRUN_OK;
}

crun_status ddp_windows_alloc(crun_ddp *ddp)
{
    crun_status s = CRUN_OK;

    for (unsigned i = 0;
         s == CRUN_OK && ddp->windowed && i < DDP_WINDOWS && i < ddp->buckets; i++)
        s = window_add(ddp, true);
    return s;
}

void ddp_windows_free(crun_ddp *ddp)
{
    for (struct ddp_window *w = ddp->window, *next; w; w = next) {
        next = w->next;
        if (w->of_all)
            crun_free(ddp->world, w->memory);
        else
            ddp->ops->free(w->memory);
        free(w);
    }
}

void ddp_window_leave(struct ddp_bucket *b)
{
    if (b->window)
        b->window->bucket = NULL;
    b->window = NULL;
}

/* One that is free, else that whose sum is under way for longest, else a new one. On a
 * GPU the program's later work waits for the sum, and the host does not. */
static crun_status window_find(crun_ddp *ddp, struct ddp_window **found)
{
    struct ddp_window *w = ddp->window;
    crun_status s;

    while (w && w->bucket)
        w = w->next;
    if (!w)
        for (w = ddp->window; w && !w->bucket->work;)
            w = w->next;
    *found = w;
    if (!w) {
        s = window_add(ddp, false);
        *found = ddp->window;
        return s;
    }
    if (!w->bucket)
        return CRUN_OK;
    s = crun_wait(w->bucket->work);
    w->bucket->work = NULL;
    ddp_window_leave(w->bucket);
    return s;
}

/* The first one is that which was taken before the others. */
static void window_goes_last(crun_ddp *ddp, struct ddp_window *w)
{
    struct ddp_window **at = &ddp->window;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    while (*at)
        at = &(*at)->next;
    *at = w;
    w->next = NULL;
}

crun_status ddp_window_take(crun_ddp *ddp, struct ddp_bucket *b)
{
    struct ddp_window *w;
    crun_status s;

    if (!ddp->windowed || b->window)
        return CRUN_OK;
    s = window_find(ddp, &w);
    if (s == CRUN_OK)
        s = ddp->ops->zero(ddp_queue(ddp), w->memory, b->count * ddp->element);
    if (s != CRUN_OK)
        return s;
    window_goes_last(ddp, w);
    w->bucket = b;
    b->window = w;
    return CRUN_OK;
}

void *ddp_window_place(const crun_ddp *ddp, const struct ddp_parameter *p)
{
    const struct ddp_bucket *b = &ddp->bucket[p->first_bucket];

    return b->window ? (char *)b->window->memory + (p->at - b->at) * ddp->element
                     : NULL;
}

void *ddp_window_gradient(crun_ddp *ddp, const struct ddp_parameter *p)
{
    struct ddp_bucket *b = &ddp->bucket[p->first_bucket];
    void *gradient = NULL;

    if (!atomic_load(&ddp->step.open))
        return NULL;
    pthread_mutex_lock(&ddp->lock);
    if (atomic_load(&b->pending) > 0) {
        crun_status s = ddp_window_take(ddp, b);

        ddp_note(ddp, s);
        if (s == CRUN_OK)
            gradient = ddp_window_place(ddp, p);
    }
    pthread_mutex_unlock(&ddp->lock);
    return gradient;
}
