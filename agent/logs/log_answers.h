/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "rendezvous/wire/protocol/message.h"

struct kept_output;
struct log_answers;
struct loop;

/*
 * Answers ASK_LOGS with what is kept of the workers' output, and from their files what
 * is older. A question waits for output as long as it says; each answer is bounded.
 */
struct log_answers *log_answers_create(struct loop *loop,
                                       const struct kept_output *kept,
                                       void (*answer)(void *arg, const struct msg *m),
                                       void *arg);
void log_answers_destroy(struct log_answers *a); /* NULL is fine */

void log_answers_ask(struct log_answers *a, const struct msg_ask_logs *ask);
/* There is new output. */
void log_answers_note(struct log_answers *a);
/* A worker has written its last; questions that wait are answered in this call. */
void log_answers_note_end(struct log_answers *a);

/* All workers have written their last. Calls shown on the loop once all followers have
 * it, or soon in any case. False: they have it already; shown is not called. */
bool log_answers_finish(struct log_answers *a, void (*shown)(void *arg), void *arg);
/* A new attempt begins: shown is not called any more. */
void log_answers_begin(struct log_answers *a);
