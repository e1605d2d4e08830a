/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/engine/backend.h"

/*
 * The failure that ends a world: the first one sets the abort word, is sent to the
 * other ranks once, and is returned by every later call.
 */
struct world_failure {
    struct abort_word *aborted;
    struct backend *backend;   /* sends it to the ranks that it is connected to */
    void (*failed)(void *arg); /* called once */
    void *arg;
    _Atomic bool notified;
    _Atomic bool has_details;
    struct err details; /* the reason, and the rank that was waited for at that time */
};

/* `quiet`: `failed` is not called, so that it is safe in a signal handler. */
void world_failure_abort(struct world_failure *f, crun_status s, const char *reason,
                         bool quiet);

/* The result of a call of the backend: CRUN_OK, CRUN_BAD_ARGUMENT and CRUN_UNSUPPORTED
 * change nothing, any other status ends the world. Returns the program's status. Only
 * one thread at a time may call it. */
crun_status world_failure_settle(struct world_failure *f, crun_status s, struct err *e);

/* The abort word is set: returns the program's status. */
crun_status world_failure_error(struct world_failure *f, struct err *e);
