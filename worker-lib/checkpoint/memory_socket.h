/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/memory_slot.h"

/* The socket of the agent; -1: an error. */
int memory_socket_open(const char *path, struct err *e);

/*
 * One question and its answer, with MEMORY_SLOTS descriptors or one, which the caller
 * closes. -1: an error, whose code is the agent's if it has answered, and no descriptor
 * is open.
 */
int memory_socket_ask(int fd, const struct memory_ask *ask,
                      struct memory_answer *answer, int *fds, struct err *e);

/* A message without an answer. It may be lost when the agent is slow or gone, which
 * costs nothing but its knowledge. */
void memory_socket_note(int fd, const struct memory_ask *ask);
