/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/net.h"
#include "tests/sim/trace.h"
#include "tests/sim/world.h"

/*
 * Machines with a crun each, in simulated time: the real server, its keeping, its
 * replica and the real client run on an event loop and connections of this folder,
 * which stand in for loop.c, conn.c and listener.c at the link.
 */
#define MACHINES_MAX 7
#define RENDEZVOUS_PORT 29400

struct crun;
struct late_event;

struct loop {
    struct machine *machine;
    struct {
        void (*work)(void *arg);
        void *arg;
    } turn_end[8];
    unsigned turn_ends;
    struct deferred *deferred;
};

struct machine {
    unsigned number;
    char name[16];
    char address_text[24];
    struct net_addr address;
    struct machine_clock clock;
    struct loop loop;
    bool off;                             /* without power */
    bool paused;                          /* its crun */
    uint64_t life;                        /* of its crun: another number for each */
    struct late_event *late, **last_late; /* while it is paused */
    struct listener *listeners;
    struct crun *crun; /* NULL: none runs */
    unsigned starts;
    uint64_t troubled_until_us; /* by a fault, and by what follows from it */
};

/* All there is. */
struct replica_sim {
    struct sim_world *world;
    struct trace trace;
    unsigned count;
    struct machine machine[MACHINES_MAX];
    bool cut[MACHINES_MAX][MACHINES_MAX]; /* from, to */
    uint64_t delay_max_us;
    uint64_t slow_us[MACHINES_MAX]; /* more, to and from that machine */
    bool healed;
    bool gentle;     /* one machine at a time has a fault */
    bool outnumbers; /* several have had one: with their records, the job may be lost */
    bool ends;       /* what is violated: the job ends, or begins anew */
};

extern struct replica_sim sim;

/* Whether the others can go on without the replica there. */
bool sim_may_die(const struct machine *victim);

/* Before what is violated is noted: the job ends. Returns its argument. */
bool sim_ends(bool now);

/* The one whose code runs; NULL between events. */
struct machine *machine_now(void);
/* Call fn in its crun; then the ends of the turn. */
void machine_enter(struct machine *m, world_fn *fn, void *obj, uint64_t token);
/* Later, unless its crun has ended by then. */
void machine_after(struct machine *m, uint64_t delay_us, world_fn *fn, void *obj,
                   uint64_t token);
void machine_pause(struct machine *m, uint64_t for_us);
/* Its crun is gone, and nothing of it happens any more. quiet: nobody is told. `free`
 * is called in it. */
void machine_kill(struct machine *m, bool quiet, void (*free)(struct crun *c));
struct machine *machine_at(const struct net_addr *addr);

/* wire.c */
void wire_begin(void);
void wire_lose(struct machine *m, bool quiet);
/* A path or a machine is there again: what waited arrives. */
void wire_wake(void);
/* One of its connections to another machine breaks. */
void wire_break_one(struct machine *m);
