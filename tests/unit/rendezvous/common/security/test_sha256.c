/* SPDX-License-Identifier: MIT */
/* Digests, codes and derived keys are those of the standards. */
#include "rendezvous/common/security/sha256.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/common/security/tls.h"
#include "tests/worlds/check_main.h"

static const char *to_hex(const uint8_t *data, size_t size)
{
    static char text[4][512];
    static unsigned next;
    char *out = text[next++ % 4];

    out[0] = '\0';
    for (size_t i = 0; i < size; i++)
        snprintf(out + 2 * i, 3, "%02x", data[i]);
    return out;
}

static size_t from_hex(const char *text, uint8_t *out)
{
    size_t n = strlen(text) / 2;

    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(sscanf(text + 2 * i, "%2hhx", &out[i]), 1);
    return n;
}

/* FIPS 180-4's examples, and the sizes around a block, from another implementation. */
static const struct {
    const char *text;
    unsigned times;
    const char *digest;
} digests[] = {
    { "", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { "abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    { "a", 1000000,
      "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0" },
    { "a", 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318" },
    { "a", 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a" },
    { "a", 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34" },
    { "a", 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb" },
    { "a", 65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0" },
};

TEST_EACH(a_digest_is_fips_180s, digests)
{
    uint8_t digest[SHA256_BYTES];
    struct sha256 h;

    sha256_init(&h);
    for (unsigned i = 0; i < digests[_i].times; i++)
        sha256_add(&h, digests[_i].text, strlen(digests[_i].text));
    sha256_finish(&h, digest);
    ck_assert_str_eq(to_hex(digest, sizeof(digest)), digests[_i].digest);
}

TEST(a_digest_does_not_depend_on_the_pieces)
{
    uint8_t data[300], whole[32], parts[32];
    struct sha256 h;

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(7 * i);
    tls_sha256(data, sizeof(data), whole);
    for (size_t step = 1; step < sizeof(data); step++) {
        sha256_init(&h);
        for (size_t i = 0; i < sizeof(data); i += step)
            sha256_add(&h, data + i, i + step < sizeof(data) ? step : sizeof(data) - i);
        sha256_finish(&h, parts);
        ck_assert_mem_eq(parts, whole, sizeof(whole));
    }
}

/* RFC 4231: cases 1, 2, 3, and 6, whose key is longer than a block. */
static const struct {
    const char *key, *data, *code;
} codes[] = {
    { "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "4869205468657265",
      "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
    { "4a656665", "7768617420646f2079612077616e7420666f72206e6f7468696e673f",
      "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
    { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
      "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd"
      "ddd"
      "ddddddddddddddddd",
      "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe" },
    { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      "aaa"
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      "aaa"
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      "aaa"
      "aaaaaaaaaaaaa",
      "54657374205573696e67204c6172676572205468616e20426c6f636b2d53697a65204b6579202d20"
      "4861"
      "7368204b6579204669727374",
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
};

TEST_EACH(a_code_is_rfc_4231s, codes)
{
    uint8_t key[256], data[256], code[SHA256_BYTES];
    size_t key_size = from_hex(codes[_i].key, key);
    size_t size = from_hex(codes[_i].data, data);
    struct hmac_sha256 m;

    hmac_sha256_init(&m, key, key_size);
    hmac_sha256_add(&m, data, size);
    hmac_sha256_finish(&m, code);
    ck_assert_str_eq(to_hex(code, sizeof(code)), codes[_i].code);
}

/* The first block of RFC 5869, appendix A.1 to A.3, is the HMAC of the info and 1. */
TEST(a_secret_of_a_purpose_is_hkdf_with_label_and_context)
{
    uint8_t secret[TLS_SECRET_BYTES], key[SHA256_BYTES], want[32], got[32], other[32];
    static const char info[] = "crun role\0view 7\1";
    struct hmac_sha256 m;

    memset(secret, 0x5a, sizeof(secret));
    hkdf_sha256_extract(NULL, 0, secret, sizeof(secret), key);
    hmac_sha256_init(&m, key, sizeof(key));
    hmac_sha256_add(&m, info, sizeof(info) - 1);
    hmac_sha256_finish(&m, want);
    tls_hkdf(secret, "crun role", "view 7", 6, got);
    ck_assert_mem_eq(got, want, sizeof(want));
    tls_hkdf(secret, "crun rol", "eview 7", 7, other);
    ck_assert_mem_ne(got, other, sizeof(other));
}
