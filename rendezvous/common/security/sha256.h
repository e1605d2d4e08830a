/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * SHA-256 (FIPS 180-4), HMAC (RFC 2104) and HKDF (RFC 5869) with it. They need no
 * library, so that digests and derived keys cost a launch nothing and are the same
 * where OpenSSL is missing. Time depends on sizes only.
 */
#define SHA256_BYTES 32
#define SHA256_BLOCK 64

struct sha256 {
    uint32_t state[8];
    uint64_t size;
    uint8_t block[SHA256_BLOCK];
};

void sha256_init(struct sha256 *h);
void sha256_add(struct sha256 *h, const void *data, size_t size);
/* The digest; wipes h. */
void sha256_finish(struct sha256 *h, uint8_t out[SHA256_BYTES]);

struct hmac_sha256 {
    struct sha256 inner, outer;
};

void hmac_sha256_init(struct hmac_sha256 *m, const void *key, size_t size);
void hmac_sha256_add(struct hmac_sha256 *m, const void *data, size_t size);
/* The code; wipes m. */
void hmac_sha256_finish(struct hmac_sha256 *m, uint8_t out[SHA256_BYTES]);

void hkdf_sha256_extract(const void *salt, size_t salt_size, const void *secret,
                         size_t secret_size, uint8_t out[SHA256_BYTES]);
