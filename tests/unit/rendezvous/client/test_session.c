/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/session.h"

#include <string.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/session_script.h"

/* -- every state with every event ------------------------------------------- */

enum { ROW_IDLE, ROW_CONNECTING, ROW_GREETING, ROW_JOINING, ROW_ATTACHED, ROW_OVER };

static void reach_connecting(void)
{
    script_tick();
}

static void reach_over(void)
{
    script_attach();
    session_bye(script_member, script_now);
}

static void nothing(void)
{
}

static void (*const reach[])(void) = {
    [ROW_IDLE] = nothing,           [ROW_CONNECTING] = reach_connecting,
    [ROW_GREETING] = script_greet,  [ROW_JOINING] = script_join,
    [ROW_ATTACHED] = script_attach, [ROW_OVER] = reach_over,
};

static void ev_connected(void)
{
    session_connected(script_member, script_now);
}

static void ev_lost(void)
{
    script_lose("gone");
}

static void ev_refused(void)
{
    script_receive_refused(REFUSED_CONFIG, false, 0);
}

static void ev_refused_for_now(void)
{
    script_receive_refused(REFUSED_BUSY, true, 0);
}

static void ev_fenced(void)
{
    script_receive_refused(REFUSED_FENCED, false, 0);
}

static void ev_ack(void)
{
    script_receive_ack(1);
}

static void ev_beat(void)
{
    script_receive_plain(MSG_BEAT, 0);
}

static void ev_start(void)
{
    script_receive_plain(MSG_START, 1);
}

static void ev_stop(void)
{
    script_receive_plain(MSG_STOP, 1);
}

static void ev_done(void)
{
    script_receive_plain(MSG_DONE, 1);
}

static void ev_strange(void)
{
    script_receive_plain(MSG_STATUS, 1);
}

static void ev_unknown_number(void)
{
    script_receive_plain(MSG_TYPE_MAX, 1);
}

static void ev_report(void)
{
    script_report(MSG_FAILED, 1);
}

static void ev_bye(void)
{
    session_bye(script_member, script_now);
}

static void ev_tick_too_early(void)
{
    session_tick(script_member, script_now);
}

static void ev_entry_deadline(void)
{
    script_now += ENTRY_DEADLINE_MS;
    session_tick(script_member, script_now);
}

static void ev_much_later(void)
{
    script_now += 10 * CONNECT_FOR_MS;
    session_tick(script_member, script_now);
    session_tick(script_member, script_now + GRACE_MS);
}

/* i: APART, g: GREETING, j: JOINING, A: ATTACHED, o: OVER */
static const struct {
    const char *name;
    void (*happen)(void);
    const char *to; /* from idle, connecting, greeting, joining, attached, over */
} matrix[] = {
    { "connected", ev_connected, "iggjAo" },
    { "lost", ev_lost, "iiiiio" },
    { "welcome", script_receive_welcome, "iijjAo" },
    { "refused", ev_refused, "iiooAo" },
    { "refused for now", ev_refused_for_now, "iiiiAo" },
    { "fenced", ev_fenced, "iioooo" },
    { "ack", ev_ack, "iigjAo" },
    { "joined", script_receive_joined, "iigAAo" },
    { "beat", ev_beat, "iigjAo" },
    { "start", ev_start, "iigjAo" },
    { "stop", ev_stop, "iigjAo" },
    { "done", ev_done, "iigjAo" },
    { "strange", ev_strange, "iigjAo" },
    { "unknown number", ev_unknown_number, "iigjAo" },
    { "report", ev_report, "iigjAo" },
    { "bye", ev_bye, "oooooo" },
    { "tick too early", ev_tick_too_early, "iigjAo" },
    { "entry deadline", ev_entry_deadline, "iiiiio" },
    { "much later", ev_much_later, "oooooo" },
};
#define EVENTS ((int)(sizeof(matrix) / sizeof(matrix[0])))
#define ROWS 6

static char letter(enum session_state state)
{
    static const char letters[SESSION_STATE_COUNT] = {
        [SESSION_APART] = 'i',    [SESSION_GREETING] = 'g', [SESSION_JOINING] = 'j',
        [SESSION_ATTACHED] = 'A', [SESSION_OVER] = 'o',
    };

    return letters[state];
}

FIXTURE(script_setup, script_teardown);

TEST_LOOP(every_event_in_every_state_leads_where_the_matrix_says, 0, ROWS *EVENTS)
{
    int row = _i % ROWS, event = _i / ROWS;
    char got;

    reach[row]();
    matrix[event].happen();
    got = letter(session_state(script_member));
    ck_assert_msg(got == matrix[event].to[row], "row %d, %s: %c instead of %c", row,
                  matrix[event].name, got, matrix[event].to[row]);
}

TEST(nothing_is_called_once_it_is_over)
{
    reach_over();
    script_called[0] = '\0';
    for (int i = 0; i < EVENTS; i++)
        matrix[i].happen();
    script_expect("");
    ck_assert_uint_eq(session_next_tick(script_member), UINT64_MAX);
}

/* -- joining ---------------------------------------------------------------- */

TEST(it_connects_greets_and_joins_at_once)
{
    ck_assert_uint_eq(session_next_tick(script_member), T0);
    script_greet();
    script_expect("connect; send HELLO; ");
    ck_assert_int_eq(script_last_sent.hello.role, PEER_AGENT);
    script_receive_welcome();
    script_expect("send JOIN; ");
    ck_assert_str_eq(script_last_sent.join.run_id, "job");
    script_receive_joined();
    script_expect("order JOINED; ");
    ck_assert_uint_eq(script_now, T0);
    ck_assert(id128_equal(session_instance(script_member), &script_instance));
}

TEST(an_unknown_version_is_no_welcome)
{
    struct msg m = { .type = MSG_WELCOME, .welcome = { .version = 99 } };

    script_greet();
    script_expect("connect; send HELLO; ");
    script_receive(m);
    script_expect("disconnect; out; ");
}

TEST(a_final_refusal_is_the_last_order)
{
    script_join();
    script_expect("connect; send HELLO; send JOIN; ");
    script_receive_refused(REFUSED_CONFIG, false, 0);
    script_expect("disconnect; order REFUSED; ");
    ck_assert_str_eq(script_last_order.refused.text, "not now");
}

TEST(a_refusal_for_now_is_tried_again)
{
    script_join();
    script_expect("connect; send HELLO; send JOIN; ");
    script_receive_refused(REFUSED_BUSY, true, 0);
    script_expect("disconnect; out; ");
    ck_assert_str_eq(script_last_why, "not now");
    script_join();
    script_expect("connect; send HELLO; send JOIN; ");
    script_receive_joined();
    script_expect("back; order JOINED; ");
}

TEST(each_new_reason_is_told_until_it_has_joined)
{
    script_tick();
    script_lose("no such name");
    script_expect("connect; out; ");
    script_tick();
    script_lose("no such name");
    script_expect("connect; ");
    script_tick();
    script_lose("connection refused");
    script_expect("connect; out; ");
    ck_assert_str_eq(script_last_why, "connection refused");
}

TEST(it_gives_up_if_it_never_gets_in)
{
    while (session_state(script_member) != SESSION_OVER) {
        script_tick();
        if (session_state(script_member) != SESSION_OVER)
            script_lose("connection refused");
    }
    ck_assert_uint_eq(script_now, T0 + CONNECT_FOR_MS);
    ck_assert_ptr_nonnull(strstr(script_last_why, "60.0 s: connection refused"));
    ck_assert_str_eq(script_called + strlen(script_called) - 11, "abandoned; ");
}

TEST_LOOP(an_attempt_without_an_answer_ends, 0, 3)
{
    static void (*const stages[])(void) = { reach_connecting, script_greet,
                                            script_join };

    stages[_i]();
    script_called[0] = '\0';
    script_pass_until(script_now + ENTRY_DEADLINE_MS - 1);
    script_expect("");
    script_now++;
    session_tick(script_member, script_now);
    script_expect("disconnect; out; ");
}

TEST_LOOP(retries_back_off_between_the_limits, 0, 20)
{
    uint64_t longest = 0;

    script_create(false, (uint64_t)_i);
    for (int i = 0; i < 14; i++) {
        uint64_t limit = (uint64_t)RECONNECT_DELAY_MS_MIN << i, delay;

        script_tick();
        script_lose("refused");
        delay = session_next_tick(script_member) - script_now;
        ck_assert_uint_le(
            delay, limit < RECONNECT_DELAY_MS_MAX ? limit : RECONNECT_DELAY_MS_MAX);
        ck_assert(i == 0 || delay >= RECONNECT_DELAY_MS_MIN);
        if (delay > longest)
            longest = delay;
    }
    ck_assert_uint_gt(longest, RECONNECT_DELAY_MS_MAX / 10);
}

TEST(agents_that_fail_together_do_not_return_together)
{
    uint64_t first = 0;
    bool differ = false;

    for (uint64_t seed = 1; seed <= 8; seed++) {
        script_create(false, seed);
        for (int i = 0; i < 6; i++) {
            script_tick();
            script_lose("refused");
        }
        if (seed == 1)
            first = session_next_tick(script_member) - script_now;
        differ |= session_next_tick(script_member) - script_now != first;
    }
    ck_assert(differ);
}

TEST(only_being_taken_in_forgets_the_failures_before)
{
    for (int i = 0; i < 8; i++) {
        script_join();
        script_lose("gone");
    }
    ck_assert_uint_gt(session_next_tick(script_member) - script_now,
                      RECONNECT_DELAY_MS_MIN);
    script_attach();
    script_lose("gone");
    ck_assert_uint_le(session_next_tick(script_member) - script_now,
                      RECONNECT_DELAY_MS_MIN);
}

/* Which gives all agents one lease to come back. */
TEST(several_attempts_fit_in_the_lease_that_a_new_rendezvous_grants)
{
    script_attach();
    for (int i = 0; i < 20; i++) {
        uint64_t begun = script_now;

        script_lose("gone");
        script_tick();
        ck_assert_uint_le(script_now - begun, BEAT_MS);
    }
    script_pass_until(script_now + LEASE_MS / 2);
    ck_assert_ptr_nonnull(strstr(script_called, "disconnect; "));
}
