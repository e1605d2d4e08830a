/* SPDX-License-Identifier: MIT */
#ifndef TESTS_SIM_GROUP_H
#define TESTS_SIM_GROUP_H

#include <stdbool.h>
#include <stdint.h>

struct agent;
struct msg;

/*
 * The workers of one agent as a bag: how many are alive and how many have not finished.
 * Starting and stopping takes time; a failed worker leaves the others waiting, as it
 * does in a collective.
 */
void group_start(struct agent *a, const struct msg *start);
void group_stop(struct agent *a, const struct msg *stop);
/* The agent stops them unasked. */
void group_give_up(struct agent *a);
void group_ask_checkpoint(struct agent *a, uint64_t epoch);

/* One worker fails now, if there is one; `final`: a restart would not help. */
void group_fail(struct agent *a, bool final);
/* The program has done its work: every worker exits with 0 now. */
void group_succeed(struct agent *a);

#endif
