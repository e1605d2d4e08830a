/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/hosts/hosts.h"

struct host_watch;
struct loop;

/*
 * Follows the hosts of a job while it runs: the host file is read again when it has
 * changed. A list that cannot be read leaves the last one as it is.
 */
struct host_watch_calls {
    /* The list has changed. It is the callee's until the next call. */
    void (*changed)(void *arg, const struct hosts *hosts);
    /* It cannot be read. Called once, until it can be read again. */
    void (*failed)(void *arg, const char *why);
    void *arg;
};

/* now: the hosts with which the job starts. NULL: w names no file. w stays the
 * caller's and must live as long. */
struct host_watch *host_watch_create(struct loop *loop, const struct hosts_wanted *w,
                                     const struct hosts *now,
                                     const struct host_watch_calls *calls);
/* NULL is fine. */
void host_watch_destroy(struct host_watch *watch);

/* Reads all again, and reports the list even if it is the same. */
void host_watch_reload(struct host_watch *watch);
