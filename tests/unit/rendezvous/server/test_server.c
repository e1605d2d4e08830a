/* SPDX-License-Identifier: MIT */
/* A server with real sockets around the real registry, in one thread. */
#include "launcher/flags/limits.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/worlds/check_main.h"

#define PATIENCE_MS 60000
#define OTHER_USER 12345

static struct loop *loop;
static struct server *server;
static int store_fd;
static unsigned store_clients, store_clients_seen, most_in_a_turn;
static unsigned log_lines;
static char log_last[1024];

#define WAIT_FOR(condition)                                                            \
    do {                                                                               \
        uint64_t until = clock_ms() + PATIENCE_MS;                                     \
        bool holds;                                                                    \
        while (!(holds = (condition)) && clock_ms() < until)                           \
            loop_turn(loop, 10);                                                       \
        ck_assert_msg(holds, "in vain: %s", #condition);                               \
    } while (0)

/* -- helpers ---------------------------------------------------------------- */

static void on_store_client(void *arg, int fd)
{
    store_fd = fd;
    store_clients++;
}

static void close_store_client(void *arg, int fd)
{
    on_store_client(arg, fd);
    close(fd);
}

static void note_turn(void *arg)
{
    if (store_clients - store_clients_seen > most_in_a_turn)
        most_in_a_turn = store_clients - store_clients_seen;
    store_clients_seen = store_clients;
}

static void on_fatal(void *arg, const char *why)
{
    ck_abort_msg("%s", why);
}

static void on_line(void *arg, enum log_level level, const char *line)
{
    log_lines++;
    snprintf(log_last, sizeof(log_last), "%s", line);
}

static void create_server(struct server_config config)
{
    struct err e;
    size_t count;

    config.fatal = on_fatal;
    if (!config.listen.len)
        ck_assert_int_eq(net_resolve("127.0.0.1", 0, &config.listen, 1, &count, &e), 0);
    server = server_create(loop, &config, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
}

static void start_server_on(unsigned conns_max, bool with_store)
{
    create_server(
        (struct server_config){ .standalone = true,
                                .conns_max = conns_max,
                                .store_client = with_store ? on_store_client : NULL });
}

static void setup(void)
{
    loop = loop_create();
    log_set_sink(on_line, NULL);
    store_fd = -1;
}

static void teardown(void)
{
    server_destroy(server);
    loop_destroy(loop);
    log_set_sink(NULL, NULL);
}

static int dial_with(int fd)
{
    const struct net_addr *to = server_address(server);

    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&to->sa, to->len), 0);
    return fd;
}

static int dial_server(void)
{
    return dial_with(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static void send_to_server(int fd, const void *data, size_t size)
{
    ck_assert_int_eq(send(fd, data, size, MSG_NOSIGNAL), (ssize_t)size);
}

static void say_message(int fd, const struct msg *m)
{
    uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];

    send_to_server(fd, frame, proto_encode(m, frame, sizeof(frame)));
}

/* Without the preface: over a connection of its own process. */
static void say_local_hello(int fd, enum peer_kind role)
{
    struct msg m = { .type = MSG_HELLO, .sequence = 1 };

    m.hello.version_min = m.hello.version_max = PROTO_VERSION_MAX;
    m.hello.role = role;
    m.hello.keepers = role == PEER_AGENT;
    snprintf(m.hello.software, sizeof(m.hello.software), "test");
    say_message(fd, &m);
}

static void say_hello(int fd, enum peer_kind role)
{
    send_to_server(fd, FRAME_PREFACE, FRAME_PREFACE_SIZE);
    say_local_hello(fd, role);
}

/* True once that many whole messages are there, m the last of them. They stay there. */
static bool peek_messages(int fd, int count, struct msg *m)
{
    uint8_t data[4 * (FRAME_HEADER_SIZE + FRAME_BODY_MAX)];
    ssize_t n = recv(fd, data, sizeof(data), MSG_DONTWAIT | MSG_PEEK);
    size_t at = 0;
    struct frame_header h;
    struct err e;

    for (; count > 0; count--) {
        if (n <= (ssize_t)at ||
            frame_get_header(data + at, (size_t)n - at, FRAME_BODY_MAX, &h, &e) <= 0)
            return false;
        ck_assert_int_eq(proto_decode(&h, data + at + FRAME_HEADER_SIZE, m, &e), 0);
        at += FRAME_HEADER_SIZE + h.body_size;
    }
    return true;
}

static bool is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

    return n == 0 || (n < 0 && errno == ECONNRESET);
}

/* Closed, after whatever was there to be read. */
static bool is_reset(int fd)
{
    char data[4096];
    ssize_t n;

    while ((n = recv(fd, data, sizeof(data), MSG_DONTWAIT)) > 0)
        ;
    return n == 0 || errno == ECONNRESET;
}

/* A connection the server knows: crunctl's, greeted. */
static int dial_known(void)
{
    struct msg m;
    int fd = dial_server();

    say_hello(fd, PEER_CTL);
    WAIT_FOR(peek_messages(fd, 1, &m));
    ck_assert_int_eq(m.type, MSG_WELCOME);
    return fd;
}

static void say_join(int fd, const char *run_id, uint32_t nodes)
{
    struct msg m = { .type = MSG_JOIN, .sequence = 2 };
    struct msg_join *j = &m.join;

    snprintf(j->run_id, sizeof(j->run_id), "%s", run_id);
    j->incarnation = id128_random();
    strcpy(j->host, "node");
    j->workers = 1;
    j->node_rank = -1;
    j->config = (struct job_config){ .min_nodes = nodes,
                                     .max_nodes = nodes,
                                     .lease_ms = LEASE_MS_DEFAULT,
                                     .join_timeout_ms = JOIN_TIMEOUT_MS_DEFAULT,
                                     .last_call_ms = LAST_CALL_MS_DEFAULT,
                                     .shutdown_grace_ms = SHUTDOWN_GRACE_MS_DEFAULT,
                                     .failure_grace_ms = FAILURE_GRACE_MS_DEFAULT,
                                     .scale = JOB_SCALE_NOW };
    say_message(fd, &m);
}

static void ask_to_join(int fd, const char *run_id, uint32_t nodes)
{
    say_hello(fd, PEER_AGENT);
    say_join(fd, run_id, nodes);
}

/* joined is the answer. */
static void join_job(int fd, const char *run_id, uint32_t nodes, struct msg *joined)
{
    ask_to_join(fd, run_id, nodes);
    WAIT_FOR(peek_messages(fd, 2, joined));
    ck_assert_int_eq(joined->type, MSG_JOINED);
}

static int dial_member(void)
{
    struct msg joined;
    int fd = dial_server();

    join_job(fd, "job", 9, &joined);
    return fd;
}

/* Addresses of this machine. */
static int dial_between(const char *host, const char *to)
{
    uint16_t port = net_port(server_address(server));
    struct net_addr from, at;
    struct err e;
    size_t count;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(net_resolve(host, 0, &from, 1, &count, &e), 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&from.sa, from.len), 0);
    ck_assert_int_eq(net_resolve(to, port, &at, 1, &count, &e), 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&at.sa, at.len), 0);
    return fd;
}

static int dial_from(const char *host)
{
    return dial_between(host, "127.0.0.1");
}

/* -- cases ------------------------------------------------------------------ */

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
        ck_assert_uint_gt(now, before);
        ck_assert_uint_le(now - before, VISITORS_READ_PER_TURN);
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
        ck_assert_uint_le(now - before, FLUSHED_PER_TURN);
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
