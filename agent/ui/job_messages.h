/* SPDX-License-Identifier: MIT */
#ifndef AGENT_UI_JOB_MESSAGES_H
#define AGENT_UI_JOB_MESSAGES_H

#include "agent/config/config.h"
#include "rendezvous/protocol/message.h"

struct foot;
struct loop;
struct say;

/*
 * What crun tells a person while a job runs: nothing when all is well on one node, one
 * line for each change of membership and its cause, and what is waited for.
 */
struct say *say_create(struct loop *loop, const struct config *config,
                       struct foot *foot);
void say_destroy(struct say *s); /* NULL is fine */

/* The nodes are complete, for the first time or again. */
void say_formed(struct say *s, const struct msg_start *start, uint64_t epoch);

/* Why the epoch stops; told once for each, and not where the report will say it. */
void say_cause(struct say *s, const struct msg_stop *stop, uint64_t epoch);

/* The workers are told to stop, or to hurry; on a terminal with a countdown where a
 * person has asked for it. */
void say_stopping(struct say *s, const struct msg_stop *stop, uint32_t alive);
/* They are gone. */
void say_stopped(struct say *s);

/* Our place in the job, where it is one to wait in. */
void say_joined(struct say *s, const struct msg_joined *joined);

/* After five seconds, and then every thirty: which nodes are missing. At once: who was
 * not let in. */
void say_waiting(struct say *s, const struct msg_beat *beat);

/* How the job stands, in one line: nodes, epoch, restarts, how far it is. "" where that
 * is not worth a line: one node, whose workers say nothing of their progress. */
char *say_standing(const struct say *s, const struct msg_heartbeat *progress, char *buf,
                   size_t size);

/* The job's name in quotes, or "the job" where nobody named it. */
const char *say_job(const struct say *s);

/* The rendezvous is not found at first (out), with why, or is then: told after five
 * seconds, and then every thirty. */
void say_unreached(struct say *s, bool out, const char *why);

/* The rendezvous is out of reach, or back, once we were there. */
void say_outage(bool out, const char *why);

#endif
