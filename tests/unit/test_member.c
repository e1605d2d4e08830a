/* SPDX-License-Identifier: MIT */
#include "rendezvous/member.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/helpers/check_main.h"

/*
 * What the member calls out is written down as text, "connect; send HELLO;", and every
 * test says what must have been called since it last asked.
 */
#define T0 1000000
#define LEASE_MS 1000
#define BEAT_MS (LEASE_MS / HEARTBEATS_PER_LEASE)
#define CONNECT_FOR_MS 60000
#define GRACE_MS 20000
#define NODE 7

static struct member *member;
static uint64_t now;
static char called[4096];
static struct msg last_sent, last_order;
static char last_why[ERROR_TEXT_MAX_BYTES + 1];
static const struct id128 instance = { { 1 } }, other_instance = { { 2 } };

static const char *const name_of[MSG_TYPE_MAX] = {
    [MSG_HELLO] = "HELLO",       [MSG_JOIN] = "JOIN",
    [MSG_RESUME] = "RESUME",     [MSG_HEARTBEAT] = "HEARTBEAT",
    [MSG_FAILED] = "FAILED",     [MSG_FINISHED] = "FINISHED",
    [MSG_STOPPED] = "STOPPED",   [MSG_BYE] = "BYE",
    [MSG_JOINED] = "JOINED",     [MSG_BEAT] = "BEAT",
    [MSG_START] = "START",       [MSG_STOP] = "STOP",
    [MSG_MEMBERS] = "MEMBERS",   [MSG_ASK_CHECKPOINT] = "ASK_CHECKPOINT",
    [MSG_DONE] = "DONE",         [MSG_REFUSED] = "REFUSED",
    [MSG_STORE_READY] = "READY",
};

__attribute__((format(printf, 1, 2))) static void note(const char *fmt, ...)
{
    size_t used = strlen(called);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(called + used, sizeof(called) - used, fmt, ap);
    va_end(ap);
}

static void on_connect(void *arg)
{
    (void)arg;
    note("connect; ");
}

static void on_disconnect(void *arg)
{
    (void)arg;
    note("disconnect; ");
}

static void on_send(void *arg, const struct msg *m)
{
    (void)arg;
    last_sent = *m;
    if (m->sequence)
        note("send %s %" PRIu64 "#%" PRIu64 "; ", name_of[m->type], m->epoch,
             m->sequence);
    else
        note("send %s; ", name_of[m->type]);
}

static void on_order(void *arg, const struct msg *m)
{
    (void)arg;
    last_order = *m;
    if (m->epoch)
        note("order %s %" PRIu64 "; ", name_of[m->type], m->epoch);
    else
        note("order %s; ", name_of[m->type]);
}

static void on_outage(void *arg, bool out, const char *why)
{
    (void)arg;
    snprintf(last_why, sizeof(last_why), "%s", why);
    note(out ? "out; " : "back; ");
}

static void on_abandoned(void *arg, const char *why)
{
    (void)arg;
    snprintf(last_why, sizeof(last_why), "%s", why);
    note("abandoned; ");
}

static const struct member_calls calls = {
    .connect = on_connect,
    .disconnect = on_disconnect,
    .send = on_send,
    .order = on_order,
    .outage = on_outage,
    .abandoned = on_abandoned,
};

/* Compares what was called since the last time, and forgets it. */
#define expect(text)                                                                   \
    do {                                                                               \
        ck_assert_str_eq(called, text);                                                \
        called[0] = '\0';                                                              \
    } while (0)

static void create(bool strict, uint64_t seed)
{
    struct member_config config = {
        .join = { .run_id = "job", .incarnation = { { 9 } }, .workers = 2 },
        .connect_for_ms = CONNECT_FOR_MS,
        .outage_grace_ms = GRACE_MS,
        .strict_fence = strict,
        .seed = seed,
        .software = "test",
    };

    now = T0;
    called[0] = '\0';
    member = member_create(&config, &calls, now);
}

static void setup(void)
{
    create(false, 1);
}

static void teardown(void)
{
    member_destroy(member);
}

static struct msg message(enum msg_type type, uint64_t epoch)
{
    return (struct msg){ .type = type, .epoch = epoch, .instance = instance };
}

static void receive(struct msg m)
{
    member_received(member, &m, now);
}

static void receive_plain(enum msg_type type, uint64_t epoch)
{
    receive(message(type, epoch));
}

static void receive_welcome(void)
{
    struct msg m = { .type = MSG_WELCOME, .welcome = { .version = 1 } };

    receive(m);
}

static void receive_joined(void)
{
    struct msg m = message(MSG_JOINED, 0);

    m.joined = (struct msg_joined){ .node = NODE, .slot = 3, .lease_ms = LEASE_MS };
    receive(m);
}

static void receive_refused(enum refusal why, bool retry, uint64_t sequence)
{
    struct msg m = { .type = MSG_REFUSED, .sequence = sequence };

    m.refused.why = why;
    m.refused.retry = retry;
    snprintf(m.refused.text, sizeof(m.refused.text), "not now");
    receive(m);
}

static void receive_ack(uint64_t sequence)
{
    struct msg m = message(MSG_ACK, 0);

    m.sequence = sequence;
    receive(m);
}

static void receive_stop(uint64_t epoch, uint32_t grace_ms)
{
    struct msg m = message(MSG_STOP, epoch);

    m.stop.grace_ms = grace_ms;
    receive(m);
}

static void report(enum msg_type type, uint64_t epoch)
{
    struct msg m = { .type = type, .epoch = epoch };

    member_report(member, &m, now);
}

/* Goes on to the next thing that is due. */
static void tick(void)
{
    uint64_t next = member_next_tick(member);

    ck_assert_uint_ne(next, UINT64_MAX);
    if (next > now)
        now = next;
    member_tick(member, now);
}

/* Lets time pass; whatever comes due on the way happens in its time. */
static void pass_until(uint64_t when)
{
    while (member_next_tick(member) <= when)
        tick();
    now = when;
}

static void greet(void)
{
    tick();
    member_connected(member, now);
}

static void join(void)
{
    greet();
    receive_welcome();
}

static void attach(void)
{
    join();
    receive_joined();
    called[0] = '\0';
}

static void attach_strictly(void)
{
    member_destroy(member);
    create(true, 1);
    attach();
}

static void lose(const char *why)
{
    member_connection_lost(member, why, now);
}

/* -- every state with every event -------------------------------------------------- */

enum { ROW_IDLE, ROW_CONNECTING, ROW_GREETING, ROW_JOINING, ROW_ATTACHED, ROW_OVER };

static void reach_connecting(void)
{
    tick();
}

static void reach_over(void)
{
    attach();
    member_bye(member, now);
}

static void nothing(void)
{
}

static void (*const reach[])(void) = {
    [ROW_IDLE] = nothing,    [ROW_CONNECTING] = reach_connecting,
    [ROW_GREETING] = greet,  [ROW_JOINING] = join,
    [ROW_ATTACHED] = attach, [ROW_OVER] = reach_over,
};

static void ev_connected(void)
{
    member_connected(member, now);
}

static void ev_lost(void)
{
    lose("gone");
}

static void ev_refused(void)
{
    receive_refused(REFUSED_CONFIG, false, 0);
}

static void ev_refused_for_now(void)
{
    receive_refused(REFUSED_BUSY, true, 0);
}

static void ev_fenced(void)
{
    receive_refused(REFUSED_FENCED, false, 0);
}

static void ev_ack(void)
{
    receive_ack(1);
}

static void ev_beat(void)
{
    receive_plain(MSG_BEAT, 0);
}

static void ev_start(void)
{
    receive_plain(MSG_START, 1);
}

static void ev_stop(void)
{
    receive_plain(MSG_STOP, 1);
}

static void ev_done(void)
{
    receive_plain(MSG_DONE, 1);
}

static void ev_strange(void)
{
    receive_plain(MSG_STATUS, 1);
}

static void ev_unknown_number(void)
{
    receive_plain(MSG_TYPE_MAX, 1);
}

static void ev_report(void)
{
    report(MSG_FAILED, 1);
}

static void ev_bye(void)
{
    member_bye(member, now);
}

static void ev_tick_too_early(void)
{
    member_tick(member, now);
}

static void ev_entry_deadline(void)
{
    now += ENTRY_DEADLINE_MS;
    member_tick(member, now);
}

static void ev_much_later(void)
{
    now += 10 * CONNECT_FOR_MS;
    member_tick(member, now);
    member_tick(member, now + GRACE_MS);
}

/* i: APART, g: GREETING, j: JOINING, A: ATTACHED, o: OVER */
static const struct {
    const char *name;
    void (*happen)(void);
    const char *to; /* from idle, connecting, greeting, joining, attached, over */
} matrix[] = {
    { "connected", ev_connected, "iggjAo" },
    { "lost", ev_lost, "iiiiio" },
    { "welcome", receive_welcome, "iijjAo" },
    { "refused", ev_refused, "iiooAo" },
    { "refused for now", ev_refused_for_now, "iiiiAo" },
    { "fenced", ev_fenced, "iioooo" },
    { "ack", ev_ack, "iigjAo" },
    { "joined", receive_joined, "iigAAo" },
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

static char letter(enum member_state state)
{
    static const char letters[MEMBER_STATE_COUNT] = {
        [MEMBER_APART] = 'i',    [MEMBER_GREETING] = 'g', [MEMBER_JOINING] = 'j',
        [MEMBER_ATTACHED] = 'A', [MEMBER_OVER] = 'o',
    };

    return letters[state];
}

START_TEST(every_event_in_every_state_leads_where_the_matrix_says)
{
    int row = _i % ROWS, event = _i / ROWS;
    char got;

    reach[row]();
    matrix[event].happen();
    got = letter(member_state(member));
    ck_assert_msg(got == matrix[event].to[row], "row %d, %s: %c instead of %c", row,
                  matrix[event].name, got, matrix[event].to[row]);
}
END_TEST

START_TEST(nothing_is_called_once_it_is_over)
{
    reach_over();
    called[0] = '\0';
    for (int i = 0; i < EVENTS; i++)
        matrix[i].happen();
    expect("");
    ck_assert_uint_eq(member_next_tick(member), UINT64_MAX);
}
END_TEST

/* -- joining ----------------------------------------------------------------------- */

START_TEST(it_connects_greets_and_joins_at_once)
{
    ck_assert_uint_eq(member_next_tick(member), T0);
    greet();
    expect("connect; send HELLO; ");
    ck_assert_str_eq(last_sent.hello.role, "agent");
    receive_welcome();
    expect("send JOIN; ");
    ck_assert_str_eq(last_sent.join.run_id, "job");
    receive_joined();
    expect("order JOINED; ");
    ck_assert_uint_eq(now, T0);
    ck_assert(id128_equal(member_instance(member), &instance));
}
END_TEST

START_TEST(an_unknown_version_is_no_welcome)
{
    struct msg m = { .type = MSG_WELCOME, .welcome = { .version = 99 } };

    greet();
    expect("connect; send HELLO; ");
    receive(m);
    expect("disconnect; out; ");
}
END_TEST

START_TEST(a_final_refusal_is_the_last_order)
{
    join();
    expect("connect; send HELLO; send JOIN; ");
    receive_refused(REFUSED_CONFIG, false, 0);
    expect("disconnect; order REFUSED; ");
    ck_assert_str_eq(last_order.refused.text, "not now");
}
END_TEST

START_TEST(a_refusal_for_now_is_tried_again)
{
    join();
    expect("connect; send HELLO; send JOIN; ");
    receive_refused(REFUSED_BUSY, true, 0);
    expect("disconnect; out; ");
    ck_assert_str_eq(last_why, "not now");
    join();
    expect("connect; send HELLO; send JOIN; ");
    receive_joined();
    expect("back; order JOINED; ");
}
END_TEST

START_TEST(it_gives_up_if_it_never_gets_in)
{
    while (member_state(member) != MEMBER_OVER) {
        tick();
        if (member_state(member) != MEMBER_OVER)
            lose("connection refused");
    }
    ck_assert_uint_eq(now, T0 + CONNECT_FOR_MS);
    ck_assert_ptr_nonnull(strstr(last_why, "60.0 s: connection refused"));
    ck_assert_str_eq(called + strlen(called) - 11, "abandoned; ");
}
END_TEST

START_TEST(an_attempt_without_an_answer_ends)
{
    static void (*const stages[])(void) = { reach_connecting, greet, join };

    stages[_i]();
    called[0] = '\0';
    pass_until(now + ENTRY_DEADLINE_MS - 1);
    expect("");
    now++;
    member_tick(member, now);
    expect("disconnect; out; ");
}
END_TEST

START_TEST(retries_back_off_between_the_limits)
{
    uint64_t longest = 0;

    member_destroy(member);
    create(false, (uint64_t)_i);
    for (int i = 0; i < 10; i++) {
        uint64_t limit = (uint64_t)RECONNECT_DELAY_MS_MIN << i, delay;

        tick();
        lose("refused");
        delay = member_next_tick(member) - now;
        ck_assert_uint_le(
            delay, limit < RECONNECT_DELAY_MS_MAX ? limit : RECONNECT_DELAY_MS_MAX);
        ck_assert(i == 0 || delay >= RECONNECT_DELAY_MS_MIN);
        if (delay > longest)
            longest = delay;
    }
    ck_assert_uint_gt(longest, RECONNECT_DELAY_MS_MAX / 10);
}
END_TEST

START_TEST(agents_that_fail_together_do_not_return_together)
{
    uint64_t first = 0;
    bool differ = false;

    for (uint64_t seed = 1; seed <= 8; seed++) {
        member_destroy(member);
        create(false, seed);
        for (int i = 0; i < 6; i++) {
            tick();
            lose("refused");
        }
        if (seed == 1)
            first = member_next_tick(member) - now;
        differ |= member_next_tick(member) - now != first;
    }
    ck_assert(differ);
}
END_TEST

START_TEST(only_being_taken_in_forgets_the_failures_before)
{
    for (int i = 0; i < 8; i++) {
        join();
        lose("gone");
    }
    ck_assert_uint_gt(member_next_tick(member) - now, RECONNECT_DELAY_MS_MIN);
    attach();
    lose("gone");
    ck_assert_uint_le(member_next_tick(member) - now, RECONNECT_DELAY_MS_MIN);
}
END_TEST

/* -- keeping the lease ------------------------------------------------------------- */

START_TEST(it_beats_five_times_a_lease)
{
    uint64_t first;

    attach();
    first = member_next_tick(member);
    ck_assert_uint_gt(first, now);
    ck_assert_uint_le(first, now + BEAT_MS);
    for (int i = 0; i < 20; i++) {
        ck_assert_uint_eq(member_next_tick(member), first + (uint64_t)i * BEAT_MS);
        tick();
        expect("send HEARTBEAT; ");
        receive_plain(MSG_BEAT, 0);
    }
}
END_TEST

START_TEST(heartbeats_carry_the_progress)
{
    struct msg_heartbeat progress = { .step = 12, .note = "warming up" };

    attach();
    member_set_progress(member, &progress);
    tick();
    ck_assert_uint_eq(last_sent.heartbeat.step, 12);
    ck_assert_str_eq(last_sent.heartbeat.note, "warming up");
    ck_assert_uint_eq(last_sent.sequence, 0);
}
END_TEST

START_TEST(a_beat_is_passed_on_only_while_nodes_are_missing)
{
    struct msg m = message(MSG_BEAT, 0);

    attach();
    receive(m);
    expect("");
    m.beat.waiting = true;
    receive(m);
    expect("order BEAT; ");
}
END_TEST

START_TEST(silence_for_a_lease_is_a_dead_connection)
{
    uint64_t heard;

    attach();
    heard = now;
    pass_until(heard + LEASE_MS - 1);
    called[0] = '\0';
    pass_until(heard + LEASE_MS);
    expect("disconnect; out; ");
}
END_TEST

START_TEST(other_messages_do_not_stand_in_for_a_beat)
{
    uint64_t asked;

    attach();
    asked = member_next_tick(member);
    while (member_state(member) == MEMBER_ATTACHED) {
        tick();
        receive_plain(MSG_MEMBERS, 1);
    }
    ck_assert_uint_eq(now, asked + LEASE_MS);
}
END_TEST

/* -- resuming ---------------------------------------------------------------------- */

START_TEST(it_resumes_with_what_it_knows)
{
    attach();
    receive_plain(MSG_START, 4);
    lose("reset by peer");
    expect("order START 4; out; ");
    ck_assert_str_eq(last_why, "reset by peer");
    greet();
    receive_welcome();
    expect("connect; send HELLO; send RESUME; ");
    ck_assert_uint_eq(last_sent.epoch, 4);
    ck_assert_uint_eq(last_sent.resume.node, NODE);
    ck_assert_str_eq(last_sent.resume.run_id, "job");
    ck_assert(id128_equal(&last_sent.instance, &instance));
    receive_joined();
    expect("back; ");
}
END_TEST

START_TEST(a_changed_place_is_told_again)
{
    struct msg m = message(MSG_JOINED, 0);

    attach();
    receive_joined();
    expect("");
    m.joined = (struct msg_joined){ .node = NODE, .slot = 4, .lease_ms = LEASE_MS };
    receive(m);
    expect("order JOINED; ");
}
END_TEST

START_TEST(being_fenced_is_the_end)
{
    attach();
    lose("gone");
    join();
    called[0] = '\0';
    receive_refused(REFUSED_FENCED, false, 0);
    expect("disconnect; order REFUSED; ");
    ck_assert_int_eq(member_state(member), MEMBER_OVER);
}
END_TEST

START_TEST(another_launch_is_not_obeyed)
{
    struct msg m = message(MSG_START, 9);

    attach();
    m.instance = other_instance;
    receive(m);
    m.type = MSG_DONE;
    receive(m);
    expect("");
    lose("gone");
    join();
    called[0] = '\0';
    m.type = MSG_JOINED;
    receive(m);
    expect("");
    ck_assert_int_eq(member_state(member), MEMBER_JOINING);
}
END_TEST

/* -- reports ----------------------------------------------------------------------- */

START_TEST(reports_are_sent_again_in_order_until_answered)
{
    attach();
    report(MSG_FAILED, 1);
    report(MSG_STOPPED, 1);
    report(MSG_FINISHED, 2);
    expect("send FAILED 1#1; send STOPPED 1#2; send FINISHED 2#3; ");
    receive_ack(2);
    lose("gone");
    report(MSG_FAILED, 2);
    join();
    called[0] = '\0';
    receive_joined();
    expect("back; send FAILED 1#1; send FINISHED 2#3; send FAILED 2#4; ");
    ck_assert(id128_equal(&last_sent.instance, &instance));
    receive_ack(1);
    receive_ack(4);
    receive_ack(4);
    receive_ack(3);
    ck_assert_uint_eq(member_unanswered(member), 0);
    report(MSG_STOPPED, 2);
    expect("send STOPPED 2#5; ");
}
END_TEST

START_TEST(a_refused_report_is_answered)
{
    attach();
    report(MSG_FAILED, 1);
    receive_refused(REFUSED_FENCED, false, 1);
    ck_assert_uint_eq(member_unanswered(member), 0);
    receive_refused(REFUSED_FENCED, false, 1); /* it had been sent twice */
    ck_assert_int_eq(member_state(member), MEMBER_ATTACHED);
}
END_TEST

START_TEST(a_report_refused_for_now_goes_again_with_the_next_heartbeat)
{
    attach();
    report(MSG_FAILED, 1);
    receive_refused(REFUSED_NO_SPACE, true, 1);
    ck_assert_uint_eq(member_unanswered(member), 1);
    called[0] = '\0';
    tick();
    expect("send HEARTBEAT; send FAILED 1#1; ");
    tick();
    expect("send HEARTBEAT; ");
}
END_TEST

START_TEST(failures_beyond_any_reason_are_not_kept)
{
    for (int i = 0; i < WORKERS_PER_NODE_MAX + 10; i++)
        report(MSG_FAILED, 1);
    ck_assert_uint_eq(member_unanswered(member), WORKERS_PER_NODE_MAX);
    report(MSG_STOPPED, 1);
    ck_assert_uint_eq(member_unanswered(member), WORKERS_PER_NODE_MAX + 1);
}
END_TEST

/* -- orders ------------------------------------------------------------------------ */

START_TEST(an_order_is_given_once)
{
    attach();
    receive_plain(MSG_START, 1);
    receive_plain(MSG_START, 1);
    expect("order START 1; ");
    receive_stop(1, 5000);
    receive_stop(1, 5000);
    receive_stop(1, 9000);
    expect("order STOP 1; ");
    receive_stop(1, 0);
    expect("order STOP 1; ");
    ck_assert_uint_eq(last_order.stop.grace_ms, 0);
    receive_plain(MSG_START, 1);
    expect("");
    receive_plain(MSG_DONE, 1);
    receive_plain(MSG_DONE, 1);
    receive_plain(MSG_START, 2);
    expect("order DONE 1; ");
}
END_TEST

START_TEST(repeats_after_a_new_connection_are_held_back)
{
    attach();
    receive_plain(MSG_START, 3);
    lose("gone");
    attach();
    receive_plain(MSG_START, 3);
    expect("");
    receive_stop(3, 100);
    expect("order STOP 3; ");
}
END_TEST

START_TEST(orders_of_an_older_epoch_are_dropped)
{
    attach();
    receive_plain(MSG_START, 3);
    called[0] = '\0';
    receive_plain(MSG_START, 2);
    receive_stop(2, 0);
    receive_plain(MSG_MEMBERS, 2);
    receive_plain(MSG_ASK_CHECKPOINT, 2);
    expect("");
    ck_assert_uint_eq(member_epoch(member), 3);
    receive_plain(MSG_MEMBERS, 3);
    receive_plain(MSG_ASK_CHECKPOINT, 3);
    expect("order MEMBERS 3; order ASK_CHECKPOINT 3; ");
}
END_TEST

START_TEST(a_stop_may_come_before_the_start_it_overtook)
{
    attach();
    receive_stop(2, 0);
    receive_plain(MSG_START, 2);
    expect("order STOP 2; ");
    receive_plain(MSG_START, 3);
    expect("order START 3; ");
}
END_TEST

START_TEST(after_the_result_it_says_goodbye)
{
    attach();
    receive_plain(MSG_DONE, 1);
    expect("order DONE 1; ");
    member_bye(member, now);
    expect("send BYE; disconnect; ");
    ck_assert_int_eq(member_state(member), MEMBER_OVER);
}
END_TEST

START_TEST(after_the_result_nobody_misses_the_rendezvous)
{
    attach();
    receive_plain(MSG_DONE, 1);
    called[0] = '\0';
    lose("gone");
    expect("");
    ck_assert_int_eq(member_state(member), MEMBER_OVER);
}
END_TEST

/* -- being cut off ----------------------------------------------------------------- */

START_TEST(workers_outlive_the_rendezvous_for_the_outage_grace)
{
    uint64_t lost_at;

    attach();
    lost_at = now;
    lose("reset by peer");
    while (member_state(member) != MEMBER_OVER) {
        tick();
        if (member_state(member) != MEMBER_OVER)
            lose("connection refused");
    }
    ck_assert_uint_eq(now, lost_at + GRACE_MS);
    ck_assert_ptr_nonnull(strstr(last_why, "20.0 s: connection refused"));
    ck_assert_ptr_nonnull(strstr(called, "abandoned"));
    ck_assert_ptr_null(strstr(strstr(called, "out; ") + 1, "out; "));
}
END_TEST

START_TEST(a_new_attachment_starts_a_new_grace)
{
    attach();
    lose("gone");
    pass_until(now + RECONNECT_DELAY_MS_MIN);
    member_connected(member, now);
    receive_welcome();
    receive_joined();
    pass_until(now + LEASE_MS);
    ck_assert_int_eq(member_state(member), MEMBER_APART);
    ck_assert_uint_le(member_next_tick(member), now + GRACE_MS);
    pass_until(now + GRACE_MS - 1);
    ck_assert_int_ne(member_state(member), MEMBER_OVER);
    pass_until(now + 1);
    ck_assert_int_eq(member_state(member), MEMBER_OVER);
}
END_TEST

START_TEST(the_strict_fence_ends_workers_before_the_lease)
{
    uint64_t joined_at;

    attach_strictly();
    joined_at = now;
    receive_plain(MSG_START, 1);
    pass_until(joined_at + LEASE_MS * 8 / 10 - 1);
    ck_assert_int_eq(member_state(member), MEMBER_ATTACHED);
    called[0] = '\0';
    pass_until(joined_at + LEASE_MS * 8 / 10);
    expect("disconnect; abandoned; ");
}
END_TEST

START_TEST(the_strict_fence_counts_from_when_an_answered_heartbeat_was_sent)
{
    uint64_t sent_at;

    attach_strictly();
    receive_plain(MSG_START, 1);
    tick();
    sent_at = now;
    pass_until(sent_at + LEASE_MS / 2);
    receive_plain(MSG_BEAT, 1); /* long under way */
    pass_until(sent_at + LEASE_MS * 8 / 10 - 1);
    ck_assert_int_eq(member_state(member), MEMBER_ATTACHED);
    pass_until(sent_at + LEASE_MS * 8 / 10);
    ck_assert_int_eq(member_state(member), MEMBER_OVER);
}
END_TEST

START_TEST(the_strict_fence_holds_while_the_connection_is_lost)
{
    uint64_t joined_at;

    attach_strictly();
    joined_at = now;
    receive_plain(MSG_START, 1);
    lose("gone");
    while (member_state(member) != MEMBER_OVER) {
        tick();
        lose("connection refused");
    }
    ck_assert_uint_eq(now, joined_at + LEASE_MS * 8 / 10);
}
END_TEST

START_TEST(nothing_is_fenced_where_nothing_lives)
{
    attach_strictly();
    receive_plain(MSG_START, 1);
    report(MSG_STOPPED, 1);
    lose("gone");
    pass_until(now + LEASE_MS);
    ck_assert_int_ne(member_state(member), MEMBER_OVER);
}
END_TEST

START_TEST(a_finished_job_may_answer_with_the_result_alone)
{
    attach();
    receive_plain(MSG_START, 1);
    lose("gone");
    join();
    called[0] = '\0';
    receive_plain(MSG_START, 1);
    receive_plain(MSG_DONE, 1);
    expect("order DONE 1; ");
    member_bye(member, now);
    expect("disconnect; ");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("member");
    TCase *t = tcase_create("member");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, every_event_in_every_state_leads_where_the_matrix_says, 0,
                        ROWS * EVENTS);
    tcase_add_test(t, nothing_is_called_once_it_is_over);
    tcase_add_test(t, it_connects_greets_and_joins_at_once);
    tcase_add_test(t, an_unknown_version_is_no_welcome);
    tcase_add_test(t, a_final_refusal_is_the_last_order);
    tcase_add_test(t, a_refusal_for_now_is_tried_again);
    tcase_add_test(t, it_gives_up_if_it_never_gets_in);
    tcase_add_loop_test(t, an_attempt_without_an_answer_ends, 0, 3);
    tcase_add_loop_test(t, retries_back_off_between_the_limits, 0, 20);
    tcase_add_test(t, agents_that_fail_together_do_not_return_together);
    tcase_add_test(t, only_being_taken_in_forgets_the_failures_before);
    tcase_add_test(t, it_beats_five_times_a_lease);
    tcase_add_test(t, heartbeats_carry_the_progress);
    tcase_add_test(t, a_beat_is_passed_on_only_while_nodes_are_missing);
    tcase_add_test(t, silence_for_a_lease_is_a_dead_connection);
    tcase_add_test(t, other_messages_do_not_stand_in_for_a_beat);
    tcase_add_test(t, it_resumes_with_what_it_knows);
    tcase_add_test(t, a_changed_place_is_told_again);
    tcase_add_test(t, being_fenced_is_the_end);
    tcase_add_test(t, another_launch_is_not_obeyed);
    tcase_add_test(t, reports_are_sent_again_in_order_until_answered);
    tcase_add_test(t, a_refused_report_is_answered);
    tcase_add_test(t, a_report_refused_for_now_goes_again_with_the_next_heartbeat);
    tcase_add_test(t, failures_beyond_any_reason_are_not_kept);
    tcase_add_test(t, an_order_is_given_once);
    tcase_add_test(t, repeats_after_a_new_connection_are_held_back);
    tcase_add_test(t, orders_of_an_older_epoch_are_dropped);
    tcase_add_test(t, a_stop_may_come_before_the_start_it_overtook);
    tcase_add_test(t, after_the_result_it_says_goodbye);
    tcase_add_test(t, after_the_result_nobody_misses_the_rendezvous);
    tcase_add_test(t, a_finished_job_may_answer_with_the_result_alone);
    tcase_add_test(t, workers_outlive_the_rendezvous_for_the_outage_grace);
    tcase_add_test(t, a_new_attachment_starts_a_new_grace);
    tcase_add_test(t, the_strict_fence_ends_workers_before_the_lease);
    tcase_add_test(t, the_strict_fence_counts_from_when_an_answered_heartbeat_was_sent);
    tcase_add_test(t, the_strict_fence_holds_while_the_connection_is_lost);
    tcase_add_test(t, nothing_is_fenced_where_nothing_lives);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return check_main(suite());
}
