/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/job/history/curve.h"
#include "rendezvous/job/history/epochs.h"
#include "rendezvous/job/history/limits.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * What is known of the past of one job: its curve, its epochs and its newest events.
 * Bounded, however long the job runs. Pure.
 */
struct job_history {
    struct curve curve;
    struct epochs epochs;
    struct history_event *event[JOB_EVENTS_KEPT]; /* oldest first */
    unsigned events;
    size_t event_bytes; /* of the texts of all events */
};

/* A copy of an event, as small as its texts. */
struct history_event {
    uint64_t number, wall_ms, monotonic_ms, epoch;
    bool of_rank;
    uint32_t rank;
    char kind[sizeof(((struct msg_event *)0)->kind)];
    char *host, *text; /* in the same allocation */
};

struct job_history *job_history_create(void);
void job_history_destroy(struct job_history *h); /* NULL is fine */

/* The oldest events give way. */
void job_history_add_event(struct job_history *h, const struct msg_event *event);

/* The events of `from` become the newest ones of h. */
void job_history_take_events(struct job_history *h, struct job_history *from);

/* The memory that it uses, for tests. */
size_t job_history_size(const struct job_history *h);
