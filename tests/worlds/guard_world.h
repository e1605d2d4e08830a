/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/guard/guard.h"

/*
 * An agent as far as its guard sees it, played by the test: a real guard with real
 * workers, and what it has told so far.
 */
#define WORKERS 16
#define PATIENCE_MS 15000

enum mode { IN_CGROUP, IN_SESSION, AS_NOBODY, MODE_COUNT };

extern struct guard_payload {
    struct loop *loop;
    struct guard *guard;
    char cookie[64];
    char worker[4096], template[4096]; /* the programs */

    uint32_t started, exited, failed, empty, fenced, died, leftovers;
    pid_t leftover_session;
    uint32_t ready, template_ended, warm, cold; /* about its template */
    pid_t template_pid;
    int template_status;
    char fault[64]; /* why it was ended, or else why a worker started cold */
    struct guard_exit exit[WORKERS]; /* in the order told */
    pid_t pid[WORKERS];
    uint32_t fenced_before; /* that often when the last start failed */
    int errnum;
    char what[32], why[96];
} t;

/* Turn the loop until that was told so often. */
void wait_until(const uint32_t *count, uint32_t wanted);

/* For the rest of this process: without a cgroup, as an ordinary user. */
void enter_mode(int mode);

/* A guard in this process's mode, or in the one given. */
void begin_guard_here(void);
void begin_guard(int mode);

/* Another one for the same agent, after guard_stop(). */
void start_guard(void);

/* Nothing of it is left. */
void end_guard(void);

/* A test-template with these words, up to NULL. */
void start_template(uint32_t ready_ms, uint32_t answer_ms, ...);
/* The same, and wait until it is ready. */
void begin_template(void);

/* A worker of the program argv[0] that writes to `out`, unless that is negative. */
void spawn_to(uint32_t local_rank, const char *const *argv, int out);

/* A test-worker with these words, up to NULL. */
void spawn(uint32_t local_rank, ...);

/* The same, and wait until it has said its first line. */
void spawn_ready(uint32_t local_rank, ...);

void expect_empty_by_kill(void);

/* All tests that are run in each mode. */
#define TEST_IN_EACH_MODE(name) TEST_LOOP(name, 0, MODE_COUNT)
