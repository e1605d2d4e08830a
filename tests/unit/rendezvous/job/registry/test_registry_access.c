/* SPDX-License-Identifier: MIT */
/* takes: 10 s */
/*
 * Who may send what to a registry, who is told what, and whose jobs are whose: every
 * message, sent by every kind of peer to a running job.
 */
#include <check.h>
#include <string.h>

#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto_fields.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/proto_fill.h"
#include "tests/worlds/registry_world.h"

#define ACTOR 4       /* its connection */
#define ITS_PARTNER 5 /* the second node of its own job */

enum actor { STRANGER, VIEW, OPERATE, AGENT, OTHER_JOB, OTHER_KEY, ACTORS };

static const struct peer_origin origins[ACTORS] = {
    [STRANGER] = { "10.0.0.9", PEER_UID_UNKNOWN, ACCESS_NONE, NULL, NULL },
    [VIEW] = { "10.0.0.9", PEER_UID_UNKNOWN, ACCESS_VIEW, "k1", "team" },
    [OPERATE] = { "10.0.0.9", PEER_UID_UNKNOWN, ACCESS_OPERATE, "k1", "team" },
    [AGENT] = { "10.0.0.9", PEER_UID_UNKNOWN, ACCESS_AGENT, "k1", "team" },
    [OTHER_JOB] = { "10.0.0.9", PEER_UID_UNKNOWN, ACCESS_AGENT, "k1", "team" },
    [OTHER_KEY] = { "10.0.0.9", PEER_UID_UNKNOWN, ACCESS_AGENT, "k2", "rivals" },
};

/*
 * For each actor in turn: T, the message is taken; a, it is refused because of its
 * access; n, its job, or its node in it, is said not to exist; C, the connection ends.
 */
static const char *const expected[MSG_TYPE_MAX] = {
    [MSG_HELLO] = "CTTTTT",        [MSG_JOIN] = "CaaTTT",
    [MSG_RESUME] = "CaaTnn",       [MSG_HEARTBEAT] = "CCCTCC",
    [MSG_STORE_READY] = "CCCTCC",  [MSG_FAILED] = "CCCTCC",
    [MSG_FINISHED] = "CCCTCC",     [MSG_STOPPED] = "CCCTCC",
    [MSG_CHECKPOINTED] = "CCCTCC", [MSG_LEAVE] = "CCCTCC",
    [MSG_END] = "CCCTCC",          [MSG_BYE] = "CCCTCC",
    [MSG_NOTE] = "CCCTCC",         [MSG_STACKS] = "CCCTCC",
    [MSG_ASK_OWNERS] = "CCCTCC",   [MSG_OWNERS] = "CCCTCC",
    [MSG_STATUS] = "CTTTTn",       [MSG_EVENTS] = "CTTTTn",
    [MSG_STOP_JOB] = "CaTTTn",     [MSG_DRAIN] = "CaTTTn",
    [MSG_SHOW_STACKS] = "CaTTTn",  [MSG_SHOW_LOGS] = "CaTTTn",
    [MSG_LOGS] = "CCCTCC",         [MSG_ASK_PAGE] = "CTTTTn",
    [MSG_SHOW_HISTORY] = "CTTTTn", [MSG_KEEPING] = "CCCTCC",
    [MSG_ELSEWHERE] = "Caannn",    [MSG_REPLICATE] = "CCCCCC", /* this job has none */
    [MSG_CLAIM] = "CaaTTT",        [MSG_FLUSHED] = "CCCTCC",
    [MSG_FLUSH_JOB] = "CaTTTn",
};

static void greet_as(unsigned c, const struct peer_origin *origin, enum peer_kind role)
{
    struct msg m = { .type = MSG_HELLO,
                     .hello = { .version_min = 1, .version_max = PROTO_VERSION_MAX } };

    m.hello.role = role;
    connect_to_registry_as(c, origin);
    (void)!send_to_registry(c, &m); /* not taken from a stranger */
}

static void join_as(unsigned c, const struct peer_origin *origin, const char *run_id)
{
    struct msg m = join_message(c, run_id);

    greet_as(c, origin, PEER_AGENT);
    (void)!send_to_registry(c, &m);
}

/* The job "resnet" of the team runs on the connections 0 and 1. */
static void run_the_teams_job(void)
{
    begin_registry(true);
    connect_to_registry_as(0, &origins[AGENT]);
    connect_to_registry_as(1, &origins[AGENT]);
    run_job();
}

static const struct job *teams_job(void)
{
    const struct job *job = registry_jobs(g);

    while (job && strcmp(job->owner.key_file, "team") != 0 &&
           strcmp(job->run_id, "resnet") != 0)
        job = job->next;
    return job;
}

/* In a phase in which the message could be taken. Returns the connection. */
static unsigned place_actor(enum actor actor, unsigned type)
{
    if (proto_allowed(type, PROTO_NEW))
        connect_to_registry_as(ACTOR, &origins[actor]);
    else if (proto_allowed(type, PROTO_CTL))
        greet_as(ACTOR, &origins[actor], PEER_CTL);
    else if (proto_allowed(type, PROTO_AGENT))
        greet_as(ACTOR, &origins[actor], PEER_AGENT);
    else if (proto_allowed(type, PROTO_REPLICA))
        greet_as(ACTOR, &origins[actor], PEER_REPLICA);
    else if (actor == AGENT)
        return 0;
    else {
        join_as(ACTOR, &origins[actor], "other");
        join_as(ITS_PARTNER, &origins[actor], "other");
    }
    return ACTOR;
}

/* What crunctl sends names the job. */
static void name_the_teams_job(struct msg *m)
{
    const struct proto_table *body = &proto_messages[m->type].body;

    for (unsigned i = 0; i < body->count; i++)
        if (strcmp(body->field[i].name, "run_id") == 0)
            strcpy((char *)&m->nothing + body->field[i].offset, "resnet");
}

static struct msg message_to_the_teams_job(unsigned type, enum actor actor)
{
    struct msg m;

    proto_fill(&m, type, PROTO_FILL_MIN);
    m.epoch = 1;
    m.instance = link_of[0].instance;
    name_the_teams_job(&m);
    if (type == MSG_HELLO) {
        m.hello.version_max = PROTO_VERSION_MAX;
        m.hello.role = PEER_CTL;
    } else if (type == MSG_JOIN) {
        m = join_message(ACTOR, "resnet");
    } else if (type == MSG_RESUME) {
        m.resume.node = 0;
        m.resume.incarnation = join_message(actor == AGENT ? 0 : ACTOR, "x")
                                   .join.incarnation;
        if (actor == OTHER_KEY) /* all that can be stolen */
            m.resume.incarnation = join_message(0, "x").join.incarnation;
    } else if (type == MSG_DRAIN) {
        strcpy(m.drain.node, "node-0");
    } else if (type == MSG_SHOW_LOGS) {
        strcpy(m.ask_logs.ranks, "0");
    } else if (type == MSG_NOTE) {
        m.note.kind = NOTE_RANK;
    }
    return m;
}

static char outcome(int rc, unsigned c)
{
    const struct msg *refused = message_got(c, MSG_REFUSED);

    if (rc < 0)
        return 'C';
    if (!refused)
        return 'T';
    switch (refused->refused.why) {
    case REFUSED_ACCESS:
        return 'a';
    case REFUSED_FENCED:
    case REFUSED_UNKNOWN:
        return 'n';
    default: /* the job's own reasons: it was taken */
        return 'T';
    }
}

static void end(void)
{
    if (g)
        end_registry_on_disk();
}

FIXTURE(NULL, end);

TEST_LOOP(each_message_is_taken_from_those_who_may_send_it, 0, MSG_TYPE_MAX *ACTORS)
{
    unsigned type = (unsigned)_i / ACTORS, c;
    enum actor actor = (enum actor)((unsigned)_i % ACTORS);
    const struct job *job;
    struct msg m;
    uint32_t live;
    char found;

    if (!proto_name(type) || proto_messages[type].phases == 0)
        return;
    ck_assert_msg(expected[type] != NULL, "%s", proto_name(type));
    run_the_teams_job();
    c = place_actor(actor, type);
    job = teams_job();
    live = job->membership.tally.live;
    m = message_to_the_teams_job(type, actor);
    if (c == 0)
        link_of[0].count = 0;
    found = outcome(send_to_registry(c, &m), c);
    ck_assert_msg(found == expected[type][actor], "%s by actor %d: %c",
                  proto_name(type), actor, found);
    if (found == 'T' && actor != OTHER_KEY)
        return;
    ck_assert_int_eq(job->membership.state, JOB_RUNNING);
    ck_assert_uint_eq(job->membership.tally.live, live);
    ck_assert_uint_eq(job->membership.stop.ending, 0);
}

TEST(a_peer_of_another_key_file_may_have_a_job_of_the_same_name)
{
    const struct job *ours;
    struct msg status = { .type = MSG_STATUS };

    run_the_teams_job();
    ours = teams_job();
    join_as(ACTOR, &origins[OTHER_KEY], "resnet");
    ck_assert_ptr_nonnull(message_got(ACTOR, MSG_JOINED));
    ck_assert_ptr_nonnull(registry_jobs(g)->next);
    ck_assert_uint_eq(ours->membership.tally.live, 2);
    greet_as(ITS_PARTNER, &origins[OTHER_KEY], PEER_CTL);
    ck_assert_int_eq(send_to_registry(ITS_PARTNER, &status), 0);
    ck_assert_uint_eq(link_of[ITS_PARTNER].count, 2); /* one job, end of list */
    ck_assert_uint_eq(message_got(ITS_PARTNER, MSG_JOB_STATUS)->job_status.nodes, 1);
}

TEST(events_reach_only_peers_of_the_jobs_owner)
{
    struct msg events = { .type = MSG_EVENTS, .events = { .follow = true } };
    struct msg stop = { .type = MSG_STOP_JOB };

    run_the_teams_job();
    greet_as(3, &origins[VIEW], PEER_CTL);
    greet_as(ACTOR, &origins[OTHER_KEY], PEER_CTL);
    ck_assert_int_eq(send_to_registry(3, &events), 0);
    ck_assert_int_eq(send_to_registry(ACTOR, &events), 0);
    ck_assert_ptr_nonnull(message_got(3, MSG_EVENT));
    ck_assert_ptr_null(message_got(ACTOR, MSG_EVENT));
    link_of[3].count = link_of[ACTOR].count = 0;
    greet_as(ITS_PARTNER, &origins[OPERATE], PEER_CTL);
    ck_assert_int_eq(send_to_registry(ITS_PARTNER, &stop), 0);
    ck_assert_ptr_nonnull(message_got(3, MSG_EVENT));
    ck_assert_ptr_null(message_got(ACTOR, MSG_EVENT));
}

/* -- users without keys ----------------------------------------------------- */

static struct peer_origin user(uid_t uid)
{
    return (struct peer_origin){ "127.0.0.1", uid, ACCESS_AGENT, NULL, NULL };
}

TEST(a_job_without_a_key_is_its_users_and_roots)
{
    const uid_t who[] = { 1000, 0, 1001 };
    struct msg status = { .type = MSG_STATUS };
    struct peer_origin origin = user(1000);

    begin_registry(true);
    connect_to_registry_as(0, &origin);
    connect_to_registry_as(1, &origin);
    run_job();
    strcpy(status.status.run_id, "resnet");
    for (unsigned i = 0; i < 3; i++) {
        origin = user(who[i]);
        greet_as(2 + i, &origin, PEER_CTL);
        ck_assert_int_eq(send_to_registry(2 + i, &status), 0);
        if (who[i] == 1001)
            refusal_got(2 + i, REFUSED_UNKNOWN, "there is no job");
        else
            ck_assert_ptr_nonnull(message_got(2 + i, MSG_JOB_STATUS));
    }
}

TEST(a_job_is_still_its_owners_after_a_restart)
{
    struct msg status = { .type = MSG_STATUS };

    disk = memdisk_create();
    run_the_teams_job();
    restart_registry();
    greet_as(2, &origins[VIEW], PEER_CTL);
    greet_as(3, &origins[OTHER_KEY], PEER_CTL);
    strcpy(status.status.run_id, "resnet");
    ck_assert_int_eq(send_to_registry(2, &status), 0);
    ck_assert_ptr_nonnull(message_got(2, MSG_JOB_STATUS));
    ck_assert_int_eq(send_to_registry(3, &status), 0);
    refusal_got(3, REFUSED_UNKNOWN, "there is no job");
}

static struct id128 id_in_welcome(unsigned c)
{
    greet_registry(c, PEER_AGENT);
    return message_got(c, MSG_WELCOME)->welcome.rendezvous;
}

TEST(a_rendezvous_keeps_its_id_with_its_journal)
{
    struct id128 id, again;

    begin_registry_on_disk();
    id = id_in_welcome(3);
    ck_assert(!id128_is_zero(&id));
    restart_registry();
    again = id_in_welcome(3);
    ck_assert(id128_equal(&id, &again));
    end_registry();
    memdisk_destroy(disk);
    begin_registry_on_disk();
    again = id_in_welcome(3);
    ck_assert(!id128_equal(&id, &again));
}

/* -- what is shown ---------------------------------------------------------- */

TEST(a_viewer_sees_no_pid_address_or_output)
{
    struct msg status = { .type = MSG_STATUS }, events = { .type = MSG_EVENTS };
    const struct msg *m;

    run_the_teams_job();
    report_event(1, MSG_FAILED);
    strcpy(status.status.run_id, "resnet");
    greet_as(2, &origins[OPERATE], PEER_CTL);
    ck_assert_int_eq(send_to_registry(2, &status), 0);
    m = message_got(2, MSG_NODE_STATUS);
    ck_assert_uint_eq(m->node_status.pid, 100);
    ck_assert_str_ne(m->node_status.address, "");
    ck_assert_str_eq(message_got(2, MSG_JOB_STATUS)->job_status.failure.said,
                     "it broke");
    greet_as(3, &origins[VIEW], PEER_CTL);
    ck_assert_int_eq(send_to_registry(3, &status), 0);
    m = message_got(3, MSG_NODE_STATUS);
    ck_assert_str_eq(m->node_status.host, "node-0");
    ck_assert_uint_eq(m->node_status.pid, 0);
    ck_assert_str_eq(m->node_status.address, "");
    m = message_got(3, MSG_JOB_STATUS);
    ck_assert_str_ne(m->job_status.text, "");
    ck_assert_str_eq(m->job_status.failure.said, "");
    ck_assert(id128_is_zero(&m->job_status.instance));
    ck_assert_int_eq(send_to_registry(3, &events), 0);
    for (unsigned i = 0; i < link_of[3].count; i++)
        ck_assert_ptr_null(strstr(link_of[3].got[i].event.text, "pid"));
    ck_assert_str_eq(message_got(3, MSG_EVENT)->event.text, "node-0 joined");
}

/* A message with hidden fields is still one that a peer can read. */
TEST_LOOP(a_redacted_message_can_be_read, 0, MSG_TYPE_MAX)
{
    uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];
    struct msg m, read;
    struct err e;
    size_t size;

    if (!proto_name(_i))
        return;
    proto_fill(&m, _i, PROTO_FILL_TYPICAL);
    proto_redact(&m, ACCESS_NONE);
    size = proto_encode(&m, frame, sizeof(frame));
    ck_assert_msg(proto_decode_exactly(_i, (char *)frame + FRAME_HEADER_SIZE,
                                       size - FRAME_HEADER_SIZE, &read, &e) == 0,
                  "%s", e.text);
}

/* -- strangers without keys ------------------------------------------------- */

static void join_with_another_setting(const struct peer_origin *origin)
{
    struct msg m = join_message(ACTOR, "resnet");

    begin_registry(true);
    run_job(); /* nobody has a key */
    m.join.config.max_restarts = 77;
    greet_as(ACTOR, origin, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(ACTOR, &m), 0);
    ck_assert_ptr_nonnull(refusal_got(ACTOR, REFUSED_CONFIG, "another configuration"));
}

TEST(a_stranger_is_told_no_value_of_the_configuration)
{
    const struct peer_origin origin = { "10.0.0.9", PEER_UID_UNKNOWN, ACCESS_AGENT,
                                        NULL, NULL };
    struct msg events = { .type = MSG_EVENTS }, status = { .type = MSG_STATUS };
    const struct peer_origin local = user(1000);
    bool found = false;

    join_with_another_setting(&origin);
    ck_assert_ptr_nonnull(
        refusal_got(ACTOR, REFUSED_CONFIG, "--max-restarts differs;"));
    ck_assert_ptr_null(strstr(message_got(ACTOR, MSG_REFUSED)->refused.text, "1 in"));
    greet_as(3, &origin, PEER_CTL);
    ck_assert_int_eq(send_to_registry(3, &events), 0);
    for (unsigned i = 0; i < link_of[3].count; i++)
        ck_assert_ptr_null(strstr(link_of[3].got[i].event.text, "max-restarts"));
    strcpy(status.status.run_id, "resnet");
    ck_assert_int_eq(send_to_registry(3, &status), 0);
    ck_assert(id128_is_zero(&message_got(3, MSG_JOB_STATUS)->job_status.instance));
    greet_as(2, &local, PEER_CTL); /* but the users of the machine are */
    ck_assert_int_eq(send_to_registry(2, &events), 0);
    for (unsigned i = 0; i < link_of[2].count; i++)
        found |= strstr(link_of[2].got[i].event.text, "max-restarts") != NULL;
    ck_assert(found);
}

TEST_LOOP(a_peer_with_a_user_or_a_key_is_told_the_configuration, 0, 3)
{
    const struct peer_origin origin[] = {
        { "10.0.0.9", PEER_UID_UNKNOWN, ACCESS_AGENT, "k1", NULL },
        { "10.0.0.9", 1000, ACCESS_AGENT, NULL, NULL },
        { "127.0.0.1", PEER_UID_UNKNOWN, ACCESS_AGENT, NULL, NULL },
    };

    join_with_another_setting(&origin[_i]);
    refusal_got(ACTOR, REFUSED_CONFIG, "--max-restarts is 1 in the job and 77 here");
}
