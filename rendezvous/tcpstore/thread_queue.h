/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

/* Items of one size: any thread puts them, one thread takes them. */
struct thread_queue;

struct thread_queue *thread_queue_create(size_t item_size); /* NULL: see errno */
void thread_queue_destroy(struct thread_queue *q);          /* NULL is fine */

/* Readable: take, until there are none. */
int thread_queue_fd(const struct thread_queue *q);
void thread_queue_wake(struct thread_queue *q);
void thread_queue_put(struct thread_queue *q, const void *item);
/* At most `max`, the oldest first. Returns how many. */
size_t thread_queue_take(struct thread_queue *q, void *items, size_t max);
