/* SPDX-License-Identifier: MIT */
/* What the registry sends to nodes and users: refusals, results, other arguments. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/wire/protocol/proto_fields.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

static void begin_standalone(void)
{
    begin_registry(true);
}

FIXTURE(begin_standalone, end_registry);

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
