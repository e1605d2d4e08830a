/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "rendezvous/common/security/sha256.h"
#include "rendezvous/common/security/tls.h"

/* info is the label, a NUL, and the context: no two pairs give the same. */
void tls_hkdf(const uint8_t secret[TLS_SECRET_BYTES], const char *label,
              const void *context, size_t size, uint8_t out[TLS_SECRET_BYTES])
{
    uint8_t key[SHA256_BYTES];
    struct hmac_sha256 m;
    uint8_t count = 1;

    hkdf_sha256_extract(NULL, 0, secret, TLS_SECRET_BYTES, key);
    /* the first block of HKDF-Expand */
    hmac_sha256_init(&m, key, sizeof(key));
    hmac_sha256_add(&m, label, strlen(label) + 1);
    hmac_sha256_add(&m, context, size);
    hmac_sha256_add(&m, &count, 1);
    hmac_sha256_finish(&m, out);
    explicit_bzero(key, sizeof(key));
}

void tls_sha256(const void *data, size_t size, uint8_t out[32])
{
    struct sha256 h;

    sha256_init(&h);
    sha256_add(&h, data, size);
    sha256_finish(&h, out);
}
