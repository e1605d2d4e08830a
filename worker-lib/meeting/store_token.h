/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/security/tls.h"

/* How this worker reaches its job's store by TLS, as its agent says in the status page:
 * an environment can be read in more places. */
struct store_token {
    char host[256];
    uint16_t port;
    struct tls_psk psk;
};

/* False: there is none, so the store is reached without TLS. The caller wipes it. */
bool store_token_read(struct store_token *out);
