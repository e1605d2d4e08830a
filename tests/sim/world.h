/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/id128.h"

/*
 * Time, chance and what is to come: the only source of all three in a simulation, so
 * that a seed is a history. Time stands in microseconds and moves from one event to
 * the next; events at the same time happen in the order in which they were asked for.
 */
struct sim_world;

typedef void world_fn(void *obj, uint64_t token);

struct sim_world *world_create(uint64_t seed);
void world_destroy(struct sim_world *w);

uint64_t world_now(const struct sim_world *w);
uint64_t world_events(const struct sim_world *w);

/* Call fn(obj, token) after that time. obj must live as long as the world. */
void world_after(struct sim_world *w, uint64_t delay_us, world_fn *fn, void *obj,
                 uint64_t token);
/* Do the next event if there is one up to `until_us`; else time moves there: false. */
bool world_step(struct sim_world *w, uint64_t until_us);

/* Chance. `between` includes both ends. */
uint64_t world_random(struct sim_world *w);
uint64_t world_below(struct sim_world *w, uint64_t n);
uint64_t world_between(struct sim_world *w, uint64_t low, uint64_t high);
bool world_chance(struct sim_world *w, unsigned per_mille);
struct id128 world_id(struct sim_world *w);

/* Memory that lives until the world ends. Zeroed. */
void *world_alloc(struct sim_world *w, size_t size);

/*
 * A machine's clock: starts anywhere, runs a little fast or slow; its wall clock may
 * be set at any time. Milliseconds, as the programs see it.
 */
struct machine_clock {
    uint64_t start_ms, start_us; /* it showed start_ms at start_us */
    uint64_t ppm;                /* 1000000 is right */
    uint64_t wall_ms;            /* added to it */
};

void machine_clock_init(struct machine_clock *c, struct sim_world *w);
uint64_t machine_clock_ms(const struct machine_clock *c, const struct sim_world *w);
uint64_t machine_clock_wall_ms(const struct machine_clock *c,
                               const struct sim_world *w);
/* How long until it shows that. */
uint64_t machine_clock_until_us(const struct machine_clock *c,
                                const struct sim_world *w, uint64_t ms);
