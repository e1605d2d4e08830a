/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"
#include "rendezvous/wire/protocol/message.h"

struct status_line;
struct loop;
struct job_messages;

/*
 * Messages for users while a job runs: none on one node without problems, one line for
 * each change of membership with its cause, and one for each thing that the job waits
 * for.
 */
struct job_messages *job_messages_create(struct loop *loop, const struct config *config,
                                         struct status_line *status_line);
void job_messages_destroy(struct job_messages *s); /* NULL is fine */

/* Whether messages about the whole job are left to node rank 0, because the output of
 * all nodes goes to one place and this is another node. */
bool job_messages_are_first_nodes(const struct job_messages *s);
/* Whether this node reports outages of the rendezvous. If the output of all nodes goes
 * to one place, the first two nodes do: the first may host the rendezvous, and be lost
 * with it. */
bool job_messages_cover_rendezvous(const struct job_messages *s);

/* An epoch has formed. */
void job_messages_formed(struct job_messages *s, const struct msg_start *start,
                         uint64_t epoch);

/* Why the epoch stops: once for each, unless the final report covers it. */
void job_messages_cause(struct job_messages *s, const struct msg_stop *stop,
                        uint64_t epoch);

/* The workers must stop, or stop faster;
 * on a terminal with a countdown if a user asked for it. */
/* A person or a scheduler has ended the job: "stopped by crunctl stop from 10.0.0.5".
 * Printed once. */
void job_messages_ended_by(struct job_messages *s, const char *text);
void job_messages_stopping(struct job_messages *s, const struct msg_stop *stop,
                           uint32_t alive);
/* They have stopped. */
void job_messages_stopped(struct job_messages *s);

/* This node has joined, perhaps as a spare. */
void job_messages_joined(struct job_messages *s, const struct msg_joined *joined);

/* Which nodes are missing, after five seconds and then every thirty. Nodes that were
 * refused are reported at once. */
void job_messages_waiting(struct job_messages *s, const struct msg_beat *beat);

/* The state of the job in one line: nodes, epoch, restarts, progress. "" for one node
 * whose workers do not report progress. */
char *job_messages_status(const struct job_messages *s,
                          const struct msg_heartbeat *progress, char *buf, size_t size);

/* The job's name in quotes, or "the job" if it has none. */
const char *job_messages_job(const struct job_messages *s);

/* The rendezvous was not reached yet (out, with why), or is reached: reported after
 * five seconds, and then every thirty. */
void job_messages_unreached(struct job_messages *s, bool out, const char *why);

/* The rendezvous was reached before, and is out of reach, or back: reported if it is
 * out for so long. */
void job_messages_outage(struct job_messages *s, bool out, const char *why,
                         uint32_t after_ms);
/* This node waits for it no longer. */
void job_messages_abandoned(struct job_messages *s);
