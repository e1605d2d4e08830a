/* SPDX-License-Identifier: MIT */
/* A server with real sockets around the real registry, in one thread. */
#include "tests/worlds/server_world.h"

FIXTURE(setup, teardown);

TEST(a_hello_is_welcomed)
{
    int fd;

    start_server_on(0, false);
    fd = dial_known();
    ck_assert_uint_eq(server_connections(server), 1);
    close(fd);
    WAIT_FOR(server_connections(server) == 0);
}

TEST(a_hello_is_welcomed_when_it_comes_byte_by_byte)
{
    struct msg m = { .type = MSG_HELLO };
    uint8_t data[1024];
    size_t size = FRAME_PREFACE_SIZE;
    int fd;

    start_server_on(0, true);
    m.hello.version_min = m.hello.version_max = PROTO_VERSION_MAX;
    m.hello.role = PEER_CTL;
    memcpy(data, FRAME_PREFACE, size);
    size += proto_encode(&m, data + size, sizeof(data) - size);
    fd = dial_server();
    for (size_t i = 0; i < size; i++) {
        send_to_server(fd, data + i, 1);
        loop_turn(loop, 1);
    }
    WAIT_FOR(peek_messages(fd, 1, &m));
    ck_assert_int_eq(m.type, MSG_WELCOME);
    close(fd);
}

/* A socket belongs to the user that makes it. */
static int dial_as(uid_t user)
{
    int fd;

    setfsuid(user);
    fd = dial_server();
    setfsuid(geteuid());
    return fd;
}

TEST(an_embedded_rendezvous_serves_its_own_user_alone)
{
    int fd;

    SKIP_UNLESS_ROOT();
    create_server((struct server_config){ .run_id = "job" });
    fd = dial_as(OTHER_USER);
    say_hello(fd, PEER_CTL);
    WAIT_FOR(is_closed(fd));
    ck_assert_ptr_nonnull(
        strstr(log_last, "it is of uid 12345, and this is of user root (uid 0)"));
    close(fd);
    close(dial_known());
}

TEST(a_request_whose_peer_is_gone_is_not_obeyed)
{
    struct msg stop = { .type = MSG_STOP_JOB, .sequence = 2 };
    int fd;

    create_server((struct server_config){ .run_id = "job" });
    fd = dial_server();
    say_hello(fd, PEER_CTL);
    say_message(fd, &stop);
    close(fd);
    WAIT_FOR(log_lines > 0);
    ck_assert_ptr_nonnull(strstr(log_last, "no process has its other end"));
    ck_assert_uint_eq(server_connections(server), 0);
}

static const struct stranger {
    const char *bytes;
    size_t size;
    const char *line; /* part of what the log says; NULL: nothing */
} strangers[] = {
    { "GET / HTTP/1.1\r\n\r\n", 18, "HTTP" },
    { "POST /x HTTP/1.1\r\n\r\n", 20, "HTTP" },
    { "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11, "TLS" },
    { "SSH-2.0-OpenSSH_9.2\r\n", 21, "SSH" },
    { "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", 8, "not a protocol" },
    { "\x00\x07\x4a\x11\x3c", 5, "" },
};

TEST_EACH(a_stranger_is_closed_and_the_log_says_what_it_was, strangers)
{
    const struct stranger *s = &strangers[_i];
    int fd;

    start_server_on(0, false);
    fd = dial_server();
    send_to_server(fd, s->bytes, s->size);
    WAIT_FOR(is_closed(fd));
    ck_assert_uint_eq(log_lines, 1);
    ck_assert_msg(strstr(log_last, s->line), "%s", log_last);
    close(fd);
}

TEST(a_source_gets_one_line_a_second)
{
    start_server_on(0, false);
    for (int i = 0; i < 50; i++) {
        int fd = dial_server();

        send_to_server(fd, "GET / HTTP/1.1\r\n\r\n", 18);
        WAIT_FOR(is_closed(fd));
        close(fd);
    }
    ck_assert_uint_le(log_lines, 2);
}

TEST(a_port_scan_leaves_no_trace)
{
    int fd;

    start_server_on(0, false);
    for (int i = 0; i < 50; i++)
        close(dial_server());
    fd = dial_known(); /* accepted after them */
    WAIT_FOR(server_connections(server) == 1);
    ck_assert_uint_eq(log_lines, 0);
    close(fd);
}

TEST(half_a_first_word_and_a_close_is_a_close)
{
    int fd;

    start_server_on(0, false);
    fd = dial_server();
    send_to_server(fd, "CRU", 3);
    WAIT_FOR(server_connections(server) == 1);
    shutdown(fd, SHUT_WR);
    WAIT_FOR(server_connections(server) == 0);
    close(fd);
}

TEST(a_store_client_is_handed_on_unread)
{
    static const char validate[] = { 0, 0x3c, (char)0x85, (char)0xf7, 0x3c };
    char seen[16];
    int fd;

    start_server_on(0, true);
    fd = dial_server();
    /* VALIDATE and PyTorch's magic number 0x3c85f7ce */
    send_to_server(fd, "\x00\xce\xf7\x85\x3c", sizeof(validate));
    WAIT_FOR(store_fd >= 0);
    ck_assert_int_eq(recv(store_fd, seen, sizeof(seen), 0), 5);
    ck_assert_uint_eq(server_connections(server), 0);
    close(store_fd);
    close(fd);
}

TEST(a_message_out_of_place_ends_the_connection)
{
    struct msg m = { .type = MSG_HEARTBEAT };
    int fd;

    start_server_on(0, false);
    fd = dial_server();
    send_to_server(fd, FRAME_PREFACE, FRAME_PREFACE_SIZE);
    say_message(fd, &m);
    WAIT_FOR(is_closed(fd));
    close(fd);
    WAIT_FOR(log_lines == 1);
    ck_assert_msg(strstr(log_last, "allowed"), "%s", log_last);
}

TEST(another_version_is_told_both_versions)
{
    struct msg m = { .type = MSG_HELLO, .sequence = 9 };
    int fd;

    start_server_on(0, false);
    fd = dial_server();
    m.hello.version_min = m.hello.version_max = 77;
    m.hello.role = PEER_AGENT;
    send_to_server(fd, FRAME_PREFACE, FRAME_PREFACE_SIZE);
    say_message(fd, &m);
    WAIT_FOR(peek_messages(fd, 1, &m));
    ck_assert_int_eq(m.type, MSG_REFUSED);
    ck_assert_int_eq(m.refused.why, REFUSED_VERSION);
    ck_assert(strstr(m.refused.text, "77"));
    close(fd);
}

TEST(a_port_in_use_is_said)
{
    struct server_config config = { .standalone = true, .fatal = on_fatal };
    struct err e;

    start_server_on(0, false);
    config.listen = *server_address(server);
    ck_assert_ptr_null(server_create(loop, &config, &e));
    ck_assert_msg(strstr(e.text, "in use"), "%s", e.text);
}

/* -- connections that are handed in -------------------------------------------- */

static int hand_in(void)
{
    int end[2];

    ck_assert_int_eq(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, end), 0);
    server_adopt(server, end[0]);
    return end[1];
}

TEST(a_tool_that_is_handed_in_is_an_operator_and_no_node)
{
    struct msg m;
    int tool, node;

    start_server_on(0, false);
    tool = hand_in();
    say_hello(tool, PEER_CTL);
    WAIT_FOR(peek_messages(tool, 1, &m));
    ck_assert_int_eq(m.type, MSG_WELCOME);
    node = hand_in();
    ask_to_join(node, "job", 2);
    WAIT_FOR(peek_messages(node, 2, &m));
    ck_assert_int_eq(m.type, MSG_REFUSED);
    ck_assert_int_eq(m.refused.why, REFUSED_ACCESS);
    ck_assert_ptr_null(registry_jobs(server_registry(server)));
    close(node);
    close(tool);
    WAIT_FOR(server_connections(server) == 0);
}

/* They take no place from others, and a silent one goes for a new one. */
TEST(tools_that_are_handed_in_are_bounded)
{
    int tool[CONNS_ADOPTED_MAX + 1], known;
    struct msg m;

    start_server_on(0, false);
    known = dial_known();
    for (unsigned i = 0; i <= CONNS_ADOPTED_MAX; i++)
        tool[i] = hand_in();
    ck_assert_uint_eq(server_connections(server), CONNS_ADOPTED_MAX + 1);
    ck_assert(is_closed(tool[0]));
    for (unsigned i = 1; i <= CONNS_ADOPTED_MAX; i++) {
        say_hello(tool[i], PEER_CTL);
        WAIT_FOR(peek_messages(tool[i], 1, &m));
    }
    close(tool[0]);
    tool[0] = hand_in(); /* all others speak */
    ck_assert(is_closed(tool[0]));
    ck_assert(peek_messages(known, 1, &m));
    for (unsigned i = 0; i <= CONNS_ADOPTED_MAX; i++)
        close(tool[i]);
    close(known);
    WAIT_FOR(server_connections(server) == 0);
}

/* -- other nodes that keep the records ------------------------------------------- */

static bool has_message(int fd, enum msg_type type)
{
    struct msg m;

    for (int count = 1; peek_messages(fd, count, &m); count++)
        if (m.type == type)
            return true;
    return false;
}

static int join_own_node(void)
{
    struct err e;
    int own = server_connect_local(server, &e);

    ck_assert_msg(own >= 0, "%s", e.text);
    say_local_hello(own, PEER_AGENT);
    say_join(own, "job", 9);
    return own;
}

/* It is the first on the list of those that keep them. */
TEST(no_other_node_keeps_the_records_before_the_own_one_has_joined)
{
    struct msg m;
    int other, own;

    create_server((struct server_config){ .replicas = 2 });
    other = dial_from("127.0.0.2");
    join_job(other, "job", 9, &m);
    own = join_own_node();
    WAIT_FOR(has_message(other, MSG_KEEP) || strstr(log_last, "no libraft"));
    close(other);
    close(own);
}

/* Others cannot reach it where this machine does, and it is lost with this machine. */
TEST(no_second_node_of_the_own_machine_keeps_the_records)
{
    struct server_config config = { .replicas = 2 };
    int own, second, other;
    size_t count;
    struct msg m;
    struct err e;

    ck_assert_int_eq(net_resolve("0.0.0.0", 0, &config.listen, 1, &count, &e), 0);
    create_server(config);
    own = join_own_node();
    /* the name of a machine is often of this address there */
    second = dial_between("127.0.0.1", "127.0.1.1");
    join_job(second, "job", 9, &m);
    other = dial_from("127.0.0.2");
    join_job(other, "job", 9, &m);
    WAIT_FOR(has_message(other, MSG_KEEP) || strstr(log_last, "no libraft"));
    ck_assert(!has_message(second, MSG_KEEP));
    close(other);
    close(second);
    close(own);
}
