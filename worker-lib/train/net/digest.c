/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net/digest.h"

#include <stdio.h>

#include "rendezvous/common/tls/sha256.h"

void digest_parameters(const struct net *n, char text[DIGEST_TEXT_SIZE])
{
    uint8_t digest[SHA256_BYTES];
    struct sha256 h;

    sha256_init(&h);
    for (unsigned i = 0; i < net_parameters(n); i++) {
        const struct parameter *p = net_parameter(n, i);

        sha256_add(&h, p->value, p->count * sizeof(*p->value));
    }
    sha256_finish(&h, digest);
    for (unsigned i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}
