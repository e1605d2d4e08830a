/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/wire/protocol/message.h"

struct sim_agent;
struct sim;

/*
 * What else connects to the rendezvous: a person with crunctl, or a ghost: an agent
 * that was evicted, or is of another launch. Says its one thing and goes.
 */
void visitor_ask(struct sim *s, const struct msg *question);
/* Comes back as `a` and wants to go on; `instance`: believes to be in that launch. */
void visitor_haunt(struct sim *s, const struct sim_agent *a,
                   const struct id128 *instance);
