/* SPDX-License-Identifier: MIT */
/* takes: 10 s */
/*
 * The course of a job as its nodes are told of it, and as crunctl shows and changes it.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/job/registry/exit_code.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/wire/net/sources.h"
#include "rendezvous/wire/protocol/limits.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

/* -- the course of a job ---------------------------------------------------- */

static void begin_standalone(void)
{
    begin_registry(true);
}

FIXTURE(begin_standalone, end_registry);

TEST(a_waiting_node_is_told_what_is_missing)
{
    struct msg m = { .type = MSG_HEARTBEAT };
    const struct msg *beat;

    join_node(0);
    ck_assert_int_eq(send_to_registry(0, &m), 0);
    beat = message_got(0, MSG_BEAT);
    ck_assert(beat->beat.waiting);
    ck_assert_uint_eq(beat->beat.present, 1);
    ck_assert_uint_eq(beat->beat.wanted, 2);
    ck_assert_uint_gt(beat->beat.left_ms, 50000);
}

TEST(a_failure_restarts_and_then_ends_the_job_with_its_words)
{
    const struct msg *m;

    run_job();
    for (int round = 0; round < 2; round++) {
        link_of[0].count = 0;
        report_event(1, MSG_FAILED);
        ck_assert_str_eq(message_got(0, MSG_STOP)->stop.text,
                         "rank 3 on node-1 exited with code 85");
        report_event(0, MSG_STOPPED);
        link_of[0].count = 0;
        report_event(1, MSG_STOPPED);
        if (round == 0)
            ck_assert_uint_eq(message_got(0, MSG_START)->start.restarts, 1);
    }
    m = message_got(1, MSG_DONE);
    ck_assert_int_eq(m->done.exit_code, 85);
    ck_assert_str_eq(m->done.failure.said, "it broke");
    ck_assert_str_eq(m->done.failure.host, "node-1");
    ck_assert_ptr_nonnull(message_got(0, MSG_DONE));
}

TEST(a_node_whose_workers_do_not_end_is_lost_for_that)
{
    struct msg follow = { .type = MSG_EVENTS, .events = { .follow = true } };
    char said[4096] = "";

    run_job();
    report_event(1, MSG_FAILED);
    report_event(1, MSG_STOPPED);
    greet_registry(2, PEER_CTL);
    send_to_registry(2, &follow);
    for (int i = 0; i < 360; i++) {
        struct msg beat = { .type = MSG_HEARTBEAT };

        now += 100;
        for (unsigned c = 0; c < 2 && !link_of[0].hung_up; c++)
            ck_assert_int_eq(send_to_registry(c, &beat), 0);
        registry_tick(g, now, now);
    }
    for (unsigned i = 0; i < link_of[2].count; i++)
        if (link_of[2].got[i].type == MSG_EVENT)
            strcat(strcat(said, link_of[2].got[i].event.text), "; ");
    ck_assert_msg(strstr(said, "node-0 was lost: its workers did not end in time"),
                  "\"%s\"", said);
}

static void send_note(unsigned c, uint64_t epoch, const char *text)
{
    struct msg m = { .type = MSG_NOTE, .epoch = epoch, .note = { .kind = NOTE_RANK } };

    strcpy(m.note.text, text);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
    ck_assert_ptr_nonnull(message_got(c, MSG_ACK));
}

TEST(a_hang_is_told_with_what_every_rank_does)
{
    struct msg failed = { .type = MSG_FAILED, .epoch = 1 };
    const struct job *job;

    run_job();
    failed.failed.kind = FAILURE_HANG;
    failed.failed.rank = 1;
    send_note(0, 1, "rank 0 is well");
    send_to_registry(1, &failed);
    ck_assert(message_got(0, MSG_STOP)->stop.hang);
    send_note(1, 1, "rank 1 sleeps");
    send_note(0, 1, "rank 0 waits");
    send_note(0, 0, "rank 0 of another epoch");
    job = registry_jobs(g);
    ck_assert_str_eq(job->failure.said,
                     "node-1: rank 1 sleeps\nnode-0: rank 0 waits\n");
    for (int i = 0; i < NOTES_PER_EPOCH_MAX; i++)
        send_note(0, 1, "more and more");
    ck_assert_uint_lt(strlen(job->failure.said), sizeof(job->failure.said));
    ck_assert_uint_eq(job->notes, NOTES_PER_EPOCH_MAX);
}

TEST(another_failure_asks_for_no_notes)
{
    run_job();
    report_event(1, MSG_FAILED);
    ck_assert(!message_got(0, MSG_STOP)->stop.hang);
    send_note(0, 1, "rank 0 waits");
    ck_assert_str_eq(registry_jobs(g)->failure.said, "it broke");
}

TEST(a_new_launch_of_a_finished_job_is_a_new_instance)
{
    struct id128 first;
    struct msg bye = { .type = MSG_BYE };

    run_job();
    first = registry_jobs(g)->membership.instance;
    report_event(0, MSG_FINISHED);
    report_event(1, MSG_FINISHED);
    ck_assert(!registry_is_idle(g));
    send_to_registry(0, &bye);
    send_to_registry(1, &bye);
    ck_assert(registry_is_idle(g));
    join_node(2);
    ck_assert(!id128_equal(&first, &registry_jobs(g)->membership.instance));
}

static void ask_status(unsigned c, const char *run_id)
{
    struct msg m = { .type = MSG_STATUS };

    strcpy(m.status.run_id, run_id);
    send_to_registry(c, &m);
}

TEST(finished_jobs_give_way_to_new_ones)
{
    greet_registry(0, PEER_AGENT);
    for (unsigned i = 0; i <= JOBS_MAX; i++) {
        struct msg bye = { .type = MSG_BYE }, m;
        char run_id[16];

        snprintf(run_id, sizeof(run_id), "job-%u", i);
        m = join_message(0, run_id);
        m.join.config.min_nodes = m.join.config.max_nodes = 1;
        now++;
        send_to_registry(0, &m);
        ck_assert_msg(message_got(0, MSG_JOINED) != NULL, "%s was refused", run_id);
        report_event(0, MSG_FINISHED);
        send_to_registry(0, &bye);
        link_of[0].instance = (struct id128){ { 0 } };
    }
    greet_registry(1, PEER_CTL);
    ask_status(1, "job-0");
    refusal_got(1, REFUSED_UNKNOWN, "job-0");
    ask_status(1, "job-1");
    ck_assert_ptr_nonnull(message_got(1, MSG_JOB_STATUS));
}

/* Nodes that have claimed a job and stay. */
static struct registry_peer *claimant[2 * JOBS_PER_SOURCE_MAX];
static unsigned claimants;

static void end_claims(void)
{
    while (claimants > 0)
        registry_disconnect(g, claimant[--claimants], now);
}

/* A node joins from there, as the only one of two, with a strict fence and the longest
 * lease. Its connection goes if it must not stay. True if it was not refused. */
static bool claim_job(const char *address, unsigned number, bool stays)
{
    const unsigned c = 7;
    struct msg m;
    char run_id[32];
    bool joined;

    /* what it got would be megabytes to clear */
    link_of[c].count = 0;
    link_of[c].instance = (struct id128){ { 0 } };
    connect_to_registry_as(c, &(struct peer_origin){ .address = address,
                                                     .uid = PEER_UID_UNKNOWN,
                                                     .access = ACCESS_AGENT });
    greet_registry(c, PEER_AGENT);
    snprintf(run_id, sizeof(run_id), "claimed-%u", number);
    m = join_message(c, run_id);
    m.join.config.strict_fence = true;
    m.join.config.lease_ms = LEASE_MS_MAX;
    now++;
    ck_assert_int_eq(send_to_registry(c, &m), 0);
    joined = message_got(c, MSG_JOINED) != NULL;
    if (stays)
        claimant[claimants++] = link_of[c].peer;
    else
        registry_disconnect(g, link_of[c].peer, now);
    link_of[c].peer = NULL;
    return joined;
}

TEST(jobs_that_never_formed_give_way_when_their_nodes_are_gone)
{
    char address[16];

    for (unsigned i = 0; i < JOBS_MAX; i++) {
        snprintf(address, sizeof(address), "10.1.0.%u", i / 32);
        ck_assert_msg(claim_job(address, i, false), "job %u was refused", i);
    }
    ck_assert(claim_job("10.2.0.1", JOBS_MAX, true));
    greet_registry(1, PEER_CTL);
    ask_status(1, "claimed-0");
    refusal_got(1, REFUSED_UNKNOWN, "claimed-0");
    end_claims();
}

TEST(one_source_makes_few_jobs_and_others_still_make_theirs)
{
    unsigned made = 0;

    while (made < 2 * JOBS_PER_SOURCE_MAX - 4 && claim_job("10.1.0.1", made, true))
        made++;
    ck_assert_uint_eq(made, JOBS_PER_SOURCE_MAX);
    ck_assert(claim_job("10.2.0.1", made + 1, true));
    ck_assert(claim_job("2001:db8::1", made + 2, true));
    end_claims();
}

/* The oldest goes, although there is room for other sources. */
TEST(one_source_whose_jobs_are_abandoned_makes_others_in_their_place)
{
    for (unsigned i = 0; i <= JOBS_PER_SOURCE_MAX; i++)
        ck_assert(claim_job("10.1.0.1", i, false));
    greet_registry(1, PEER_CTL);
    ask_status(1, "claimed-0");
    refusal_got(1, REFUSED_UNKNOWN, "claimed-0");
}

TEST(a_network_of_64_bits_is_one_source_and_so_is_a_user_of_this_machine)
{
    const uid_t none = PEER_UID_UNKNOWN;

    ck_assert_uint_eq(source_of("2001:db8::1", none),
                      source_of("2001:db8::2:3:4", none));
    ck_assert_uint_ne(source_of("2001:db8::1", none),
                      source_of("2001:db8:0:1::", none));
    ck_assert_uint_ne(source_of("10.0.0.1", none), source_of("10.0.0.2", none));
    ck_assert_uint_ne(source_of("127.0.0.1", 1000), source_of("127.0.0.1", 1001));
    ck_assert_uint_eq(source_of("127.0.0.1", 1000), source_of("10.0.0.1", 1000));
    ck_assert_uint_eq(source_of("", 1000), SOURCE_NONE);
}

FIXTURE(NULL, NULL);

TEST(what_a_failure_ends_the_job_with_is_an_exit_code)
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

FIXTURE(begin_standalone, end_registry);

TEST(an_agent_of_an_older_launch_is_fenced)
{
    struct msg m = { .type = MSG_RESUME };

    run_job();
    greet_registry(2, PEER_AGENT);
    strcpy(m.resume.run_id, "resnet");
    m.resume.incarnation = (struct id128){ { 1, 9, 9 } };
    m.instance = (struct id128){ { 0xee } };
    send_to_registry(2, &m);
    refusal_got(2, REFUSED_FENCED, "older launch");
    m.instance = registry_jobs(g)->membership.instance;
    m.resume.incarnation = (struct id128){ { 0x77 } };
    send_to_registry(2, &m);
    refusal_got(2, REFUSED_FENCED, "no longer part");
    ck_assert_int_eq(registry_jobs(g)->membership.state, JOB_RUNNING);
}

TEST(a_second_connection_of_a_node_takes_the_place_of_the_first)
{
    struct msg m = { .type = MSG_RESUME };

    run_job();
    greet_registry(2, PEER_AGENT);
    strcpy(m.resume.run_id, "resnet");
    m.resume.incarnation = (struct id128){ { 1, 9, 9 } };
    m.instance = registry_jobs(g)->membership.instance;
    send_to_registry(2, &m);
    ck_assert_ptr_nonnull(message_got(2, MSG_JOINED));
    ck_assert_ptr_nonnull(message_got(2, MSG_START));
    ck_assert(link_of[0].hung_up);
    registry_disconnect(g, link_of[0].peer, now);
    link_of[0].peer = NULL;
    ck_assert_uint_eq(registry_jobs(g)->membership.tally.disconnected, 0);
}

/* -- crunctl ---------------------------------------------------------------- */

TEST(status_shows_jobs_and_nodes)
{
    struct msg m = { .type = MSG_STATUS };
    unsigned nodes = 0;

    run_job();
    greet_registry(4, PEER_CTL);
    send_to_registry(4, &m);
    ck_assert_str_eq(message_got(4, MSG_JOB_STATUS)->job_status.run_id, "resnet");
    ck_assert_ptr_null(message_got(4, MSG_NODE_STATUS));
    strcpy(m.status.run_id, "resnet");
    send_to_registry(4, &m);
    ck_assert_int_eq(message_got(4, MSG_JOB_STATUS)->job_status.state, JOB_RUNNING);
    ck_assert_uint_eq(message_got(4, MSG_JOB_STATUS)->job_status.workers, 4);
    for (unsigned i = 0; i < link_of[4].count; i++)
        nodes += link_of[4].got[i].type == MSG_NODE_STATUS;
    ck_assert_uint_eq(nodes, 2);
    ck_assert_int_eq(message_got(4, MSG_NODE_STATUS)->node_status.state, NODE_RUNNING);
    ck_assert_int_eq(link_of[4].got[link_of[4].count - 1].type, MSG_END_OF_LIST);
    strcpy(m.status.run_id, "nosuch");
    send_to_registry(4, &m);
    refusal_got(4, REFUSED_UNKNOWN, "no job \"nosuch\"");
}

TEST(a_containment_that_is_not_as_joined_any_more_is_told)
{
    struct msg m = { .type = MSG_STATUS, .status.run_id = "resnet" };
    struct msg beat = { .type = MSG_HEARTBEAT, .heartbeat.containment = "session" };
    const struct msg_node_status *status;

    run_job();
    send_to_registry(0, &beat);
    greet_registry(4, PEER_CTL);
    send_to_registry(4, &m);
    status = &message_got(4, MSG_NODE_STATUS)->node_status;
    ck_assert_str_eq(status->containment, "session");
    ck_assert_str_eq(status->progress.containment, "");
}

static void beat_at_step(unsigned c, uint64_t epoch, uint64_t step)
{
    struct msg beat = { .type = MSG_HEARTBEAT,
                        .epoch = epoch,
                        .heartbeat = { .step = step, .loss = "0.5" } };

    ck_assert_int_eq(send_to_registry(c, &beat), 0);
}

static void step_shown(uint64_t step, const char *loss)
{
    struct msg ask = { .type = MSG_STATUS, .status.run_id = "resnet" };
    const struct msg_node_status *status;

    ck_assert_int_eq(send_to_registry(4, &ask), 0);
    status = &message_got(4, MSG_NODE_STATUS)->node_status;
    ck_assert_uint_eq(status->progress.step, step);
    ck_assert_str_eq(status->progress.loss, loss);
}

TEST(a_new_epoch_shows_no_step_of_the_one_before)
{
    run_job();
    greet_registry(4, PEER_CTL);
    beat_at_step(0, 1, 20);
    report_event(1, MSG_FAILED);
    report_event(0, MSG_STOPPED);
    step_shown(20, "0.5");
    report_event(1, MSG_STOPPED);
    step_shown(0, "");
    beat_at_step(0, 1, 20); /* sent before it heard of the new epoch */
    step_shown(0, "");
    beat_at_step(0, 2, 11);
    step_shown(11, "0.5");
}

static void beat_with_work(unsigned c, uint32_t busy, uint32_t usual_busy)
{
    struct msg beat = { .type = MSG_HEARTBEAT,
                        .heartbeat = { .busy = busy, .usual_busy = usual_busy } };

    ck_assert_int_eq(send_to_registry(c, &beat), 0);
}

static void slowness_shown(uint32_t first, uint32_t second)
{
    struct msg ask = { .type = MSG_STATUS, .status.run_id = "resnet" };
    uint32_t expected[2] = { first, second };
    unsigned nodes = 0;

    ck_assert_int_eq(send_to_registry(4, &ask), 0);
    for (unsigned i = 0; i < link_of[4].count; i++)
        if (link_of[4].got[i].type == MSG_NODE_STATUS)
            ck_assert_uint_eq(link_of[4].got[i].node_status.slowness,
                              expected[nodes++]);
    ck_assert_uint_eq(nodes, 2);
}

TEST(a_node_whose_ranks_wait_less_than_the_others_is_slow)
{
    run_job();
    greet_registry(4, PEER_CTL);
    slowness_shown(0, 0);
    beat_with_work(0, 900, 850);
    slowness_shown(106, 0);
    now += 1000;
    beat_with_work(1, 450, 300);
    slowness_shown(300, 150);
}

TEST(events_are_told_and_followed)
{
    struct msg m = { .type = MSG_EVENTS, .events = { .follow = true } };

    join_node(0);
    greet_registry(4, PEER_CTL);
    send_to_registry(4, &m);
    ck_assert_str_eq(message_got(4, MSG_EVENT)->event.kind, "joined");
    ck_assert_uint_eq(message_got(4, MSG_END_OF_LIST)->end_of_list.next, 1);
    link_of[4].count = 0;
    join_node(1);
    ck_assert_str_eq(link_of[4].got[0].event.kind, "joined");
    ck_assert_str_eq(link_of[4].got[1].event.kind, "formed");
}

static void join_elastic(unsigned c)
{
    struct msg m = join_message(c, "resnet");

    m.join.config.min_nodes = 1;
    m.join.config.max_nodes = 3;
    m.join.config.quarantine = 1;
    greet_registry(c, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

TEST(a_node_in_quarantine_is_not_told_as_joined)
{
    join_elastic(0);
    join_elastic(1);
    pass_ticks(1100);
    report_event(0, MSG_STORE_READY);
    report_event(1, MSG_FAILED);
    report_event(1, MSG_STOPPED);
    report_event(0, MSG_STOPPED);
    ck_assert_uint_eq(registry_jobs(g)->membership.group_size, 1);
    report_event(0, MSG_STORE_READY);
    join_elastic(2);
    ck_assert_str_eq(message_got(0, MSG_STOP)->stop.text, "node-2 has joined");
}

TEST(no_host_goes_into_quarantine_for_what_another_does_in_its_name)
{
    struct msg m = join_message(1, "resnet");

    strcpy(m.join.address, "10.0.0.7"); /* as it claims */
    for (unsigned c = 0; c < 2; c++) {  /* from 10.0.0.1 and 10.0.0.2 */
        greet_registry(c, PEER_AGENT);
        m.join.incarnation.byte[15]++;
        ck_assert_int_eq(send_to_registry(c, &m), 0);
        ck_assert_ptr_nonnull(message_got(c, MSG_JOINED));
    }
    ck_assert_uint_ne(registry_jobs(g)->membership.node[0].identity,
                      registry_jobs(g)->membership.node[1].identity);
}

TEST(an_operator_stops_and_drains)
{
    struct msg drain = { .type = MSG_DRAIN }, stop = { .type = MSG_STOP_JOB };

    run_job();
    join_node(2); /* a spare */
    greet_registry(4, PEER_CTL);
    strcpy(drain.drain.node, "node-9");
    send_to_registry(4, &drain);
    refusal_got(4, REFUSED_UNKNOWN, "no node \"node-9\"");
    strcpy(drain.drain.node, "1"); /* a slot */
    send_to_registry(4, &drain);
    ck_assert_str_eq(message_got(4, MSG_ACK)->ack.text,
                     "node-1 (slot 1, ranks 2 to 3) leaves when the workers have "
                     "written a checkpoint");
    ck_assert_int_eq(message_got(0, MSG_ASK_CHECKPOINT)->ask_checkpoint.cause,
                     JOB_CAUSE_DRAIN);
    ck_assert_uint_eq(message_got(0, MSG_ASK_CHECKPOINT)->ask_checkpoint.within_ms,
                      30000);
    report_event(0, MSG_CHECKPOINTED);
    report_event(1, MSG_CHECKPOINTED);
    ck_assert_int_eq(message_got(1, MSG_STOP)->stop.cause, JOB_CAUSE_DRAIN);
    report_event(0, MSG_STOPPED);
    report_event(1, MSG_STOPPED);
    ck_assert_int_eq(message_got(1, MSG_DONE)->done.reason, JOB_REASON_RELEASED);
    strcpy(drain.drain.node, "node-0");
    send_to_registry(4, &drain);
    refusal_got(4, REFUSED_MIN, "fewer than 2 nodes");
    send_to_registry(4, &stop);
    ck_assert_str_eq(message_got(4, MSG_ACK)->ack.text, "resnet: stopping");
    ck_assert_int_eq(message_got(0, MSG_STOP)->stop.cause, JOB_CAUSE_USER);
}
