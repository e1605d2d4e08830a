/* SPDX-License-Identifier: MIT */
/* What a person reads while a job runs: each message as it is logged. */
#include "agent/interface/job_messages.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/interface/status_line.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "tests/worlds/check_main.h"

static struct {
    struct loop *loop;
    struct config config;
    struct status_line *status_line;
    struct job_messages *messages;
    char said[1024]; /* all lines so far */
} t;

static void on_line(void *arg, enum log_level level, const char *line)
{
    size_t used = strlen(t.said);

    snprintf(t.said + used, sizeof(t.said) - used, "%s\n", line);
    if (t.loop)
        loop_stop(t.loop);
}

/* Without a terminal, so that no status line is drawn. */
static void begin(const char *run_id, uint32_t nodes)
{
    const struct status_line_calls calls = { .status = NULL };

    memset(&t, 0, sizeof(t));
    setenv("TERM", "dumb", 1);
    log_init("crun", LOG_INFO, LOG_TEXT);
    log_set_sink(on_line, NULL);
    snprintf(t.config.run_id, sizeof(t.config.run_id), "%s", run_id);
    t.config.rendezvous = nodes == 1 ? CONFIG_LOCAL : CONFIG_DYNAMIC;
    t.config.endpoints = nodes == 1 ? NULL : "10.0.0.1:29400";
    t.config.job = (struct job_config){ .min_nodes = nodes, .max_nodes = nodes };
    snprintf(t.config.job.program, sizeof(t.config.job.program), "train.py");
    t.loop = loop_create();
    t.status_line = status_line_create(t.loop, NULL, &calls);
    t.messages = job_messages_create(t.loop, &t.config, t.status_line);
}

static void expect(const char *text)
{
    ck_assert_str_eq(t.said, text);
    *t.said = '\0';
}

static void end(void)
{
    log_set_sink(NULL, NULL);
    job_messages_destroy(t.messages);
    status_line_destroy(t.status_line);
    loop_destroy(t.loop);
}

static const struct {
    const char *run_id, *job;
    uint32_t nodes;
} names[] = {
    { "resnet", "job \"resnet\"", 2 },
    { "none", "job \"train\"", 2 },
    { "resnet", "the job", 1 },
};

TEST_EACH(a_job_is_called_by_its_name, names)
{
    begin(names[_i].run_id, names[_i].nodes);
    ck_assert_str_eq(job_messages_job(t.messages), names[_i].job);
    end();
}

/* -- epochs ----------------------------------------------------------------------- */

static const struct {
    uint32_t nodes; /* that the job may have */
    uint64_t epoch;
    struct msg_start start;
    const char *text;
} formed[] = {
    { 1, 1, { .group_size = 1, .world_size = 8, .cause = JOB_CAUSE_FIRST }, "" },
    { 3,
      1,
      { .group_rank = 1, .group_size = 2, .world_size = 8, .cause = JOB_CAUSE_FIRST },
      "crun: job \"resnet\" formed: 2 nodes, 8 workers, this is node 1 (epoch 1)\n" },
    { 3,
      1,
      { .group_size = 1, .world_size = 1, .cause = JOB_CAUSE_FIRST },
      "crun: job \"resnet\" formed: 1 node, 1 worker, this is node 0 (epoch 1)\n" },
    { 1,
      2,
      { .group_size = 1,
        .world_size = 8,
        .restarts = 1,
        .max_restarts = 3,
        .cause = JOB_CAUSE_FAILURE },
      "crun: restart 1 of 3: epoch 2 formed, 8 workers on 1 node\n" },
    { 3,
      4,
      { .group_size = 3, .world_size = 12, .cause = JOB_CAUSE_SCALE_UP },
      "crun: re-formed (scale-up): epoch 4, 12 workers on 3 nodes\n" },
    { 3,
      2,
      { .group_size = 2, .world_size = 8, .cause = JOB_CAUSE_LOST },
      "crun: re-formed (lost): epoch 2, 8 workers on 2 nodes\n" },
};

TEST_EACH(an_epoch_is_announced, formed)
{
    begin("resnet", formed[_i].nodes);
    job_messages_formed(t.messages, &formed[_i].start, formed[_i].epoch);
    expect(formed[_i].text);
    end();
}

/* Of nodes whose output goes to the same place, the first one tells. */
TEST_LOOP(one_node_says_what_is_of_the_job, 0, 3)
{
    struct msg_start start = { .group_size = 3, .world_size = 3 };
    struct msg_stop stop = { .cause = JOB_CAUSE_FAILURE, .text = "rank 3 failed" };
    bool is_first = _i == 0;

    begin("resnet", 3);
    t.config.shares_output = true;
    t.config.node_rank = _i;
    ck_assert(job_messages_are_first_nodes(t.messages) == !is_first);
    t.config.node_rank = -1;
    start.group_rank = (uint32_t)_i;
    job_messages_formed(t.messages, &start, 1);
    ck_assert(job_messages_are_first_nodes(t.messages) == !is_first);
    ck_assert(job_messages_cover_rendezvous(t.messages) == (_i <= 1));
    job_messages_cause(t.messages, &stop, 1);
    job_messages_ended_by(t.messages, "stopped by SIGINT");
    stop.cause = JOB_CAUSE_USER;
    job_messages_stopping(t.messages, &stop, 1);
    expect(is_first ? "crun: job \"resnet\" formed: 3 nodes, 3 workers, this is node 0 "
                      "(epoch 1)\ncrun: rank 3 failed\n"
                      "crun: job \"resnet\" was stopped by SIGINT\n"
                      "crun: stopping 3 workers on 3 nodes, 0 s to finish\n"
                    : "");
    end();
}

TEST(a_spare_is_told_that_it_waits)
{
    struct msg_joined joined = { .spare = false };

    begin("resnet", 2);
    job_messages_joined(t.messages, &joined);
    expect("");
    joined.spare = true;
    job_messages_joined(t.messages, &joined);
    expect(""); /* it may be taken in at once */
    loop_run(t.loop);
    expect("crun: this node waits as a spare of job \"resnet\"\n");
    end();
}

/* -- stops ------------------------------------------------------------------------ */

TEST(a_cause_is_told_once_an_epoch)
{
    struct msg_stop stop = { .cause = JOB_CAUSE_FAILURE, .text = "rank 3 failed" };

    begin("resnet", 2);
    job_messages_cause(t.messages, &stop, 1);
    expect("crun: rank 3 failed\n");
    job_messages_cause(t.messages, &stop, 1);
    expect("");
    job_messages_cause(t.messages, &stop, 2);
    expect("crun: rank 3 failed\n");
    stop.last = true; /* the report will tell it */
    job_messages_cause(t.messages, &stop, 3);
    stop = (struct msg_stop){ .cause = JOB_CAUSE_USER, .text = "SIGINT" };
    job_messages_cause(t.messages, &stop, 4);
    expect("");
    end();
}

static const struct {
    enum job_cause cause;
    uint32_t alive;
    const char *text;
} stops[] = {
    { JOB_CAUSE_USER, 8, "crun: stopping 8 workers, 30 s to finish\n" },
    { JOB_CAUSE_USER, 1, "crun: stopping 1 worker, 30 s to finish\n" },
    { JOB_CAUSE_USER, 0, "" },
    { JOB_CAUSE_FAILURE, 8, "" },
};

TEST_EACH(only_a_user_is_told_that_workers_stop, stops)
{
    struct msg_stop stop = { .cause = stops[_i].cause, .grace_ms = 30000 };

    begin("resnet", 2);
    job_messages_stopping(t.messages, &stop, stops[_i].alive);
    expect(stops[_i].text);
    job_messages_stopping(t.messages, &stop, stops[_i].alive);
    expect("");
    job_messages_stopped(t.messages); /* at once: not worth a line */
    expect("");
    end();
}

/* -- waiting ---------------------------------------------------------------------- */

TEST(a_node_that_was_refused_is_named_at_once)
{
    struct msg_beat beat = { .present = 1, .wanted = 2, .left_ms = 90000 };

    begin("resnet", 2);
    job_messages_waiting(t.messages, &beat); /* not yet */
    expect("");
    strcpy(beat.refused, "node-7 was refused: another program");
    job_messages_waiting(t.messages, &beat);
    expect("crun: waiting for nodes: 1 of 2 joined · 90 s left\n"
           "crun: rendezvous 10.0.0.1:29400\n"
           "crun: start the same command on each missing node\n"
           "crun: node-7 was refused: another program\n");
    job_messages_waiting(t.messages, &beat); /* the same again */
    expect("");
    end();
}

static const char *const loopbacks[] = { "127.0.0.1:29400", "[::1]:29551",
                                         "localhost:29400" };

TEST_LOOP(what_is_missing_is_named, 0, 3)
{
    char where[256];
    struct msg_beat beat = { .present = 2, .wanted = 4, .left_ms = 5000 };

    begin("resnet", 4);
    t.config.job.min_nodes = 2;
    t.config.endpoints = loopbacks[_i];
    strcpy(beat.missing, "1, 3");
    strcpy(beat.refused, "x");
    job_messages_waiting(t.messages, &beat);
    snprintf(
        where, sizeof(where),
        "crun: waiting for nodes: 2 of 4 joined (missing: rank 1, 3) · starts in "
        "5 s\ncrun: rendezvous %s is loopback: other machines cannot connect\n"
        "crun: start the same command on each missing node, with --node-rank 1, 3\n"
        "crun: x\n",
        loopbacks[_i]);
    expect(where);
    strcpy(beat.refused, "y"); /* where the rendezvous is has been said */
    job_messages_waiting(t.messages, &beat);
    expect("crun: waiting for nodes: 2 of 4 joined (missing: rank 1, 3) · starts in 5 "
           "s\ncrun: y\n");
    beat.present = 4;
    job_messages_waiting(t.messages, &beat); /* all are there */
    expect("");
    end();
}

TEST(an_outage_begins_and_ends)
{
    begin("resnet", 2);
    job_messages_outage(t.messages, true, "10.0.0.1:29400: refused", 0);
    expect("crun: the rendezvous is out of reach (10.0.0.1:29400: refused): workers "
           "continue, trying again\n");
    job_messages_outage(t.messages, false, "", 0);
    expect("crun: the rendezvous is back\n");
    end();
}

/* As another node hosts the rendezvous in a moment. */
TEST(a_short_outage_is_no_news)
{
    begin("resnet", 2);
    job_messages_outage(t.messages, true, "10.0.0.1:29400: refused", 3600000);
    job_messages_outage(t.messages, false, "", 3600000);
    expect("");
    job_messages_outage(t.messages, true, "10.0.0.1:29400: refused", 1);
    job_messages_abandoned(t.messages);
    loop_turn(t.loop, 20);
    expect("");
    job_messages_outage(t.messages, true, "10.0.0.1:29400: refused", 1);
    while (!*t.said)
        loop_turn(t.loop, 100);
    expect("crun: the rendezvous is out of reach (10.0.0.1:29400: refused): workers "
           "continue, trying again\n");
    job_messages_outage(t.messages, false, "", 1);
    expect("crun: the rendezvous is back\n");
    end();
}

/* -- the status line -------------------------------------------------------------- */

static const struct {
    uint32_t nodes;
    uint64_t epoch;
    struct msg_start start;
    struct msg_heartbeat progress;
    const char *text; /* up to the age */
} statuses[] = {
    { 1, 1, { .group_size = 1, .world_size = 8 }, { .step = 0 }, "" },
    { 1,
      1,
      { .group_size = 1, .world_size = 8 },
      { .step = 7 },
      "crun: 1 node, 8 workers · step 7 · " },
    { 2,
      1,
      { .group_size = 2, .world_size = 1 },
      { .step = 0 },
      "crun: 2 nodes, 1 worker · " },
    { 2,
      3,
      { .group_size = 2, .world_size = 8, .restarts = 1, .max_restarts = 4 },
      { .step = 12, .steps_per_s = "2.5", .loss = "0.31" },
      "crun: 2 nodes, 8 workers · epoch 3 · 1 of 4 restarts used · step 12 · 2.5 "
      "steps/s · loss 0.31 · " },
};

TEST_EACH(the_state_of_a_job_is_one_line, statuses)
{
    const char *text = statuses[_i].text;
    struct msg_stop stop = { .grace_ms = 0 };
    char line[256];

    begin("resnet", statuses[_i].nodes);
    job_messages_status(t.messages, &statuses[_i].progress, line, sizeof(line));
    ck_assert_str_eq(line, ""); /* before the first epoch */
    job_messages_formed(t.messages, &statuses[_i].start, statuses[_i].epoch);
    job_messages_status(t.messages, &statuses[_i].progress, line, sizeof(line));
    if (*text)
        ck_assert_msg(strncmp(line, text, strlen(text)) == 0, "%s", line);
    else
        ck_assert_str_eq(line, "");
    job_messages_status(t.messages, &statuses[_i].progress, line, 20);
    ck_assert_uint_lt(strlen(line), 20);
    job_messages_stopping(t.messages, &stop, 0);
    job_messages_status(t.messages, &statuses[_i].progress, line, sizeof(line));
    ck_assert_str_eq(line, "");
    end();
}
