/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/progress/page_reader.h"
#include "agent/workers/group.h"
#include "rendezvous/wire/protocol/message.h"

struct loop;
struct stacks;
struct status_pages;

/*
 * Answers ASK_STACKS: what does each worker of this node do? A Python worker with the
 * bootstrap writes its stacks when it gets a signal. It is stopped only while it
 * writes. Of other workers, and of those that do not answer, the status page and /proc
 * are shown. Questions are answered one after the other, each within STACKS_TAKE_MS.
 */
struct stacks_calls {
    void (*answer)(void *arg, const struct msg *m); /* a STACKS */
    void (*idle)(void *arg);                        /* the last question is answered */
    void *arg;
};

struct stacks *stacks_create(struct loop *loop, uint32_t workers,
                             const struct stacks_calls *calls);
void stacks_destroy(struct stacks *s); /* NULL is fine */

/* An epoch runs; all must outlive the next stacks_end. */
void stacks_begin(struct stacks *s, struct group *group,
                  const struct status_pages *pages, uint32_t first_rank);
/* Answers open questions with what is known, without a call of idle. May be called
 * without stacks_begin. */
void stacks_end(struct stacks *s);

void stacks_ask(struct stacks *s, const struct msg_ask_stacks *ask);
bool stacks_are_asked(const struct stacks *s);

/* Whether this worker can write its stacks. */
bool stacks_has_handler(const struct stacks *s, uint32_t local_rank);
