/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_REMOTE_FAR_RELAY_H
#define LAUNCHER_REMOTE_FAR_RELAY_H

#include <stdbool.h>

#include "launcher/remote/channel.h"

struct loop;
struct relay;

/*
 * The connections that a far side makes for the launcher, so that the launcher need not
 * make those to all hosts itself: programs such as ssh, whose standard streams are
 * carried in frames. What they say is the launcher's affair: to it such a connection is
 * as one of its own.
 */
struct relay_calls {
    void (*put)(void *arg, enum channel_type type, uint32_t host, const void *body,
                size_t size);
    /* Called when the last connection has ended. */
    void (*idle)(void *arg);
    void *arg;
};

struct relay *relay_create(struct loop *loop, const struct relay_calls *calls);
/* Kills what is open. NULL is fine. */
void relay_destroy(struct relay *r);

/* A frame of type CHANNEL_RELAY_OPEN and its like. */
void relay_handle_frame(struct relay *r, const struct channel_frame *frame);
/* The launcher is gone: each far end reads the end of its input. */
void relay_shut_all(struct relay *r);
void relay_kill_all(struct relay *r);
/* The launcher takes nothing more for now. */
void relay_pause(struct relay *r, bool pause);
/* After a SIGCHLD. */
void relay_reap(struct relay *r);
bool relay_is_idle(const struct relay *r);

#endif
