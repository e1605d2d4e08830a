/* SPDX-License-Identifier: MIT */
/* Which secrets open an epoch's store. */
#include "agent/hosting/store_token.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/security/key.h"
#include "rendezvous/common/security/key_ring.h"
#include "tests/worlds/check_main.h"

static char folder[32], path[64];
static struct key_ring *ring;

/* Writes a file of these keys. */
static void write_keys(const struct key *const *key, unsigned count)
{
    char text[KEY_TEXT_SIZE];
    FILE *f;

    umask(077);
    f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    for (unsigned i = 0; i < count; i++)
        fputs(key_format(key[i], text), f);
    ck_assert_int_eq(fclose(f), 0);
}

static struct key first, second;

static void setup(void)
{
    const struct key *one[] = { &first };
    struct err e;

    strcpy(folder, "/tmp/crun-test-token-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/key", folder);
    key_generate(0, &first);
    key_generate(0, &second);
    write_keys(one, 1);
    ring = key_ring_open(path, &e);
    ck_assert_msg(ring != NULL, "%s", e.text);
}

static void teardown(void)
{
    key_ring_close(ring);
    unlink(path);
    rmdir(folder);
}

static struct store_epoch epoch_of(uint64_t epoch, uint8_t instance)
{
    return (struct store_epoch){ .keys = ring,
                                 .instance = { { instance } },
                                 .epoch = epoch };
}

FIXTURE(setup, teardown);

TEST(both_ends_come_to_one_secret)
{
    struct store_epoch there = epoch_of(0x1f, 7), here = epoch_of(0x1f, 7);
    uint8_t secret[TLS_SECRET_BYTES];
    char expected[80];
    struct tls_psk psk;
    struct err e;

    ck_assert_int_eq(store_token_make(&there, &psk, &e), 0);
    snprintf(expected, sizeof(expected), "crun1-store:1f:%s", first.id);
    ck_assert_str_eq(psk.identity, expected);
    ck_assert(store_token_find(&here, psk.identity, secret));
    ck_assert_mem_eq(secret, psk.secret, TLS_SECRET_BYTES);
    ck_assert_mem_ne(secret, first.secret, TLS_SECRET_BYTES);
}

TEST(another_epoch_or_launch_has_another)
{
    struct store_epoch one = epoch_of(1, 7), next = epoch_of(2, 7),
                       other = epoch_of(1, 8);
    uint8_t secret[TLS_SECRET_BYTES];
    struct tls_psk psk;
    struct err e;

    ck_assert_int_eq(store_token_make(&one, &psk, &e), 0);
    ck_assert(!store_token_find(&next, psk.identity, secret));
    ck_assert(store_token_find(&other, psk.identity, secret));
    ck_assert_mem_ne(secret, psk.secret, TLS_SECRET_BYTES);
}

TEST(what_is_no_identity_of_the_epoch_is_refused)
{
    static const char *const bad[] = {
        "",
        "crun1-store:1:",
        "crun1-store:1:0123456789abcdef",
        "crun1-store:1:0123456789abcdef0",
        "crun1:0123456789abcdef:agent:0",
        "crun1-store:01:0123456789abcdef",
    };
    struct store_epoch one = epoch_of(1, 7);
    uint8_t secret[TLS_SECRET_BYTES];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!store_token_find(&one, bad[i], secret), "%s", bad[i]);
}

TEST(a_key_that_is_replaced_lasts_for_the_epoch)
{
    const struct key *both[] = { &second, &first }, *new[] = { &second };
    struct store_epoch here = epoch_of(1, 7), idle = epoch_of(1, 7), there = here;
    uint8_t secret[TLS_SECRET_BYTES];
    struct tls_psk old, psk;
    struct err e;

    store_token_begin(&here);
    ck_assert_int_eq(store_token_make(&there, &old, &e), 0);
    write_keys(both, 2);
    key_ring_reread(ring);
    ck_assert_int_eq(store_token_make(&there, &psk, &e), 0);
    ck_assert_str_ne(psk.identity, old.identity);
    ck_assert(store_token_find(&here, psk.identity, secret));
    write_keys(new, 1);
    key_ring_reread(ring);
    ck_assert(store_token_find(&here, old.identity, secret));
    ck_assert_mem_eq(secret, old.secret, TLS_SECRET_BYTES);
    ck_assert(!store_token_find(&idle, old.identity, secret));
    store_token_wipe(&here);
    ck_assert(!store_token_find(&here, old.identity, secret));
}
