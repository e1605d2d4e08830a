/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/security/tls.h"

/*
 * The way to the store of rank 0 for workers that cannot speak TLS: a port of 127.0.0.1
 * for processes of this user, whose bytes a thread carries inside TLS. Any thread may
 * call; destroy is the last call.
 */
struct tunnel;

struct tunnel_config {
    char host[ADDRESS_MAX_BYTES + 1]; /* of the store; may be a name */
    uint16_t port;
    int listener; /* to listen on, which stays the caller's; 0: any port */
    struct tls_psk psk;
};

struct tunnel *tunnel_create(const struct tunnel_config *config,
                             struct err *e) MUST_CHECK;
/* Ends the thread and all connections. NULL is fine. */
void tunnel_destroy(struct tunnel *t);
uint16_t tunnel_port(const struct tunnel *t);
