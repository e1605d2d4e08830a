/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SERVER_PORT_HOLDER_H
#define RENDEZVOUS_SERVER_PORT_HOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/common/base/net.h"

struct key_ring;

/*
 * The job of the rendezvous that listens at addr: job "none" (train.py), running since
 * 14:03:22. False if none answers within PORT_HOLDER_MS: it belongs to another user, or
 * has another key, or is no rendezvous. It blocks, so it is only for error messages.
 */
bool port_holder_describe(const struct net_addr *addr, struct key_ring *keys,
                          char *text, size_t size);

#endif
