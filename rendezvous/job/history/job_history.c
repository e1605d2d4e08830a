/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/history/job_history.h"

#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"

struct job_history *job_history_create(void)
{
    return xcalloc(1, sizeof(struct job_history));
}

void job_history_destroy(struct job_history *h)
{
    if (!h)
        return;
    curve_fini(&h->curve);
    epochs_fini(&h->epochs);
    for (unsigned i = 0; i < h->events; i++)
        free(h->event[i]);
    free(h);
}

size_t job_history_size(const struct job_history *h)
{
    return sizeof(*h) +
           (h->curve.point ? CURVE_POINTS_MAX : 0) * sizeof(*h->curve.point) +
           h->epochs.room * sizeof(*h->epochs.epoch) +
           h->events * sizeof(*h->event[0]) + h->event_bytes;
}
