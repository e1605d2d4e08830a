/* SPDX-License-Identifier: MIT */
/* takes: 4 s */
/*
 * What the protocol's tests do not see of the store: the order of wakes, caps, what is
 * charged, and that the time of an operation does not depend on the other keys.
 */
#include "rendezvous/tcpstore/store.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/tcpstore/store_table.h"
#include "tests/worlds/check_main.h"

#define CLIENTS 8

static struct store *store;
static struct store_waiter client[CLIENTS];
static int woken[64];
static unsigned woken_count;
static struct err err;

static void on_woken(void *arg, struct store_waiter *c)
{
    ck_assert_ptr_eq(arg, client);
    ck_assert(!store_waits(c));
    woken[woken_count++] = (int)(c - client);
}

static void start_store(const struct store_limits *limits)
{
    static const struct id128 seed = { { 9, 8, 7 } };

    store = store_create(limits, &seed, on_woken, client);
    ck_assert_ptr_nonnull(store);
    for (int i = 0; i < CLIENTS; i++)
        LIST_INIT(&client[i].waits);
    woken_count = 0;
}

static void start_roomy(void)
{
    start_store(&(struct store_limits){ 1u << 22, 1u << 30, 1u << 22 });
}

static void stop_store(void)
{
    for (int i = 0; i < CLIENTS; i++)
        store_forget(store, &client[i]);
    store_destroy(store);
}

static struct span text(const char *s)
{
    return (struct span){ (const uint8_t *)s, strlen(s) };
}

static int set(const char *key, const char *value)
{
    return store_set(store, text(key), text(value), &err);
}

static int wait_for(int who, const char *key)
{
    return store_wait(store, &client[who], text(key), &err);
}

static bool holds(const char *key, const char *value)
{
    struct shared_buffer *b = store_get(store, text(key));

    return b && b->size == strlen(value) &&
           memcmp(shared_buffer_span(b).data, value, b->size) == 0;
}

static void expect_woken(unsigned count, const int *who)
{
    ck_assert_uint_eq(woken_count, count);
    for (unsigned i = 0; i < count; i++)
        ck_assert_int_eq(woken[i], who[i]);
    woken_count = 0;
}

FIXTURE(start_roomy, stop_store);

TEST(waiters_are_woken_in_the_order_of_coming)
{
    for (int i = CLIENTS; i-- > 0;)
        ck_assert_int_eq(wait_for(i, "k"), 0);
    ck_assert_int_eq(set("other", ""), 0);
    expect_woken(0, NULL);
    ck_assert_int_eq(set("k", "v"), 0);
    expect_woken(8, (int[]){ 7, 6, 5, 4, 3, 2, 1, 0 });
    ck_assert_int_eq(set("k", "w"), 0);
    expect_woken(0, NULL);
}

TEST(a_client_is_woken_once_by_the_last_of_its_keys)
{
    ck_assert_int_eq(set("there", ""), 0);
    ck_assert_int_eq(wait_for(0, "a"), 0);
    ck_assert_int_eq(wait_for(0, "there"), 0);
    ck_assert_int_eq(wait_for(0, "b"), 0);
    ck_assert_int_eq(wait_for(0, "a"), 0);
    ck_assert_uint_eq(store_stats(store).waits, 2);
    ck_assert_int_eq(set("b", ""), 0);
    ck_assert(store_delete(store, text("b")));
    expect_woken(0, NULL);
    ck_assert_int_eq(store_push(store, text("a"), text(""), &err), 0);
    expect_woken(1, (int[]){ 0 });
}

TEST(each_push_wakes_one_and_the_rest_stay)
{
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(wait_for(i, "q"), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(store_push(store, text("q"), text("x"), &err), 0);
        expect_woken(1, (int[]){ i });
    }
    ck_assert_int_eq(store_push(store, text("q"), text("x"), &err), 0);
    expect_woken(0, NULL);
}

TEST(a_push_goes_on_to_the_first_client_that_it_can_wake)
{
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(wait_for(i, "q"), 0);
        ck_assert_int_eq(wait_for(i, "other"), 0);
    }
    for (int i = 2; i < 4; i++)
        ck_assert_int_eq(wait_for(i, "q"), 0);
    ck_assert_int_eq(store_push(store, text("q"), text("x"), &err), 0);
    expect_woken(1, (int[]){ 2 });
    ck_assert_int_eq(store_push(store, text("q"), text("x"), &err), 0);
    expect_woken(1, (int[]){ 3 });
    ck_assert_int_eq(set("other", ""), 0);
    expect_woken(2, (int[]){ 0, 1 });
}

TEST(a_client_that_a_push_has_woken_is_not_woken_again_for_that_key)
{
    ck_assert_int_eq(wait_for(0, "q"), 0);
    ck_assert_int_eq(store_push(store, text("q"), text("x"), &err), 0);
    expect_woken(1, (int[]){ 0 });
    shared_buffer_unref(store_pop(store, text("q")));
    ck_assert_int_eq(wait_for(0, "other"), 0);
    ck_assert_int_eq(store_push(store, text("q"), text("x"), &err), 0);
    expect_woken(0, NULL);
    ck_assert(store_waits(&client[0]));
}

TEST(a_client_that_forgets_its_waits_is_not_woken)
{
    ck_assert_int_eq(wait_for(0, "k"), 0);
    ck_assert_int_eq(wait_for(1, "k"), 0);
    ck_assert_int_eq(wait_for(1, "l"), 0);
    store_forget(store, &client[1]);
    ck_assert_int_eq(set("k", ""), 0);
    expect_woken(1, (int[]){ 0 });
    ck_assert_uint_eq(store_stats(store).waits, 0);
}

TEST(a_barrier_that_is_deleted_begins_anew)
{
    ck_assert_int_eq(store_barrier(store, &client[0], text("b"), 2, &err), 0);
    ck_assert(store_delete(store, text("b")));
    ck_assert_int_eq(store_barrier(store, &client[1], text("b"), 2, &err), 0);
    expect_woken(0, NULL);
    ck_assert_int_eq(store_barrier(store, &client[2], text("b"), 2, &err), 0);
    expect_woken(2, (int[]){ 0, 1 });
    ck_assert(holds("b", "2"));
}

TEST(values_shared_with_a_reader_do_not_change)
{
    struct shared_buffer *old;

    ck_assert_int_eq(set("k", "old"), 0);
    old = shared_buffer_ref(store_get(store, text("k")));
    ck_assert_int_eq(set("k", "new"), 0);
    ck_assert_int_eq(store_append(store, text("k"), text("er"), &err), 0);
    ck_assert_mem_eq(shared_buffer_span(old).data, "old", 3);
    ck_assert(holds("k", "newer"));
    shared_buffer_unref(old);
    old = shared_buffer_ref(store_get(store, text("k")));
    ck_assert_int_eq(store_append(store, text("k"), text("!"), &err), 0);
    ck_assert_uint_eq(old->size, 5);
    ck_assert(holds("k", "newer!"));
    shared_buffer_unref(old);
}

TEST(a_small_value_does_not_keep_the_memory_of_a_large_one)
{
    static uint8_t large[100000];

    ck_assert_int_eq(
        store_set(store, text("k"), (struct span){ large, sizeof(large) }, &err), 0);
    ck_assert_uint_gt(store_stats(store).bytes, sizeof(large));
    ck_assert_int_eq(set("k", "small"), 0);
    ck_assert_uint_lt(store_stats(store).bytes, 1000);
}

/* Whatever is put in and taken out again, nothing stays charged. */
TEST(everything_that_goes_is_given_back)
{
    char key[32];
    int64_t sum;

    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        ck_assert_int_eq(wait_for(i % CLIENTS, key), 0);
        ck_assert_int_eq(store_push(store, text(key), text("x"), &err), 0);
        ck_assert_int_eq(store_add(store, text(key), i, &sum, &err), 0);
        ck_assert_int_eq(
            store_append(store, text(key), text("0123456789012345678901"), &err), 0);
        woken_count = 0;
    }
    ck_assert_uint_eq(store_stats(store).values, 10000);
    ck_assert_uint_eq(store_stats(store).queues, 10000);
    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        ck_assert(store_exists(store, text(key)));
        ck_assert(store_delete(store, text(key)));
        shared_buffer_unref(store_pop(store, text(key)));
        ck_assert(!store_exists(store, text(key)));
    }
    ck_assert_uint_eq(store_stats(store).values, 0);
    ck_assert_uint_eq(store_stats(store).queues, 0);
    ck_assert_uint_eq(store_stats(store).waits, 0);
    ck_assert_uint_eq(store_stats(store).bytes, 0);
}

static int do_set(void)
{
    return set("new", "v");
}

static int do_add(void)
{
    int64_t sum;

    return store_add(store, text("new"), 1, &sum, &err);
}

static int do_append(void)
{
    return store_append(store, text("new"), text("v"), &err);
}

static int do_compare_set(void)
{
    struct shared_buffer *now;

    return store_compare_set(store, text("new"), text(""), text("v"), &now, &err);
}

static int do_push(void)
{
    return store_push(store, text("new"), text("v"), &err);
}

static int do_barrier(void)
{
    return store_barrier(store, &client[0], text("new"), 2, &err);
}

static int do_wait(void)
{
    return wait_for(0, "new");
}

static int do_set_buffer(void)
{
    static uint64_t account;

    return store_set_buffer(store, text("new"), shared_buffer_copy(text("v"), &account),
                            &err);
}

static const struct {
    int (*run)(void);
    const char *reason; /* in a store that has its keys and its waits */
} operations[] = {
    { do_set, "2 keys" },         { do_add, "2 keys" },   { do_append, "2 keys" },
    { do_compare_set, "2 keys" }, { do_push, "2 keys" },  { do_barrier, "2 keys" },
    { do_set_buffer, "2 keys" },  { do_wait, "1 waits" },
};
#define OPERATIONS ((int)(sizeof(operations) / sizeof(operations[0])))

FIXTURE(NULL, NULL);

TEST_LOOP(a_full_store_takes_nothing_and_loses_nothing, 0, OPERATIONS)
{
    struct store_stats before;

    start_store(&(struct store_limits){ 2, 1u << 20, 1 });
    ck_assert_int_eq(set("a", "1"), 0);
    ck_assert_int_eq(store_push(store, text("b"), text("2"), &err), 0);
    ck_assert_int_eq(wait_for(1, "c"), 0);
    before = store_stats(store);
    ck_assert_int_eq(operations[_i].run(), -1);
    ck_assert_msg(strstr(err.text, operations[_i].reason) != NULL, "%s", err.text);
    ck_assert_mem_eq(&before, &(struct store_stats[]){ store_stats(store) },
                     sizeof(before));
    /* what is there can still change */
    ck_assert_int_eq(set("a", "3"), 0);
    ck_assert_int_eq(store_push(store, text("b"), text("4"), &err), 0);
    ck_assert(store_delete(store, text("a")));
    ck_assert_int_eq(set("c", "5"), 0);
    expect_woken(1, (int[]){ 1 });
    stop_store();
}

/* Every amount of room, from none: an operation that does not fit leaves no trace. */
TEST_LOOP(bytes_are_bounded_at_every_step_of_an_operation, 0, OPERATIONS)
{
    uint64_t room;
    int r = -1;

    for (room = 0; r < 0; room++) {
        start_store(&(struct store_limits){ 10, room, 10 });
        r = operations[_i].run();
        ck_assert_uint_le(store_stats(store).bytes, room);
        if (r < 0 && operations[_i].run != do_barrier) {
            ck_assert_uint_eq(store_stats(store).bytes, 0);
            ck_assert(!store_exists(store, text("new")));
        }
        stop_store();
        ck_assert_uint_lt(room, 1000);
    }
    ck_assert_uint_gt(room, 40);
}

FIXTURE(start_roomy, stop_store);

/* A wake among many clients that wait for other keys, and a client that leaves, cost
 * the same. */
TEST(a_wake_costs_no_more_with_many_other_waiters)
{
    static struct store_waiter crowd[200000];
    uint64_t began, alone, among;

    for (int round = 0; round < 2; round++) {
        began = clock_thread_us();
        for (int i = 0; i < 20000; i++) {
            ck_assert_int_eq(wait_for(0, "mine"), 0);
            ck_assert_int_eq(set("mine", ""), 0);
            store_delete(store, text("mine"));
            woken_count = 0;
        }
        among = clock_thread_us() - began;
        if (round == 0)
            alone = among;
        for (int i = 0; round == 0 && i < 200000; i++) {
            struct span key = { (const uint8_t *)&i, sizeof(i) };

            LIST_INIT(&crowd[i].waits);
            ck_assert_int_eq(store_wait(store, &crowd[i], key, &err), 0);
            ck_assert_int_eq(store_wait(store, &crowd[i], text("all"), &err), 0);
        }
    }
    /* a walk over them would be a thousand times as long */
    ck_assert_uint_lt(among, 50 * alone + 100000);
    began = clock_thread_us();
    for (int i = 0; i < 200000; i++)
        store_forget(store, &crowd[i]);
    ck_assert_uint_lt(clock_thread_us() - began, 5000000);
}

FIXTURE(NULL, NULL);

/* The published vector of SipHash-2-4 does not fit this variant, so: two keys. */
TEST(the_hash_depends_on_every_byte_and_on_the_seed)
{
    struct store_table a, b;
    uint8_t key[24] = { 0 };

    ck_assert_int_eq(store_table_init(&a, &(struct id128){ { 1 } }), 0);
    ck_assert_int_eq(store_table_init(&b, &(struct id128){ { 2 } }), 0);
    for (size_t size = 0; size <= sizeof(key); size++) {
        struct span s = { key, size };
        uint64_t hash = store_table_hash(&a, s);

        ck_assert_uint_ne(hash, store_table_hash(&b, s));
        ck_assert_uint_eq(hash, store_table_hash(&a, s));
        for (size_t i = 0; i < size; i++) {
            key[i] ^= 0x80;
            ck_assert_uint_ne(hash, store_table_hash(&a, s));
            key[i] ^= 0x80;
        }
        if (size > 0)
            ck_assert_uint_ne(hash,
                              store_table_hash(&a, (struct span){ key, size - 1 }));
    }
    store_table_fini(&a);
    store_table_fini(&b);
}
