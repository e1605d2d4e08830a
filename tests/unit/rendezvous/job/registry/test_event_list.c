/* SPDX-License-Identifier: MIT */
/* Which events are kept when there are too many. */
#include <check.h>
#include <stdio.h>

#include "rendezvous/job/registry/event_list.h"
#include "rendezvous/job/registry/limits.h"
#include "tests/worlds/check_main.h"

enum { HONEST = 1, STRANGER = 2 };

static struct event_list *h;
static const struct job_owner anyone = { .uid = 1000 };

static void begin_event_list_test(void)
{
    h = event_list_create();
}

static void end_event_list_test(void)
{
    event_list_destroy(h);
}

static void add_events(const char *run_id, uint32_t source, unsigned count)
{
    struct msg_event event = { .kind = "joined" };

    snprintf(event.run_id, sizeof(event.run_id), "%s", run_id);
    while (count-- > 0)
        event_list_add(h, &event, &anyone, source);
}

/* Also checks that the numbers rise. */
static unsigned count_events(const char *run_id, uint64_t since)
{
    const struct msg_event *event;
    unsigned count = 0;

    for (; (event = event_list_next(h, since, run_id, &anyone)); count++) {
        ck_assert_uint_gt(event->number, since);
        since = event->number;
    }
    return count;
}

FIXTURE(begin_event_list_test, end_event_list_test);

TEST(the_last_events_of_one_source_are_kept)
{
    add_events("a", HONEST, EVENTS_KEPT + 100);
    ck_assert_uint_eq(count_events("", 0), EVENTS_KEPT);
    ck_assert_uint_eq(event_list_next(h, 0, "", &anyone)->number, 101);
    ck_assert_uint_eq(count_events("", EVENTS_KEPT), 100);
    ck_assert_ptr_null(event_list_next(h, EVENTS_KEPT + 100, "", &anyone));
}

TEST(a_source_with_many_events_does_not_push_out_those_of_others)
{
    add_events("honest", HONEST, 100);
    add_events("strange", STRANGER, 4000);
    add_events("honest", HONEST, 100);
    add_events("strange", STRANGER, 4000);
    ck_assert_uint_eq(count_events("honest", 0), 200);
    ck_assert_uint_eq(count_events("strange", 0), EVENTS_KEPT - 200);
    ck_assert_uint_eq(event_list_next(h, 0, "", &anyone)->number, 1);
}
