/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/sha256.h"

#include <string.h>

static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2
};

static uint32_t rotate_right(uint32_t x, unsigned by)
{
    return x >> by | x << (32 - by);
}

static void sha256_schedule(const uint8_t *block, uint32_t w[64])
{
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];

        w[i] = w[i - 16] + w[i - 7] +
               (rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3) +
               (rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10);
    }
}

static void sha256_take_block(struct sha256 *h, const uint8_t *block)
{
    uint32_t w[64], v[8];

    sha256_schedule(block, w);
    memcpy(v, h->state, sizeof(v));
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t t = v[7] + round_constant[i] + w[i] + ((e & v[5]) ^ (~e & v[6])) +
                     (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25));
        uint32_t u = ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2])) +
                     (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22));

        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t;
        v[0] = t + u;
    }
    for (int i = 0; i < 8; i++)
        h->state[i] += v[i];
    explicit_bzero(w, sizeof(w));
    explicit_bzero(v, sizeof(v));
}

void sha256_init(struct sha256 *h)
{
    *h = (struct sha256){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

void sha256_add(struct sha256 *h, const void *data, size_t size)
{
    const uint8_t *byte = data;

    while (size > 0) {
        size_t used = h->size % SHA256_BLOCK;
        size_t n = size < SHA256_BLOCK - used ? size : SHA256_BLOCK - used;

        memcpy(h->block + used, byte, n);
        h->size += n;
        byte += n;
        size -= n;
        if (used + n == SHA256_BLOCK)
            sha256_take_block(h, h->block);
    }
}

void sha256_finish(struct sha256 *h, uint8_t out[SHA256_BYTES])
{
    static const uint8_t padding[SHA256_BLOCK] = { 0x80 };
    uint64_t bits = h->size * 8;
    uint8_t length[8];

    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(h, padding,
               1 + (2 * SHA256_BLOCK - 9 - h->size % SHA256_BLOCK) % SHA256_BLOCK);
    sha256_add(h, length, sizeof(length));
    for (int i = 0; i < SHA256_BYTES; i++)
        out[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
    explicit_bzero(h, sizeof(*h));
}

void hmac_sha256_init(struct hmac_sha256 *m, const void *key, size_t size)
{
    uint8_t block[SHA256_BLOCK] = { 0 };

    sha256_init(&m->inner);
    sha256_init(&m->outer);
    if (size > sizeof(block)) {
        sha256_add(&m->inner, key, size);
        sha256_finish(&m->inner, block);
        sha256_init(&m->inner);
    } else if (size > 0) {
        memcpy(block, key, size);
    }
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] ^= 0x36;
    sha256_add(&m->inner, block, sizeof(block));
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] ^= 0x36 ^ 0x5c;
    sha256_add(&m->outer, block, sizeof(block));
    explicit_bzero(block, sizeof(block));
}

void hmac_sha256_add(struct hmac_sha256 *m, const void *data, size_t size)
{
    sha256_add(&m->inner, data, size);
}

void hmac_sha256_finish(struct hmac_sha256 *m, uint8_t out[SHA256_BYTES])
{
    uint8_t digest[SHA256_BYTES];

    sha256_finish(&m->inner, digest);
    sha256_add(&m->outer, digest, sizeof(digest));
    sha256_finish(&m->outer, out);
    explicit_bzero(digest, sizeof(digest));
}

void hkdf_sha256_extract(const void *salt, size_t salt_size, const void *secret,
                         size_t secret_size, uint8_t out[SHA256_BYTES])
{
    struct hmac_sha256 m;

    hmac_sha256_init(&m, salt, salt_size);
    hmac_sha256_add(&m, secret, secret_size);
    hmac_sha256_finish(&m, out);
}
