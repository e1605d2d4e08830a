/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/loop.h"

struct config;
struct guard;
struct status_line;

/*
 * Ctrl-Z in a shell: SIGTSTP stops the workers of this node, which are in sessions of
 * their own, and then crun itself, so that the shell has its prompt. SIGCONT ("fg")
 * continues both. The guard goes on, so that the workers end if crun is killed.
 */
struct suspension {
    const struct config *config;
    struct guard *const *guard; /* of the workers; NULL until it is there */
    struct status_line *status_line;
    bool hosts_rendezvous;
    void (*resumed)(void *arg); /* this process continues */
    void *arg;
    struct loop_timer timer;
};

/* s must outlive the loop, and what it points to; fini in any case, zeroed is fine. */
void suspension_init(struct suspension *s, struct loop *loop);
void suspension_fini(struct suspension *s);

/* Returns at once; a moment later this process stops. As for every program, nothing
 * happens if there is no shell that could continue it. */
void suspension_begin(struct suspension *s);

/* SIGCONT came. If this process has not stopped yet, it does not stop. */
void suspension_cancel(struct suspension *s);
