/* SPDX-License-Identifier: MIT */
/* What survives a restart of the daemon. */
#include <check.h>
#include <string.h>

#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "tests/fakes/disk/memdisk.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

FIXTURE(begin_registry_on_disk, end_registry_on_disk);

TEST(the_result_names_what_came_afterwards)
{
    run_job();
    report_event(1, MSG_FAILED);
    report_event(0, MSG_STOPPED);
    report_event(1, MSG_STOPPED);
    report_event(0, MSG_STORE_READY);
    report_event(1, MSG_FAILED);
    for (unsigned i = 0; i < AFTERWARDS_LINES_MAX + 3; i++)
        report_event(0, MSG_FAILED);
    report_event(0, MSG_STOPPED);
    report_event(1, MSG_STOPPED);
    for (unsigned restarted = 0; restarted < 2; restarted++) {
        const char *at = registry_jobs(g)->afterwards;
        unsigned lines = 0;

        ck_assert_int_eq(strncmp(at, "node-0 3 exit code 85\n", 22), 0);
        for (; (at = strchr(at, '\n')); at++)
            lines++;
        ck_assert_uint_eq(lines, AFTERWARDS_LINES_MAX);
        if (restarted == 0) {
            ck_assert_str_eq(message_got(0, MSG_DONE)->done.afterwards,
                             registry_jobs(g)->afterwards);
            restart_registry();
        }
    }
}
TEST(a_restarted_daemon_goes_on_with_the_same_epoch)
{
    struct msg m = { .type = MSG_RESUME };
    struct id128 instance;
    const struct msg *start;

    run_job();
    report_event(1, MSG_FAILED);
    report_event(0, MSG_STOPPED);
    report_event(1, MSG_STOPPED);
    report_event(0, MSG_STORE_READY);
    instance = registry_jobs(g)->membership.instance;
    now += 90000;
    restart_registry();
    ck_assert(id128_equal(&instance, &registry_jobs(g)->membership.instance));
    ck_assert_uint_eq(registry_jobs(g)->membership.epoch, 2);
    ck_assert_uint_eq(registry_jobs(g)->membership.restarts, 1);
    ck_assert_int_eq(registry_jobs(g)->failure.code, 85);
    greet_registry(4, PEER_CTL);
    send_to_registry(4, &(struct msg){ .type = MSG_EVENTS });
    ck_assert_str_eq(link_of[4].got[0].event.kind, "restored");
    ck_assert_str_eq(link_of[4].got[0].event.run_id, "resnet");
    ck_assert_uint_eq(link_of[4].got[0].event.wall_ms, now);
    send_to_registry(4, &(struct msg){ .type = MSG_STATUS });
    ck_assert_uint_ge(message_got(4, MSG_JOB_STATUS)->job_status.age_ms, 90000);
    greet_registry(3, PEER_AGENT);
    strcpy(m.resume.run_id, "resnet");
    m.resume.incarnation = (struct id128){ { 2, 9, 9 } };
    m.resume.node = 1;
    m.instance = instance;
    send_to_registry(3, &m);
    start = message_got(3, MSG_START);
    ck_assert_ptr_nonnull(start);
    ck_assert_uint_eq(start->start.port, 1234);
    ck_assert_uint_eq(start->start.first_rank, 2);
}

static uint64_t claim_pair(unsigned c, uint64_t pair, uint64_t self)
{
    struct msg m = { .type = MSG_CLAIM,
                     .instance = { { 7 } },
                     .claim = { .pair = pair, .self = self } };

    greet_registry(c, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
    ck_assert_ptr_nonnull(message_got(c, MSG_CLAIMED));
    return message_got(c, MSG_CLAIMED)->claimed.holder;
}

/* Whoever asks late, after a restart, hears the same. */
TEST(a_witness_remembers_who_was_first)
{
    ck_assert_uint_eq(claim_pair(0, 1, 100), 100);
    ck_assert_uint_eq(claim_pair(1, 1, 200), 100);
    restart_registry();
    ck_assert_uint_eq(claim_pair(2, 1, 200), 100);
    ck_assert_uint_eq(claim_pair(3, 2, 200), 200);
}

bool __real_journal_wants_snapshot(const struct journal *j);
bool __wrap_journal_wants_snapshot(const struct journal *j);

static bool snapshot_is_due;

bool __wrap_journal_wants_snapshot(const struct journal *j)
{
    return snapshot_is_due || __real_journal_wants_snapshot(j);
}

/* The journal has begun anew since, with what is true then. */
TEST(a_claim_outlives_a_snapshot)
{
    ck_assert_uint_eq(claim_pair(0, 1, 100), 100);
    snapshot_is_due = true;
    ck_assert_uint_eq(claim_pair(1, 2, 200), 200);
    snapshot_is_due = false;
    restart_registry();
    ck_assert_uint_eq(claim_pair(2, 1, 300), 100);
    ck_assert_uint_eq(claim_pair(3, 2, 300), 200);
}

TEST(a_result_outlives_the_daemon)
{
    struct msg m = { .type = MSG_RESUME };

    run_job();
    report_event(0, MSG_FINISHED);
    report_event(1, MSG_FINISHED);
    m.instance = registry_jobs(g)->membership.instance;
    restart_registry();
    ck_assert_int_eq(registry_jobs(g)->membership.state, JOB_DONE);
    greet_registry(0, PEER_AGENT);
    strcpy(m.resume.run_id, "resnet");
    m.resume.incarnation = (struct id128){ { 1, 9, 9 } };
    send_to_registry(0, &m);
    ck_assert_int_eq(message_got(0, MSG_DONE)->done.reason, JOB_REASON_SUCCESS);
}

/* A node waits for another one with a timeout of 60 s; the daemon dies after 30 s. */
static const struct {
    uint64_t now, wall_ahead; /* when the daemon is back */
    uint64_t left_ms;
} waits[] = {
    { 36000, 0, 25000 },
    { 36000, 1000000000, 25000 }, /* the wall clock was set */
    { 36000, UINT64_MAX - 35500, 25000 },
    { 100, 45900, 15000 }, /* the machine was started again */
    { 100, 0, 60000 },     /* likewise, and its clock is wrong: nothing is known */
    { 100, 1000000000, 3000 },
    { 500000, 0, 3000 }, /* too late: the node has a lease to come back */
};

TEST_EACH(a_restart_does_not_lengthen_the_wait_for_nodes, waits)
{
    struct msg beat = { .type = MSG_HEARTBEAT }, resume = { .type = MSG_RESUME };
    uint64_t began, ends;

    join_node(0);
    for (unsigned s = 0; s < 30; s++) {
        pass_ticks(1000);
        send_to_registry(0, &beat);
    }
    resume.instance = registry_jobs(g)->membership.instance;
    end_registry();
    memdisk_crash(disk, 1);
    now = began = waits[_i].now;
    wall_ahead = waits[_i].wall_ahead;
    begin_registry(true);
    restart_registry(); /* a second time changes nothing */
    greet_registry(0, PEER_AGENT);
    strcpy(resume.resume.run_id, "resnet");
    resume.resume.incarnation = (struct id128){ { 1, 9, 9 } };
    send_to_registry(0, &resume);
    link_of[0].instance = resume.instance;
    for (ends = 0; registry_jobs(g)->membership.state != JOB_DONE && ends < 70000;
         ends = now - began) {
        pass_ticks(100);
        if (ends % 1000 == 0)
            send_to_registry(0, &beat);
    }
    ck_assert_uint_ge(ends, waits[_i].left_ms);
    ck_assert_uint_le(ends, waits[_i].left_ms + 200);
}
