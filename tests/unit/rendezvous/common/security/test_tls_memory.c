/* SPDX-License-Identifier: MIT */
/* Each allocation of a handshake and of a message fails in turn, ours and OpenSSL's. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "rendezvous/common/security/tls.h"
#include "tests/worlds/check_main.h"

static long countdown; /* the allocation that fails; 0: none */
static long allocations;

static bool is_failing(void)
{
    allocations++;
    return countdown > 0 && --countdown == 0;
}

static void *failing_malloc(size_t size, const char *file, int line)
{
    return is_failing() ? NULL : malloc(size);
}

static void *failing_realloc(void *old, size_t size, const char *file, int line)
{
    return is_failing() ? NULL : realloc(old, size);
}

static void plain_free(void *memory, const char *file, int line)
{
    free(memory);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
    return is_failing() ? NULL : __real_calloc(count, size);
}

static bool find_key(void *arg, const char *identity, uint8_t secret[TLS_SECRET_BYTES])
{
    memset(secret, 7, TLS_SECRET_BYTES);
    return true;
}

/* Both ends, and a message each way. True if all of it went well. */
static bool meet_once(struct tls_door *door, int client, int server)
{
    struct tls_psk key = { .identity = "crun1:a:agent:0" };
    struct err e = { 0 };
    struct tls_session *c, *s;
    int c_rc = 0, s_rc = 0;
    char text[8] = "";
    bool well = false;

    memset(key.secret, 7, sizeof(key.secret));
    c = tls_connect(client, &key, &e);
    ck_assert(c || e.text[0]);
    s = tls_accept(door, server);
    for (int i = 0; i < 4 && c && s && c_rc >= 0 && s_rc >= 0; i++) {
        c_rc = tls_handshake(c);
        s_rc = tls_handshake(s);
        ck_assert(c_rc >= 0 || tls_why(c)[0]);
        ck_assert(s_rc >= 0 || tls_why(s)[0]);
    }
    if (c_rc == 1 && s_rc == 1)
        well = tls_write(c, "there", 6) == 6 && tls_read(s, text, 8) == 6 &&
               strcmp(text, "there") == 0 && tls_write(s, "back", 5) == 5 &&
               tls_read(c, text, 8) == 5 && strcmp(text, "back") == 0;
    tls_destroy(c);
    tls_destroy(s);
    return well;
}

static bool meet_failing(struct tls_door *door, long which)
{
    int pair[2];
    bool well;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    allocations = 0;
    countdown = which;
    well = meet_once(door, pair[0], pair[1]);
    countdown = 0;
    close(pair[0]);
    close(pair[1]);
    return well;
}

START_TEST(each_allocation_of_a_session_may_fail)
{
    struct err e;
    struct tls_door *door = tls_door_create(find_key, NULL, &e);
    long all, failed = 0;

    ck_assert_ptr_nonnull(door);
    ck_assert(meet_failing(door, 0));
    ck_assert(meet_failing(door, 0)); /* the first one keeps some of it */
    all = allocations;
    ck_assert_int_gt(all, 100);
    for (long which = 1; which <= all; which++)
        failed += !meet_failing(door, which);
    ck_assert_int_gt(failed, all / 2);
    ck_assert(meet_failing(door, 0));
    tls_door_destroy(door);
}
END_TEST

START_TEST(each_allocation_of_a_door_may_fail)
{
    struct err e = { 0 };
    struct tls_door *door = tls_door_create(find_key, NULL, &e);
    long all;

    ck_assert_ptr_nonnull(door);
    tls_door_destroy(door);
    allocations = 0;
    tls_door_destroy(tls_door_create(find_key, NULL, &e));
    all = allocations;
    for (long which = 1; which <= all; which++) {
        e.text[0] = '\0';
        countdown = which;
        door = tls_door_create(find_key, NULL, &e);
        countdown = 0;
        ck_assert(door || e.text[0]);
        tls_door_destroy(door);
    }
    door = tls_door_create(find_key, NULL, &e);
    ck_assert_ptr_nonnull(door);
    ck_assert(meet_failing(door, 0));
    tls_door_destroy(door);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls_memory");
    TCase *tc = tcase_create("memory");

    if (!CRYPTO_set_mem_functions(failing_malloc, failing_realloc, plain_free))
        return EXIT_FAILURE; /* OpenSSL has allocated before */
    tcase_add_test(tc, each_allocation_of_a_session_may_fail);
    tcase_add_test(tc, each_allocation_of_a_door_may_fail);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
