/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/wire/protocol/message.h"

/*
 * Reads what Python's faulthandler writes about the threads of a process, and finds
 * what matters in it: the line of the user's program, and what it does there. The bytes
 * come from the user's process and may be anything. Pure.
 */
struct python_stack {
    bool waits; /* the main thread waits for other ranks */
    /* "all_reduce (train.py:91, in backward)"; then threads that run code of the
     * program: "; a thread is in load (data.py:40)" */
    char brief[STACKS_BRIEF_MAX_BYTES + 1];
    char threads[STACKS_THREADS_MAX_BYTES + 1]; /* all threads, the main one first */
};

/* Adds what the processes do that multiprocessing has started, such as those of a data
 * loader, if that is code of the program: ", a child in load (data.py:40)". */
void python_stack_add_children(const char *bytes, size_t size, struct python_stack *s);

/* False if there is no stack of a thread in it. */
bool python_stack_parse(const char *bytes, size_t size, struct python_stack *s);
