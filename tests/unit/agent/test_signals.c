/* SPDX-License-Identifier: MIT */
#include "agent/signals.h"

#include <check.h>
#include <stdio.h>
#include <unistd.h>

#include "rendezvous/common/base/loop.h"
#include "rendezvous/wire/protocol/message.h"
#include "tests/worlds/check_main.h"

/* -- what signals ask for, in the order in which they come ------------------ */

#define SIGNALS_MAX 5

static const struct {
    const char *what;
    bool cannot_leave;
    struct {
        int signo; /* SIGUSR1: the scheduler's */
        enum signal_action action;
    } is[SIGNALS_MAX];
} sequences[] = {
    { "a second TERM hurries the node, not the job",
      false,
      { { SIGTERM, SIGNAL_LEAVE },
        { SIGTERM, SIGNAL_LEAVE_FAST },
        { SIGTERM, SIGNAL_LEAVE_KILLED },
        { SIGTERM, SIGNAL_LEAVE_KILLED } } },
    { "HUP and QUIT are like TERM",
      false,
      { { SIGHUP, SIGNAL_LEAVE },
        { SIGTERM, SIGNAL_LEAVE_FAST },
        { SIGQUIT, SIGNAL_LEAVE_KILLED } } },
    { "INT twice kills the job",
      false,
      { { SIGINT, SIGNAL_END }, { SIGINT, SIGNAL_KILL }, { SIGINT, SIGNAL_KILL } } },
    { "INT ends a job that a node is about to leave, in good order",
      false,
      { { SIGTERM, SIGNAL_LEAVE }, { SIGINT, SIGNAL_END }, { SIGINT, SIGNAL_KILL } } },
    { "TERM after INT may be a scheduler's, INT after TERM is not",
      false,
      { { SIGINT, SIGNAL_END },
        { SIGTERM, SIGNAL_NO_CHANGE },
        { SIGINT, SIGNAL_KILL } } },
    { "the scheduler may say it again and again, and TERM may follow",
      false,
      { { SIGUSR1, SIGNAL_LEAVE },
        { SIGUSR1, SIGNAL_NO_CHANGE },
        { SIGTERM, SIGNAL_LEAVE },
        { SIGUSR1, SIGNAL_NO_CHANGE },
        { SIGTERM, SIGNAL_LEAVE_FAST } } },
    { "the scheduler says nothing new after TERM",
      false,
      { { SIGTERM, SIGNAL_LEAVE },
        { SIGUSR1, SIGNAL_NO_CHANGE },
        { SIGTERM, SIGNAL_LEAVE_FAST } } },
    { "nor after INT",
      false,
      { { SIGINT, SIGNAL_END }, { SIGUSR1, SIGNAL_NO_CHANGE } } },
    { "INT means the job, whatever the scheduler said",
      false,
      { { SIGUSR1, SIGNAL_LEAVE }, { SIGINT, SIGNAL_END }, { SIGINT, SIGNAL_KILL } } },
    { "where the rendezvous is, the job ends",
      true,
      { { SIGTERM, SIGNAL_END },
        { SIGTERM, SIGNAL_NO_CHANGE },
        { SIGTERM, SIGNAL_KILL } } },
    { "and at once where a person asks for it",
      true,
      { { SIGTERM, SIGNAL_END }, { SIGINT, SIGNAL_KILL } } },
    { "and the scheduler does not count there either",
      true,
      { { SIGUSR1, SIGNAL_END },
        { SIGUSR1, SIGNAL_NO_CHANGE },
        { SIGTERM, SIGNAL_END },
        { SIGTERM, SIGNAL_NO_CHANGE },
        { SIGTERM, SIGNAL_KILL } } },
};

TEST_EACH(each_signal_asks_for_what_those_before_it_leave_open, sequences)
{
    struct signals s = { .cannot_leave = sequences[_i].cannot_leave };

    for (unsigned i = 0; i < SIGNALS_MAX && sequences[_i].is[i].signo; i++) {
        int signo = sequences[_i].is[i].signo;
        enum signal_action action = signo == SIGUSR1
                                        ? signals_action_preempted(&s)
                                        : signals_action(&s, signo, 10000 * (i + 1));

        ck_assert_msg(action == sequences[_i].is[i].action, "%s: signal %u asks for %d",
                      sequences[_i].what, i + 1, (int)action);
    }
}

TEST(where_all_nodes_are_preempted_the_host_ends_the_job)
{
    struct signals s = { .all_are_preempted = true }, other = s;

    ck_assert_int_eq(signals_action_preempted(&s), SIGNAL_END);
    ck_assert_int_eq(signals_action(&other, SIGTERM, 100), SIGNAL_LEAVE);
}

TEST(equal_signals_within_two_seconds_are_one)
{
    struct signals s = { .cannot_leave = false };

    ck_assert_int_eq(signals_action(&s, SIGTERM, 100), SIGNAL_LEAVE);
    ck_assert_int_eq(signals_action(&s, SIGTERM, 110), SIGNAL_NO_CHANGE);
    ck_assert_int_eq(signals_action(&s, SIGTERM, 2099), SIGNAL_NO_CHANGE);
    ck_assert_int_eq(signals_action(&s, SIGHUP, 2099), SIGNAL_LEAVE_FAST);
    ck_assert_int_eq(signals_action(&s, SIGTERM, 2100), SIGNAL_LEAVE_KILLED);
    ck_assert_int_eq(signals_action(&s, SIGINT, 2101), SIGNAL_END);
    ck_assert_int_eq(signals_action(&s, SIGINT, 2102), SIGNAL_KILL);
}

TEST(the_rendezvous_is_told_what_concerns_it)
{
    struct msg m;

    ck_assert(!signals_report(SIGNAL_NO_CHANGE, 128 + SIGTERM, strsignal(SIGTERM), &m));
    ck_assert(
        !signals_report(SIGNAL_LEAVE_KILLED, 128 + SIGTERM, strsignal(SIGTERM), &m));
    ck_assert(signals_report(SIGNAL_LEAVE_FAST, 128 + SIGTERM, strsignal(SIGTERM), &m));
    ck_assert_int_eq(m.type, MSG_LEAVE);
    ck_assert(m.leave.now);
    ck_assert_int_eq(m.leave.exit_code, 143);
    ck_assert_str_eq(m.leave.reason, "Terminated");
    ck_assert(signals_report(SIGNAL_END, 128 + SIGINT, strsignal(SIGINT), &m));
    ck_assert_int_eq(m.type, MSG_END);
    ck_assert(!m.end.now);
    ck_assert_int_eq(m.end.exit_code, 130);
}

TEST(the_sender_of_a_signal_has_a_name)
{
    const struct {
        int signo;
        struct signal_sender sender;
        const char *text;
    } senders[] = {
        { SIGTERM, { true, 0x7fffffff, 7 }, "SIGTERM from pid 2147483647 (uid 7)" },
        { SIGHUP, { true, 0, 0 }, "SIGHUP from a process outside of this container" },
        { SIGINT, { false, 0, 0 }, "Ctrl-C" },
        { SIGHUP, { false, 0, 0 }, "SIGHUP from the terminal" },
    };
    struct signal_sender own = { true, getpid(), getuid() };
    char wanted[128], text[SIGNAL_SENDER_MAX_BYTES + 1];

    for (size_t i = 0; i < sizeof(senders) / sizeof(senders[0]); i++) {
        signals_describe(senders[i].signo, &senders[i].sender, text, sizeof(text));
        ck_assert_str_eq(text, senders[i].text);
    }
    snprintf(wanted, sizeof(wanted), "SIGTERM from pid %d (test_signals)",
             (int)getpid());
    ck_assert_str_eq(signals_describe(SIGTERM, &own, text, sizeof(text)), wanted);
}

/* -- what the workers get --------------------------------------------------- */

TEST(workers_get_the_signal_unless_it_was_ignored)
{
    struct signals s = { .cannot_leave = false };

    sigemptyset(&s.ignored);
    ck_assert_int_eq(signals_for_workers(&s, SIGINT), SIGINT);
    ck_assert_int_eq(signals_for_workers(&s, 0), SIGTERM);
    sigaddset(&s.ignored, SIGINT);
    ck_assert_int_eq(signals_for_workers(&s, SIGINT), SIGTERM);
}
