/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "rendezvous/common/base/err.h"

struct remote_order;
struct remote_start;

/*
 * `crun --agent-stdin`, which the launcher starts on a host. It speaks frames
 * (channel.h) on its standard input and output, and has a child: the crun of this node.
 * When its standard input ends, the launcher is gone, and the child ends.
 */
struct far_side_calls {
    /* Called in the child, in the order's folder and environment. Checks the flags and
     * the program; e->code is an enum remote_refusal. *grace_ms: the time that workers
     * have to end. */
    int (*prepare)(void *arg, const struct remote_order *o, uint32_t *grace_ms,
                   struct err *e);
    /* Runs the node. Returns its exit code. listener: a socket, if the node hosts the
     * rendezvous; else 0. witness: a socket, on which the launcher answers claims; else
     * 0. */
    int (*run)(void *arg, const struct remote_order *o, const struct remote_start *s,
               int listener, int witness);
    void *arg;
};

/* The exit code of the process. */
int far_side_run(const struct far_side_calls *calls);
