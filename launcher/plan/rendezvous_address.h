/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"
#include "launcher/flags/options.h"

/*
 * Finds the rendezvous of a job from all the flags that concern it: fills rendezvous,
 * endpoints (allocated), is_host, node_rank, local_addr and store_port.
 */
int rendezvous_address_find(const struct options *o, struct config *config,
                            struct err *e) MUST_CHECK;
