/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/cleanup/cgroup.h"
#include "agent/guard/guard_wire.h"

/*
 * The template: a child of the guard that imports what the workers' program needs and
 * then waits. A worker is a fork of it that the guard adopts, so that it comes up
 * without imports. The template is no worker: it gets none of their signals, lives in a
 * cgroup beside theirs, and ends with the guard.
 *
 * On its descriptor 3, a SOCK_SEQPACKET, the template sends "ready" when it is; any
 * other packet says that it imports, for the first time or again. Only the first
 * workers wait for that. For each worker it gets a packet, a struct template_request
 * with five descriptors: 0, 1, 2, the payload of the spawn request, and a channel. The
 * fork writes its pid to its channel, once the guard is its parent, and waits there for
 * "go"; if the channel is closed instead, it exits.
 *
 * Whatever fails, the guard starts that worker itself, from the same payload and
 * descriptors. As only a fork that has got "go" is a worker, none is started twice.
 */
struct template_request {
    uint32_t argc, envc, is_tty;
    int32_t numa_node;
};

#define TEMPLATE_REQUEST_FDS 5

/* Why a template was ended, or why a worker was not forked from it. */
enum template_fault {
    TEMPLATE_NO_FAULT, /* it ended by itself */
    TEMPLATE_NOT_STARTED,
    TEMPLATE_NEVER_READY,
    TEMPLATE_NO_ANSWER,
    TEMPLATE_WRONG_ANSWER, /* the pid of another process */
    TEMPLATE_GONE,         /* the template, or the fork, ended before its answer */
    TEMPLATE_NOT_ADOPTED,  /* the fork cannot be moved to where workers are */
    TEMPLATE_IMPORTS,      /* it has begun again */
    TEMPLATE_OUT_OF_MEMORY,
    TEMPLATE_FAULT_COUNT
};

/* As in "the template was ended: ...". */
const char *template_fault_text(enum template_fault fault);

/* What the guard's epoll set calls the template's descriptors. */
struct template_tags {
    uint32_t socket, cgroup;
    uint32_t channels; /* plus the worker's local rank */
};

/* job: the cgroup in which the template and the workers get one each, once there is a
 * template. Both must outlive the guard. */
void guard_template_init(int epoll, const struct cgroup *job,
                         const struct template_tags *tags);

/* Starts one, as requested by the agent. Its end is reported. */
void guard_template_start(const struct guard_request *request,
                          const int fd[GUARD_REQUEST_FDS]);

/* True: this worker is forked from the template, perhaps once it is ready, or is
 * started by the guard later; the descriptors have been taken (set to -1). */
bool guard_template_spawn(const struct guard_request *request,
                          int fd[GUARD_REQUEST_FDS]);
/* A worker that was not started yet. */
bool guard_template_has(uint32_t local_rank);
bool guard_template_has_any(void);
/* Workers that were not started yet end as if signo had ended them. */
void guard_template_drop(uint32_t local_rank, int signo);
void guard_template_drop_all(int signo);

void guard_template_on_socket(uint32_t events);
void guard_template_on_channel(uint32_t local_rank);
/* A child has died: reports if it was the template. */
void guard_template_reap(void);
/* Enforces the limits. Returns how long the next call may wait, or -1. */
int guard_template_advance(void);

/* The agent is gone: the template is killed with all other children. */
void guard_template_give_up(void);
