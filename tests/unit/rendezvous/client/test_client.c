/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/server/server.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/fakes/net/slow_names.h"
#include "tests/worlds/check_main.h"

/*
 * Clients against a real server on a port of its own choosing, all on one loop. What an
 * agent is told is written down as text, "JOINED; START 1;".
 */
struct client_owner {
    struct client *client;
    char told[1024];
    char why[ERROR_TEXT_MAX_BYTES + 1];
    struct msg order; /* the last */
    enum msg_type destroy_at;
};

static struct loop *loop;
static struct server *server;
static uint16_t port;
static struct client_owner agent, other;
static char state_dir[64];

static const char *name_of(enum msg_type type)
{
    switch (type) {
    case MSG_JOINED:
        return "JOINED";
    case MSG_START:
        return "START";
    case MSG_STOP:
        return "STOP";
    case MSG_DONE:
        return "DONE";
    case MSG_REFUSED:
        return "REFUSED";
    default:
        return "";
    }
}

static void send_to_client(struct client_owner *a, const char *what)
{
    size_t used = strlen(a->told);

    if (*what)
        snprintf(a->told + used, sizeof(a->told) - used, "%s; ", what);
}

static void on_order(void *arg, const struct msg *m)
{
    struct client_owner *a = arg;

    a->order = *m;
    send_to_client(a, name_of(m->type));
    if (m->type != a->destroy_at)
        return;
    client_destroy(a->client);
    a->client = NULL;
}

static void on_outage(void *arg, bool out, const char *why)
{
    struct client_owner *a = arg;

    snprintf(a->why, sizeof(a->why), "%s", why);
    send_to_client(a, out ? "out" : "back");
}

static void on_abandoned(void *arg, const char *why)
{
    struct client_owner *a = arg;

    snprintf(a->why, sizeof(a->why), "%s", why);
    send_to_client(a, "abandoned");
}

static void set_loopback(struct net_addr *addr, uint16_t number)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(number) };

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memset(addr, 0, sizeof(*addr));
    memcpy(&addr->sa, &in, sizeof(in));
    addr->len = sizeof(in);
}

static void on_fatal(void *arg, const char *why)
{
    ck_abort_msg("%s", why);
}

static void start_server(bool listening, const char *dir)
{
    struct server_config config = { .state_dir = dir, .fatal = on_fatal };
    struct err e;

    if (listening)
        set_loopback(&config.listen, port);
    server = server_create(loop, &config, &e);
    ck_assert_msg(server != NULL, "%s", server ? "" : e.text);
    if (listening)
        port = net_port(server_address(server));
}

static void stop_server(void)
{
    server_destroy(server);
    server = NULL;
}

#define CONNECT_FOR_MS 10000

static struct client_config config_for(const char *endpoints)
{
    struct client_config config = {
        .session = { .join = { .run_id = "job",
                               .incarnation = id128_random(),
                               .host = "here",
                               .workers = 2,
                               .node_rank = -1,
                               .config = { .min_nodes = 1,
                                           .max_nodes = 1,
                                           .lease_ms = 3000,
                                           .join_timeout_ms = 10000,
                                           .last_call_ms = 1000,
                                           .shutdown_grace_ms = 1000,
                                           .failure_grace_ms = 1000,
                                           .scale = JOB_SCALE_NOW } },
                     .connect_for_ms = CONNECT_FOR_MS,
                     .outage_grace_ms = 10000,
                     .seed = 1,
                     .software = "test" },
        .endpoints = endpoints,
    };

    return config;
}

static void start_client(struct client_owner *a, const struct client_config *config)
{
    struct client_calls calls = {
        .order = on_order, .outage = on_outage, .abandoned = on_abandoned, .arg = a
    };
    struct err e;

    a->client = client_create(loop, config, &calls, &e);
    ck_assert_msg(a->client != NULL, "%s", a->client ? "" : e.text);
}

static void start_agent(const struct client_config *config)
{
    start_client(&agent, config);
}

static void join_over_the_network(void)
{
    char endpoint[64];
    struct client_config config;

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", port);
    config = config_for(endpoint);
    start_agent(&config);
}

static void join_within_the_process(void)
{
    struct client_config config = config_for(NULL);

    config.local = server;
    start_agent(&config);
}

/* Check's time limit ends what never comes. */
static void wait_until_told(const char *what)
{
    while (!strstr(agent.told, what))
        loop_turn(loop, 100);
}

static void expect(const char *told)
{
    ck_assert_str_eq(agent.told, told);
    agent.told[0] = '\0';
}

static void report(enum msg_type type)
{
    struct msg m = { .type = type,
                     .epoch = session_epoch(client_session(agent.client)) };

    if (type == MSG_STORE_READY)
        m.store_ready.port = 29500;
    client_report(agent.client, &m);
}

static void ignore(void *arg, enum log_level level, const char *line)
{
}

static void setup(void)
{
    log_set_sink(ignore, NULL);
    loop = loop_create();
    server = NULL;
    port = 0;
    memset(&agent, 0, sizeof(agent));
    memset(&other, 0, sizeof(other));
    state_dir[0] = '\0';
}

static void teardown(void)
{
    char command[128];

    client_destroy(agent.client);
    client_destroy(other.client);
    server_destroy(server);
    loop_destroy(loop);
    snprintf(command, sizeof(command), "rm -rf '%s'", state_dir);
    if (*state_dir)
        ck_assert_int_eq(system(command), 0);
}

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

/* A port on which no program listens, for as long as fd is open. */
static uint16_t dead_port(int *fd)
{
    struct net_addr addr;

    set_loopback(&addr, 0);
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(*fd, (struct sockaddr *)&addr.sa, addr.len), 0);
    ck_assert_int_eq(net_local_addr(*fd, &addr), 0);
    return net_port(&addr);
}

TEST(endpoints_are_tried_in_turn)
{
    struct client_config config;
    char endpoints[128];
    int fd;

    start_server(true, NULL);
    snprintf(endpoints, sizeof(endpoints), "127.0.0.1:%u,localhost:%u", dead_port(&fd),
             port);
    config = config_for(endpoints);
    start_agent(&config);
    wait_until_told("START");
    expect("out; back; JOINED; START; ");
    close(fd);
}

TEST(no_peer_there_is_told_and_given_up)
{
    struct client_config config;
    char endpoint[64], refused[128];
    int fd;

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", dead_port(&fd));
    snprintf(refused, sizeof(refused), "%s: Connection refused", endpoint);
    config = config_for(endpoint);
    config.session.connect_for_ms = 300;
    start_agent(&config);
    wait_until_told("out");
    ck_assert_str_eq(agent.why, refused);
    wait_until_told("abandoned");
    expect("out; abandoned; ");
    ck_assert_ptr_nonnull(strstr(agent.why, refused));
    close(fd);
}

/* A listener that has no room for a connection, and drops what asks for one. */
static int full_listener(int *filler, uint16_t *number)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct net_addr addr;

    set_loopback(&addr, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr.sa, addr.len), 0);
    ck_assert_int_eq(listen(fd, 0), 0);
    ck_assert_int_eq(net_local_addr(fd, &addr), 0);
    *number = net_port(&addr);
    *filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(*filler, (struct sockaddr *)&addr.sa, addr.len), 0);
    return fd;
}

/* How many connections to that port are asked for and not answered. */
static unsigned asking(uint16_t number)
{
    FILE *table = fopen("/proc/self/net/tcp", "re");
    char line[256];
    unsigned count = 0, remote, state;

    ck_assert_ptr_nonnull(table);
    while (fgets(line, sizeof(line), table))
        count += sscanf(line, " %*d: %*x:%*x %*x:%x %x", &remote, &state) == 2 &&
                 remote == number && state == 2;
    fclose(table);
    return count;
}

TEST(a_connection_that_is_not_answered_is_asked_for_again)
{
    struct client_config config;
    char endpoint[64], byte;
    uint16_t number;
    int filler, fd = full_listener(&filler, &number), taken = -1;

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", number);
    config = config_for(endpoint);
    start_agent(&config);
    while (asking(number) < 2)
        loop_turn(loop, 10);
    expect("");
    close(accept4(fd, NULL, NULL, SOCK_CLOEXEC)); /* the filler: there is room again */
    while (taken < 0 || recv(taken, &byte, 1, MSG_PEEK) < 0) {
        loop_turn(loop, 10);
        if (taken < 0)
            taken = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
    ck_assert_uint_eq(asking(number), 0); /* one is enough */
    ck_assert(client_local_address(agent.client, endpoint, sizeof(endpoint)));
    close(taken);
    close(filler);
    close(fd);
}

/* -- several addresses of one rendezvous ------------------------------------------- */

/* A listener that says nothing; the kernel takes the connection. */
static int silent_listener(uint16_t *number)
{
    struct net_addr addr;
    struct err e;
    int fd;

    set_loopback(&addr, 0);
    fd = net_listen(&addr, 8, &e);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(net_local_addr(fd, &addr), 0);
    *number = net_port(&addr);
    return fd;
}

static void join_one_of(const char *endpoints)
{
    struct client_config config = config_for(endpoints);

    config.of_one = true;
    start_agent(&config);
}

/* What stands before the rendezvous in the list: it must not cost a round. */
enum {
    BEFORE_DEAD,
    BEFORE_FULL,
    BEFORE_SILENT,
    BEFORE_UNKNOWN,
    BEFORE_SLOW,
    BEFORE_COUNT
};

TEST_LOOP(the_first_address_that_answers_is_taken, 0, BEFORE_COUNT)
{
    int fd = -1, filler = -1;
    uint64_t began = clock_ms();
    char endpoints[128];
    uint16_t number = 0;

    sem_init(&slow_may_end, 0, 0);
    sem_init(&slow_has_ended, 0, 0);
    start_server(true, NULL);
    if (_i == BEFORE_DEAD)
        number = dead_port(&fd);
    else if (_i == BEFORE_FULL)
        fd = full_listener(&filler, &number);
    else if (_i == BEFORE_SILENT)
        fd = silent_listener(&number);
    snprintf(endpoints, sizeof(endpoints), "%s:%u,127.0.0.1:%u",
             _i == BEFORE_UNKNOWN ? "unknown.test"
             : _i == BEFORE_SLOW  ? "slow.test"
                                  : "127.0.0.1",
             number ? number : 1, port);
    join_one_of(endpoints);
    wait_until_told("START");
    expect("JOINED; START; "); /* and no outage before that */
    ck_assert_uint_lt(clock_ms() - began, CONNECT_FOR_MS);
    sem_post(&slow_may_end);
    close(fd);
    close(filler);
}

TEST(the_failure_of_all_addresses_is_told_with_each_reason)
{
    char endpoints[128], refused[128];
    uint16_t first, second;
    int fd[2];

    first = dead_port(&fd[0]);
    second = dead_port(&fd[1]);
    snprintf(endpoints, sizeof(endpoints), "127.0.0.1:%u,127.0.0.1:%u,unknown.test:1",
             first, second);
    join_one_of(endpoints);
    wait_until_told("out");
    for (int i = 0; i < 2; i++) {
        snprintf(refused, sizeof(refused), "127.0.0.1:%u: Connection refused",
                 i ? second : first);
        ck_assert_msg(strstr(agent.why, refused), "%s", agent.why);
        close(fd[i]);
    }
    ck_assert_msg(strstr(agent.why, "unknown.test"), "%s", agent.why);
}

TEST(silent_addresses_are_told)
{
    char endpoints[128];
    uint16_t number[2];
    int fd[2] = { silent_listener(&number[0]), silent_listener(&number[1]) };
    struct client_config config;

    snprintf(endpoints, sizeof(endpoints), "127.0.0.1:%u,127.0.0.1:%u", number[0],
             number[1]);
    config = config_for(endpoints);
    config.of_one = true;
    config.session.connect_for_ms = 5000;
    start_agent(&config);
    wait_until_told("abandoned");
    close(fd[0]);
    close(fd[1]);
}

TEST_LOOP(the_rendezvous_may_come_into_this_process, 0, 3)
{
    static const char *const elsewhere[] = { "slow.test:1", "unknown.test:1",
                                             "127.0.0.1:%u" };
    struct client_config config;
    char endpoint[64];
    uint16_t number;
    int filler, fd = full_listener(&filler, &number);

    sem_init(&slow_may_end, 0, 0);
    sem_init(&slow_has_ended, 0, 0);
    snprintf(endpoint, sizeof(endpoint), elsewhere[_i], number);
    config = config_for(endpoint);
    start_agent(&config);
    loop_turn(loop, 10);
    start_server(false, NULL);
    client_use_server(agent.client, server);
    wait_until_told("START");
    ck_assert_ptr_null(client_peer(agent.client));
    sem_post(&slow_may_end);
    close(fd);
    close(filler);
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

/* -- names ------------------------------------------------------------------ */

TEST(an_unknown_name_is_told)
{
    struct client_config config = config_for("unknown.test:1");

    start_agent(&config);
    wait_until_told("out");
    ck_assert_ptr_nonnull(strstr(agent.why, "unknown.test"));
}

TEST(a_client_does_not_wait_for_its_look_up)
{
    struct client_config config = config_for("slow.test:1");

    sem_init(&slow_may_end, 0, 0);
    sem_init(&slow_has_ended, 0, 0);
    config.session.connect_for_ms = 100;
    start_agent(&config);
    wait_until_told("abandoned");
    expect("abandoned; ");
    sem_post(&slow_may_end);
    sem_wait(&slow_has_ended);
}
