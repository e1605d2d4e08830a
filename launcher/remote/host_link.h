/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/limits.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/loop.h"

struct bufferevent;
struct evbuffer;
struct event;

/*
 * A connection to a host: an ssh, or another program, as a process group of its own,
 * so that Ctrl-C does not reach it; commands and frames on its standard streams.
 */
enum host_link_mark { LINK_ABSENT, LINK_WANTED, LINK_GREETING };

struct host_link_calls {
    void (*mark)(void *arg, enum host_link_mark mark);
    /* False: not now. host_link_resume hands over the same frame again. */
    bool (*frame)(void *arg, const struct channel_frame *frame);
    void (*malformed)(void *arg, const char *why);
    /* Its process and its output have ended. The link is closed. */
    void (*closed)(void *arg);
    void *arg;
};

struct host_link {
    struct loop *loop;
    struct host_link_calls calls;
    pid_t pid; /* 0: it has ended, or none */
    struct bufferevent *in;
    struct event *out, *err;
    int out_fd, err_fd;
    bool is_open, is_greeted, has_shell, is_paused;
    struct channel_reader reader;
    struct channel_frame pending;
    bool has_pending;
    struct loop_timer kill;
    /* the end of what ssh and the remote shell have said */
    char said[REMOTE_SAID_MAX];
    size_t said_used;
};

/* Executes argv, which is found in PATH. */
int host_link_open(struct host_link *l, struct loop *loop, char *const *argv,
                   const struct host_link_calls *calls, struct err *e) MUST_CHECK;

/* The link sends the bytes that are added here. NULL: the far end has closed. */
struct evbuffer *host_link_output(struct host_link *l);
void host_link_resume(struct host_link *l);
/* The far side reads the end of its input. */
void host_link_shut(struct host_link *l);
/* The process is killed if it does not end in this time. `closed` is called later. */
void host_link_end(struct host_link *l, unsigned within_ms);
/* After a SIGCHLD. */
void host_link_reap(struct host_link *l);
/* Without a call. */
void host_link_close(struct host_link *l);
