/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct conn;
struct crun;
struct machine;
struct msg;

/*
 * What must never happen: a rendezvous goes on without what an earlier one has let out;
 * one that was replaced speaks; two nodes obey two rendezvous in one epoch; an epoch or
 * a restart comes twice; a second job begins.
 */
void watch_begin(void);

/* All that is queued at a server's connection leaves. */
void watch_flushes(struct machine *m, struct conn *c);
/* A turn of its loop is over. */
void watch_turn(struct machine *m);
/* A standby has taken the rendezvous over. */
void watch_takes_over(struct crun *c);

void watch_starts(struct crun *c, const struct msg *start);
void watch_reports(struct crun *c, const struct msg *report);
void watch_is_done(struct crun *c, const struct msg *done);
void watch_abandons(struct crun *c, const char *why);

/* What was seen, for the report. */
struct watch_counts {
    uint64_t epochs, takeovers, failures, flushes;
};
extern struct watch_counts watch_counts;
