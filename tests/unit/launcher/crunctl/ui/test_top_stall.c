/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stdio.h>

#include "launcher/crunctl/ui/top_stall.h"
#include "tests/worlds/check_main.h"

static struct msg_node_status node[2];
static struct job_view job;
static struct top_stall stall;

static void begin(void)
{
    stall = (struct top_stall){ .epoch = 0 };
    for (unsigned i = 0; i < 2; i++)
        node[i] = (struct msg_node_status){ .state = NODE_RUNNING,
                                            .group_rank = (int32_t)i,
                                            .workers = 1 };
    job = (struct job_view){ .status = { .state = JOB_RUNNING, .epoch = 1 },
                             .node = node,
                             .nodes = 2 };
    ck_assert_uint_eq(top_stall_note(&stall, &job, 1000), 0);
}

static uint64_t note(uint64_t step, uint64_t now_ms)
{
    node[0].progress.step = node[1].progress.step = step;
    return top_stall_note(&stall, &job, now_ms);
}

FIXTURE(begin, NULL);

TEST(steps_that_end_are_a_stall)
{
    ck_assert_uint_eq(note(10, 2000), 0);
    ck_assert_uint_eq(note(11, 4000), 0);
    ck_assert_uint_eq(note(11, 13999), 0);
    ck_assert_uint_eq(note(11, 14000), 10000);
    ck_assert_uint_eq(note(11, 20000), 16000);
    ck_assert_uint_eq(note(12, 21000), 0);
}

TEST(a_slow_job_has_more_time)
{
    ck_assert_uint_eq(note(1, 2000), 0);
    ck_assert_uint_eq(note(2, 10000), 0); /* a step takes 8 s */
    ck_assert_uint_eq(note(2, 33999), 0);
    ck_assert_uint_eq(note(2, 34000), 24000);
}

TEST(no_step_yet_is_none)
{
    ck_assert_uint_eq(note(0, 100000), 0);
    job.status.epoch = 2; /* the steps that it has are of the epoch before */
    ck_assert_uint_eq(note(500, 101000), 0);
    ck_assert_uint_eq(note(500, 200000), 0);
    job.status.state = JOB_STOPPING;
    ck_assert_uint_eq(note(501, 201000), 0);
    job.status.state = JOB_RUNNING;
    ck_assert_uint_eq(note(501, 300000), 0);
}

TEST(silence_of_all_nodes_is_a_stall)
{
    node[0].progress.silent_ms = 9000;
    ck_assert_uint_eq(note(0, 2000), 0);
    node[1].progress.silent_ms = 7000;
    ck_assert_uint_eq(note(0, 3000), 7000);
    node[1].group_rank = -1; /* a spare */
    node[1].state = NODE_SPARE;
    ck_assert_uint_eq(note(0, 4000), 9000);
}

/* top that is opened on a job which has run for long */
static uint64_t look_first(const char *rate, uint64_t ran_ms)
{
    stall = (struct top_stall){ .epoch = 0 };
    job.status.state_ms = ran_ms;
    node[0].progress.first_step = node[1].progress.first_step = 1;
    for (unsigned i = 0; i < 2; i++)
        snprintf(node[i].progress.steps_per_s, sizeof(node[i].progress.steps_per_s),
                 "%s", rate);
    return note(199, 20000);
}

TEST(the_first_look_sees_a_stall_by_the_rate)
{
    ck_assert_uint_eq(look_first("0.00", 60000), 15000);
    ck_assert_uint_eq(note(199, 25000), 20000);
    ck_assert_uint_eq(look_first("0.05", 60000), 0); /* a step takes 20 s */
    ck_assert_uint_eq(note(199, 79999), 0);
    ck_assert_uint_eq(note(199, 80000), 60000);
}

TEST(a_rate_of_the_epoch_before_is_no_stall)
{
    ck_assert_uint_eq(look_first("0.00", 5000), 0);
    ck_assert_uint_eq(note(199, 200000), 0);
    job.status.state = JOB_STOPPING;
    ck_assert_uint_eq(look_first("0.00", 60000), 0);
}
