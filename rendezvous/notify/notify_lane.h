/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_NOTIFY_NOTIFY_LANE_H
#define RENDEZVOUS_NOTIFY_NOTIFY_LANE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rendezvous/notify/limits.h"
#include "rendezvous/notify/notify.h"
#include "rendezvous/tls/https.h"

/*
 * The events that wait for one flag, and the child that deals with the first of them:
 * one at a time, in their order, each with a limit of time.
 */
enum notify_lane_kind { NOTIFY_LANE_COMMAND, NOTIFY_LANE_WEBHOOK, NOTIFY_LANE_BEAT };

struct notify_lane {
    enum notify_lane_kind kind;
    const char *flag, *target, *token_file;
    struct https_url url; /* of target */
    int keep_closed;      /* a descriptor that children do not get */

    struct msg_event *waiting[NOTIFY_QUEUE_MAX]; /* oldest first */
    unsigned count;
    unsigned left_out;
    pid_t child;     /* 0: none */
    int why;         /* what the child says about its failure: a pipe */
    uint64_t due_ms; /* the child is killed, or a failed event is tried again */
    bool is_late, ends;
    unsigned tries;
    bool fails; /* the last one has failed, which was told */
};

/* NULL target: there is no such flag, and the lane stays empty. */
void notify_lane_init(struct notify_lane *l, enum notify_lane_kind kind,
                      const char *target, const char *token_file, int keep_closed);
/* What does not fit is counted. */
void notify_lane_add(struct notify_lane *l, const struct msg_event *event);
/* A child has ended. */
void notify_lane_reap(struct notify_lane *l, pid_t pid, int status, uint64_t now_ms);
/* Starts what is due, and ends what is late. */
void notify_lane_step(struct notify_lane *l, uint64_t now_ms);
/* When it must step again; UINT64_MAX: not by itself. */
uint64_t notify_lane_due(const struct notify_lane *l);
bool notify_lane_is_idle(const struct notify_lane *l);
/* The program ends: no long pauses any more. */
void notify_lane_hurry(struct notify_lane *l, uint64_t now_ms);
void notify_lane_kill(struct notify_lane *l);

#endif
