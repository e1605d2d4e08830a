/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/loop.h"
#include "rendezvous/wire/protocol/message.h"
#include "tests/replicas/machine.h"

struct client;
struct server;
struct replica;

/*
 * The crun of a machine: the real client, the real server where the rendezvous is or
 * its records are kept, and workers that are no more than the number of an epoch. It
 * does with them what agent.c and rendezvous_host.c do.
 */
struct crun {
    struct machine *machine;
    struct id128 incarnation;
    struct client *client;
    struct server *server, *standby;
    struct replica *replica; /* the newest that was made here; may be gone */
    char *elsewhere;
    struct loop_timer leave;
    uint64_t epoch; /* the last one begun here; 0: none */
    bool works, leaves, ending;
    bool has_left; /* the job, since then */
    uint64_t left_us;
    bool kept; /* others could host its rendezvous */
    struct msg_start start;
    uint64_t led_ms; /* how many rendezvous had been taken over before; 0: never */
};

/* What the job is about, drawn for a seed. */
extern struct job_config replica_job;

void crun_start(struct machine *m);
void crun_kill(struct machine *m, bool quiet);
/* One of its workers fails. False: none works. */
bool crun_fail_worker(struct machine *m);
/* It asks to leave the job; another crun follows. False: it cannot. */
bool crun_leave(struct machine *m);
/* All its workers have ended well, if some work. */
void crun_finish(struct machine *m);
/* It serves the job. NULL: it does not, or has none. */
const struct job *crun_job(const struct crun *c);
bool crun_is_attached(const struct crun *c);
