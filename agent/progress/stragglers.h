/* SPDX-License-Identifier: MIT */
#ifndef AGENT_PROGRESS_STRAGGLERS_H
#define AGENT_PROGRESS_STRAGGLERS_H

#include <stdint.h>

#include "agent/progress/page_reader.h"

/*
 * Which of a node's workers the others wait for. In synchronous training all ranks make
 * the same number of steps, and the slow one shows only in that it never waits. So the
 * phases are sampled, at moments that have nothing to do with the steps: the share of
 * samples in which a rank was not waiting (PROGRESS_COMMUNICATING) is the share of a
 * step that its own work takes, and as the step is equally long for all, the median of
 * these shares divided by a rank's own is its speed relative to the median rank. Below
 * LAG_SPEED_MIN it lags. Only training and waiting count, a rank takes part once it has
 * said that it trains, and old samples fade: LAG_SAMPLES_MIN are needed, and from
 * twice as many on they are halved. Pure.
 */
#define STRAGGLERS_NONE UINT32_MAX

struct stragglers;

struct stragglers *stragglers_create(uint32_t workers);
void stragglers_destroy(struct stragglers *l); /* NULL is fine */
void stragglers_begin(struct stragglers *l);   /* a new epoch */

void stragglers_sample(struct stragglers *l, uint32_t local_rank,
                       enum progress_phase phase);

/* The slowest one if it lags, with its speed (1: as the median); else STRAGGLERS_NONE.
 */
uint32_t stragglers_find(const struct stragglers *l, double *speed);

/* The median share of time spent waiting, 0 to 1; -1: not known yet. */
double stragglers_waiting(const struct stragglers *l);

#endif
