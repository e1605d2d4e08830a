/* SPDX-License-Identifier: MIT */
#ifndef TESTS_SIM_NEMESIS_H
#define TESTS_SIM_NEMESIS_H

struct sim;

/* Brings the plan's faults over everything, until nemesis_rest heals all that lasts. */
void nemesis_begin(struct sim *s);
void nemesis_rest(struct sim *s);

#endif
