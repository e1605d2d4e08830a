/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rendezvous/show/notify/limits.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * The events that wait for the command, and the child that runs it for the first of
 * them: one at a time, in their order, each with a limit of time.
 */
struct notify_lane {
    const char *command;
    int keep_closed; /* a descriptor that children do not get */

    struct msg_event *waiting[NOTIFY_QUEUE_MAX]; /* oldest first */
    unsigned count;
    unsigned left_out;
    pid_t child;     /* 0: none */
    uint64_t due_ms; /* the child is killed */
    bool is_late;
    bool fails; /* the last one has failed, which was reported */
};

/* What does not fit is counted. */
void notify_lane_add(struct notify_lane *l, const struct msg_event *event);
/* A child has ended. */
void notify_lane_reap(struct notify_lane *l, pid_t pid, int status);
/* Starts what waits, and ends what is late. */
void notify_lane_step(struct notify_lane *l, uint64_t now_ms);
/* When it must step again; UINT64_MAX: not by itself. */
uint64_t notify_lane_due(const struct notify_lane *l);
void notify_lane_kill(struct notify_lane *l);
