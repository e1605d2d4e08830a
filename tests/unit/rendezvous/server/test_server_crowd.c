/* SPDX-License-Identifier: MIT */
/* A server to which many come at once, or more than it has places for. */
#include "tests/worlds/server_world.h"

FIXTURE(setup, teardown);

static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(many_that_speak_at_the_same_moment_are_heard_in_several_turns)
{
    enum { COUNT = 1500 };
    struct server_config config = { .standalone = true,
                                    .store_client = close_store_client,
                                    .fatal = on_fatal };
    static int fd[COUNT];
    struct err e;
    size_t count;

    raise_descriptor_limit();
    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &config.listen, 1, &count, &e), 0);
    server = server_create(loop, &config, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    for (int i = 0; i < COUNT; i++) {
        fd[i] = dial_server();
        loop_turn(loop, 0);
    }
    WAIT_FOR(server_connections(server) == COUNT);
    loop_on_turn_end(loop, note_turn, NULL);
    for (int i = 0; i < COUNT; i++)
        send_to_server(fd[i], "\x00\xce\xf7\x85\x3c", 5);
    WAIT_FOR(store_clients == COUNT);
    ck_assert_uint_le(most_in_a_turn, FIRST_BYTES_SHARE);
    for (int i = 0; i < COUNT; i++)
        close(fd[i]);
}

/* How many of them have that many messages. */
static unsigned count_answered(const int *fd, unsigned count, int messages)
{
    struct msg m;
    unsigned n = 0;

    for (unsigned i = 0; i < count; i++)
        n += peek_messages(fd[i], messages, &m);
    return n;
}

TEST(many_that_join_at_the_same_moment_are_answered_and_started_in_several_turns)
{
    enum { COUNT = 1100 };
    static int fd[COUNT];
    unsigned before = 0, now;
    struct msg m;

    raise_descriptor_limit();
    start_server_on(0, false);
    for (int i = 0; i < COUNT; i++) {
        fd[i] = dial_server();
        say_hello(fd[i], PEER_AGENT);
        loop_turn(loop, 0);
    }
    WAIT_FOR(count_answered(fd, COUNT, 1) == COUNT);
    for (int i = 0; i < COUNT; i++)
        say_join(fd[i], "job", COUNT);
    for (; before < COUNT; before = now) {
        loop_turn(loop, 10);
        now = count_answered(fd, COUNT, 2);
        /* those of the turn before may be seen only now */
        ck_assert_uint_le(now - before, 2 * VISITORS_READ_PER_TURN);
    }
    WAIT_FOR(peek_messages(fd[0], 3, &m)); /* START of the host of the store */
    m = (struct msg){ .type = MSG_STORE_READY,
                      .sequence = 3,
                      .epoch = m.epoch,
                      .instance = m.instance,
                      .store_ready = { .address = "127.0.0.1", .port = 29500 } };
    say_message(fd[0], &m);
    for (before = 0; before < COUNT; before = now) {
        now = count_answered(fd, COUNT, 3);
        ck_assert_uint_le(now - before, 2 * FLUSHED_PER_TURN);
        loop_turn(loop, 10);
    }
    for (int i = 0; i < COUNT; i++)
        close(fd[i]);
}

TEST(when_connections_run_out_a_silent_one_goes_then_the_oldest_stranger)
{
    int visitor, silent, greeted, newest;
    struct msg m;

    start_server_on(3, false);
    visitor = dial_known();
    greeted = dial_server();
    say_hello(greeted, PEER_AGENT);
    WAIT_FOR(peek_messages(greeted, 1, &m));
    silent = dial_server();
    WAIT_FOR(server_connections(server) == 3);
    newest = dial_server();
    WAIT_FOR(is_closed(silent));
    ck_assert(!is_closed(visitor) && !is_closed(newest));
    ck_assert(peek_messages(greeted, 1, &m));
    say_hello(newest, PEER_CTL);
    WAIT_FOR(peek_messages(newest, 1, &m));
    close(silent);
    silent = dial_server();
    WAIT_FOR(is_reset(greeted));
    ck_assert(!is_closed(visitor) && !is_closed(newest) && !is_closed(silent));
    close(visitor), close(silent), close(greeted), close(newest);
}

TEST(visitors_go_before_a_newcomer_is_refused_and_members_never)
{
    int member, first, second, third, refused;

    start_server_on(2, false);
    first = dial_known();
    member = dial_member();
    second = dial_member();
    WAIT_FOR(is_reset(first));
    refused = dial_server();
    WAIT_FOR(is_closed(refused));
    ck_assert(strstr(log_last, "in use"));
    ck_assert(!is_closed(member) && !is_closed(second));
    close(second);
    WAIT_FOR(server_connections(server) == 1);
    third = dial_known();
    close(member), close(first), close(third), close(refused);
}

/* Sends heartbeats of a member until none is taken any more. Returns how many. */
static unsigned say_heartbeats(int fd, const struct id128 *instance)
{
    struct msg m = { .type = MSG_HEARTBEAT, .sequence = 3, .instance = *instance };
    uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];
    size_t size = proto_encode(&m, frame, sizeof(frame)), at = 0;
    unsigned count = 0;

    for (unsigned idle = 0; idle < 20 && count < 1000000;) {
        ssize_t n = send(fd, frame + at, size - at, MSG_DONTWAIT | MSG_NOSIGNAL);

        ck_assert_msg(n >= 0 || errno == EAGAIN, "%s after %u", strerror(errno), count);
        idle = n > 0 ? 0 : idle + 1;
        at = n > 0 ? (at + (size_t)n) % size : at;
        count += n > 0 && at == 0;
        if (n < 0 || count % 64 == 0)
            loop_turn(loop, n < 0 ? 5 : 0);
    }
    return count;
}

TEST(a_member_that_reads_nothing_is_read_no_further)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
    struct msg m = { 0 };
    unsigned count;

    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    start_server_on(0, false);
    join_job(dial_with(fd), "job", 9, &m);
    count = say_heartbeats(fd, &m.instance);
    ck_assert_uint_lt(count, 1000000);
    ck_assert(!is_closed(fd));
    ck_assert_uint_eq(server_connections(server), 1);
    close(fd);
}

/* Strangers of one address join jobs of their own until all places are used. A node and
 * an operator of another address still come, and a member that has a place stays. */
TEST(members_and_operators_find_places_that_strangers_do_not_get)
{
    enum { STRANGERS = 40 };
    int member, honest, operator, stranger[STRANGERS], visitor[STRANGERS];
    struct msg m = { .type = MSG_STATUS }, joined;
    char run_id[16];

    start_server_on(16, false);
    member = dial_server();
    join_job(member, "runs", 1, &joined);
    for (int i = 0; i < STRANGERS; i++) {
        stranger[i] = dial_server();
        snprintf(run_id, sizeof(run_id), "strange-%d", i);
        ask_to_join(stranger[i], run_id, 2);
        loop_turn(loop, 5);
    }
    honest = dial_from("127.0.0.2");
    join_job(honest, "honest", 2, &joined);
    operator= dial_from("127.0.0.3");
    say_hello(operator, PEER_CTL);
    WAIT_FOR(peek_messages(operator, 1, &joined));
    for (int i = 0; i < STRANGERS; i++) {
        visitor[i] = dial_server();
        say_hello(visitor[i], PEER_CTL);
        loop_turn(loop, 5);
    }
    ck_assert_uint_le(server_connections(server), 16);
    ck_assert(!is_closed(member) && !is_closed(honest) && !is_closed(operator));
    say_message(operator, & m);
    WAIT_FOR(peek_messages(operator, 2, &joined));
    ck_assert_int_eq(joined.type, MSG_JOB_STATUS);
    for (int i = 0; i < STRANGERS; i++)
        close(stranger[i]), close(visitor[i]);
    close(member), close(honest), close(operator);
}

static void count_turn(void *arg)
{
    ++*(unsigned *)arg;
}

TEST(out_of_descriptors_it_rests_serves_and_goes_on)
{
    struct rlimit limit = { 64, 64 };
    struct msg m = { .type = MSG_STATUS };
    int known, waiting[4], hoard[64], hoarded = 0;
    uint64_t rested;
    unsigned turns = 0;

    start_server_on(0, false);
    known = dial_known();
    for (int i = 0; i < 4; i++)
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while ((hoard[hoarded] = dup(0)) >= 0)
        hoarded++;
    for (int i = 0; i < 4; i++)
        dial_with(waiting[i]);
    WAIT_FOR(log_lines > 0);
    ck_assert_msg(strstr(log_last, strerror(EMFILE)), "%s", log_last);
    loop_on_turn_end(loop, count_turn, &turns);
    rested = clock_ms() + 50;
    while (clock_ms() < rested)
        loop_turn(loop, 10);
    ck_assert_uint_lt(turns, 40);
    say_message(known, &m);
    WAIT_FOR(peek_messages(known, 2, &m));
    while (hoarded > 0)
        close(hoard[--hoarded]);
    WAIT_FOR(server_connections(server) == 5);
    for (int i = 0; i < 4; i++)
        close(waiting[i]);
    close(known);
    WAIT_FOR(server_connections(server) == 0);
}
