/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/key_ring.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "tests/worlds/check_main.h"

static char folder[64], path[128];
static struct key_ring *ring;
static struct err e;
static char logged[1024];

static void note_line(void *arg, enum log_level level, const char *line)
{
    snprintf(logged, sizeof(logged), "%s", line);
}

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/crun-test-ring-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/key", folder);
    log_set_sink(note_line, NULL);
    *logged = '\0';
    ring = NULL;
}

static void remove_folder(void)
{
    char command[128];

    key_ring_close(ring);
    log_set_sink(NULL, NULL);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* As an editor does it: a new file takes the place of the old. */
static void write_file(const char *name, const char *text)
{
    char at[160], fresh[192];
    int fd;

    snprintf(at, sizeof(at), "%s/%s", folder, name);
    snprintf(fresh, sizeof(fresh), "%s/.fresh", folder);
    fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    ck_assert_int_eq(rename(fresh, at), 0);
}

static void write_keys(const char *name, const struct key *a, const struct key *b)
{
    char text[2 * KEY_TEXT_SIZE];

    key_format(a, text);
    if (b)
        key_format(b, text + strlen(text));
    write_file(name, text);
}

static struct key new_key(void)
{
    struct key k;

    key_generate(0, &k);
    return k;
}

static void open_ring(const char *at)
{
    ring = key_ring_open(at, &e);
    ck_assert_msg(ring != NULL, "%s", e.text);
    ck_assert(!key_ring_refresh(ring));
}

static struct tls_psk psk_of(const struct key *k)
{
    struct tls_psk psk;

    key_psk(k, &psk);
    return psk;
}

/* What a peer with that key names, and whether both ends then have the same secret. */
static bool is_accepted(const struct key *k)
{
    struct tls_psk psk = psk_of(k);
    uint8_t secret[TLS_SECRET_BYTES];

    return key_ring_find(ring, psk.identity, secret) &&
           memcmp(secret, psk.secret, sizeof(secret)) == 0;
}

static bool has_key(const struct key *k)
{
    struct tls_psk psk = psk_of(k);

    return key_ring_has(ring, psk.identity);
}

static const char *explain(const struct key *k)
{
    static char text[256];
    struct tls_psk psk = psk_of(k);

    return key_ring_explain(ring, psk.identity, text, sizeof(text));
}

static bool reread(void)
{
    key_ring_reread(ring);
    return key_ring_refresh(ring);
}

FIXTURE(make_folder, remove_folder);

TEST(the_first_key_is_used_and_all_are_accepted)
{
    struct key a = new_key(), b = new_key(), other = new_key();
    struct tls_psk psk, expected = psk_of(&a);

    write_keys("key", &a, &b);
    open_ring(path);
    ck_assert_int_eq(key_ring_use(ring, ACCESS_AGENT, &psk, &e), 0);
    ck_assert_str_eq(psk.identity, expected.identity);
    ck_assert(memcmp(psk.secret, expected.secret, sizeof(psk.secret)) == 0);
    ck_assert(is_accepted(&a));
    ck_assert(is_accepted(&b));
    ck_assert(!is_accepted(&other));
    ck_assert(!has_key(&other));
    ck_assert_ptr_nonnull(strstr(explain(&other), other.id));
    ck_assert_int_eq((int)key_ring_access(ring), ACCESS_AGENT);
}

TEST(a_key_is_added_used_and_retired)
{
    struct key old = new_key(), young = new_key();
    struct tls_psk psk;

    write_keys("key", &old, NULL);
    open_ring(path);
    write_keys("key", &old, &young);
    ck_assert(reread());
    ck_assert(!reread());
    ck_assert(has_key(&old) && has_key(&young));
    write_keys("key", &young, &old);
    ck_assert_int_eq(reread(), true);
    ck_assert_int_eq(key_ring_use(ring, ACCESS_AGENT, &psk, &e), 0);
    ck_assert_ptr_nonnull(strstr(psk.identity, young.id));
    ck_assert(has_key(&old));
    write_keys("key", &young, NULL);
    ck_assert(reread());
    ck_assert(!has_key(&old));
    ck_assert(!is_accepted(&old));
    ck_assert(is_accepted(&young));
}

/* The next connection finds a change without being told; a flood of them does not read
 * the file each time. */
TEST(a_change_is_found_within_the_interval)
{
    struct key old = new_key(), young = new_key();
    struct timespec pause = { .tv_nsec = 1000000 };

    write_keys("key", &old, NULL);
    open_ring(path);
    write_keys("key", &young, NULL);
    while (!is_accepted(&young))
        nanosleep(&pause, NULL);
    ck_assert(!has_key(&old));
}

TEST(a_file_that_became_bad_leaves_the_keys_and_is_told_once)
{
    struct key a = new_key();

    write_keys("key", &a, NULL);
    open_ring(path);
    write_file("key", "crun1:cut");
    ck_assert(!reread());
    ck_assert_ptr_nonnull(strstr(logged, "the keys stay as they were"));
    ck_assert_ptr_nonnull(strstr(logged, path));
    ck_assert(has_key(&a));
    *logged = '\0';
    ck_assert(!reread());
    ck_assert_str_eq(logged, "");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert(!reread());
    ck_assert_ptr_nonnull(strstr(logged, "No such file"));
    ck_assert(has_key(&a));
    write_keys("key", &a, NULL);
    ck_assert(reread());
}

TEST(keys_of_less_access_are_known_from_the_agents)
{
    struct key agent = new_key(), view, forged;
    int64_t soon = time(NULL) + 3600;

    write_keys("key", &agent, NULL);
    open_ring(path);
    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, soon, &view, &e), 0);
    ck_assert(is_accepted(&view));
    forged = view; /* the holder of a key to view claims more, or longer */
    forged.access = ACCESS_AGENT;
    ck_assert(!is_accepted(&forged));
    forged = view;
    forged.expires = 0;
    ck_assert(!is_accepted(&forged));
    ck_assert_ptr_nonnull(strstr(explain(&forged), "another secret"));
}

TEST(no_key_is_accepted_after_its_end)
{
    struct key agent = new_key(), ended, view;
    int64_t now = time(NULL);

    key_generate(now - 365 * 86400, &ended); /* or the clock is a year off */
    write_keys("key", &agent, &ended);
    open_ring(path);
    ck_assert(!is_accepted(&ended));
    ck_assert(!has_key(&ended));
    ck_assert_ptr_nonnull(strstr(explain(&ended), "ended on"));
    ck_assert_ptr_nonnull(strstr(explain(&ended), "now: "));
    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, now - 1, &view, &e), 0);
    ck_assert(!is_accepted(&view));
}

/* The ring's clock. time() is up to a tick behind it. */
static int64_t wall_seconds(void)
{
    return (int64_t)(clock_wall_ms() / 1000);
}

TEST(the_end_of_a_key_in_use_is_a_change)
{
    struct timespec pause = { .tv_nsec = 10000000 };
    struct key agent = new_key(), view;
    int64_t soon = wall_seconds() + 1;

    write_keys("key", &agent, NULL);
    open_ring(path);
    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, soon, &view, &e), 0);
    SKIP_UNLESS(is_accepted(&view),
                "the machine is so busy that a second is over already");
    while (!key_ring_refresh(ring))
        nanosleep(&pause, NULL);
    ck_assert_int_ge(wall_seconds(), soon);
    ck_assert(!has_key(&view));
    ck_assert(!key_ring_refresh(ring));
}

/* Handshakes that come between must not hide it from who ends connections. */
TEST(a_change_is_told_whatever_was_asked_meanwhile)
{
    struct key old = new_key(), young = new_key();
    struct tls_psk psk;

    write_keys("key", &old, NULL);
    open_ring(path);
    write_keys("key", &young, NULL);
    key_ring_reread(ring);
    ck_assert(is_accepted(&young));
    ck_assert_int_eq(key_ring_use(ring, ACCESS_AGENT, &psk, &e), 0);
    ck_assert(key_ring_refresh(ring));
    ck_assert(!key_ring_refresh(ring));
}

TEST(nothing_derived_from_a_key_outlives_it)
{
    struct key agent, view, forever;
    int64_t soon = time(NULL) + 3600;

    key_generate(0, &agent);
    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, 0, &forever, &e), 0);
    agent.expires = soon; /* as its owner has written it into the file later */
    write_keys("key", &agent, NULL);
    open_ring(path);
    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, soon, &view, &e), 0);
    ck_assert(is_accepted(&view));
    ck_assert(!is_accepted(&forever));
}

TEST(the_connecting_side_shows_no_more_than_it_needs)
{
    struct key agent = new_key();
    struct tls_psk psk;

    write_keys("key", &agent, NULL);
    open_ring(path);
    ck_assert_int_eq(key_ring_use(ring, ACCESS_VIEW, &psk, &e), 0);
    ck_assert_ptr_nonnull(strstr(psk.identity, ":view:"));
    ck_assert(key_ring_has(ring, psk.identity));
}

TEST(a_key_that_does_not_do_is_named)
{
    struct key agent = new_key(), view, ended;
    struct tls_psk psk;

    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, 0, &view, &e), 0);
    write_keys("key", &view, NULL);
    open_ring(path);
    ck_assert_int_eq(key_ring_use(ring, ACCESS_VIEW, &psk, &e), 0);
    ck_assert_int_eq(key_ring_use(ring, ACCESS_AGENT, &psk, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "\"view\", and this needs \"agent\""));
    ck_assert_ptr_nonnull(strstr(e.text, path));
    key_generate(time(NULL) - 1, &ended);
    write_keys("key", &ended, NULL);
    ck_assert(reread());
    ck_assert_int_eq(key_ring_use(ring, ACCESS_AGENT, &psk, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "ended on"));
}

TEST(a_folder_has_a_file_for_each_team)
{
    struct key red = new_key(), red_next = new_key(), blue = new_key();
    struct tls_psk psk;
    char owner[64];

    write_keys("red", &red, NULL);
    write_keys("blue", &blue, NULL);
    write_file(".hidden", "no key");
    ring = key_ring_open_folder(folder, &e);
    ck_assert_msg(ring != NULL, "%s", e.text);
    ck_assert(is_accepted(&red) && is_accepted(&blue));
    psk = psk_of(&red);
    ck_assert_str_eq(key_ring_owner(ring, psk.identity, owner, sizeof(owner)), "red");
    write_keys("red", &red_next, &red); /* a job of before is still its team's */
    ck_assert(reread());
    psk = psk_of(&red_next);
    ck_assert_str_eq(key_ring_owner(ring, psk.identity, owner, sizeof(owner)), "red");
    write_keys("green", &blue, NULL);
    ck_assert(!reread());
    ck_assert_ptr_nonnull(strstr(logged, "have the same key"));
    snprintf(path, sizeof(path), "%s/green", folder);
    ck_assert_int_eq(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/blue", folder);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert(reread());
    ck_assert(!has_key(&blue));
    ck_assert(has_key(&red));
}

/* A job is recorded with this name, which must not be cut. */
TEST(the_name_of_a_team_has_a_limit)
{
    struct key red = new_key(), blue = new_key();
    char name[PEER_OWNER_MAX + 2] = "", owner[PEER_OWNER_MAX + 1];
    struct tls_psk psk;

    memset(name, 'r', PEER_OWNER_MAX);
    write_keys(name, &red, NULL);
    ring = key_ring_open_folder(folder, &e);
    ck_assert_msg(ring != NULL, "%s", e.text);
    psk = psk_of(&red);
    ck_assert_str_eq(key_ring_owner(ring, psk.identity, owner, sizeof(owner)), name);
    name[PEER_OWNER_MAX] = 'r';
    write_keys(name, &blue, NULL);
    ck_assert(!reread());
    ck_assert_ptr_nonnull(strstr(logged, "longer than"));
    ck_assert(has_key(&red));
}

TEST(all_holders_derive_the_same_secret)
{
    struct key a = new_key(), b = new_key();
    uint8_t one[TLS_SECRET_BYTES], two[TLS_SECRET_BYTES];
    char first[KEY_ID_SIZE] = "", unknown[KEY_ID_SIZE] = "0000000000000000";

    write_keys("key", &a, &b);
    open_ring(path);
    ck_assert_int_eq(key_ring_derive(ring, first, "test", "x", 1, one, &e), 0);
    ck_assert_str_eq(first, a.id);
    write_keys("key", &b, &a); /* another node, where the new key is already used */
    ck_assert(reread());
    ck_assert_int_eq(key_ring_derive(ring, first, "test", "x", 1, two, &e), 0);
    ck_assert(memcmp(one, two, sizeof(one)) == 0);
    ck_assert_int_eq(key_ring_derive(ring, first, "test", "y", 1, two, &e), 0);
    ck_assert(memcmp(one, two, sizeof(one)) != 0);
    ck_assert_int_eq(key_ring_derive(ring, unknown, "test", "x", 1, two, &e), -1);
}

TEST(a_key_that_has_ended_gives_no_secret)
{
    struct key good = new_key(), ended;
    uint8_t secret[TLS_SECRET_BYTES];
    char id[KEY_ID_SIZE];

    key_generate(time(NULL) - 1, &ended);
    write_keys("key", &ended, &good);
    open_ring(path);
    memcpy(id, ended.id, sizeof(id)); /* as a client names it */
    ck_assert_int_eq(key_ring_derive(ring, id, "test", "x", 1, secret, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "ended on"));
    memcpy(id, good.id, sizeof(id));
    ck_assert_int_eq(key_ring_derive(ring, id, "test", "x", 1, secret, &e), 0);
}

/* Its thread must neither delay the end nor outlive it. */
TEST(a_ring_opens_and_closes_at_once)
{
    struct key a = new_key();

    write_keys("key", &a, NULL);
    for (int i = 0; i < 50; i++) {
        struct key_ring *r = key_ring_open(path, &e);

        ck_assert_ptr_nonnull(r);
        key_ring_close(r);
    }
    ck_assert_ptr_null(key_ring_open("/nonexistent/key", &e));
}
