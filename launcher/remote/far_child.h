/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "launcher/remote/far_side.h"
#include "launcher/remote/remote_order.h"
#include "rendezvous/common/base/err.h"

/*
 * The child of a far side: the crun of this node. Descriptors of the parent's ends are
 * non-blocking, or -1. With --detach the child has no pipes for its streams, but a
 * file, and is a session of its own.
 */
struct far_child {
    pid_t pid;
    int in, out, err; /* its standard streams; err -1: in out, too */
    int status;       /* what far_child_status reads */
    int go;           /* where the start is written, and then closed */
    int witness;      /* packets for the launcher, and from it; with --detach -1 */
    char *log;        /* the path of the file, NULL: none */
};

/* The child's answer: 0, or why it cannot carry out the order. */
struct far_child_status {
    uint8_t refusal; /* enum remote_refusal; 0: none */
    uint32_t grace_ms;
    char text[sizeof(((struct err *)0)->text)];
};

/* listener: the socket of the rendezvous. */
int far_child_start(struct far_child *c, const struct far_side_calls *calls,
                    struct remote_order *o, int listener, struct err *e) MUST_CHECK;
