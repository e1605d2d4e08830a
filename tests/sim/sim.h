/* SPDX-License-Identifier: MIT */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "tests/sim/network.h"
#include "tests/sim/plan.h"
#include "tests/sim/trace.h"
#include "tests/sim/world.h"

struct agent;
struct daemon;
struct machine;
struct oracle;

/* One simulation: the things in it, which all know each other through this. */
struct sim {
    struct world *world;
    struct trace trace;
    struct plan plan;
    struct network *network;
    struct daemon *daemon;
    struct oracle *oracle;
    struct machine *machine[MACHINES_MAX];
    struct agent *agents; /* every agent that ever was, newest first */
    unsigned agent_count;
    uint32_t pids; /* process numbers are never used twice */
    bool healed;   /* no more faults */
    bool over;     /* the end phase: programs succeed now */
};

#endif
