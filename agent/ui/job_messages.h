/* SPDX-License-Identifier: MIT */
#ifndef AGENT_UI_JOB_MESSAGES_H
#define AGENT_UI_JOB_MESSAGES_H

#include "agent/config/config.h"
#include "rendezvous/protocol/message.h"

struct status_line;
struct loop;
struct job_messages;

/*
 * What crun tells a person while a job runs: nothing when all is well on one node, one
 * line for each change of membership and its cause, and what is waited for.
 */
struct job_messages *job_messages_create(struct loop *loop, const struct config *config,
                                         struct status_line *foot);
void job_messages_destroy(struct job_messages *s); /* NULL is fine */

/* The nodes are complete, for the first time or again. */
void job_messages_formed(struct job_messages *s, const struct msg_start *start,
                         uint64_t epoch);

/* Why the epoch stops; told once for each, and not where the report will say it. */
void job_messages_cause(struct job_messages *s, const struct msg_stop *stop,
                        uint64_t epoch);

/* The workers are told to stop, or to hurry; on a terminal with a countdown where a
 * person has asked for it. */
void job_messages_stopping(struct job_messages *s, const struct msg_stop *stop,
                           uint32_t alive);
/* They are gone. */
void job_messages_stopped(struct job_messages *s);

/* Our place in the job, where it is one to wait in. */
void job_messages_joined(struct job_messages *s, const struct msg_joined *joined);

/* After five seconds, and then every thirty: which nodes are missing. At once: who was
 * not let in. */
void job_messages_waiting(struct job_messages *s, const struct msg_beat *beat);

/* How the job stands, in one line: nodes, epoch, restarts, how far it is. "" where that
 * is not worth a line: one node, whose workers say nothing of their progress. */
char *job_messages_standing(const struct job_messages *s,
                            const struct msg_heartbeat *progress, char *buf,
                            size_t size);

/* The job's name in quotes, or "the job" where nobody named it. */
const char *job_messages_job(const struct job_messages *s);

/* The rendezvous is not found at first (out), with why, or is then: told after five
 * seconds, and then every thirty. */
void job_messages_unreached(struct job_messages *s, bool out, const char *why);

/* The rendezvous is out of reach, or back, once we were there. */
void job_messages_outage(bool out, const char *why);

#endif
