/* SPDX-License-Identifier: MIT */
#pragma once

/* Ranks that are threads of the test. A ck_assert in one of them ends the test. */
#define RANK_THREADS_MAX 64

typedef void rank_thread_fn(unsigned rank, void *arg);

/* Call fn in a thread for each rank, and wait for all of them. */
void rank_threads_run(unsigned size, rank_thread_fn *fn, void *arg);

/* In fn: until all ranks are here. */
void rank_threads_sync(void);
