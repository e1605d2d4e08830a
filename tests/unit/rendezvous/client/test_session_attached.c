/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/session.h"

#include <string.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/session_script.h"

/* -- keeping the lease ------------------------------------------------------ */

FIXTURE(script_setup, script_teardown);

TEST(it_beats_five_times_a_lease)
{
    uint64_t first;

    script_attach();
    first = session_next_tick(script_member);
    ck_assert_uint_gt(first, script_now);
    ck_assert_uint_le(first, script_now + BEAT_MS);
    for (int i = 0; i < 20; i++) {
        ck_assert_uint_eq(session_next_tick(script_member),
                          first + (uint64_t)i * BEAT_MS);
        script_tick();
        script_expect("send HEARTBEAT; ");
        script_receive_plain(MSG_BEAT, 0);
    }
}

TEST(a_hurried_beat_is_sent_at_once_and_the_next_one_in_time)
{
    script_attach();
    session_hurry(script_member, script_now);
    ck_assert_uint_eq(session_next_tick(script_member), script_now);
    script_tick();
    script_expect("send HEARTBEAT; ");
    ck_assert_uint_eq(session_next_tick(script_member), script_now + BEAT_MS);
}

TEST(heartbeats_carry_the_progress)
{
    struct msg_heartbeat progress = { .step = 12, .note = "warming up" };

    script_attach();
    session_set_progress(script_member, &progress);
    script_tick();
    ck_assert_uint_eq(script_last_sent.heartbeat.step, 12);
    ck_assert_str_eq(script_last_sent.heartbeat.note, "warming up");
    ck_assert_uint_eq(script_last_sent.sequence, 0);
}

TEST(a_beat_is_passed_on_only_while_nodes_are_missing)
{
    struct msg m = script_message(MSG_BEAT, 0);

    script_attach();
    script_receive(m);
    script_expect("");
    m.beat.waiting = true;
    script_receive(m);
    script_expect("order BEAT; ");
}

TEST(silence_for_a_lease_is_a_dead_connection)
{
    uint64_t heard;

    script_attach();
    heard = script_now;
    script_pass_until(heard + LEASE_MS - 1);
    script_called[0] = '\0';
    script_pass_until(heard + LEASE_MS);
    script_expect("disconnect; out; ");
}

/* With a strict fence, too: another place must have answered before the workers end. */
TEST(a_silent_rendezvous_that_others_keep_is_soon_looked_for_elsewhere)
{
    uint64_t asked;

    script_attach_strictly();
    session_set_kept(script_member, true, true);
    asked = session_next_tick(script_member);
    while (session_state(script_member) == SESSION_ATTACHED)
        script_tick();
    ck_assert_int_eq(session_state(script_member), SESSION_APART);
    ck_assert_uint_le(script_now, asked + 2 * BEAT_MS);
}

TEST(other_messages_do_not_stand_in_for_a_beat)
{
    uint64_t asked;

    script_attach();
    asked = session_next_tick(script_member);
    while (session_state(script_member) == SESSION_ATTACHED) {
        script_tick();
        script_receive_plain(MSG_MEMBERS, 1);
    }
    ck_assert_uint_eq(script_now, asked + LEASE_MS);
}

/* -- resuming --------------------------------------------------------------- */

TEST(it_resumes_with_what_it_knows)
{
    script_attach();
    script_receive_plain(MSG_START, 4);
    script_lose("reset by peer");
    script_expect("order START 4; out; ");
    ck_assert_str_eq(script_last_why, "reset by peer");
    script_greet();
    script_receive_welcome();
    script_expect("connect; send HELLO; send RESUME; ");
    ck_assert_uint_eq(script_last_sent.epoch, 4);
    ck_assert_uint_eq(script_last_sent.resume.node, NODE);
    ck_assert_str_eq(script_last_sent.resume.run_id, "job");
    ck_assert(id128_equal(&script_last_sent.instance, &script_instance));
    script_receive_joined();
    script_expect("back; ");
}

TEST(a_changed_place_is_told_again)
{
    struct msg m = script_message(MSG_JOINED, 0);

    script_attach();
    script_receive_joined();
    script_expect("");
    m.joined = (struct msg_joined){ .node = NODE, .slot = 4, .lease_ms = LEASE_MS };
    script_receive(m);
    script_expect("order JOINED; ");
}

TEST(being_fenced_is_the_end)
{
    script_attach();
    script_lose("gone");
    script_join();
    script_called[0] = '\0';
    script_receive_refused(REFUSED_FENCED, false, 0);
    script_expect("disconnect; order REFUSED; ");
    ck_assert_int_eq(session_state(script_member), SESSION_OVER);
}

TEST(another_rendezvous_is_an_outage)
{
    const struct id128 another = { { 0x66 } }, ours = script_rendezvous;

    script_attach();
    script_lose("gone");
    for (unsigned i = 0; i < 3; i++) {
        script_rendezvous = i == 2 ? (struct id128){ { 0 } } : another;
        script_greet();
        script_called[0] = '\0';
        script_receive_welcome();
        /* no RESUME: it would tell the incarnation */
        script_expect(i == 0 ? "disconnect; out; " : "disconnect; ");
        script_receive_joined();
        script_receive_plain(MSG_DONE, 1);
        script_expect("");
    }
    script_greet();
    script_called[0] = '\0';
    script_receive_refused(REFUSED_VERSION, false, 0);
    script_expect("disconnect; ");
    script_rendezvous = ours;
    script_join();
    script_called[0] = '\0';
    script_receive_joined();
    script_expect("back; ");
}

TEST(another_rendezvous_is_not_waited_for_longer)
{
    script_attach();
    script_lose("gone");
    script_rendezvous = (struct id128){ { 0x66 } };
    script_greet();
    script_receive_welcome();
    script_called[0] = '\0';
    session_tick(script_member, T0 + GRACE_MS + LEASE_MS);
    ck_assert_int_eq(session_state(script_member), SESSION_OVER);
    ck_assert_ptr_nonnull(strstr(script_last_why, "another rendezvous answers"));
}

TEST(another_launch_is_not_obeyed)
{
    struct msg m = script_message(MSG_START, 9);

    script_attach();
    m.instance = script_other_instance;
    script_receive(m);
    m.type = MSG_DONE;
    script_receive(m);
    script_expect("");
    script_lose("gone");
    script_join();
    script_called[0] = '\0';
    m.type = MSG_JOINED;
    script_receive(m);
    script_expect("");
    ck_assert_int_eq(session_state(script_member), SESSION_JOINING);
}

/* -- reports ---------------------------------------------------------------- */

TEST(reports_are_sent_again_in_order_until_answered)
{
    script_attach();
    script_report(MSG_FAILED, 1);
    script_report(MSG_STOPPED, 1);
    script_report(MSG_FINISHED, 2);
    script_expect("send FAILED 1#1; send STOPPED 1#2; send FINISHED 2#3; ");
    script_receive_ack(2);
    script_lose("gone");
    script_report(MSG_FAILED, 2);
    script_join();
    script_called[0] = '\0';
    script_receive_joined();
    script_expect("back; send FAILED 1#1; send FINISHED 2#3; send FAILED 2#4; ");
    ck_assert(id128_equal(&script_last_sent.instance, &script_instance));
    script_receive_ack(1);
    script_receive_ack(4);
    script_receive_ack(4);
    script_receive_ack(3);
    ck_assert_uint_eq(session_unanswered(script_member), 0);
    script_report(MSG_STOPPED, 2);
    script_expect("send STOPPED 2#5; ");
}

TEST(a_refused_report_is_answered)
{
    script_attach();
    script_report(MSG_FAILED, 1);
    script_receive_refused(REFUSED_FENCED, false, 1);
    ck_assert_uint_eq(session_unanswered(script_member), 0);
    script_receive_refused(REFUSED_FENCED, false, 1); /* it had been sent twice */
    ck_assert_int_eq(session_state(script_member), SESSION_ATTACHED);
}

TEST(a_report_refused_for_now_goes_again_with_the_next_heartbeat)
{
    script_attach();
    script_report(MSG_FAILED, 1);
    script_receive_refused(REFUSED_NO_SPACE, true, 1);
    ck_assert_uint_eq(session_unanswered(script_member), 1);
    script_called[0] = '\0';
    script_tick();
    script_expect("send HEARTBEAT; send FAILED 1#1; ");
    script_tick();
    script_expect("send HEARTBEAT; ");
}

TEST(failures_beyond_any_reason_are_not_kept)
{
    for (int i = 0; i < WORKERS_PER_NODE_MAX + 10; i++)
        script_report(MSG_FAILED, 1);
    ck_assert_uint_eq(session_unanswered(script_member), WORKERS_PER_NODE_MAX);
    script_report(MSG_STOPPED, 1);
    ck_assert_uint_eq(session_unanswered(script_member), WORKERS_PER_NODE_MAX + 1);
}

/* -- orders ----------------------------------------------------------------- */

TEST(an_order_is_given_once)
{
    script_attach();
    script_receive_plain(MSG_START, 1);
    script_receive_plain(MSG_START, 1);
    script_expect("order START 1; ");
    script_receive_stop(1, 5000);
    script_receive_stop(1, 5000);
    script_receive_stop(1, 9000);
    script_expect("order STOP 1; ");
    script_receive_stop(1, 0);
    script_expect("order STOP 1; ");
    ck_assert_uint_eq(script_last_order.stop.grace_ms, 0);
    script_receive_plain(MSG_START, 1);
    script_expect("");
    script_receive_plain(MSG_DONE, 1);
    script_receive_plain(MSG_DONE, 1);
    script_receive_plain(MSG_START, 2);
    script_expect("order DONE 1; ");
}

TEST(repeats_after_a_new_connection_are_held_back)
{
    script_attach();
    script_receive_plain(MSG_START, 3);
    script_lose("gone");
    script_attach();
    script_receive_plain(MSG_START, 3);
    script_expect("");
    script_receive_stop(3, 100);
    script_expect("order STOP 3; ");
}

/* The rendezvous has lost what it had acknowledged. */
TEST(what_was_reported_of_an_epoch_is_said_again_if_it_is_ordered_again)
{
    script_attach();
    script_receive_plain(MSG_START, 3);
    script_report(MSG_STORE_READY, 3);
    script_report(MSG_FAILED, 3);
    script_report(MSG_FAILED, 3);
    script_called[0] = '\0';
    script_receive_plain(MSG_START, 3); /* nothing is answered yet */
    script_expect("");
    for (uint64_t sequence = 1; sequence <= 3; sequence++)
        script_receive_ack(sequence);
    script_receive_plain(MSG_START, 3);
    script_expect("send READY 3#4; send FAILED 3#5; ");
    script_receive_stop(3, 100);
    script_report(MSG_STOPPED, 3);
    script_receive_ack(6);
    script_called[0] = '\0';
    script_receive_stop(3, 100);
    script_expect("send STOPPED 3#7; ");
    ck_assert_uint_eq(script_last_sent.epoch, 3);
    script_receive_ack(7);
    script_receive_plain(MSG_START, 4);
    script_receive_plain(MSG_START, 4);
    script_expect("order START 4; ");
}

TEST(orders_of_an_older_epoch_are_dropped_and_told_once)
{
    script_attach();
    script_receive_plain(MSG_START, 3);
    script_called[0] = '\0';
    script_receive_plain(MSG_START, 2);
    script_expect("order NOTICE; ");
    ck_assert_str_ne(script_last_order.notice.text, "");
    script_receive_stop(2, 0);
    script_receive_plain(MSG_MEMBERS, 2);
    script_receive_plain(MSG_ASK_CHECKPOINT, 2);
    script_expect("");
    ck_assert_uint_eq(session_epoch(script_member), 3);
    script_receive_plain(MSG_MEMBERS, 3);
    script_receive_plain(MSG_ASK_CHECKPOINT, 3);
    script_expect("order MEMBERS 3; order ASK_CHECKPOINT 3; ");
}

TEST(a_stop_may_come_before_the_start_it_overtook)
{
    script_attach();
    script_receive_stop(2, 0);
    script_receive_plain(MSG_START, 2);
    script_expect("order STOP 2; ");
    script_receive_plain(MSG_START, 3);
    script_expect("order START 3; ");
}

TEST(after_the_result_it_says_goodbye)
{
    script_attach();
    script_receive_plain(MSG_DONE, 1);
    script_expect("order DONE 1; ");
    session_bye(script_member, script_now);
    script_expect("send BYE; disconnect; ");
    ck_assert_int_eq(session_state(script_member), SESSION_OVER);
}

TEST(after_the_result_the_rendezvous_is_not_missed)
{
    script_attach();
    script_receive_plain(MSG_DONE, 1);
    script_called[0] = '\0';
    script_lose("gone");
    script_expect("");
    ck_assert_int_eq(session_state(script_member), SESSION_OVER);
}

/* -- being cut off ---------------------------------------------------------- */

TEST(workers_outlive_the_rendezvous_for_the_outage_grace)
{
    uint64_t lost_at;

    script_attach();
    lost_at = script_now;
    script_lose("reset by peer");
    while (session_state(script_member) != SESSION_OVER) {
        script_tick();
        if (session_state(script_member) != SESSION_OVER)
            script_lose("connection refused");
    }
    ck_assert_uint_eq(script_now, lost_at + GRACE_MS);
    ck_assert_ptr_nonnull(strstr(script_last_why, "20.0 s: connection refused"));
    ck_assert_ptr_nonnull(strstr(script_called, "abandoned"));
    ck_assert_ptr_null(strstr(strstr(script_called, "out; ") + 1, "out; "));
}

TEST(workers_do_not_outlive_a_rendezvous_that_keeps_nothing)
{
    uint64_t lost_at;

    script_durable = false;
    script_attach();
    lost_at = script_now;
    script_lose("gone");
    while (session_state(script_member) != SESSION_OVER)
        script_tick();
    script_durable = true;
    ck_assert_uint_eq(script_now - lost_at, LEASE_MS / HEARTBEATS_PER_LEASE < 1000
                                                ? LEASE_MS / HEARTBEATS_PER_LEASE
                                                : 1000);
}

TEST(a_rendezvous_that_refuses_the_key_is_waited_for_a_lease)
{
    uint64_t lost_at;

    script_durable = false;
    script_attach();
    lost_at = script_now;
    session_key_refused(script_member);
    script_lose("the rendezvous does not accept the key");
    while (session_state(script_member) != SESSION_OVER)
        script_tick();
    script_durable = true;
    ck_assert_uint_eq(script_now - lost_at, LEASE_MS);
}

TEST(a_new_attachment_starts_a_new_grace)
{
    script_attach();
    script_lose("gone");
    script_pass_until(script_now + RECONNECT_DELAY_MS_MIN);
    session_connected(script_member, script_now);
    script_receive_welcome();
    script_receive_joined();
    script_pass_until(script_now + LEASE_MS);
    ck_assert_int_eq(session_state(script_member), SESSION_APART);
    ck_assert_uint_le(session_next_tick(script_member), script_now + GRACE_MS);
    script_pass_until(script_now + GRACE_MS - 1);
    ck_assert_int_ne(session_state(script_member), SESSION_OVER);
    script_pass_until(script_now + 1);
    ck_assert_int_eq(session_state(script_member), SESSION_OVER);
}

TEST(the_strict_fence_ends_workers_before_the_lease)
{
    uint64_t joined_at;

    script_attach_strictly();
    joined_at = script_now;
    script_receive_plain(MSG_START, 1);
    script_pass_until(joined_at + LEASE_MS * 8 / 10 - 1);
    ck_assert_int_eq(session_state(script_member), SESSION_ATTACHED);
    script_called[0] = '\0';
    script_pass_until(joined_at + LEASE_MS * 8 / 10);
    script_expect("disconnect; abandoned; ");
}

TEST(the_strict_fence_counts_from_when_an_answered_heartbeat_was_sent)
{
    uint64_t sent_at;

    script_attach_strictly();
    script_receive_plain(MSG_START, 1);
    script_tick();
    sent_at = script_now;
    script_pass_until(sent_at + LEASE_MS / 2);
    script_receive_plain(MSG_BEAT, 1); /* long under way */
    script_pass_until(sent_at + LEASE_MS * 8 / 10 - 1);
    ck_assert_int_eq(session_state(script_member), SESSION_ATTACHED);
    script_pass_until(sent_at + LEASE_MS * 8 / 10);
    ck_assert_int_eq(session_state(script_member), SESSION_OVER);
}

TEST(the_strict_fence_holds_while_the_connection_is_lost)
{
    uint64_t joined_at;

    script_attach_strictly();
    joined_at = script_now;
    script_receive_plain(MSG_START, 1);
    script_lose("gone");
    while (session_state(script_member) != SESSION_OVER) {
        script_tick();
        script_lose("connection refused");
    }
    ck_assert_uint_eq(script_now, joined_at + LEASE_MS * 8 / 10);
}

TEST(nothing_is_fenced_where_nothing_lives)
{
    script_attach_strictly();
    script_receive_plain(MSG_START, 1);
    script_report(MSG_STOPPED, 1);
    script_lose("gone");
    script_pass_until(script_now + LEASE_MS);
    ck_assert_int_ne(session_state(script_member), SESSION_OVER);
}

TEST(a_finished_job_may_answer_with_the_result_alone)
{
    script_attach();
    script_receive_plain(MSG_START, 1);
    script_lose("gone");
    script_join();
    script_called[0] = '\0';
    script_receive_plain(MSG_START, 1);
    script_receive_plain(MSG_DONE, 1);
    script_expect("order DONE 1; ");
    session_bye(script_member, script_now);
    script_expect("disconnect; ");
}
