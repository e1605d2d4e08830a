/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/job.h"
#include "rendezvous/registry.h"
#include "tests/helpers/check_main.h"
#include "tests/helpers/memdisk.h"

/*
 * A registry whose connections are played by the test: what is sent to each is kept.
 */
#define CONNS 8
#define KEPT 64

struct link {
    struct registry_peer *peer;
    struct msg got[KEPT];
    unsigned count;
    struct id128 instance; /* as JOINED told it */
    bool hung_up;
};

static struct registry *g;
static struct memdisk *disk;
static struct link link_of[CONNS];
static uint64_t now = 1000, sequence;
static uint8_t next_id;

static void on_send(void *arg, void *conn, const struct msg *m)
{
    struct link *l = conn;

    (void)arg;
    ck_assert_uint_lt(l->count, KEPT);
    l->got[l->count++] = *m;
    if (m->type == MSG_JOINED)
        l->instance = m->instance;
}

static void on_hang_up(void *arg, void *conn)
{
    (void)arg;
    ((struct link *)conn)->hung_up = true;
}

static struct id128 on_random_id(void *arg)
{
    (void)arg;
    return (struct id128){ { 0x1d, ++next_id } };
}

static void begin(bool standalone)
{
    struct registry_config c = { .standalone = standalone,
                                 .disk = disk ? memdisk_disk(disk) : NULL,
                                 .software = "crun test",
                                 .random_id = on_random_id,
                                 .send = on_send,
                                 .hang_up = on_hang_up };
    struct err e;

    memset(link_of, 0, sizeof(link_of));
    g = registry_create(&c, now, now, &e);
    ck_assert_msg(g != NULL, "%s", g ? "" : e.text);
}

static void commit(void)
{
    struct err e = { "" };

    ck_assert_msg(registry_commit(g, &e) == 0, "%s", e.text);
}

/* Give a message to the registry; -1 as registry_message. */
static int tell(unsigned c, struct msg *m)
{
    struct err e;
    int rc;

    link_of[c].count = 0;
    m->sequence = ++sequence;
    if (id128_is_zero(&m->instance))
        m->instance = link_of[c].instance;
    rc = registry_message(g, link_of[c].peer, m, now, now, &e);
    commit();
    return rc;
}

/* The only message of that type since the connection last spoke, or NULL. */
static const struct msg *got(unsigned c, enum msg_type type)
{
    for (unsigned i = 0; i < link_of[c].count; i++)
        if (link_of[c].got[i].type == type)
            return &link_of[c].got[i];
    return NULL;
}

static void hello(unsigned c, const char *role)
{
    struct msg m = { .type = MSG_HELLO,
                     .hello = { .version_min = 1, .version_max = 1 } };

    snprintf(m.hello.role, sizeof(m.hello.role), "%s", role);
    if (!link_of[c].peer) {
        char address[16];

        snprintf(address, sizeof(address), "10.0.0.%u", c + 1);
        link_of[c].peer = registry_connect(g, &link_of[c], address);
    }
    ck_assert_int_eq(tell(c, &m), 0);
}

static struct msg join_message(unsigned c, const char *run_id)
{
    struct msg m = { .type = MSG_JOIN };
    struct msg_join *j = &m.join;

    snprintf(j->run_id, sizeof(j->run_id), "%s", run_id);
    snprintf(j->host, sizeof(j->host), "node-%u", c);
    j->incarnation = (struct id128){ { (uint8_t)(c + 1), 9, 9 } };
    j->pid = 100 + c;
    j->workers = 2;
    j->node_rank = -1;
    j->config = (struct job_config){ .min_nodes = 2,
                                     .max_nodes = 2,
                                     .max_restarts = 1,
                                     .lease_ms = 3000,
                                     .join_timeout_ms = 60000,
                                     .last_call_ms = 1000,
                                     .shutdown_grace_ms = 30000,
                                     .failure_grace_ms = 5000,
                                     .scale = "now",
                                     .program = "train.py",
                                     .arguments_hash = "abc" };
    return m;
}

static void join(unsigned c)
{
    struct msg m = join_message(c, "resnet");

    hello(c, "agent");
    ck_assert_int_eq(tell(c, &m), 0);
    ck_assert_ptr_nonnull(got(c, MSG_JOINED));
}

static void report(unsigned c, enum msg_type type)
{
    struct msg m = { .type = type, .epoch = registry_jobs(g)->round.epoch };

    if (type == MSG_STORE_READY) {
        strcpy(m.store_ready.address, "10.0.0.1");
        m.store_ready.port = 1234;
    } else if (type == MSG_FAILED) {
        m.failed = (struct failure){ .kind = FAILURE_EXIT, .rank = 3, .code = 85 };
        strcpy(m.failed.said, "it broke");
    }
    ck_assert_int_eq(tell(c, &m), 0);
    ck_assert_ptr_nonnull(got(c, MSG_ACK));
    ck_assert_uint_eq(got(c, MSG_ACK)->sequence, sequence);
}

static void run_job(void)
{
    join(0);
    join(1);
    report(0, MSG_STORE_READY);
}

static const struct msg *refusal(unsigned c, enum refusal why, const char *words)
{
    const struct msg *m = got(c, MSG_REFUSED);

    ck_assert_msg(m != NULL, "not refused");
    ck_assert_int_eq(m->refused.why, why);
    ck_assert_msg(strstr(m->refused.text, words) != NULL, "\"%s\" is not in \"%s\"",
                  words, m->refused.text);
    return m;
}

static void end(void)
{
    for (unsigned c = 0; c < CONNS; c++)
        if (link_of[c].peer)
            registry_disconnect(g, link_of[c].peer, now);
    registry_destroy(g);
    g = NULL;
}

/* The daemon dies and comes back on its disk; what it learned last was not committed.
 */
static void restart(void)
{
    end();
    memdisk_crash(disk, 1);
    begin(true);
}

/* -- hello and join --------------------------------------------------------------- */

START_TEST(a_foreign_version_is_told_both_ranges)
{
    struct msg m = { .type = MSG_HELLO,
                     .hello = { .version_min = 7, .version_max = 9 } };

    begin(true);
    link_of[0].peer = registry_connect(g, &link_of[0], "10.0.0.1");
    ck_assert_int_eq(tell(0, &m), 0);
    refusal(0, REFUSED_VERSION, "7 to 9");
    refusal(0, REFUSED_VERSION, "1 to 1");
    ck_assert(link_of[0].hung_up);
    end();
}
END_TEST

START_TEST(a_message_out_of_turn_breaks_the_protocol)
{
    struct msg m = { .type = MSG_HEARTBEAT }, odd = { .type = MSG_HELLO };

    begin(true);
    odd.hello = (struct msg_hello){ 1, 1, "boss", "" };
    link_of[1].peer = registry_connect(g, &link_of[1], "10.0.0.2");
    ck_assert_int_eq(tell(1, &odd), -1);
    hello(0, "agent");
    ck_assert_int_eq(tell(0, &m), -1);
    end();
}
END_TEST

START_TEST(a_message_of_another_launch_breaks_the_protocol)
{
    struct msg m = { .type = MSG_FAILED,
                     .epoch = 1,
                     .instance = { { 0xee } },
                     .failed = { .kind = FAILURE_EXIT, .code = 1 } };

    begin(true);
    run_job();
    ck_assert_int_eq(tell(0, &m), -1);
    ck_assert_int_eq(registry_jobs(g)->round.state, ROUND_RUNNING);
    end();
}
END_TEST

START_TEST(a_full_job_is_told_its_ranks)
{
    const struct msg *m;

    begin(true);
    join(0);
    ck_assert_ptr_null(got(0, MSG_START));
    link_of[0].count = 0;
    join(1);
    m = got(0, MSG_START);
    ck_assert_ptr_nonnull(m);
    ck_assert(m->start.host_store);
    ck_assert_uint_eq(m->start.world_size, 4);
    ck_assert_uint_eq(m->epoch, 1);
    ck_assert_str_eq(got(0, MSG_MEMBERS)->members.addresses, "10.0.0.1 10.0.0.2");
    ck_assert(got(0, MSG_MEMBERS) <
              m); /* it knows whom to let in before they can come */
    ck_assert_ptr_null(got(1, MSG_START));
    link_of[1].count = 0;
    report(0, MSG_STORE_READY);
    m = got(1, MSG_START);
    ck_assert_ptr_nonnull(m);
    ck_assert_str_eq(m->start.address, "10.0.0.1");
    ck_assert_uint_eq(m->start.port, 1234);
    ck_assert_uint_eq(m->start.first_rank, 2);
    end();
}
END_TEST

static void join_as(unsigned c, const char *role)
{
    struct msg m = join_message(c, "resnet");

    m.join.config.min_nodes = m.join.config.max_nodes = 5;
    m.join.workers = c + 1;
    snprintf(m.join.role, sizeof(m.join.role), "%s", role);
    hello(c, "agent");
    ck_assert_int_eq(tell(c, &m), 0);
}

static void start_is(unsigned c, uint32_t first_rank, uint32_t role_first_rank,
                     uint32_t role_world_size)
{
    const struct msg *m = got(c, MSG_START);

    ck_assert_ptr_nonnull(m);
    ck_assert_uint_eq(m->start.first_rank, first_rank);
    ck_assert_uint_eq(m->start.role_first_rank, role_first_rank);
    ck_assert_uint_eq(m->start.role_world_size, role_world_size);
    ck_assert_uint_eq(m->start.world_size, 15);
}

START_TEST(ranks_of_a_role_are_counted_among_its_nodes)
{
    static const char *const role[] = { "trainer", "", "trainer", "reader", "default" };

    begin(true);
    for (unsigned c = 0; c < 5; c++)
        join_as(c, role[c]);
    start_is(0, 0, 0, 4);
    report(0, MSG_STORE_READY);
    start_is(1, 1, 0, 7);
    start_is(2, 3, 1, 4);
    start_is(3, 6, 0, 4);
    start_is(4, 10, 2, 7);
    end();
}
END_TEST

START_TEST(what_cannot_be_a_member_is_told_why)
{
    struct msg m;

    begin(true);
    join(0);
    for (unsigned c = 1; c < 6; c++)
        hello(c, "agent");
    m = join_message(1, "none");
    tell(1, &m);
    refusal(1, REFUSED_RUN_ID, "--rdzv-id");
    m = join_message(1, "resnet");
    m.join.config.max_restarts = 3;
    tell(1, &m);
    refusal(1, REFUSED_CONFIG, "--max-restarts is 1 in the job and 3 here");
    m = join_message(1, "resnet");
    strcpy(m.join.config.program, "eval.py");
    strcpy(m.join.config.arguments_hash, "def");
    tell(1, &m);
    refusal(1, REFUSED_CONFIG, "train.py in the job and eval.py here");
    m = join_message(1, "resnet");
    m.join.config.min_nodes = 3;
    tell(1, &m);
    refusal(1, REFUSED_CONFIG, "minimum is above the maximum");
    m = join_message(1, "resnet");
    m.join.node_rank = 2;
    tell(1, &m);
    refusal(1, REFUSED_SLOT, "0 to 1");
    m = join_message(1, "resnet");
    m.join.workers = 0;
    tell(1, &m);
    refusal(1, REFUSED_CONFIG, "0 workers");
    ck_assert_uint_eq(registry_jobs(g)->round.tally.live, 1);
    end();
}
END_TEST

START_TEST(a_programs_name_may_be_lost_on_its_way)
{
    struct msg m = join_message(1, "resnet");

    begin(true);
    join(0);
    hello(1, "agent");
    strcpy(m.join.config.program, "tr?in.py"); /* it was not UTF-8 */
    tell(1, &m);
    ck_assert_ptr_nonnull(got(1, MSG_JOINED));
    end();
}
END_TEST

/* The second connection asks for the place that the first has. */
static const struct msg_refused *ask_for_a_taken_place(unsigned c)
{
    struct msg m = join_message(c, "resnet");

    m.join.node_rank = 1;
    tell(c, &m);
    return &refusal(c, REFUSED_SLOT, "taken by node-0 (pid 100)")->refused;
}

static void take_a_place(void)
{
    struct msg m = join_message(0, "resnet");

    for (unsigned c = 0; c < 3; c++)
        hello(c, "agent");
    m.join.node_rank = 1;
    tell(0, &m);
}

static void pass_ticks(unsigned ms)
{
    for (unsigned i = 0; i < ms; i += 100) {
        now += 100;
        registry_tick(g, now, now);
    }
}

START_TEST(a_node_rank_is_taken_by_who_is_heard_to_live)
{
    struct msg beat = { .type = MSG_HEARTBEAT };

    begin(true);
    take_a_place();
    ck_assert(ask_for_a_taken_place(1)->retry); /* it may have died just now */
    pass_ticks(500);
    ck_assert(ask_for_a_taken_place(1)->retry);
    ck_assert_int_eq(tell(0, &beat), 0);
    ck_assert(!ask_for_a_taken_place(1)->retry);
    ck_assert(ask_for_a_taken_place(2)->retry); /* it may have died since */
    pass_ticks(100);
    ck_assert_int_eq(tell(0, &beat), 0);
    pass_ticks(100);
    ck_assert(!ask_for_a_taken_place(2)->retry);
    end();
}
END_TEST

START_TEST(a_node_rank_of_one_who_was_lost_is_free)
{
    struct msg m = join_message(1, "resnet");

    begin(true);
    take_a_place();
    ck_assert(ask_for_a_taken_place(1)->retry);
    pass_ticks(3100);
    m.join.node_rank = 1;
    tell(1, &m);
    ck_assert_ptr_nonnull(got(1, MSG_JOINED));
    end();
}
END_TEST

START_TEST(who_asked_for_a_node_rank_long_ago_has_given_up)
{
    struct msg beat = { .type = MSG_HEARTBEAT };

    begin(true);
    take_a_place();
    ck_assert(ask_for_a_taken_place(1)->retry);
    for (int i = 0; i < 30; i++) {
        pass_ticks(600);
        ck_assert_int_eq(tell(0, &beat), 0);
    }
    ck_assert(ask_for_a_taken_place(2)->retry);
    end();
}
END_TEST

START_TEST(an_embedded_rendezvous_serves_one_job_of_any_name)
{
    struct msg m;

    begin(false);
    hello(0, "agent");
    m = join_message(0, "none");
    tell(0, &m);
    ck_assert_ptr_nonnull(got(0, MSG_JOINED));
    hello(1, "agent");
    m = join_message(1, "other");
    tell(1, &m);
    refusal(1, REFUSED_FULL, "it serves none");
    end();
}
END_TEST

START_TEST(rank_0_on_another_node_is_told_of_the_host)
{
    struct msg m = join_message(1, "resnet");

    begin(false);
    link_of[0].peer = registry_connect(g, &link_of[0], "");
    join(0);
    hello(1, "agent");
    m.join.node_rank = 0;
    tell(1, &m);
    ck_assert(got(1, MSG_START)->start.host_store);
    ck_assert_str_eq(got(1, MSG_MEMBERS)->members.addresses, "10.0.0.2 rendezvous");
    end();
}
END_TEST

START_TEST(an_embedded_rendezvous_knows_its_job_before_anybody_joins)
{
    struct msg m = join_message(1, "resnet");
    struct registry_config c = { .software = "crun test",
                                 .run_id = "resnet",
                                 .job = &m.join.config,
                                 .random_id = on_random_id,
                                 .send = on_send,
                                 .hang_up = on_hang_up };
    struct err e;

    g = registry_create(&c, now, now, &e);
    registry_tick(g, now + 5000, now);
    ck_assert_ptr_nonnull(registry_jobs(g));
    hello(1, "agent");
    m.join.config.max_restarts++;
    tell(1, &m);
    refusal(1, REFUSED_CONFIG, "--max-restarts");
    end();
}
END_TEST

START_TEST(an_empty_first_forming_is_forgotten)
{
    begin(true);
    join(0);
    registry_disconnect(g, link_of[0].peer, now);
    link_of[0].peer = NULL;
    for (int i = 0; i < 100; i++)
        registry_tick(g, now + 50u * (unsigned)i, now);
    ck_assert_ptr_null(registry_jobs(g));
    end();
}
END_TEST

/* -- the course of a job ---------------------------------------------------------- */

START_TEST(a_waiting_node_is_told_what_is_missing)
{
    struct msg m = { .type = MSG_HEARTBEAT };
    const struct msg *beat;

    begin(true);
    join(0);
    ck_assert_int_eq(tell(0, &m), 0);
    beat = got(0, MSG_BEAT);
    ck_assert(beat->beat.waiting);
    ck_assert_uint_eq(beat->beat.present, 1);
    ck_assert_uint_eq(beat->beat.wanted, 2);
    ck_assert_uint_gt(beat->beat.left_ms, 50000);
    end();
}
END_TEST

START_TEST(a_failure_restarts_and_then_ends_the_job_with_its_words)
{
    const struct msg *m;

    begin(true);
    run_job();
    for (int round = 0; round < 2; round++) {
        link_of[0].count = 0;
        report(1, MSG_FAILED);
        ck_assert_str_eq(got(0, MSG_STOP)->stop.text,
                         "rank 3 on node-1 exited with code 85");
        report(0, MSG_STOPPED);
        link_of[0].count = 0;
        report(1, MSG_STOPPED);
        if (round == 0)
            ck_assert_uint_eq(got(0, MSG_START)->start.restarts, 1);
    }
    m = got(1, MSG_DONE);
    ck_assert_int_eq(m->done.exit_code, 85);
    ck_assert_str_eq(m->done.failure.said, "it broke");
    ck_assert_str_eq(m->done.failure.host, "node-1");
    ck_assert_ptr_nonnull(got(0, MSG_DONE));
    end();
}
END_TEST

START_TEST(a_node_whose_workers_do_not_end_is_lost_for_that)
{
    struct msg follow = { .type = MSG_EVENTS, .events = { .follow = true } };
    char said[4096] = "";

    begin(true);
    run_job();
    report(1, MSG_FAILED);
    report(1, MSG_STOPPED);
    hello(2, "ctl");
    tell(2, &follow);
    for (int i = 0; i < 360; i++) {
        struct msg beat = { .type = MSG_HEARTBEAT };

        now += 100;
        for (unsigned c = 0; c < 2 && !link_of[0].hung_up; c++)
            ck_assert_int_eq(tell(c, &beat), 0);
        registry_tick(g, now, now);
    }
    for (unsigned i = 0; i < link_of[2].count; i++)
        if (link_of[2].got[i].type == MSG_EVENT)
            strcat(strcat(said, link_of[2].got[i].event.text), "; ");
    ck_assert_msg(strstr(said, "node-0 was lost: its workers did not end in time"),
                  "\"%s\"", said);
    end();
}
END_TEST

static void note(unsigned c, uint64_t epoch, const char *text)
{
    struct msg m = { .type = MSG_NOTE, .epoch = epoch, .note = { .kind = "rank" } };

    strcpy(m.note.text, text);
    ck_assert_int_eq(tell(c, &m), 0);
    ck_assert_ptr_nonnull(got(c, MSG_ACK));
}

START_TEST(a_hang_is_told_with_what_every_rank_does)
{
    struct msg failed = { .type = MSG_FAILED, .epoch = 1 };
    const struct job *job;

    begin(true);
    run_job();
    failed.failed.kind = FAILURE_HANG;
    failed.failed.rank = 1;
    note(0, 1, "rank 0 is well");
    tell(1, &failed);
    ck_assert(got(0, MSG_STOP)->stop.hang);
    note(1, 1, "rank 1 sleeps");
    note(0, 1, "rank 0 waits");
    note(0, 0, "rank 0 of another epoch");
    job = registry_jobs(g);
    ck_assert_str_eq(job->failure.said,
                     "node-1: rank 1 sleeps\nnode-0: rank 0 waits\n");
    for (int i = 0; i < NOTES_PER_EPOCH_MAX; i++)
        note(0, 1, "more and more");
    ck_assert_uint_lt(strlen(job->failure.said), sizeof(job->failure.said));
    ck_assert_uint_eq(job->notes, NOTES_PER_EPOCH_MAX);
    end();
}
END_TEST

START_TEST(another_failure_asks_for_no_notes)
{
    begin(true);
    run_job();
    report(1, MSG_FAILED);
    ck_assert(!got(0, MSG_STOP)->stop.hang);
    note(0, 1, "rank 0 waits");
    ck_assert_str_eq(registry_jobs(g)->failure.said, "it broke");
    end();
}
END_TEST

START_TEST(a_new_launch_of_a_finished_job_is_a_new_instance)
{
    struct id128 first;
    struct msg bye = { .type = MSG_BYE };

    begin(true);
    run_job();
    first = registry_jobs(g)->round.instance;
    report(0, MSG_FINISHED);
    report(1, MSG_FINISHED);
    ck_assert(!registry_is_idle(g));
    tell(0, &bye);
    tell(1, &bye);
    ck_assert(registry_is_idle(g));
    join(2);
    ck_assert(!id128_equal(&first, &registry_jobs(g)->round.instance));
    end();
}
END_TEST

static void ask_status(unsigned c, const char *run_id)
{
    struct msg m = { .type = MSG_STATUS };

    strcpy(m.status.run_id, run_id);
    tell(c, &m);
}

START_TEST(finished_jobs_give_way_to_new_ones)
{
    begin(true);
    hello(0, "agent");
    for (unsigned i = 0; i <= JOBS_MAX; i++) {
        struct msg bye = { .type = MSG_BYE }, m;
        char run_id[16];

        snprintf(run_id, sizeof(run_id), "job-%u", i);
        m = join_message(0, run_id);
        m.join.config.min_nodes = m.join.config.max_nodes = 1;
        now++;
        tell(0, &m);
        ck_assert_msg(got(0, MSG_JOINED) != NULL, "%s was refused", run_id);
        report(0, MSG_FINISHED);
        tell(0, &bye);
        link_of[0].instance = (struct id128){ { 0 } };
    }
    hello(1, "ctl");
    ask_status(1, "job-0");
    refusal(1, REFUSED_UNKNOWN, "job-0");
    ask_status(1, "job-1");
    ck_assert_ptr_nonnull(got(1, MSG_JOB_STATUS));
    end();
}
END_TEST

START_TEST(what_a_failure_ends_the_job_with_is_an_exit_code)
{
    static const struct {
        enum failure_kind kind;
        int32_t code, exit_code;
    } cases[] = {
        { FAILURE_EXIT, 85, 85 },         { FAILURE_EXIT, 0, 1 },
        { FAILURE_EXIT, 256, 1 },         { FAILURE_EXIT, INT32_MIN, 1 },
        { FAILURE_SIGNAL, 9, 137 },       { FAILURE_SIGNAL, 0, 1 },
        { FAILURE_SIGNAL, INT32_MAX, 1 }, { FAILURE_EXEC, 2, 1 },
        { FAILURE_HANG, 7, 1 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct failure f = { .kind = cases[i].kind, .code = cases[i].code };

        ck_assert_int_eq(job_exit_code(&f), cases[i].exit_code);
    }
}
END_TEST

START_TEST(an_agent_of_an_older_launch_is_fenced)
{
    struct msg m = { .type = MSG_RESUME };

    begin(true);
    run_job();
    hello(2, "agent");
    strcpy(m.resume.run_id, "resnet");
    m.resume.incarnation = (struct id128){ { 1, 9, 9 } };
    m.instance = (struct id128){ { 0xee } };
    tell(2, &m);
    refusal(2, REFUSED_FENCED, "older launch");
    m.instance = registry_jobs(g)->round.instance;
    m.resume.incarnation = (struct id128){ { 0x77 } };
    tell(2, &m);
    refusal(2, REFUSED_FENCED, "no longer part");
    ck_assert_int_eq(registry_jobs(g)->round.state, ROUND_RUNNING);
    end();
}
END_TEST

START_TEST(a_second_connection_of_a_node_takes_the_place_of_the_first)
{
    struct msg m = { .type = MSG_RESUME };

    begin(true);
    run_job();
    hello(2, "agent");
    strcpy(m.resume.run_id, "resnet");
    m.resume.incarnation = (struct id128){ { 1, 9, 9 } };
    m.instance = registry_jobs(g)->round.instance;
    tell(2, &m);
    ck_assert_ptr_nonnull(got(2, MSG_JOINED));
    ck_assert_ptr_nonnull(got(2, MSG_START));
    ck_assert(link_of[0].hung_up);
    registry_disconnect(g, link_of[0].peer, now);
    link_of[0].peer = NULL;
    ck_assert_uint_eq(registry_jobs(g)->round.tally.disconnected, 0);
    end();
}
END_TEST

/* -- crunctl ---------------------------------------------------------------------- */

START_TEST(status_shows_jobs_and_nodes)
{
    struct msg m = { .type = MSG_STATUS };
    unsigned nodes = 0;

    begin(true);
    run_job();
    hello(4, "ctl");
    tell(4, &m);
    ck_assert_str_eq(got(4, MSG_JOB_STATUS)->job_status.run_id, "resnet");
    ck_assert_ptr_null(got(4, MSG_NODE_STATUS));
    strcpy(m.status.run_id, "resnet");
    tell(4, &m);
    ck_assert_str_eq(got(4, MSG_JOB_STATUS)->job_status.state, "running");
    ck_assert_uint_eq(got(4, MSG_JOB_STATUS)->job_status.workers, 4);
    for (unsigned i = 0; i < link_of[4].count; i++)
        nodes += link_of[4].got[i].type == MSG_NODE_STATUS;
    ck_assert_uint_eq(nodes, 2);
    ck_assert_str_eq(got(4, MSG_NODE_STATUS)->node_status.state, "running");
    ck_assert_int_eq(link_of[4].got[link_of[4].count - 1].type, MSG_END_OF_LIST);
    strcpy(m.status.run_id, "nosuch");
    tell(4, &m);
    refusal(4, REFUSED_UNKNOWN, "no job \"nosuch\"");
    end();
}
END_TEST

START_TEST(a_containment_that_is_not_as_joined_any_more_is_told)
{
    struct msg m = { .type = MSG_STATUS, .status.run_id = "resnet" };
    struct msg beat = { .type = MSG_HEARTBEAT, .heartbeat.containment = "session" };
    const struct msg_node_status *status;

    begin(true);
    run_job();
    tell(0, &beat);
    hello(4, "ctl");
    tell(4, &m);
    status = &got(4, MSG_NODE_STATUS)->node_status;
    ck_assert_str_eq(status->containment, "session");
    ck_assert_str_eq(status->progress.containment, "");
    end();
}
END_TEST

START_TEST(events_are_told_and_followed)
{
    struct msg m = { .type = MSG_EVENTS, .events = { .follow = true } };

    begin(true);
    join(0);
    hello(4, "ctl");
    tell(4, &m);
    ck_assert_str_eq(got(4, MSG_EVENT)->event.kind, "joined");
    ck_assert_uint_eq(got(4, MSG_END_OF_LIST)->end_of_list.next, 1);
    link_of[4].count = 0;
    join(1);
    ck_assert_str_eq(link_of[4].got[0].event.kind, "joined");
    ck_assert_str_eq(link_of[4].got[1].event.kind, "formed");
    end();
}
END_TEST

static void join_elastic(unsigned c)
{
    struct msg m = join_message(c, "resnet");

    m.join.config.min_nodes = 1;
    m.join.config.max_nodes = 3;
    m.join.config.quarantine = 1;
    hello(c, "agent");
    ck_assert_int_eq(tell(c, &m), 0);
}

START_TEST(a_node_in_quarantine_is_not_who_has_joined)
{
    begin(true);
    join_elastic(0);
    join_elastic(1);
    pass_ticks(1100);
    report(0, MSG_STORE_READY);
    report(1, MSG_FAILED);
    report(1, MSG_STOPPED);
    report(0, MSG_STOPPED);
    ck_assert_uint_eq(registry_jobs(g)->round.group_size, 1);
    report(0, MSG_STORE_READY);
    join_elastic(2);
    ck_assert_str_eq(got(0, MSG_STOP)->stop.text, "node-2 has joined");
    end();
}
END_TEST

START_TEST(an_operator_stops_and_drains)
{
    struct msg drain = { .type = MSG_DRAIN }, stop = { .type = MSG_STOP_JOB };

    begin(true);
    run_job();
    join(2); /* a spare */
    hello(4, "ctl");
    strcpy(drain.drain.node, "node-9");
    tell(4, &drain);
    refusal(4, REFUSED_UNKNOWN, "no node \"node-9\"");
    strcpy(drain.drain.node, "1"); /* a slot */
    tell(4, &drain);
    ck_assert_str_eq(got(4, MSG_ACK)->ack.text,
                     "node-1 (slot 1, ranks 2 to 3) leaves when the workers have "
                     "written a checkpoint");
    ck_assert_str_eq(got(0, MSG_ASK_CHECKPOINT)->ask_checkpoint.cause, "drain");
    ck_assert_uint_eq(got(0, MSG_ASK_CHECKPOINT)->ask_checkpoint.within_ms, 30000);
    report(0, MSG_CHECKPOINTED);
    report(1, MSG_CHECKPOINTED);
    ck_assert_str_eq(got(1, MSG_STOP)->stop.cause, "drain");
    report(0, MSG_STOPPED);
    report(1, MSG_STOPPED);
    ck_assert_str_eq(got(1, MSG_DONE)->done.reason, "released");
    strcpy(drain.drain.node, "node-0");
    tell(4, &drain);
    refusal(4, REFUSED_MIN, "fewer than 2 nodes");
    tell(4, &stop);
    ck_assert_ptr_nonnull(got(4, MSG_ACK));
    ck_assert_str_eq(got(0, MSG_STOP)->stop.cause, "user");
    end();
}
END_TEST

/* -- what nodes and people are told ----------------------------------------------- */

START_TEST(a_join_that_cannot_be_read_is_answered)
{
    struct msg m = { .type = MSG_JOIN, .sequence = 5 };

    begin(true);
    hello(0, "agent");
    link_of[0].count = 0;
    ck_assert(registry_unreadable(g, link_of[0].peer, &m, "JOIN: host is missing"));
    ck_assert_uint_eq(refusal(0, REFUSED_MALFORMED, "JOIN: host is missing")->sequence,
                      5);
    m.type = MSG_RESUME;
    ck_assert(!registry_unreadable(g, link_of[0].peer, &m, "x"));
    hello(1, "ctl");
    m.type = MSG_JOIN;
    ck_assert(!registry_unreadable(g, link_of[1].peer, &m, "x"));
    end();
}
END_TEST

START_TEST(who_waits_is_told_who_was_refused)
{
    struct msg m = join_message(1, "resnet"), beat = { .type = MSG_HEARTBEAT };

    begin(true);
    join(0);
    hello(1, "agent");
    m.join.config.spares = 2;
    m.join.config.limit_spares = true;
    tell(1, &m);
    refusal(1, REFUSED_CONFIG, "--spares is 0 in the job and 2 here");
    tell(0, &beat);
    ck_assert_str_eq(got(0, MSG_BEAT)->beat.refused,
                     "node-1 was refused: job \"resnet\" runs with another "
                     "configuration: --spares is 0 in the job and 2 here");
    m.join.config = join_message(1, "").join.config;
    strcpy(m.join.config.no_restart_on, "2");
    tell(1, &m);
    refusal(1, REFUSED_CONFIG, "--no-restart-on is not given in the job and 2 here");
    m = join_message(1, "resnet");
    tell(1, &m);
    report(0, MSG_STORE_READY);
    tell(0, &beat);
    ck_assert_str_eq(got(0, MSG_BEAT)->beat.refused, "");
    end();
}
END_TEST

START_TEST(other_arguments_are_told_once)
{
    struct msg m = join_message(1, "resnet");

    begin(true);
    join(0);
    hello(1, "agent");
    strcpy(m.join.config.arguments_hash, "other");
    tell(1, &m);
    ck_assert_ptr_nonnull(got(1, MSG_JOINED));
    ck_assert_str_eq(got(0, MSG_NOTICE)->notice.text,
                     "node-1 was started with other arguments for train.py than "
                     "node-0; if that is a mistake, end the job");
    ck_assert_ptr_nonnull(got(1, MSG_NOTICE));
    hello(2, "agent");
    link_of[0].count = 0;
    m.join.incarnation.byte[0] = 77;
    tell(2, &m);
    ck_assert_ptr_nonnull(got(2, MSG_JOINED));
    ck_assert_ptr_null(got(0, MSG_NOTICE));
    end();
}
END_TEST

START_TEST(the_result_names_what_came_afterwards)
{
    disk = memdisk_create();
    begin(true);
    run_job();
    report(1, MSG_FAILED);
    report(0, MSG_STOPPED);
    report(1, MSG_STOPPED);
    report(0, MSG_STORE_READY);
    report(1, MSG_FAILED);
    for (unsigned i = 0; i < AFTERWARDS_LINES_MAX + 3; i++)
        report(0, MSG_FAILED);
    report(0, MSG_STOPPED);
    report(1, MSG_STOPPED);
    for (unsigned restarted = 0; restarted < 2; restarted++) {
        const char *at = registry_jobs(g)->afterwards;
        unsigned lines = 0;

        ck_assert_int_eq(strncmp(at, "node-0 3 exit code 85\n", 22), 0);
        for (; (at = strchr(at, '\n')); at++)
            lines++;
        ck_assert_uint_eq(lines, AFTERWARDS_LINES_MAX);
        if (restarted == 0) {
            ck_assert_str_eq(got(0, MSG_DONE)->done.afterwards,
                             registry_jobs(g)->afterwards);
            restart();
        }
    }
    end();
    memdisk_destroy(disk);
    disk = NULL;
}
END_TEST

/* -- a daemon's death ------------------------------------------------------------- */

START_TEST(a_restarted_daemon_goes_on_with_the_same_epoch)
{
    struct msg m = { .type = MSG_RESUME };
    struct id128 instance;
    const struct msg *start;

    disk = memdisk_create();
    begin(true);
    run_job();
    report(1, MSG_FAILED);
    report(0, MSG_STOPPED);
    report(1, MSG_STOPPED);
    report(0, MSG_STORE_READY);
    instance = registry_jobs(g)->round.instance;
    now += 90000;
    restart();
    ck_assert(id128_equal(&instance, &registry_jobs(g)->round.instance));
    ck_assert_uint_eq(registry_jobs(g)->round.epoch, 2);
    ck_assert_uint_eq(registry_jobs(g)->round.restarts, 1);
    ck_assert_int_eq(registry_jobs(g)->failure.code, 85);
    hello(4, "ctl");
    tell(4, &(struct msg){ .type = MSG_STATUS });
    ck_assert_uint_ge(got(4, MSG_JOB_STATUS)->job_status.age_ms, 90000);
    hello(3, "agent");
    strcpy(m.resume.run_id, "resnet");
    m.resume.incarnation = (struct id128){ { 2, 9, 9 } };
    m.resume.node = 1;
    m.instance = instance;
    tell(3, &m);
    start = got(3, MSG_START);
    ck_assert_ptr_nonnull(start);
    ck_assert_uint_eq(start->start.port, 1234);
    ck_assert_uint_eq(start->start.first_rank, 2);
    end();
    memdisk_destroy(disk);
    disk = NULL;
}
END_TEST

START_TEST(roles_outlive_the_daemon)
{
    struct msg m = { .type = MSG_RESUME, .resume = { .run_id = "resnet", .node = 2 } };

    disk = memdisk_create();
    begin(true);
    for (unsigned c = 0; c < 5; c++)
        join_as(c, c % 2 ? "reader" : "trainer");
    report(0, MSG_STORE_READY);
    m.instance = registry_jobs(g)->round.instance;
    m.resume.incarnation = (struct id128){ { 3, 9, 9 } };
    restart();
    hello(2, "agent");
    tell(2, &m);
    start_is(2, 3, 1, 9);
    end();
    memdisk_destroy(disk);
    disk = NULL;
}
END_TEST

START_TEST(a_result_outlives_the_daemon)
{
    struct msg m = { .type = MSG_RESUME };

    disk = memdisk_create();
    begin(true);
    run_job();
    report(0, MSG_FINISHED);
    report(1, MSG_FINISHED);
    m.instance = registry_jobs(g)->round.instance;
    restart();
    ck_assert_int_eq(registry_jobs(g)->round.state, ROUND_DONE);
    hello(0, "agent");
    strcpy(m.resume.run_id, "resnet");
    m.resume.incarnation = (struct id128){ { 1, 9, 9 } };
    tell(0, &m);
    ck_assert_str_eq(got(0, MSG_DONE)->done.reason, "success");
    end();
    memdisk_destroy(disk);
    disk = NULL;
}
END_TEST

static Suite *registry_suite(void)
{
    Suite *s = suite_create("registry");
    TCase *tc = tcase_create("registry");

    tcase_set_timeout(tc, 20); /* as many jobs as there may be, under sanitizers */
    tcase_add_test(tc, a_foreign_version_is_told_both_ranges);
    tcase_add_test(tc, a_message_out_of_turn_breaks_the_protocol);
    tcase_add_test(tc, a_message_of_another_launch_breaks_the_protocol);
    tcase_add_test(tc, a_full_job_is_told_its_ranks);
    tcase_add_test(tc, ranks_of_a_role_are_counted_among_its_nodes);
    tcase_add_test(tc, what_cannot_be_a_member_is_told_why);
    tcase_add_test(tc, a_programs_name_may_be_lost_on_its_way);
    tcase_add_test(tc, a_node_rank_is_taken_by_who_is_heard_to_live);
    tcase_add_test(tc, a_node_rank_of_one_who_was_lost_is_free);
    tcase_add_test(tc, who_asked_for_a_node_rank_long_ago_has_given_up);
    tcase_add_test(tc, an_embedded_rendezvous_serves_one_job_of_any_name);
    tcase_add_test(tc, rank_0_on_another_node_is_told_of_the_host);
    tcase_add_test(tc, an_embedded_rendezvous_knows_its_job_before_anybody_joins);
    tcase_add_test(tc, an_empty_first_forming_is_forgotten);
    tcase_add_test(tc, a_waiting_node_is_told_what_is_missing);
    tcase_add_test(tc, a_failure_restarts_and_then_ends_the_job_with_its_words);
    tcase_add_test(tc, a_node_whose_workers_do_not_end_is_lost_for_that);
    tcase_add_test(tc, a_hang_is_told_with_what_every_rank_does);
    tcase_add_test(tc, another_failure_asks_for_no_notes);
    tcase_add_test(tc, a_new_launch_of_a_finished_job_is_a_new_instance);
    tcase_add_test(tc, finished_jobs_give_way_to_new_ones);
    tcase_add_test(tc, what_a_failure_ends_the_job_with_is_an_exit_code);
    tcase_add_test(tc, an_agent_of_an_older_launch_is_fenced);
    tcase_add_test(tc, a_second_connection_of_a_node_takes_the_place_of_the_first);
    tcase_add_test(tc, status_shows_jobs_and_nodes);
    tcase_add_test(tc, a_containment_that_is_not_as_joined_any_more_is_told);
    tcase_add_test(tc, events_are_told_and_followed);
    tcase_add_test(tc, a_node_in_quarantine_is_not_who_has_joined);
    tcase_add_test(tc, an_operator_stops_and_drains);
    tcase_add_test(tc, a_join_that_cannot_be_read_is_answered);
    tcase_add_test(tc, who_waits_is_told_who_was_refused);
    tcase_add_test(tc, other_arguments_are_told_once);
    tcase_add_test(tc, the_result_names_what_came_afterwards);
    tcase_add_test(tc, a_restarted_daemon_goes_on_with_the_same_epoch);
    tcase_add_test(tc, roles_outlive_the_daemon);
    tcase_add_test(tc, a_result_outlives_the_daemon);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return check_main(registry_suite());
}
