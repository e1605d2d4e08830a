/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/job/membership/membership.h"

struct sim_agent;
struct sim_link;
struct msg;
struct sim;

/*
 * Knows what must never happen, and looks at everything that does: what agents truly
 * did, what the daemon was told and when it slept, what it decided, what reached whom,
 * and what was left of it after a crash.
 */
struct oracle;

struct oracle *oracle_create(struct sim *s);

/* Agents. */
void oracle_reports(struct oracle *o, struct sim_agent *a, const struct msg *m);
void oracle_arrives(struct oracle *o, struct sim_agent *a, const struct msg *m);

/* The daemon: a NULL for a peer that is no agent. */
void oracle_hears(struct oracle *o, struct sim_agent *a, struct sim_link *l,
                  const struct msg *m);
void oracle_has_heard(struct oracle *o, struct sim_agent *a, struct sim_link *l,
                      const struct msg *m);
void oracle_sends(struct oracle *o, const struct sim_agent *a, const struct msg *m);
void oracle_gone(struct oracle *o, struct sim_agent *a, struct sim_link *l);
void oracle_committed(struct oracle *o);
void oracle_commit_unknown(struct oracle *o); /* a crash in the middle of one */
void oracle_crashed(struct oracle *o);
void oracle_restored(struct oracle *o);
void oracle_regressed(struct oracle *o); /* the disk is an older one */

/* Each step of a membership, before and after; between them what the membership wants
 * done. */
void oracle_acts(struct oracle *o, const struct membership *r,
                 const struct membership_event *ev, const struct membership_action *a);
void oracle_stepped(struct oracle *o, const struct membership *before,
                    const struct membership *after, const struct membership_event *ev);
