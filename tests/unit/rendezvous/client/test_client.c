/* SPDX-License-Identifier: MIT */
/* takes: 8 s */
#include "tests/worlds/client_world.h"

static void live_a_whole_life(void)
{
    wait_until_told("START");
    expect("JOINED; START; ");
    ck_assert(agent.order.start.host_store);
    ck_assert_uint_eq(agent.order.start.world_size, 2);
    report(MSG_STORE_READY);
    report(MSG_FINISHED);
    wait_until_told("DONE");
    expect("DONE; ");
    ck_assert_int_eq(agent.order.done.reason, JOB_REASON_SUCCESS);
    client_bye(agent.client);
    while (!registry_is_idle(server_registry(server)))
        loop_turn(loop, 100);
    ck_assert_int_eq(session_state(client_session(agent.client)), SESSION_OVER);
    expect("");
}

FIXTURE(setup, teardown);

TEST(a_job_of_one_node_runs_over_the_network)
{
    start_server(true, NULL);
    join_over_the_network();
    live_a_whole_life();
}

TEST(a_job_of_one_node_runs_within_the_process)
{
    start_server(false, NULL);
    join_within_the_process();
    live_a_whole_life();
}

static void join_with_two(struct client_owner *a, const char *endpoint)
{
    struct client_config config = config_for(endpoint);

    config.session.join.config.min_nodes = config.session.join.config.max_nodes = 2;
    config.local = endpoint ? NULL : server;
    start_client(a, &config);
}

TEST(an_embedded_rendezvous_starts_its_own_node_first)
{
    char endpoint[64];

    start_server(true, NULL);
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", port);
    join_with_two(&other, endpoint);
    while (!strstr(other.told, "JOINED"))
        loop_turn(loop, 100);
    join_with_two(&agent, NULL);
    wait_until_told("START");
    ck_assert(agent.order.start.host_store);
    ck_assert_uint_eq(agent.order.start.slot, 0);
    ck_assert_str_eq(other.told, "JOINED; ");
    report(MSG_STORE_READY);
    while (!strstr(other.told, "START"))
        loop_turn(loop, 100);
    ck_assert_uint_eq(other.order.start.slot, 1);
    ck_assert_uint_eq(other.order.start.first_rank, 2);
    ck_assert_uint_eq(other.order.start.port, 29500);
}

TEST(a_heartbeat_keeps_the_connection)
{
    uint64_t until = clock_ms() + 1500;

    start_server(true, NULL);
    join_over_the_network();
    wait_until_told("START");
    while (clock_ms() < until)
        loop_turn(loop, 100);
    expect("JOINED; START; ");
    ck_assert_int_eq(session_state(client_session(agent.client)), SESSION_ATTACHED);
}

/* -- whose rendezvous it is -------------------------------------------------------- */

#define OTHER_USER 12345

/* The connection of a client to a listener, accepted by a process of that user. */
static int accept_as(uid_t user, int listener)
{
    int fd;

    do {
        loop_turn(loop, 10);
        setfsuid(user);
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        setfsuid(geteuid());
    } while (fd < 0);
    return fd;
}

static void send_frame(int fd, const struct msg *m)
{
    uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];
    size_t size = proto_encode(m, frame, sizeof(frame));

    ck_assert_int_eq(send(fd, frame, size, 0), (ssize_t)size);
}

static void welcome(int fd)
{
    struct msg m = { .type = MSG_WELCOME,
                     .sequence = 1,
                     .welcome = { .version = PROTO_VERSION_MIN, .software = "x" } };

    send_frame(fd, &m);
}

/* The type of the last message that the client has sent. */
static enum msg_type last_received(int fd)
{
    uint8_t data[4 * (FRAME_HEADER_SIZE + FRAME_BODY_MAX)];
    ssize_t n = recv(fd, data, sizeof(data), MSG_PEEK);
    size_t at = FRAME_PREFACE_SIZE;
    struct frame_header h = { .type = 0 };
    struct err e;

    while (n > (ssize_t)at &&
           frame_get_header(data + at, (size_t)n - at, FRAME_BODY_MAX, &h, &e) > 0)
        at += FRAME_HEADER_SIZE + h.body_size;
    return (enum msg_type)h.type;
}

/* A client that finds a listener of another user, and obeys one of `trusted`. */
static int meet_other_user(uid_t trusted)
{
    struct client_config config;
    struct net_addr addr;
    char endpoint[64];
    struct err e;
    int listener, fd;

    set_loopback(&addr, 0);
    listener = net_listen(&addr, 1, &e);
    ck_assert_int_eq(net_local_addr(listener, &addr), 0);
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", net_port(&addr));
    config = config_for(endpoint);
    config.rendezvous_user = trusted;
    start_agent(&config);
    fd = accept_as(OTHER_USER, listener);
    close(listener);
    while (last_received(fd) != MSG_HELLO)
        loop_turn(loop, 10);
    welcome(fd);
    return fd;
}

TEST(a_rendezvous_of_another_user_gets_no_join)
{
    char byte;
    int fd;

    SKIP_UNLESS_ROOT();
    fd = meet_other_user(0);
    wait_until_told("out");
    ck_assert_ptr_nonnull(strstr(agent.why,
                                 "the port is held by uid 12345, not by you, "
                                 "user root (uid 0): see --rendezvous-user"));
    ck_assert_int_eq(last_received(fd), MSG_HELLO);
    while (recv(fd, &byte, 1, 0) > 0)
        ;
    ck_assert_int_ne(errno, EAGAIN); /* it has hung up */
    close(fd);
}

TEST(a_rendezvous_of_a_named_user_is_obeyed)
{
    int fd;

    SKIP_UNLESS_ROOT();
    fd = meet_other_user(OTHER_USER);
    while (last_received(fd) != MSG_JOIN)
        loop_turn(loop, 10);
    close(fd);
}

TEST(an_answer_of_a_process_that_has_gone_is_not_obeyed)
{
    struct client_config config;
    char endpoint[64];
    uint16_t number;
    int filler, listener = full_listener(&filler, &number), fd;

    close(filler);
    close(accept_as(geteuid(), listener));
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", number);
    config = config_for(endpoint);
    start_agent(&config);
    fd = accept_as(geteuid(), listener);
    while (last_received(fd) != MSG_HELLO)
        loop_turn(loop, 10);
    welcome(fd);
    close(fd);
    wait_until_told("out");
    expect("out; ");
    close(listener);
}

TEST(a_daemon_that_comes_back_finds_its_agent)
{
    snprintf(state_dir, sizeof(state_dir), "/tmp/test-client-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(state_dir));
    start_server(true, state_dir);
    join_over_the_network();
    wait_until_told("START");
    expect("JOINED; START; ");
    stop_server();
    wait_until_told("out");
    report(MSG_STORE_READY);
    report(MSG_FINISHED);
    start_server(true, state_dir);
    wait_until_told("DONE");
    expect("out; back; JOINED; DONE; "); /* it has a slot by now */
    ck_assert_uint_eq(session_unanswered(client_session(agent.client)), 0);
}

TEST(another_daemon_in_the_place_of_ours_is_not_obeyed)
{
    start_server(true, NULL);
    join_over_the_network();
    wait_until_told("START");
    stop_server();
    start_server(true, NULL);
    wait_until_told("abandoned");
    expect("JOINED; START; out; out; abandoned; ");
}

/* Its end would be a sign that the node is gone, once the network lets it through. */
TEST(a_silent_connection_is_given_up_and_not_ended)
{
    struct msg m = { .type = MSG_JOINED, .sequence = 2, .joined.lease_ms = 200 };
    char bytes[4096];
    int listener = silent_listener(&port), fd;
    ssize_t n;

    join_over_the_network();
    fd = accept_as(geteuid(), listener);
    close(listener);
    while (last_received(fd) != MSG_HELLO)
        loop_turn(loop, 10);
    welcome(fd);
    while (last_received(fd) != MSG_JOIN)
        loop_turn(loop, 10);
    m.instance = id128_random();
    send_frame(fd, &m);
    wait_until_told("out");
    expect("JOINED; out; ");
    while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
        ;
    ck_assert_msg(n < 0 && errno == EAGAIN, "it has ended");
    close(fd);
}

/* A node that was started again hosts one, and answers sooner than those that wait
 * until they know which one of them leads. */
TEST(another_rendezvous_that_answers_first_is_passed_over)
{
    uint16_t number[2];
    int fd[2] = { silent_listener(&number[0]), silent_listener(&number[1]) }, taken;
    char keepers[64], byte;

    start_server(true, NULL);
    join_over_the_network();
    wait_until_told("START");
    snprintf(keepers, sizeof(keepers), "127.0.0.1:%u,127.0.0.1:%u", number[0],
             number[1]);
    client_set_keepers(agent.client, keepers, true, false);
    stop_server();
    taken = accept_as(geteuid(), fd[0]);
    while (last_received(taken) != MSG_HELLO)
        loop_turn(loop, 10);
    welcome(taken);
    while (recv(taken, &byte, 1, 0) > 0 || errno == EAGAIN) {
        errno = 0;
        loop_turn(loop, 10);
    }
    expect("JOINED; START; out; "); /* it waits for the other one */
    close(taken);
    close(fd[0]);
    close(fd[1]);
}

/* One has referred it to the other one, which is silent, and hosts it itself now. */
TEST(it_looks_again_where_the_rendezvous_has_moved_to)
{
    uint16_t number[2];
    int fd[2] = { silent_listener(&number[0]), silent_listener(&number[1]) }, taken;
    struct msg m = { .type = MSG_KEEPERS };
    char byte;

    start_server(true, NULL);
    join_over_the_network();
    wait_until_told("START");
    snprintf(m.keepers.endpoints, sizeof(m.keepers.endpoints),
             "127.0.0.1:%u,127.0.0.1:%u", number[0], number[1]);
    client_set_keepers(agent.client, m.keepers.endpoints, true, false);
    stop_server();
    taken = accept_as(geteuid(), fd[1]);
    while (last_received(taken) != MSG_HELLO)
        loop_turn(loop, 10);
    send_frame(taken, &m);
    while (recv(taken, &byte, 1, 0) > 0 || errno == EAGAIN) {
        errno = 0;
        loop_turn(loop, 10);
    }
    close(taken);
    client_look_again(agent.client);
    close(accept_as(geteuid(), fd[1]));
    close(fd[0]);
    close(fd[1]);
}

/* A host that hears nothing ends all connections. Until another one leads, the other
 * nodes that keep the records name the host, which cannot be reached. */
TEST(one_that_names_a_silent_host_is_asked_again)
{
    uint16_t number[2];
    int filler, full = full_listener(&filler, &number[0]);
    int fd = silent_listener(&number[1]), taken[4];
    struct msg m = { .type = MSG_KEEPERS };
    struct client_config config;
    char endpoint[64];
    uint64_t began;

    start_server(true, NULL);
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", port);
    config = config_for(endpoint);
    config.session.join.config.lease_ms = 60000; /* so one round lasts 10 s */
    start_agent(&config);
    wait_until_told("START");
    snprintf(m.keepers.endpoints, sizeof(m.keepers.endpoints),
             "127.0.0.1:%u,127.0.0.1:%u", number[0], number[1]);
    client_set_keepers(agent.client, m.keepers.endpoints, true, true);
    stop_server();
    began = clock_ms();
    for (int i = 0; i < 4; i++) {
        taken[i] = accept_as(geteuid(), fd);
        while (last_received(taken[i]) != MSG_HELLO)
            loop_turn(loop, 10);
        send_frame(taken[i], &m);
    }
    ck_assert_uint_lt(clock_ms() - began, 6000);
    expect("JOINED; START; out; ");
    for (int i = 0; i < 4; i++)
        close(taken[i]);
    close(fd);
    close(filler);
    close(full);
}

TEST(a_former_host_looks_at_its_endpoints_too)
{
    char endpoints[64];
    int fd;

    start_server(false, NULL);
    join_within_the_process();
    wait_until_told("START");
    port = dead_port(&fd);
    snprintf(endpoints, sizeof(endpoints), "127.0.0.1:%u", port);
    client_set_keepers(agent.client, endpoints, true, false);
    close(fd);
    fd = silent_listener(&port);
    snprintf(endpoints, sizeof(endpoints), "127.0.0.1:%u", port);
    client_leave_server(agent.client, endpoints);
    stop_server();
    close(accept_as(geteuid(), fd));
    close(fd);
}

TEST_LOOP(it_may_be_destroyed_from_within_an_order, 0, 2)
{
    agent.destroy_at = _i ? MSG_START : MSG_JOINED;
    start_server(true, NULL);
    join_over_the_network();
    while (agent.client)
        loop_turn(loop, 100);
    loop_turn(loop, 0);
}

TEST_LOOP(it_may_be_destroyed_at_any_time, 0, 8)
{
    start_server(true, NULL);
    join_over_the_network();
    for (int i = 0; i < _i; i++)
        loop_turn(loop, 10);
    client_destroy(agent.client);
    agent.client = NULL;
    loop_turn(loop, 0);
}

TEST_LOOP(a_wrong_endpoint_is_refused, 0, 8)
{
    static const char *const wrong[] = { "",         "host",       "host:", ":1",
                                         "host:0x1", "host:99999", "a:1,",  ",a:1" };
    struct client_config config = config_for(wrong[_i]);
    struct client_calls calls = { .arg = NULL };
    struct err e = { 0 };

    ck_assert_ptr_null(client_create(loop, &config, &calls, &e));
    ck_assert_str_ne(e.text, "");
}
