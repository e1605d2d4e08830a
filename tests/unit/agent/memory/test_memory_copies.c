/* SPDX-License-Identifier: MIT */
/* takes: 12 s */
/* Agents that keep copies for each other, and give parts to each other. */
#include "agent/memory/memory_link.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/memory_part.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/security/key.h"
#include "rendezvous/common/security/key_ring.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/memory_world.h"

static struct memory_agent a, b, spare;
static struct memory_worker wa, wb, ws;
static const struct memory_set s5 = { 1, 5, 2, 0 }, s6 = { 1, 6, 2, 0 };

static void setup(void)
{
    memory_agent_open(&a, 1, 1);
    memory_agent_open(&b, 1, 1);
    memory_agent_open(&spare, 1, 1);
    memory_agent_begin(&spare, 1, 0, 2, NULL, NULL);
    memory_agent_begin(&a, 1, 0, 2, NULL, &b);
    memory_agent_begin(&b, 1, 1, 2, NULL, &a);
    memory_worker_open(&wa, &a, 1, 0, 0);
    memory_worker_open(&wb, &b, 1, 0, 1);
}

static void teardown(void)
{
    memory_agent_close(&a);
    memory_agent_close(&b);
    memory_agent_close(&spare);
    memory_world_end();
}

static void await_kept(const struct memory_worker *w, uint32_t slot)
{
    uint64_t until_ms = clock_ms() + MEMORY_PATIENCE_MS;

    while (!memory_worker_is_kept(w, slot)) {
        ck_assert_msg(clock_ms() < until_ms, "it is not kept");
        loop_turn(memory_world(), 2);
    }
}

static void await_held(const struct memory_agent *of, const char *wanted)
{
    uint64_t until_ms = clock_ms() + MEMORY_PATIENCE_MS;
    char held[MEMORY_HELD_SIZE] = "";

    while (strcmp(held, wanted) != 0) {
        ck_assert_msg(clock_ms() < until_ms, "it has %s", held);
        loop_turn(memory_world(), 2);
        memory_keeper_held(of->keeper, held, sizeof(held));
    }
}

/* As a replicated program does: the model on each node, its own bytes on each rank. */
static void save_both(uint32_t slot, const struct memory_set *set, size_t own)
{
    memory_worker_save(&wa, slot, set, own, 300000);
    memory_worker_save(&wb, slot, set, own, 300000);
}

static void hold_at(struct memory_agent *of, unsigned port, const char *held)
{
    size_t used = strlen(of->holders);

    snprintf(of->holders + used, sizeof(of->holders) - used, "%s127.0.0.1:%u=%s",
             used ? " " : "", port, held);
}

static void hold(struct memory_agent *of, const struct memory_agent *holder,
                 const char *held)
{
    hold_at(of, memory_keeper_port(holder->keeper), held);
}

/* It becomes one of another job, as good as not there. */
static void change_job(struct memory_agent *of, const char *job)
{
    of->job = (struct id128){ .byte = "" };
    memcpy(of->job.byte, job, strlen(job));
    memory_agent_begin(of, 1, 1, 2, NULL, NULL);
}

FIXTURE(setup, teardown);

TEST(a_neighbour_has_the_own_section_of_each_part)
{
    char held[MEMORY_HELD_SIZE];
    struct memory_figures figures;

    ck_assert_uint_eq(wa.hello.copies, 1);
    save_both(0, &s5, 700000);
    await_kept(&wa, 0);
    await_kept(&wb, 0);
    memory_keeper_held(a.keeper, held, sizeof(held));
    ck_assert_str_eq(held, "1.5.2:0-1+");
    save_both(1, &s6, 700000);
    await_kept(&wa, 1);
    await_kept(&wb, 1);
    memory_worker_close(&wa);
    ck_assert_str_eq(memory_agent_end(&a), "1.6.2:0-1+ 1.5.2:0-1+");
    memory_keeper_figures(a.keeper, &figures);
    ck_assert_uint_eq(figures.step, 6);
    ck_assert_uint_eq(figures.copied, 6);
    ck_assert_uint_gt(figures.bytes, 4 * 700000);
    ck_assert_uint_eq(a.said_count + b.said_count, 0);
}

/* b is lost with its worker, and the spare has nothing. */
static void lose_b(size_t own)
{
    save_both(0, &s5, own);
    await_kept(&wa, 0);
    await_kept(&wb, 0);
    memory_worker_close(&wa);
    memory_worker_close(&wb);
    memory_agent_close(&b);
    ck_assert_str_eq(memory_agent_end(&a), "1.5.2:0-1+");
}

static void expect_spare_restores(size_t own)
{
    struct memory_ask restored = { .kind = MEMORY_ASK_RESTORED, .bytes = 5 };
    int fd;

    memory_worker_open(&ws, &spare, 2, 0, 1);
    fd = memory_worker_open_part(&ws, 1, false);
    ck_assert(memory_is_part(fd, &s5, 1, own, 0));
    close(fd);
    fd = memory_worker_open_part(&ws, 1, true);
    ck_assert(memory_is_part(fd, &s5, 0, 0, 300000));
    close(fd);
    ck_assert_int_eq(send(ws.fd, &restored, sizeof(restored), 0), sizeof(restored));
    memory_until(&spare.restored_count, 1);
    ck_assert_uint_eq(spare.step, 5);
}

TEST(a_spare_gets_a_lost_nodes_part_from_its_neighbour)
{
    lose_b(700000);
    hold(&spare, &a, "0-1+");
    memory_agent_begin(&spare, 2, 1, 2, &s5, &a);
    expect_spare_restores(700000);
}

TEST(a_large_part_comes_whole)
{
    lose_b(30 << 20);
    hold(&spare, &a, "0-1+");
    memory_agent_begin(&spare, 2, 1, 2, &s5, &a);
    expect_spare_restores(30 << 20);
}

/* Until its own workers have two newer ones. */
TEST(what_was_fetched_is_held_until_it_is_old)
{
    static const struct memory_set s7 = { 2, 7, 2, 0 }, s8 = { 2, 8, 2, 0 };

    lose_b(5000);
    hold(&spare, &a, "0-1+");
    memory_agent_begin(&spare, 2, 1, 2, &s5, NULL);
    expect_spare_restores(5000);
    ck_assert_str_eq(memory_agent_end(&spare), "1.5.2:1+");
    memory_agent_begin(&spare, 2, 1, 2, &s5, NULL);
    memory_worker_save(&ws, 0, &s7, 5000, 0);
    ck_assert_str_eq(memory_agent_end(&spare), "2.7.2:1 1.5.2:1+");
    memory_agent_begin(&spare, 2, 1, 2, &s5, NULL);
    memory_worker_save(&ws, 1, &s8, 5000, 0);
    ck_assert_str_eq(memory_agent_end(&spare), "2.8.2:1 2.7.2:1");
}

TEST(a_holder_that_is_gone_is_passed_over)
{
    lose_b(5000);
    hold_at(&spare, 1, "0-1+");
    hold(&spare, &a, "0-1+");
    memory_agent_begin(&spare, 2, 1, 2, &s5, NULL);
    expect_spare_restores(5000);
    ck_assert_ptr_nonnull(strstr(spare.said, "no part of rank"));
}

TEST(what_nobody_has_is_told)
{
    lose_b(5000);
    hold_at(&spare, 1, "0-1");
    hold(&spare, &a, "0");
    memory_agent_begin(&spare, 2, 1, 2, &s5, NULL);
    memory_worker_open(&ws, &spare, 2, 0, 1);
    ck_assert_int_eq(memory_worker_open_part(&ws, 1, false), -1);
    ck_assert_int_eq(memory_worker_open_part(&ws, 77, false), -1);
}

TEST(any_part_is_fetched_for_another_number_of_workers)
{
    struct memory_set s1 = s5;
    int fd;

    lose_b(5000);
    hold(&spare, &a, "0-1+");
    memory_agent_begin(&spare, 2, 0, 1, &s5, NULL);
    memory_worker_open(&ws, &spare, 2, 0, 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        fd = memory_worker_open_part(&ws, rank, false);
        ck_assert(memory_is_part(fd, &s1, rank, 5000, 0));
        close(fd);
    }
}

/* A bit of the copy flips: nobody gets it. */
TEST(a_damaged_part_of_a_holder_is_not_taken)
{
    lose_b(5000);
    memory_agent_begin(&a, 2, 0, 2, NULL, NULL);
    memory_worker_open(&wa, &a, 2, 0, 0);
    ck_assert_int_eq(pwrite(wa.slot[0], "!", 1, MEMORY_HEADER_BYTES + 100), 1);
    hold(&spare, &a, "0");
    memory_agent_begin(&spare, 2, 0, 2, &s5, NULL);
    memory_worker_open(&ws, &spare, 2, 0, 0);
    ck_assert_int_eq(memory_worker_open_part(&ws, 0, false), -1);
    memory_until(&spare.said_count, 1);
    ck_assert_ptr_nonnull(strstr(spare.said, "its bytes are not those of its hash"));
}

TEST(a_neighbour_that_is_gone_holds_nobody_up)
{
    memory_agent_close(&b);
    memory_worker_save(&wa, 0, &s5, 5000, 0);
    await_kept(&wa, 0);
    memory_until(&a.said_count, 1);
    ck_assert_ptr_nonnull(strstr(a.said, "no copies of checkpoints in memory at"));
    memory_worker_save(&wa, 1, &s6, 5000, 0);
    await_kept(&wa, 1);
    ck_assert_uint_eq(a.said_count, 1);
}

TEST(copies_are_made_anew_at_another_neighbour)
{
    save_both(0, &s5, 5000);
    await_kept(&wa, 0);
    (void)memory_agent_end(&a);
    memory_agent_begin(&a, 2, 0, 2, &s5, &spare);
    await_held(&spare, "1.5.2:0-");
}

/* Not all ranks had step 6, and not all have the first step of the next epoch: then
 * step 5 is what the job goes back to. */
TEST(a_neighbour_keeps_what_the_job_goes_back_to)
{
    static const struct memory_set next = { 2, 6, 2, 0 };

    save_both(0, &s5, 5000);
    await_kept(&wa, 0);
    memory_worker_save(&wa, 1, &s6, 5000, 300000);
    await_kept(&wa, 1);
    (void)memory_agent_end(&a);
    (void)memory_agent_end(&b);
    memory_agent_begin(&a, 2, 0, 2, &s5, &b);
    memory_agent_begin(&b, 2, 1, 2, &s5, &a);
    memory_worker_open(&wa, &a, 2, 0, 0);
    memory_worker_save(&wa, 1, &next, 5000, 300000);
    await_kept(&wa, 1);
    ck_assert_str_eq(memory_agent_end(&b), "2.6.2:0- 1.5.2:0-1+");
}

/* A neighbour that could not be reached has nothing; and steps that are done again are
 * not those that it had. */
TEST(copies_are_those_of_the_newest_set_alone)
{
    static const struct memory_set again = { 2, 3, 2, 0 };
    struct memory_figures figures;

    save_both(0, &s5, 5000);
    await_kept(&wa, 0);
    memory_keeper_figures(a.keeper, &figures);
    ck_assert_uint_eq(figures.copied, 5);
    (void)memory_agent_end(&a);
    memory_agent_begin(&a, 2, 0, 2, NULL, &b);
    memory_agent_close(&b);
    memory_worker_open(&wa, &a, 2, 0, 0);
    memory_worker_save(&wa, 1, &again, 5000, 300000);
    await_kept(&wa, 1);
    memory_keeper_figures(a.keeper, &figures);
    ck_assert_uint_eq(figures.step, 3);
    ck_assert_uint_eq(figures.copied, 0);
}

TEST(a_neighbour_that_comes_back_gets_what_it_lacks)
{
    change_job(&b, "another job");
    memory_worker_save(&wa, 0, &s5, 5000, 0);
    await_kept(&wa, 0);
    memory_until(&a.said_count, 1);
    change_job(&b, "the job");
    (void)memory_agent_end(&a);
    memory_agent_begin(&a, 2, 0, 2, &s5, &b);
    await_held(&b, "1.5.2:0");
}

/* As the agent of a spare does, whose epoch begins a moment later. */
TEST(a_neighbour_that_knows_no_job_yet_is_waited_for)
{
    change_job(&b, "");
    memory_worker_save(&wa, 0, &s5, 5000, 0);
    for (int i = 0; i < 50; i++)
        loop_turn(memory_world(), 2);
    change_job(&b, "the job");
    await_held(&b, "1.5.2:0");
    ck_assert_uint_eq(a.said_count, 0);
}

TEST(a_neighbour_without_memory_is_told_of_once)
{
    memory_agent_close(&b);
    b.config.limit = 1 << 20;
    memory_agent_open(&b, 1, 1);
    memory_agent_begin(&b, 1, 1, 2, NULL, NULL);
    (void)memory_agent_end(&a);
    memory_agent_begin(&a, 1, 0, 2, NULL, &b);
    memory_worker_save(&wa, 0, &s5, 5 << 20, 0);
    await_kept(&wa, 0);
    memory_until(&a.said_count, 1);
    ck_assert_ptr_nonnull(strstr(a.said, "--memory-limit is"));
    ck_assert_str_eq(memory_agent_end(&b), "");
}

TEST(the_rate_of_copies_is_held)
{
    uint64_t began_ms;

    memory_agent_close(&a);
    a.config.copy_rate = 4 << 20;
    memory_agent_open(&a, 1, 1);
    memory_agent_begin(&a, 1, 0, 2, NULL, &b);
    memory_worker_open(&wa, &a, 1, 0, 0);
    began_ms = clock_ms();
    memory_worker_save(&wa, 0, &s5, 4 << 20, 0);
    await_kept(&wa, 0);
    ck_assert_uint_ge(clock_ms() - began_ms, 900);
}

/* -- keys -------------------------------------------------------------------------- */

static struct key_ring *ring_of_new_key(void)
{
    char text[KEY_TEXT_SIZE];
    struct key_ring *ring;
    struct key key;
    struct err e;

    key_generate(0, &key);
    ring = key_ring_open_text("a key", key_format(&key, text), &e);
    ck_assert_msg(ring != NULL, "%s", e.text);
    return ring;
}

static void open_with_keys(struct memory_agent *of, struct key_ring *keys)
{
    memory_agent_close(of);
    of->config.keys = keys;
    memory_agent_open(of, 1, 1);
}

TEST(a_job_with_a_key_copies_inside_tls)
{
    struct key_ring *keys = ring_of_new_key();

    open_with_keys(&a, keys);
    open_with_keys(&b, keys);
    open_with_keys(&spare, keys);
    memory_agent_begin(&a, 1, 0, 2, NULL, &b);
    memory_agent_begin(&b, 1, 1, 2, NULL, &a);
    memory_worker_open(&wa, &a, 1, 0, 0);
    memory_worker_open(&wb, &b, 1, 0, 1);
    lose_b(20 << 20);
    hold(&spare, &a, "0-1+");
    memory_agent_begin(&spare, 2, 1, 2, &s5, &a);
    expect_spare_restores(20 << 20);
    teardown();
    key_ring_close(keys);
    setup();
}

/* Neither of another key, nor of none, nor plain to one with a key. */
TEST_LOOP(another_key_opens_nothing, 0, 3)
{
    struct key_ring *keys = _i < 2 ? ring_of_new_key() : NULL;
    struct key_ring *others = _i > 0 ? ring_of_new_key() : NULL;

    open_with_keys(&a, keys);
    open_with_keys(&b, others);
    memory_agent_begin(&a, 1, 0, 2, NULL, &b);
    memory_worker_open(&wa, &a, 1, 0, 0);
    memory_worker_save(&wa, 0, &s5, 5000, 0);
    await_kept(&wa, 0);
    memory_until(&a.said_count, 1);
    ck_assert_str_eq(memory_agent_end(&b), "");
    teardown();
    key_ring_close(keys);
    key_ring_close(others);
    setup();
}

/* -- strangers --------------------------------------------------------------------- */

TEST(another_job_gets_nothing)
{
    change_job(&b, "another job");
    memory_worker_save(&wa, 0, &s5, 5000, 0);
    await_kept(&wa, 0);
    memory_until(&a.said_count, 1);
    ck_assert_ptr_nonnull(strstr(a.said, "no copies of checkpoints in memory at"));
    memory_worker_close(&wb);
    ck_assert_str_eq(memory_agent_end(&b), "");
}

static int dial_port(const struct memory_agent *of)
{
    struct net_addr at;
    struct err e;
    int fd;

    ck_assert_int_eq(
        net_parse_host("127.0.0.1", memory_keeper_port(of->keeper), &at, &e), 0);
    fd = net_connect(&at, &e);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* More connections than are served at a time say nothing, or noise. */
TEST(a_flood_of_strangers_ends_and_copies_go_on)
{
    static uint8_t noise[100000];
    int fd[200];

    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)(rand() >> 8);
    for (unsigned i = 0; i < 200; i++) {
        fd[i] = dial_port(&b);
        loop_turn(memory_world(), 0);
        if (i % 2)
            (void)!send(fd[i], noise, sizeof(noise), MSG_NOSIGNAL);
    }
    for (unsigned i = 0; i < 200; i++)
        close(fd[i]);
    save_both(0, &s5, 5000);
    await_kept(&wa, 0);
    for (int i = 0; i < 100 && strcmp(memory_agent_end(&b), "1.5.2:0-1+") != 0; i++) {
        memory_agent_begin(&b, 1, 1, 2, NULL, &a);
        memory_worker_save(&wa, 1, &s6, 5000, 300000);
        await_kept(&wa, 1);
        if (strstr(memory_agent_end(&b), "1.6.2:0"))
            break;
        poll(NULL, 0, 100);
    }
    ck_assert_ptr_nonnull(strstr(b.held, ":0"));
}

/* The answer's status; -1: the connection was closed. */
static int ask_peer(int fd, struct memory_request *r)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    struct memory_reply reply;

    r->magic = MEMORY_MAGIC;
    r->version = MEMORY_VERSION;
    memcpy(r->instance.byte, "the job", sizeof("the job"));
    ck_assert_int_eq(send(fd, r, sizeof(*r), MSG_NOSIGNAL), sizeof(*r));
    for (int i = 0; poll(&p, 1, 5) == 0; i++) {
        ck_assert_int_lt(i, 2000);
        loop_turn(memory_world(), 1);
    }
    return recv(fd, &reply, sizeof(reply), 0) == sizeof(reply) ? (int)reply.status : -1;
}

static struct memory_request put_of(const struct memory_set *set, uint64_t own)
{
    struct memory_request r = { .kind = MEMORY_PUT };

    r.header = (struct memory_header){ .magic = MEMORY_MAGIC,
                                       .version = MEMORY_VERSION,
                                       .state = MEMORY_WHOLE,
                                       .set = *set,
                                       .own_bytes = own };
    r.header.header_hash = memory_header_hash(&r.header);
    return r;
}

TEST(a_copy_of_wild_sizes_is_refused)
{
    static const uint64_t sizes[] = { UINT64_MAX, UINT64_MAX - 4096, UINT64_C(1) << 61,
                                      UINT64_C(1) << 50 };
    int fd = dial_port(&b);

    for (unsigned i = 0; i < 4; i++) {
        struct memory_request r = put_of(&s5, sizes[i]);

        ck_assert_int_eq(ask_peer(fd, &r), MEMORY_NO_MEMORY);
    }
    ck_assert_str_eq(memory_agent_end(&b), "");
    close(fd);
}

TEST(what_is_not_there_is_not_given)
{
    struct memory_request r = { .kind = MEMORY_GET, .rank = 7, .set = s5 };
    int fd = dial_port(&b);

    save_both(0, &s5, 5000);
    await_kept(&wb, 0);
    ck_assert_int_eq(ask_peer(fd, &r), MEMORY_NOT_HERE);
    r.kind = 99;
    ck_assert_int_eq(ask_peer(fd, &r), -1);
    close(fd);
}

/* Its sender dies in the middle. */
TEST(a_copy_that_was_cut_off_leaves_the_one_before)
{
    struct memory_request r = put_of(&s6, 100000);
    uint8_t some[5000] = { 0 };
    int fd = dial_port(&b);

    save_both(0, &s5, 5000);
    await_kept(&wa, 0);
    ck_assert_int_eq(ask_peer(fd, &r), MEMORY_OK);
    ck_assert_int_eq(send(fd, some, sizeof(some), 0), sizeof(some));
    close(fd);
    ck_assert_str_eq(memory_agent_end(&b), "1.5.2:0-1+");
}

TEST(a_copy_with_other_bytes_than_its_hash_is_none)
{
    struct memory_request r = put_of(&s6, 5000);
    struct memory_reply reply;
    uint8_t bytes[5000] = { 0 };
    struct pollfd p;
    int fd = dial_port(&b);

    ck_assert_int_eq(ask_peer(fd, &r), MEMORY_OK);
    ck_assert_int_eq(send(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
    p = (struct pollfd){ .fd = fd, .events = POLLIN };
    ck_assert_int_eq(poll(&p, 1, MEMORY_PATIENCE_MS), 1);
    ck_assert_int_eq(recv(fd, &reply, sizeof(reply), 0), sizeof(reply));
    ck_assert_uint_eq(reply.status, MEMORY_REFUSED);
    ck_assert_str_eq(memory_agent_end(&b), "");
    close(fd);
}

/* A late copy of a step before cannot replace what is newer. */
TEST(a_stale_copy_replaces_nothing)
{
    static const struct memory_set s4 = { 1, 4, 2, 0 };
    struct memory_request r = put_of(&s4, 5000);
    int fd = dial_port(&b);

    save_both(0, &s5, 5000);
    await_kept(&wa, 0);
    save_both(1, &s6, 5000);
    await_kept(&wa, 1);
    ck_assert_int_eq(ask_peer(fd, &r), MEMORY_NO_MEMORY);
    ck_assert_str_eq(memory_agent_end(&b), "1.6.2:0-1+ 1.5.2:0-1+");
    close(fd);
}

/* A neighbour that is stopped takes a connection, and nothing from it. */
TEST(a_neighbour_that_stands_still_holds_nobody_up)
{
    struct memory_epoch now = { .job = a.job, .epoch = 1, .world = 2 };
    struct net_addr at;
    size_t count;
    struct err e;
    int fd;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &at, 1, &count, &e), 0);
    fd = net_listen(&at, 4, &e);
    ck_assert_int_eq(net_local_addr(fd, &at), 0);
    (void)net_format(&at, now.neighbour, sizeof(now.neighbour));
    memory_keeper_begin(a.keeper, &now);
    memory_worker_save(&wa, 0, &s5, 50 << 20, 0);
    await_kept(&wa, 0);
    memory_until(&a.said_count, 1);
    ck_assert_ptr_nonnull(strstr(a.said, "no answer in"));
    close(fd);
}
