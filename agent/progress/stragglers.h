/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/progress/page_reader.h"

/*
 * Finds the worker of a node that the others wait for. In synchronous training all
 * ranks make the same number of steps, and the slow one differs only in that it never
 * waits. So the phases are sampled, at moments unrelated to the steps. The share of
 * samples in which a rank was not waiting (PROGRESS_COMMUNICATING) is the share of a
 * step that its own work takes. A step takes equally long for all ranks, so the median
 * of these shares divided by a rank's own is its speed relative to the median rank.
 * Below 0.7 it lags.
 *
 * Only training, loading and waiting count, and a rank takes part once it has reported
 * training. Old samples fade: STRAGGLERS_SAMPLES_MIN are needed, and at twice that
 * number they are halved. Below a speed of 0.25, STRAGGLERS_SAMPLES_CLEAR suffice if
 * most are of different steps: in one step any rank may take long. Pure.
 */
#define STRAGGLERS_NONE UINT32_MAX

struct stragglers;

struct stragglers *stragglers_create(uint32_t workers);
void stragglers_destroy(struct stragglers *s); /* NULL is fine */
void stragglers_begin(struct stragglers *s);   /* begins an epoch */

void stragglers_sample(struct stragglers *s, uint32_t local_rank,
                       enum progress_phase phase, uint64_t step);

/* The slowest rank if it lags, with its speed (1: that of the median); else
 * STRAGGLERS_NONE. */
uint32_t stragglers_find(const struct stragglers *s, double *speed);

/* The shares of a step, 0 to 1, that the own work of the slowest rank and of the median
 * rank takes. False: not known yet. */
bool stragglers_own_shares(const struct stragglers *s, double *slowest, double *median);

/* The median share of time spent waiting, 0 to 1; -1: not known yet. */
double stragglers_waiting_share(const struct stragglers *s);
