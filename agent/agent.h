/* SPDX-License-Identifier: MIT */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include "agent/config/config.h"

/*
 * One node's part of a job, from joining to the result: hosts the rendezvous where that
 * falls to this node, obeys its orders, runs the group, serves the store on rank 0's
 * node, and says what a person should know. Returns the exit code of crun.
 */
int agent_run(const struct config *config);

#endif
