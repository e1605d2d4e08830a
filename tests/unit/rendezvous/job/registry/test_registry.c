/* SPDX-License-Identifier: MIT */
/*
 * The registry decides which nodes join a job, what it sends to nodes and users, and
 * what survives a restart of the daemon.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/wire/protocol/proto_fields.h"
#include "tests/fakes/disk/memdisk.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

/* -- a second job of the same name ------------------------------------------- */

static bool moved_elsewhere;

static void on_elsewhere(void *arg, const char *endpoints)
{
    ck_assert_str_eq(endpoints, "10.0.0.9:29400");
    moved_elsewhere = true;
}

static void begin_in_a_node(void)
{
    moved_elsewhere = false;
    begin_registry_as((struct registry_config){ .elsewhere = on_elsewhere });
}

static void knock(unsigned c, const char *run_id, uint8_t instance)
{
    struct msg m = { .type = MSG_ELSEWHERE, .instance = { { instance } } };

    greet_registry(c, PEER_AGENT);
    snprintf(m.elsewhere.run_id, sizeof(m.elsewhere.run_id), "%s", run_id);
    snprintf(m.elsewhere.endpoints, sizeof(m.elsewhere.endpoints), "10.0.0.9:29400");
    snprintf(m.elsewhere.arguments_hash, sizeof(m.elsewhere.arguments_hash), "other");
    if (instance == 0)
        m.instance = registry_jobs(g)->membership.instance;
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

FIXTURE(begin_in_a_node, end_registry);

TEST(a_job_that_waits_where_another_runs_moves_there)
{
    join_node(0);
    link_of[0].count = 0;
    knock(2, "resnet", 7);
    ck_assert_ptr_nonnull(message_got(2, MSG_ACK));
    ck_assert(moved_elsewhere);
    ck_assert_ptr_nonnull(message_got(0, MSG_KEEPERS)); /* its nodes, too */
    ck_assert(message_got(0, MSG_KEEPERS)->keepers.anew);
}

TEST(a_second_job_ends_where_it_has_formed_already)
{
    run_job();
    knock(2, "resnet", 0); /* the same one */
    refusal_got(2, REFUSED_UNKNOWN, "no such job");
    ck_assert_int_eq(registry_jobs(g)->membership.state, JOB_RUNNING);
    link_of[0].count = 0;
    knock(3, "resnet", 7);
    ck_assert(!moved_elsewhere);
    ck_assert_ptr_nonnull(message_got(3, MSG_ACK));
    ck_assert_ptr_nonnull(message_got(0, MSG_STOP));
    ck_assert_uint_eq(message_got(0, MSG_STOP)->stop.grace_ms, 0);
    report_event(0, MSG_STOPPED);
    report_event(1, MSG_STOPPED);
    ck_assert_int_eq(message_got(1, MSG_DONE)->done.exit_code, 75);
}

TEST(a_job_of_the_default_name_and_other_arguments_is_another)
{
    struct msg m = join_message(0, RUN_ID_DEFAULT);

    greet_registry(0, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(0, &m), 0);
    knock(2, RUN_ID_DEFAULT, 7);
    refusal_got(2, REFUSED_UNKNOWN, "no such job");
    ck_assert(!moved_elsewhere);
}

/* -- hello and join --------------------------------------------------------- */

static void begin_standalone(void)
{
    begin_registry(true);
}

FIXTURE(begin_standalone, end_registry);

TEST(a_foreign_version_is_told_both_ranges)
{
    struct msg m = { .type = MSG_HELLO,
                     .hello = { .version_min = 7, .version_max = 9 } };

    connect_to_registry(0, "10.0.0.1");
    ck_assert_int_eq(send_to_registry(0, &m), 0);
    refusal_got(0, REFUSED_VERSION, "7 to 9");
    refusal_got(0, REFUSED_VERSION, "3 to 3");
    ck_assert(link_of[0].hung_up);
}

TEST(a_peer_without_a_key_is_not_even_told_the_version)
{
    const struct peer_origin nobody = { .address = "10.0.0.1",
                                        .uid = PEER_UID_UNKNOWN };
    struct msg m = { .type = MSG_HELLO,
                     .hello = {
                         .version_min = 1, .version_max = 9, .role = PEER_CTL } };

    connect_to_registry_as(0, &nobody);
    ck_assert_int_eq(send_to_registry(0, &m), -1);
    ck_assert_uint_eq(link_of[0].count, 0);
    registry_identify(link_of[0].peer, ACCESS_VIEW, "0123456789abcdef", NULL);
    ck_assert_int_eq(send_to_registry(0, &m), 0);
    ck_assert_ptr_nonnull(message_got(0, MSG_WELCOME));
}

TEST(a_message_out_of_turn_breaks_the_protocol)
{
    struct msg m = { .type = MSG_HEARTBEAT };

    greet_registry(0, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(0, &m), -1);
}

TEST(a_message_of_another_launch_breaks_the_protocol)
{
    struct msg m = { .type = MSG_FAILED,
                     .epoch = 1,
                     .instance = { { 0xee } },
                     .failed = { .kind = FAILURE_EXIT, .code = 1 } };

    run_job();
    ck_assert_int_eq(send_to_registry(0, &m), -1);
    ck_assert_int_eq(registry_jobs(g)->membership.state, JOB_RUNNING);
}

TEST(a_full_job_is_told_its_ranks)
{
    const struct msg *m;

    join_node(0);
    ck_assert_ptr_null(message_got(0, MSG_START));
    link_of[0].count = 0;
    join_node(1);
    m = message_got(0, MSG_START);
    ck_assert_ptr_nonnull(m);
    ck_assert(m->start.host_store);
    ck_assert_uint_eq(m->start.world_size, 4);
    ck_assert_uint_eq(m->epoch, 1);
    ck_assert_str_eq(message_got(0, MSG_MEMBERS)->members.addresses,
                     "10.0.0.1 10.0.0.2");
    ck_assert(message_got(0, MSG_MEMBERS) <
              m); /* it knows whom to let in before they can come */
    ck_assert_ptr_null(message_got(1, MSG_START));
    link_of[1].count = 0;
    report_event(0, MSG_STORE_READY);
    m = message_got(1, MSG_START);
    ck_assert_ptr_nonnull(m);
    ck_assert_str_eq(m->start.address, "10.0.0.1");
    ck_assert_uint_eq(m->start.port, 1234);
    ck_assert_uint_eq(m->start.first_rank, 2);
}

static void join_from(unsigned c, const char *host, const char *name)
{
    struct msg m = join_message(c, "resnet");

    m.join.config.max_nodes = 5;
    snprintf(m.join.host, sizeof(m.join.host), "%s", host);
    greet_registry(c, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
    ck_assert_ptr_nonnull(message_got(c, MSG_JOINED));
    ck_assert_str_eq(message_got(c, MSG_JOINED)->joined.host, name);
}

TEST(nodes_of_one_host_have_names_of_their_own)
{
    char host[HOST_NAME_MAX_BYTES + 1] = "";
    struct msg m = { .type = MSG_DRAIN, .drain = { .node = "vm:1" } };

    join_from(0, "vm", "vm");
    join_from(1, "vm", "vm:1");
    memset(host, 'x', sizeof(host) - 1);
    join_from(2, host, host);
    memcpy(host + sizeof(host) - sizeof(":4294967295"), ":3", sizeof(":3"));
    join_from(3, link_of[2].got[0].joined.host, host);
    greet_registry(5, PEER_CTL);
    ck_assert_int_eq(send_to_registry(5, &m), 0);
    ck_assert_ptr_nonnull(strstr(message_got(5, MSG_ACK)->ack.text, "vm:1"));
    registry_disconnect(g, link_of[0].peer, now);
    link_of[0].peer = NULL;
    join_from(4, "vm", "vm"); /* it has come back, or no other node has that name */
}

static void join_as(unsigned c, const char *role)
{
    struct msg m = join_message(c, "resnet");

    m.join.config.min_nodes = m.join.config.max_nodes = 5;
    m.join.workers = c + 1;
    snprintf(m.join.role, sizeof(m.join.role), "%s", role);
    greet_registry(c, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

static void start_is(unsigned c, uint32_t first_rank, uint32_t role_first_rank,
                     uint32_t role_world_size)
{
    const struct msg *m = message_got(c, MSG_START);

    ck_assert_ptr_nonnull(m);
    ck_assert_uint_eq(m->start.first_rank, first_rank);
    ck_assert_str_eq(m->start.free_ports, m->start.host_store ? "" : "=4321 api=4322");
    ck_assert_uint_eq(m->start.role_first_rank, role_first_rank);
    ck_assert_uint_eq(m->start.role_world_size, role_world_size);
    ck_assert_uint_eq(m->start.world_size, 15);
}

TEST(ranks_of_a_role_are_counted_among_its_nodes)
{
    static const char *const role[] = { "trainer", "", "trainer", "reader", "default" };

    for (unsigned c = 0; c < 5; c++)
        join_as(c, role[c]);
    start_is(0, 0, 0, 4);
    report_event(0, MSG_STORE_READY);
    start_is(1, 1, 0, 7);
    start_is(2, 3, 1, 4);
    start_is(3, 6, 0, 4);
    start_is(4, 10, 2, 7);
}

TEST(what_cannot_be_a_member_is_told_why)
{
    struct msg m;

    join_node(0);
    for (unsigned c = 1; c < 6; c++)
        greet_registry(c, PEER_AGENT);
    m = join_message(1, "none");
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_RUN_ID, "--rdzv-id");
    m = join_message(1, "resnet");
    m.join.config.max_restarts = 3;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG, "--max-restarts is 1 in the job and 3 here");
    m = join_message(1, "resnet");
    strcpy(m.join.config.program, "eval.py");
    strcpy(m.join.config.arguments_hash, "def");
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG, "train.py in the job and eval.py here");
    m = join_message(1, "resnet");
    m.join.config.min_nodes = 3;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG, "minimum is above the maximum");
    m = join_message(1, "resnet");
    m.join.node_rank = 2;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_SLOT, "0 to 1");
    m = join_message(1, "resnet");
    m.join.workers = 0;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG, "0 workers");
    ck_assert_uint_eq(registry_jobs(g)->membership.tally.live, 1);
}

TEST(a_programs_name_may_be_lost_on_its_way)
{
    struct msg m = join_message(1, "resnet");

    join_node(0);
    greet_registry(1, PEER_AGENT);
    strcpy(m.join.config.program, "tr?in.py"); /* it was not UTF-8 */
    send_to_registry(1, &m);
    ck_assert_ptr_nonnull(message_got(1, MSG_JOINED));
}

/* The second connection asks for the place that the first has. */
static const struct msg_refused *ask_for_a_taken_place(unsigned c)
{
    struct msg m = join_message(c, "resnet");

    m.join.node_rank = 1;
    send_to_registry(c, &m);
    return &refusal_got(c, REFUSED_SLOT, "taken by node-0 (pid 100)")->refused;
}

static void take_a_place(void)
{
    struct msg m = join_message(0, "resnet");

    for (unsigned c = 0; c < 3; c++)
        greet_registry(c, PEER_AGENT);
    m.join.node_rank = 1;
    send_to_registry(0, &m);
}

TEST(a_node_rank_of_a_node_that_is_heard_is_taken)
{
    struct msg beat = { .type = MSG_HEARTBEAT };

    take_a_place();
    ck_assert(ask_for_a_taken_place(1)->retry); /* it may have died just now */
    pass_ticks(500);
    ck_assert(ask_for_a_taken_place(1)->retry);
    ck_assert_int_eq(send_to_registry(0, &beat), 0);
    ck_assert(!ask_for_a_taken_place(1)->retry);
    ck_assert(ask_for_a_taken_place(2)->retry); /* it may have died since */
    pass_ticks(100);
    ck_assert_int_eq(send_to_registry(0, &beat), 0);
    pass_ticks(100);
    ck_assert(!ask_for_a_taken_place(2)->retry);
}

TEST(a_node_rank_of_a_lost_node_is_free)
{
    struct msg m = join_message(1, "resnet");

    take_a_place();
    ck_assert(ask_for_a_taken_place(1)->retry);
    pass_ticks(3100);
    m.join.node_rank = 1;
    send_to_registry(1, &m);
    ck_assert_ptr_nonnull(message_got(1, MSG_JOINED));
}

TEST(a_node_that_asked_for_a_node_rank_long_ago_has_given_up)
{
    struct msg beat = { .type = MSG_HEARTBEAT };

    take_a_place();
    ck_assert(ask_for_a_taken_place(1)->retry);
    for (int i = 0; i < 30; i++) {
        pass_ticks(600);
        ck_assert_int_eq(send_to_registry(0, &beat), 0);
    }
    ck_assert(ask_for_a_taken_place(2)->retry);
}

static void begin_embedded(void)
{
    begin_registry(false);
}

FIXTURE(begin_embedded, end_registry);

TEST(an_embedded_rendezvous_serves_one_job_of_any_name)
{
    struct msg m;

    greet_registry(0, PEER_AGENT);
    m = join_message(0, "none");
    send_to_registry(0, &m);
    ck_assert_ptr_nonnull(message_got(0, MSG_JOINED));
    greet_registry(1, PEER_AGENT);
    m = join_message(1, "other");
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_RUN_ID, "serves job \"train\"");
}

TEST(rank_0_on_another_node_is_told_of_the_host)
{
    struct msg m = join_message(1, "resnet");

    connect_to_registry(0, "");
    join_node(0);
    greet_registry(1, PEER_AGENT);
    m.join.node_rank = 0;
    send_to_registry(1, &m);
    ck_assert(message_got(1, MSG_START)->start.host_store);
    ck_assert_str_eq(message_got(1, MSG_MEMBERS)->members.addresses,
                     "10.0.0.2 rendezvous");
}

FIXTURE(NULL, NULL);

TEST(an_embedded_rendezvous_knows_its_job_before_the_first_join)
{
    struct msg m = join_message(1, "resnet");

    begin_registry_as(
        (struct registry_config){ .run_id = "resnet", .job = &m.join.config });
    registry_tick(g, now + 5000, now);
    ck_assert_ptr_nonnull(registry_jobs(g));
    greet_registry(1, PEER_AGENT);
    m.join.config.max_restarts++;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG, "--max-restarts");
    end_registry();
}

FIXTURE(begin_standalone, end_registry);

TEST(an_empty_first_forming_is_forgotten)
{
    join_node(0);
    registry_disconnect(g, link_of[0].peer, now);
    link_of[0].peer = NULL;
    link_of[0].peer = NULL;
    for (int i = 0; i < 100; i++)
        registry_tick(g, now + 50u * (unsigned)i, now);
    ck_assert_ptr_null(registry_jobs(g));
}

/* -- messages to nodes and users -------------------------------------------- */

TEST(a_join_that_cannot_be_read_is_answered)
{
    struct msg m = { .type = MSG_JOIN, .sequence = 5 };

    greet_registry(0, PEER_AGENT);
    link_of[0].count = 0;
    ck_assert(registry_unreadable(g, link_of[0].peer, &m, "JOIN: host is missing"));
    ck_assert_uint_eq(
        refusal_got(0, REFUSED_MALFORMED, "JOIN: host is missing")->sequence, 5);
    m.type = MSG_RESUME;
    ck_assert(!registry_unreadable(g, link_of[0].peer, &m, "x"));
    greet_registry(1, PEER_CTL);
    m.type = MSG_JOIN;
    ck_assert(!registry_unreadable(g, link_of[1].peer, &m, "x"));
}

FIXTURE(NULL, NULL);

TEST(nodes_differ_if_any_setting_does)
{
    const struct job_config ours = { .limit_spares = true };
    char why[ERROR_TEXT_MAX_BYTES + 1];

    ck_assert_ptr_null(job_config_difference(&ours, &ours, why, sizeof(why)));
    for (unsigned i = 0; i < proto_job_config.count; i++) {
        const struct proto_field *f = &proto_job_config.field[i];
        struct job_config theirs = ours;

        const char *name;

        if (!f->setting)
            continue;
        snprintf(theirs.arguments_hash, sizeof(theirs.arguments_hash), "others");
        ((char *)&theirs)[f->offset] = 1;
        name = job_config_difference(&ours, &theirs, why, sizeof(why));
        if (strcmp(f->name, "last_call_ms") == 0) { /* is the first node's */
            ck_assert_ptr_null(name);
            continue;
        }
        ck_assert_str_eq(name, strcmp(f->name + 3, "_nodes") == 0 ? "--nnodes"
                                                                  : f->setting->name);
        ck_assert_msg(strncmp(why, name, strlen(name)) == 0, "%s: \"%s\"", f->name,
                      why);
    }
}

FIXTURE(begin_standalone, end_registry);

TEST(a_node_that_waits_is_told_of_a_refused_one)
{
    struct msg m = join_message(1, "resnet"), beat = { .type = MSG_HEARTBEAT };

    join_node(0);
    greet_registry(1, PEER_AGENT);
    m.join.config.spares = 2;
    m.join.config.limit_spares = true;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG, "--spares is not given in the job and 2 here");
    send_to_registry(0, &beat);
    ck_assert_str_eq(
        message_got(0, MSG_BEAT)->beat.refused,
        "node-1 (pid 101, 10.0.0.2) was refused: job \"resnet\" runs with another "
        "configuration: --spares is not given in the job and 2 here");
    m.join.config = join_message(1, "").join.config;
    m.join.config.preflight = true;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG,
                "--preflight is not given in the job and given here");
    m.join.config = join_message(1, "").join.config;
    strcpy(m.join.config.no_restart_on, "2");
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG,
                "--no-restart-on is not given in the job and 2 here");
    m = join_message(1, "resnet");
    send_to_registry(1, &m);
    report_event(0, MSG_STORE_READY);
    send_to_registry(0, &beat);
    ck_assert_str_eq(message_got(0, MSG_BEAT)->beat.refused, "");
}

/* Each row: what the job's first node says of itself, what the second one says, and the
 * words of the refusal, or NULL. */
static const struct meeting {
    const char *run_id;
    struct saying {
        const char *user, *uid, *batch_job, *arguments, *key;
    } first, second;
    const char *words;
} meetings[] = {
    { "none", { "alice", "1", "", "a", "" }, { "alice", "1", "", "a", "" }, NULL },
    { "none", { "", "", "", "a", "" }, { "bob", "2", "Slurm job 2", "a", "" }, NULL },
    { "none",
      { "alice", "1", "Slurm job 26", "a", "" },
      { "bob", "2", "Slurm job 26", "a", "" },
      "serves job \"train\" of user alice, Slurm job 26, started " },
    { "none",
      { "alice", "1", "", "a", "" },
      { "bob", "2", "", "a", "" },
      "this node is of user bob" },
    { "job",
      { "alice", "1", "", "a", "" },
      { "", "2", "", "a", "" },
      "this node is of uid 2" },
    /* one user, with another number, or without a name in a container */
    { "none", { "alice", "1", "", "a", "" }, { "alice", "2", "", "a", "" }, NULL },
    { "none", { "alice", "1", "", "a", "" }, { "", "1", "", "a", "" }, NULL },
    /* two users who share a key */
    { "none", { "alice", "1", "", "a", "k1" }, { "bob", "2", "", "a", "k1" }, NULL },
    { "none",
      { "alice", "1", "Slurm job 26", "a", "" },
      { "alice", "1", "Slurm job 27", "a", "" },
      "this node is of Slurm job 27" },
    { "none",
      { "alice", "1", "Slurm job 26", "a", "" },
      { "alice", "1", "", "a", "" },
      NULL }, /* started by ssh from the batch script */
    { "none",
      { "alice", "1", "", "a", "" },
      { "alice", "1", "", "b", "" },
      "this node has other arguments for train.py" },
    /* a name that both were given says that they belong together */
    { "job",
      { "alice", "1", "Slurm job 26", "a", "" },
      { "alice", "1", "Slurm job 27", "b", "" },
      NULL },
};

static struct msg meeting_join(unsigned c, const char *run_id, const struct saying *s)
{
    struct peer_origin origin = { "10.0.0.9", PEER_UID_UNKNOWN, ACCESS_AGENT, s->key,
                                  NULL };
    struct msg m;

    connect_to_registry_as(c, &origin);
    m = (struct msg){ .type = MSG_HELLO,
                      .hello = { .version_min = 1,
                                 .version_max = PROTO_VERSION_MAX,
                                 .role = PEER_AGENT } };
    send_to_registry(c, &m);
    m = join_message(c, run_id);
    strcpy(m.join.config.user, s->user);
    strcpy(m.join.config.uid, s->uid);
    strcpy(m.join.config.batch_job, s->batch_job);
    strcpy(m.join.config.arguments_hash, s->arguments);
    return m;
}

TEST_EACH(nodes_of_two_jobs_are_not_merged, meetings)
{
    const struct meeting *t = &meetings[_i];
    struct msg m;

    end_registry();
    begin_registry(false);
    m = meeting_join(0, t->run_id, &t->first);
    send_to_registry(0, &m);
    ck_assert_ptr_nonnull(message_got(0, MSG_JOINED));
    m = meeting_join(1, t->run_id, &t->second);
    send_to_registry(1, &m);
    if (t->words)
        refusal_got(1, REFUSED_RUN_ID, t->words);
    else
        ck_assert_ptr_nonnull(message_got(1, MSG_JOINED));
}

TEST(one_node_is_told_to_report_the_result)
{
    struct msg stop = { .type = MSG_STOP_JOB };

    run_job();
    greet_registry(2, PEER_CTL);
    link_of[0].count = link_of[1].count = 0;
    send_to_registry(2, &stop);
    report_event(0, MSG_STOPPED);
    link_of[0].count = 0;
    report_event(1, MSG_STOPPED);
    ck_assert(message_got(0, MSG_DONE)->done.reports);
    ck_assert(!message_got(1, MSG_DONE)->done.reports);
}

TEST(a_job_whose_nodes_are_lost_has_failed)
{
    const struct job *job;

    run_job();
    pass_ticks(80000); /* without a sign of life: the lease, and the wait for nodes */
    job = registry_jobs(g);
    ck_assert_int_eq(job->membership.state, JOB_DONE);
    ck_assert_int_eq(job->membership.stop.reason, JOB_REASON_LOST);
    ck_assert_int_eq(job->membership.stop.exit_code, 69);
    ck_assert_str_eq(job->text, "all nodes were lost: 0 of 2 nodes had joined again "
                                "after 60 s");
}

TEST(other_arguments_are_told_once)
{
    struct msg m = join_message(1, "resnet");

    join_node(0);
    greet_registry(1, PEER_AGENT);
    strcpy(m.join.config.arguments_hash, "other");
    send_to_registry(1, &m);
    ck_assert_ptr_nonnull(message_got(1, MSG_JOINED));
    ck_assert_str_eq(message_got(0, MSG_NOTICE)->notice.text,
                     "node-1 was started with other arguments for train.py than "
                     "node-0; if that is a mistake, end the job");
    ck_assert_ptr_nonnull(message_got(1, MSG_NOTICE));
    greet_registry(2, PEER_AGENT);
    link_of[0].count = 0;
    m.join.incarnation.byte[0] = 77;
    send_to_registry(2, &m);
    ck_assert_ptr_nonnull(message_got(2, MSG_JOINED));
    ck_assert_ptr_null(message_got(0, MSG_NOTICE));
}

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

/* -- a daemon's death ------------------------------------------------------- */

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

TEST(roles_outlive_the_daemon)
{
    struct msg m = { .type = MSG_RESUME, .resume = { .run_id = "resnet", .node = 2 } };

    for (unsigned c = 0; c < 5; c++)
        join_as(c, c % 2 ? "reader" : "trainer");
    report_event(0, MSG_STORE_READY);
    m.instance = registry_jobs(g)->membership.instance;
    m.resume.incarnation = (struct id128){ { 3, 9, 9 } };
    restart_registry();
    greet_registry(2, PEER_AGENT);
    send_to_registry(2, &m);
    start_is(2, 3, 1, 9);
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
