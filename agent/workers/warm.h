/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "agent/config.h"
#include "agent/guard/guard.h"

struct loop;
struct warm;

/*
 * --warm: keeps a template in the guard, from which the workers are forked
 * (guard_template.h). One that ends is started again, at first at once, then after 1,
 * 2, 4 ... seconds; after several in a row that were of no use there is no other one.
 * What the template writes is printed line by line.
 */
struct warm *warm_create(struct loop *loop, const struct config *config);
void warm_destroy(struct warm *w); /* NULL is fine */

/* For guard_start. */
struct guard_template_calls warm_guard_calls(struct warm *w);
/* Starts a template in a new guard. NULL: the guard has ended. */
void warm_set_guard(struct warm *w, struct guard *guard);

/* Workers that are started now come out of the template. */
bool warm_is_ready(const struct warm *w);
