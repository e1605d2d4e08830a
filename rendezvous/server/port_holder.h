/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/net.h"

struct key_ring;

/*
 * The job of the rendezvous that listens at addr: job "none" (train.py), running since
 * 14:03:22. False if none answers in that time: it belongs to another user, or has
 * another key, or is no rendezvous. It blocks, so it is only for what goes wrong.
 */
bool port_holder_describe(const struct net_addr *addr, struct key_ring *keys,
                          uint64_t within_ms, char *text, size_t size);
