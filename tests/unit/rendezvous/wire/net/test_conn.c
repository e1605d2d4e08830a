/* SPDX-License-Identifier: MIT */
/* A connection against the bare other end of a socket pair, byte by byte. */
#include "tests/worlds/conn_world.h"

FIXTURE(setup, teardown);

TEST_LOOP(a_message_is_delivered_however_the_stream_is_cut, 1, 60)
{
    uint8_t stream[2048];
    size_t size = FRAME_PREFACE_SIZE, step = (size_t)_i;
    struct side s = { 0 };

    open_side(&s, true);
    memcpy(stream, FRAME_PREFACE, FRAME_PREFACE_SIZE);
    size += make_frame(stream + size, sizeof(stream) - size);
    size += make_frame(stream + size, sizeof(stream) - size);
    for (size_t at = 0; at < size; at += step) {
        send_bytes_of(&s, stream + at, size - at < step ? size - at : step);
        loop_turn(loop, 0);
    }
    WAIT_FOR(s.messages == 2);
    ck_assert_int_eq(s.last.type, MSG_HELLO);
    ck_assert_uint_eq(s.last.sequence, 7);
    ck_assert_uint_eq(s.last.epoch, 3);
    ck_assert_int_eq(s.last.hello.role, PEER_AGENT);
    ck_assert_uint_eq(s.closed, 0);
    close_side(&s);
}

/* Streams that end a connection, with a word of the reason. */
static const struct bad_stream {
    const char *name;
    bool preface;
    const char *bytes;
    size_t size;
    const char *why;
} bad_streams[] = {
    { "wrong preface", true, "CRUN\r\nXX", 8, "control protocol" },
    { "wrong first byte", true, "X", 1, "control protocol" },
    { "body of length 0", false, "\0\0\0\0", 4, "" },
    { "body too long at once", false, "\xff\xff\xff\x7f", 4, "" },
    { "body of 513 bytes", false, "\x01\x02\0\0", 4, "" },
    { "flags set", false, "\x02\0\0\0\x01\0\x01\0", 8, "" },
    { "no such message", false,
      "\x02\0\0\0\xff\x7f\0\0"
      "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
      "{}",
      42, "" },
    { "not JSON", false,
      "\x02\0\0\0\x01\0\0\0"
      "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
      "{{",
      42, "" },
};

TEST_EACH(a_bad_stream_closes_the_connection_once_and_says_why, bad_streams)
{
    const struct bad_stream *bad = &bad_streams[_i];
    struct side s = { 0 };

    open_side(&s, bad->preface);
    send_bytes_of(&s, bad->bytes, bad->size);
    WAIT_FOR(s.closed);
    loop_turn(loop, 0);
    ck_assert_uint_eq(s.closed, 1);
    ck_assert_uint_eq(s.messages, 0);
    ck_assert_msg(s.why[0] && strstr(s.why, bad->why), "%s: \"%s\"", bad->name, s.why);
    ck_assert(at_end(&s));
    close_side(&s);
}

TEST(nothing_leaves_before_the_flush)
{
    struct side s = { 0 };
    struct msg m = hello();
    uint8_t seen[1024], frame[1024];

    open_side(&s, false);
    conn_send(s.conn, &m);
    loop_turn(loop, 0);
    ck_assert_uint_eq(next_message(&s, seen, sizeof(seen)), 0);
    conn_flush(s.conn);
    ck_assert_uint_eq(next_message(&s, seen, sizeof(seen)),
                      proto_encode(&m, frame, sizeof(frame)));
    close_side(&s);
}

/* The socket is full, the rest waits for it: what is queued after the flush stays. */
TEST(what_is_queued_after_the_flush_stays_behind_what_is_under_way)
{
    struct side s = { 0 };
    struct msg m = hello();
    uint8_t frame[1024], seen[4096];
    size_t size = proto_encode(&m, frame, sizeof(frame)), count = (1u << 20) / size,
           got = 0;

    open_side(&s, false);
    for (size_t i = 0; i < count; i++)
        conn_send(s.conn, &m);
    conn_flush(s.conn);
    conn_send(s.conn, &m);
    for (int idle = 0; idle < 5; idle++) {
        size_t n;

        while ((n = next_message(&s, seen, sizeof(seen))) > 0) {
            got += n;
            idle = 0;
        }
        loop_turn(loop, 5);
    }
    ck_assert_uint_eq(got, count * size);
    conn_flush(s.conn);
    ck_assert_uint_eq(next_message(&s, seen, sizeof(seen)), size);
    close_side(&s);
}

TEST(a_queue_over_its_cap_closes_the_connection)
{
    struct side s = { 0 };
    struct msg m = hello();
    uint8_t frame[1024];
    size_t size = proto_encode(&m, frame, sizeof(frame));

    open_side(&s, false);
    s.in_call = true;
    for (size_t i = 0; i <= CONTROL_OUT_MAX / size; i++)
        conn_send(s.conn, &m);
    conn_send(s.conn, &m);
    conn_flush(s.conn);
    s.in_call = false;
    WAIT_FOR(s.closed);
    ck_assert(strstr(s.why, "reads its messages too slowly"));
    close_side(&s);
}

TEST(the_peer_closing_between_frames_is_good_order)
{
    struct side s = { 0 };
    uint8_t frame[1024];

    open_side(&s, false);
    send_bytes_of(&s, frame, make_frame(frame, sizeof(frame)));
    close(s.peer);
    WAIT_FOR(s.closed);
    ck_assert_uint_eq(s.messages, 1);
    ck_assert_str_eq(s.why, "");
}

TEST(the_peer_closing_within_a_frame_is_not)
{
    struct side s = { 0 };
    uint8_t frame[1024];

    open_side(&s, false);
    send_bytes_of(&s, frame, make_frame(frame, sizeof(frame)) - 1);
    close(s.peer);
    WAIT_FOR(s.closed);
    ck_assert_uint_eq(s.messages, 0);
    ck_assert(strstr(s.why, "middle of a frame"));
}

TEST(a_deadline_that_passes_closes_with_its_words)
{
    struct side s = { 0 };

    open_side(&s, false);
    conn_set_deadline(s.conn, clock_ms() + 20, "nothing was said");
    WAIT_FOR(s.closed);
    ck_assert_str_eq(s.why, "nothing was said");
    close_side(&s);
}

TEST(a_deadline_taken_back_does_nothing)
{
    struct side s = { 0 };
    uint64_t until = clock_ms() + 60;

    open_side(&s, false);
    conn_set_deadline(s.conn, clock_ms() + 10, "nothing was said");
    conn_set_deadline(s.conn, 0, NULL);
    while (clock_ms() < until)
        loop_turn(loop, 10);
    ck_assert_uint_eq(s.closed, 0);
    close_side(&s);
}

/* More of them than the kernel names in one turn: some deadlines are seen first. */
TEST(what_came_before_a_late_deadline_was_looked_at_counts)
{
    struct side side[100] = { 0 };
    uint8_t frame[1024];
    size_t size = make_frame(frame, sizeof(frame));

    for (int i = 0; i < 100; i++) {
        side[i].destroy_on_message = true;
        open_side(&side[i], false);
        conn_set_deadline(side[i].conn, 1, "nothing was said");
        send_bytes_of(&side[i], frame, size);
    }
    loop_turn(loop, 10);
    loop_turn(loop, 10);
    for (int i = 0; i < 100; i++) {
        ck_assert_uint_eq(side[i].closed, 0);
        ck_assert_uint_eq(side[i].messages, 1);
        close_side(&side[i]);
    }
}

TEST(a_hang_up_lets_out_what_is_queued_though_the_peer_goes_on_talking)
{
    struct side s = { 0 };
    struct msg m = hello();
    uint8_t noise[4096] = { 0 }, seen[1024], frame[1024];

    open_side(&s, false);
    conn_send(s.conn, &m);
    conn_hang_up(s.conn);
    send_bytes_of(&s, noise, sizeof(noise));
    loop_turn(loop, 0);
    conn_flush(s.conn);
    loop_turn(loop, 0);
    ck_assert_uint_eq(next_message(&s, seen, sizeof(seen)),
                      proto_encode(&m, frame, sizeof(frame)));
    ck_assert(at_end(&s));
    ck_assert_uint_eq(s.messages, 0);
    ck_assert_uint_eq(s.closed, 0);
    close(s.peer);
    WAIT_FOR(s.closed);
    ck_assert_str_eq(s.why, "");
}

TEST(a_hang_up_does_not_wait_for_a_peer_that_stays)
{
    struct side s = { 0 };

    open_side(&s, false);
    conn_hang_up(s.conn);
    WAIT_FOR(s.closed);
    close_side(&s);
}

TEST(a_refused_message_ends_the_connection_with_the_owners_words)
{
    struct side s = { .refuse_messages = true };
    uint8_t frames[2048];
    size_t size = make_frame(frames, sizeof(frames));

    open_side(&s, false);
    size += make_frame(frames + size, sizeof(frames) - size);
    send_bytes_of(&s, frames, size);
    WAIT_FOR(s.closed);
    ck_assert_uint_eq(s.messages, 1);
    ck_assert_str_eq(s.why, "not this one");
    close_side(&s);
}

TEST(it_can_be_destroyed_from_within_a_message)
{
    struct side s = { .destroy_on_message = true };
    uint8_t frames[2048];
    size_t size = make_frame(frames, sizeof(frames));

    open_side(&s, false);
    size += make_frame(frames + size, sizeof(frames) - size);
    send_bytes_of(&s, frames, size);
    WAIT_FOR(s.messages == 1);
    loop_turn(loop, 0);
    ck_assert_uint_eq(s.messages, 1);
    ck_assert_uint_eq(s.closed, 0);
    ck_assert(at_end(&s));
    close_side(&s);
}

TEST(a_talker_gets_its_share_of_a_turn_and_no_more)
{
    struct side talker = { 0 }, other = { 0 };
    uint8_t frames[65536], one[1024];
    size_t size = 0, frame = make_frame(one, sizeof(one));

    open_side(&talker, false);
    open_side(&other, false);
    while (size + frame <= sizeof(frames))
        size += make_frame(frames + size, sizeof(frames) - size);
    send_bytes_of(&talker, frames, size);
    send_bytes_of(&other, one, frame);
    loop_turn(loop, 10);
    ck_assert_uint_eq(other.messages, 1);
    ck_assert_uint_le(talker.messages, READ_SHARE_BYTES / frame + 1);
    WAIT_FOR(talker.messages == size / frame);
    close_side(&talker);
    close_side(&other);
}

/* The other end has written `count` messages, and its owner looks when it is ready. */
static void open_asked(struct side *s, unsigned count)
{
    struct conn_calls calls = calls_of(s);
    uint8_t frame[1024];
    int pair[2];

    calls.ready = on_ready;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    s->peer = pair[0];
    s->conn = conn_create(loop, pair[1], false, NULL, &calls);
    for (unsigned i = 0; i < count; i++)
        send_bytes_of(s, frame, make_frame(frame, sizeof(frame)));
}

TEST(messages_wait_until_their_owner_is_ready_and_nothing_more_is_read)
{
    struct side s = { .ready = 3, .waiting_max = SIZE_MAX };
    uint8_t noise[4096] = { 0 };
    size_t taken = 0;
    ssize_t n;

    open_asked(&s, 5);
    WAIT_FOR(s.messages == 3);
    while ((n = send(s.peer, noise, sizeof(noise), MSG_DONTWAIT)) > 0)
        taken += (size_t)n;
    for (int i = 0; i < 20; i++)
        loop_turn(loop, 1);
    ck_assert_int_lt(send(s.peer, noise, sizeof(noise), MSG_DONTWAIT), 0);
    ck_assert_uint_gt(taken, 0);
    ck_assert_uint_eq(s.messages, 3);
    s.ready = 1;
    conn_resume(s.conn);
    ck_assert_uint_eq(s.messages, 4);
    s.ready = 1;
    conn_resume(s.conn);
    ck_assert_uint_eq(s.messages, 5);
    WAIT_FOR(s.closed); /* the noise is no frame */
    close(s.peer);
}

TEST(messages_wait_while_too_much_of_the_answers_does)
{
    struct side s = { .ready = 1000, .answer = true };
    uint8_t seen[65536];

    open_asked(&s, 20);
    for (int i = 0; i < 20; i++)
        loop_turn(loop, 1);
    ck_assert_uint_eq(s.messages, 1);
    for (unsigned i = 2; i <= 20; i++) {
        conn_flush(s.conn);
        ck_assert_uint_eq(s.messages, i - 1); /* a turn's end is too late for one */
        WAIT_FOR(s.messages == i);
    }
    ck_assert_uint_gt(next_message(&s, seen, sizeof(seen)), 0);
    close_side(&s);
}

TEST(a_hang_up_does_not_wait_for_messages_that_are_held)
{
    struct side s = { 0 };

    open_asked(&s, 5);
    loop_turn(loop, 10);
    conn_hang_up(s.conn);
    close(s.peer);
    WAIT_FOR(s.closed);
    ck_assert_uint_eq(s.messages, 0);
}
