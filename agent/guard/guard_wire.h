/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/guard/spawn.h"
#include "rendezvous/common/base/err.h"

/*
 * The messages between an agent and its guard over a SOCK_SEQPACKET pair. Both are the
 * same executable, so these structs need no version. The agent sends one request a
 * packet; the guard packs as many events into one as it has.
 */
#define GUARD_NAME "crun-guard"

/* The guard's descriptors from its start; it inherits only these and 0-2. Without a
 * cgroup, its two descriptors are missing. */
enum {
    GUARD_FD_SOCKET = 3,
    GUARD_FD_CGROUP,
    GUARD_FD_CGROUP_PARENT,
    GUARD_FD_LAUNCH_LOCK, /* held open only, see launch_lock.h */
    GUARD_FD_COUNT
};
/* The workers' status pages follow, see status_pages.h. */
#define GUARD_FD_PAGES GUARD_FD_COUNT

/* In place of a local rank: all workers. */
#define GUARD_ALL UINT32_MAX

enum guard_request_type {
    GUARD_REQUEST_SPAWN,
    GUARD_REQUEST_SIGNAL, /* to the process of one worker, or to the groups of all */
    GUARD_REQUEST_KILL,
    GUARD_REQUEST_SWEEP,
    GUARD_REQUEST_FENCE,   /* sets its terms */
    GUARD_REQUEST_TEMPLATE /* starts a template; workers are forked from it */
};

struct guard_request {
    uint32_t type;
    uint32_t local_rank;
    uint32_t ticket; /* of KILL and SWEEP; the EMPTY that answers has it too */
    uint32_t grace_ms, term_delay_ms, extension_ms;
    uint64_t until_ms;
    int32_t signo;
    uint32_t ready_ms, answer_ms; /* TEMPLATE: its limits */
    /* SPAWN and TEMPLATE, with four descriptors: 0, 1, 2 and the payload (see below) */
    int32_t numa_node;
    uint32_t is_tty;
    uint32_t argc, envc, cpus_size;
};

#define GUARD_REQUEST_FDS 4

enum guard_event_type {
    GUARD_EVENT_STARTED,
    GUARD_EVENT_EXEC_FAILED,
    GUARD_EVENT_EXITED,
    GUARD_EVENT_EMPTY,
    GUARD_EVENT_LEFTOVER, /* pid got SIGTERM of a sweep; status: its session */
    GUARD_EVENT_SESSION,  /* the cgroup turned out to be unusable */
    GUARD_EVENT_RETRY,  /* out of processes or memory (status: errno); it tries again */
    GUARD_EVENT_FENCED, /* the fence has passed: the workers are being ended */
    GUARD_EVENT_TEMPLATE_READY,
    GUARD_EVENT_TEMPLATE_ENDED, /* pid, status; stage: enum template_fault */
    GUARD_EVENT_WARM,           /* after STARTED: forked from the template */
    GUARD_EVENT_COLD, /* the template did not start it; stage: enum template_fault */
};

struct guard_event {
    uint32_t type;
    uint32_t local_rank; /* EMPTY: the ticket */
    int32_t pid;
    int32_t status; /* EXEC_FAILED: errno */
    uint32_t stage; /* EXEC_FAILED: enum spawn_stage */
    uint32_t out_of_memory;
    uint32_t nothing_left; /* EXITED: no process is left now */
    uint64_t at_ms;
    char name[16]; /* LEFTOVER: the process */
};

#define GUARD_EVENTS_PER_PACKET 64

/*
 * The payload of a spawn request is a memfd, so its size does not matter: argv and env,
 * each with its NULL, as offsets from the start; the CPU set; the strings. The guard
 * maps it and turns the offsets into pointers in place.
 */
int guard_payload_pack(const char *const *argv, const char *const *env,
                       const void *cpus, struct guard_request *request,
                       struct err *e) MUST_CHECK; /* returns the memfd */

struct guard_payload {
    void *map;
    size_t size;
};

/* Sets argv, env and cpus of `spawn`, valid until guard_payload_close. -1: errno. */
int guard_payload_open(struct guard_payload *w, int fd,
                       const struct guard_request *request,
                       struct spawn *spawn) MUST_CHECK;
void guard_payload_close(struct guard_payload *w);
