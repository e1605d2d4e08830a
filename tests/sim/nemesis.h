/* SPDX-License-Identifier: MIT */
#pragma once

struct sim;

/* Brings the plan's faults over everything, until nemesis_rest heals all that lasts. */
void nemesis_begin(struct sim *s);
void nemesis_rest(struct sim *s);
