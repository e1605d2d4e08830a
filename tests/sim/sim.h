/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/sim/network.h"
#include "tests/sim/plan.h"
#include "tests/sim/trace.h"
#include "tests/sim/world.h"

struct sim_agent;
struct sim_daemon;
struct sim_machine;
struct oracle;
struct sim_epoch;

/* One simulation: the things in it, which all know each other through this. */
struct sim {
    struct sim_world *world;
    struct trace trace;
    struct sim_plan plan;
    struct network *network;
    struct sim_daemon *daemon;
    struct oracle *oracle;
    struct sim_machine *machine[MACHINES_MAX];
    struct sim_agent *agents; /* every agent that ever was, newest first */
    unsigned agent_count;
    struct sim_epoch *epochs; /* see memory.c; newest first */
    uint32_t pids;            /* process numbers are never used twice */
    bool healed;              /* no more faults */
    bool over;                /* the end phase: programs succeed now */
};
