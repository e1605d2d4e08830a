/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"

/*
 * One node's part in a job, from joining to the result: hosts the rendezvous if this
 * node must, executes its orders, runs the group, serves the store on the node of rank
 * 0, and prints messages for users. Returns crun's exit code.
 */
int agent_run(const struct config *config);
