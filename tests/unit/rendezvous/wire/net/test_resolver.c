/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/net/resolver.h"

#include <stdio.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/net.h"
#include "tests/fakes/net/slow_names.h"
#include "tests/worlds/check_main.h"

static struct loop *loop;
static size_t found;
static char why_not[ERROR_TEXT_MAX_BYTES + 1];

static void setup(void)
{
    loop = loop_create();
}

static void teardown(void)
{
    loop_destroy(loop);
}

static void on_not_found(void *arg, const struct net_addr *list, size_t count,
                         const char *why)
{
    ck_assert_uint_eq(count, 0);
    snprintf(why_not, sizeof(why_not), "%s", why);
    loop_stop(arg);
}

FIXTURE(setup, teardown);

TEST(a_look_up_that_takes_too_long_is_left_to_itself)
{
    sem_init(&slow_may_end, 0, 0);
    sem_init(&slow_has_ended, 0, 0);
    (void)resolver_start(loop, "slow.test", 80, 20, on_not_found, loop);
    loop_run(loop);
    ck_assert_str_eq(why_not, "no answer when looking up \"slow.test\"");
    sem_post(&slow_may_end);
    sem_wait(&slow_has_ended);
}

static void on_found(void *arg, const struct net_addr *list, size_t count,
                     const char *why)
{
    ck_assert_uint_gt(count, 0);
    ck_assert(net_is_loopback(&list[0]));
    found = count;
    loop_stop(arg);
}

TEST(a_name_is_looked_up_beside_the_loop)
{
    found = 0;
    (void)resolver_start(loop, "localhost", 80, 5000, on_found, loop);
    loop_run(loop);
    ck_assert_uint_gt(found, 0);
}

TEST(a_look_up_can_be_forgotten)
{
    found = 0;
    resolver_cancel(resolver_start(loop, "localhost", 80, 5000, on_found, loop));
    loop_turn(loop, 20);
    ck_assert_uint_eq(found, 0);
}

TEST(numbers_need_no_look_up)
{
    ck_assert(resolver_is_numeric("127.0.0.1"));
    ck_assert(resolver_is_numeric("::1"));
    ck_assert(resolver_is_numeric("fe80::1%eth0"));
    ck_assert(!resolver_is_numeric("localhost"));
    ck_assert(!resolver_is_numeric("10.example"));
}
