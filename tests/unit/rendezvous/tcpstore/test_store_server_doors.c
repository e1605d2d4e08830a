/* SPDX-License-Identifier: MIT */
/* Whom the store's thread lets in, and what it does when there is no room. */
#include "rendezvous/tcpstore/store_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/store_clients.h"

FIXTURE(start_plain_server, stop_server);

TEST(a_client_that_says_nothing_is_cut_off_in_time)
{
    int silent, half, good;
    uint64_t began = clock_ms();

    stop_server();
    start_server((struct store_server_config){ .hello_ms = 60 });
    silent = dial_store(0);
    half = dial_store(0);
    SAY(half, "\x00\xce");
    good = connect_client();
    expect_closed(silent);
    expect_closed(half);
    ck_assert_uint_ge(clock_ms() - began, 60);
    expect_line("has not identified itself in time");
    expect_silence(good);
    SAY(good, PING);
    HEAR(good, "1234");
    close(good);
}

/* -- this machine and others ------------------------------------------------------- */

#define OTHER_USER 12345

static struct net_addr address_of(const char *host)
{
    struct net_addr addr;
    size_t count;
    struct err e;

    ck_assert_int_eq(net_resolve(host, 0, &addr, 1, &count, &e), 0);
    return addr;
}

static const struct sockaddr *sockaddr_of(const struct net_addr *addr)
{
    return (const struct sockaddr *)(const void *)&addr->sa;
}

static void write_id_map(unsigned user)
{
    FILE *f = fopen("/proc/self/uid_map", "we");

    ck_assert_ptr_nonnull(f);
    fprintf(f, "0 %u 1\n", user);
    ck_assert_int_eq(fclose(f), 0);
}

/* A process that holds a network of its own until its end of the pipe is closed. */
static pid_t hold_other_network(int hold[2])
{
    int ready[2];
    char byte;
    pid_t pid;

    ck_assert_int_eq(pipe2(hold, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        close(hold[1]);
        if (unshare(CLONE_NEWNET) == 0 && write(ready[1], "", 1) == 1)
            (void)!read(hold[0], &byte, 1);
        _exit(0);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

/*
 * A network of our own with the addresses 10.9.8.7 and 10.9.8.8, and another host,
 * 10.9.8.9, whose network's descriptor is returned. -1 if they cannot be made here.
 */
static int make_networks(void)
{
    unsigned user = geteuid();
    char command[600], path[64];
    int hold[2], net = -1;
    pid_t pid;

    if (user == 0 ? unshare(CLONE_NEWNET) < 0
                  : unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return -1;
    if (user != 0)
        write_id_map(user);
    pid = hold_other_network(hold);
    snprintf(command, sizeof(command),
             "exec 2>/dev/null; ip link set lo up && "
             "ip link add v0 type veth peer name v1 netns %d && "
             "ip addr add 10.9.8.7/24 dev v0 && ip addr add 10.9.8.8/24 dev v0 && "
             "ip link set v0 up && nsenter --net=/proc/%d/ns/net sh -c "
             "'ip addr add 10.9.8.9/24 dev v1 && ip link set v1 up'",
             (int)pid, (int)pid);
    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    if (system(command) == 0)
        net = open(path, O_RDONLY | O_CLOEXEC);
    close(hold[1]);
    waitpid(pid, NULL, 0);
    return net;
}

/* `from` may be NULL. */
static int connect_from(const struct net_addr *from, const struct net_addr *to)
{
    struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (from)
        ck_assert_int_eq(bind(fd, sockaddr_of(from), from->len), 0);
    ck_assert_int_eq(connect(fd, sockaddr_of(to), to->len), 0);
    return fd;
}

static int connect_in_network(int net, const struct net_addr *to)
{
    int own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC), fd;

    ck_assert_int_eq(setns(net, CLONE_NEWNET), 0);
    fd = connect_from(NULL, to);
    ck_assert_int_eq(setns(own, CLONE_NEWNET), 0);
    close(own);
    return fd;
}

/* A socket belongs to the user that makes it. */
static int connect_as(uid_t user, const struct net_addr *from,
                      const struct net_addr *to)
{
    int fd;

    setfsuid(user);
    fd = connect_from(from, to);
    setfsuid(geteuid());
    return fd;
}

static void expect_service(int fd)
{
    SAY(fd, HELLO PING);
    HEAR(fd, "1234");
    close(fd);
}

TEST(only_this_machine_and_allowed_hosts_may_come)
{
    struct net_addr here, other = address_of("10.9.8.8"),
                          there = address_of("10.9.8.9");
    struct net_addr same = address_of("10.9.8.7");
    struct store_server_config config = { .listen = &here };
    struct err e;
    int net, fd;

    stop_server();
    net = make_networks();
    SKIP_UNLESS(net >= 0, "no networks can be made here");
    here = address_of("10.9.8.7");
    server = store_server_create(&config, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    net_set_port(&here, store_server_port(server));
    fd = connect_in_network(net, &here);
    expect_closed(fd);
    expect_line("not from a member of the job");
    expect_service(connect_from(&same, &here)); /* rank 0's own node, by its address */
    expect_service(connect_from(&other, &here));
    store_server_allow(server, &there);
    expect_service(connect_in_network(net, &here));
    close(net);
}

TEST(other_users_of_this_machine_may_not_come)
{
    struct net_addr any = address_of("0.0.0.0"), to, own = address_of("10.9.8.8");
    struct store_server_config config = { .listen = &any, .open = true };
    const char *const to_hosts[] = { "127.0.0.1", "127.4.3.2", "10.9.8.7" };
    struct err e;
    int net;

    stop_server();
    SKIP_UNLESS_ROOT();
    net = make_networks();
    SKIP_UNLESS(net >= 0, "no networks can be made here");
    server = store_server_create(&config, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    store_server_allow(server, &own);
    for (int i = 0; i < 3; i++) {
        to = address_of(to_hosts[i]);
        net_set_port(&to, store_server_port(server));
        expect_closed(connect_as(OTHER_USER, NULL, &to));
        if (i == 0)
            expect_line("it is of uid 12345, and this is of user root (uid 0)");
        expect_service(connect_from(NULL, &to));
    }
    expect_closed(connect_as(OTHER_USER, &own, &to));
    expect_service(connect_from(&own, &to));
    close(net);
}

/* What a peer wrote is not obeyed once nobody can tell whose it was. */
TEST(a_peer_that_is_gone_before_it_is_looked_up_is_refused)
{
    struct net_addr addr = loopback(), peer;
    struct err e;
    int listener = net_listen(&addr, 1, &e), client, handed;

    ck_assert_int_eq(net_local_addr(listener, &addr), 0);
    client = connect_from(NULL, &addr);
    SAY(client, HELLO SET_K);
    close(client);
    ck_assert_int_eq(
        poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, PATIENCE_MS), 1);
    handed = net_accept(listener, &peer);
    ck_assert_int_ge(handed, 0);
    store_server_adopt(server, handed);
    expect_line("no process has its other end");
    ck_assert_uint_eq(store_server_stats(server).keys, 0);
    close(listener);
}

/* A route makes addresses own that no interface lists. Its socket is still there. */
TEST(a_peer_at_an_unlisted_own_address_that_is_gone_is_refused)
{
    struct net_addr any = address_of("0.0.0.0"), from = address_of("10.9.9.9"), to,
                    peer;
    struct store_server_config config = { .listen = &any, .open = true };
    struct err e;
    int net, listener, client, handed;

    stop_server();
    net = make_networks();
    SKIP_UNLESS(net >= 0 && system("ip route add local 10.9.9.0/24 dev lo") == 0,
                "no networks can be made here");
    server = store_server_create(&config, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    to = address_of("127.0.0.1");
    listener = net_listen(&to, 1, &e);
    ck_assert_int_eq(net_local_addr(listener, &to), 0);
    client = connect_from(&from, &to);
    SAY(client, HELLO SET_K);
    close(client);
    handed = net_accept(listener, &peer);
    ck_assert_int_ge(handed, 0);
    store_server_adopt(server, handed);
    expect_line("no process has its other end");
    ck_assert_uint_eq(store_server_stats(server).keys, 0);
    close(listener);
    close(net);
}

/* A store at 10.9.8.7 that asks for owners, and allows the other host, whose network is
 * returned; -1 if there can be none. */
static int start_asking_server(struct net_addr *here, uint64_t hello_ms)
{
    struct net_addr there = address_of("10.9.8.9");
    struct store_server_config config = { .listen = here,
                                          .ask = true,
                                          .hello_ms = hello_ms };
    struct err e;
    int net;

    stop_server();
    net = make_networks();
    if (net < 0)
        return -1;
    *here = address_of("10.9.8.7");
    server = store_server_create(&config, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    net_set_port(here, store_server_port(server));
    store_server_allow(server, &there);
    return net;
}

static struct store_question next_question(void)
{
    struct pollfd p = { .fd = store_server_questions_fd(server), .events = POLLIN };
    struct store_question q;

    ck_assert_int_eq(poll(&p, 1, PATIENCE_MS), 1);
    ck_assert_uint_eq(store_server_take_questions(server, &q, 1), 1);
    return q;
}

static void answer_question(uint64_t number, const char *why)
{
    store_server_answer(server, number, why);
}

TEST(of_another_machine_it_is_held_until_its_owner_is_known)
{
    struct net_addr here, own;
    struct store_question q;
    char text[NET_TEXT_SIZE], expected[NET_TEXT_SIZE];
    int net = start_asking_server(&here, 0), fd, other;

    SKIP_UNLESS(net >= 0, "no networks can be made here");
    fd = connect_in_network(net, &here);
    SAY(fd, HELLO PING);
    q = next_question();
    ck_assert_int_eq(net_local_addr(fd, &own), 0);
    ck_assert_str_eq(net_format(&q.client, text, sizeof(text)),
                     net_format(&own, expected, sizeof(expected)));
    ck_assert_str_eq(net_format(&q.store, text, sizeof(text)),
                     net_format(&here, expected, sizeof(expected)));
    expect_silence(fd);
    other = connect_from(NULL, &here); /* of this machine: no question */
    SAY(other, HELLO PING);
    HEAR(other, "1234");
    answer_question(q.number + 1, NULL);
    expect_silence(fd);
    answer_question(q.number, NULL);
    HEAR(fd, "1234");
    answer_question(q.number, "too late"); /* its question is over */
    SAY(fd, PING);
    HEAR(fd, "1234");
    close(fd);
    close(other);
}

TEST(a_connection_of_the_wrong_owner_is_closed_unserved)
{
    struct net_addr here;
    struct store_question q;
    int net = start_asking_server(&here, 0), fd;

    SKIP_UNLESS(net >= 0, "no networks can be made here");
    fd = connect_in_network(net, &here);
    SAY(fd, HELLO SET_K);
    q = next_question();
    answer_question(q.number, "of another user");
    expect_closed(fd);
    expect_line("of another user");
    EXPECT_STAT(keys, 0);
    EXPECT_STAT(connections, 0);
}

/* What it had sent can still be read, but its port may be another socket's, for which
 * the agent has vouched. */
TEST(a_connection_that_was_reset_is_not_served_once_it_is_vouched_for)
{
    struct linger reset = { .l_onoff = 1 };
    struct net_addr here;
    struct store_question q;
    int net = start_asking_server(&here, 0), fd;

    SKIP_UNLESS(net >= 0, "no networks can be made here");
    fd = connect_in_network(net, &here);
    SAY(fd, HELLO SET_K);
    q = next_question();
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(fd);
    answer_question(q.number, NULL);
    EXPECT_STAT(connections, 0);
    EXPECT_STAT(keys, 0);
}

TEST(without_an_answer_it_is_closed_in_time)
{
    struct net_addr here;
    struct store_question q;
    int net = start_asking_server(&here, 60), fd, next;

    SKIP_UNLESS(net >= 0, "no networks can be made here");
    fd = connect_in_network(net, &here);
    SAY(fd, HELLO PING);
    q = next_question();
    expect_closed(fd);
    expect_line("has not vouched for it in time");
    next = connect_in_network(net, &here);
    SAY(next, HELLO PING);
    ck_assert_uint_ne(next_question().number, q.number);
    answer_question(q.number, NULL); /* not for the next one in its place */
    expect_closed(next);
}

TEST(past_the_most_connections_newcomers_are_refused)
{
    int a, b, c;

    stop_server();
    start_server((struct store_server_config){ .conns_max = 2 });
    a = connect_client();
    b = connect_client();
    c = dial_store(0);
    expect_closed(c);
    expect_line("too many connections");
    SAY(a, PING);
    HEAR(a, "1234");
    close(b);
    EXPECT_STAT(connections, 1);
    b = connect_client();
    close(a);
    close(b);
}

TEST(the_silent_make_room_for_newcomers)
{
    int silent, a, b;

    stop_server();
    start_server((struct store_server_config){ .conns_max = 2 });
    silent = dial_store(0);
    EXPECT_STAT(connections, 1);
    a = connect_client();
    b = connect_client();
    expect_closed(silent);
    close(a);
    close(b);
}

/* The server must neither spin nor give up: clients come in once there is room. */
TEST(without_descriptors_the_listener_waits)
{
    struct rlimit limit, low;
    int fd[4], used = dial_store(0);
    struct timespec cpu[2];

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 4; i++)
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
    low = limit;
    low.rlim_cur = (rlim_t)fd[3] + 1;
    EXPECT_STAT(accepted, 1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int i = 0; i < 4; i++) {
        struct sockaddr_in to = { .sin_family = AF_INET,
                                  .sin_port = htons(store_server_port(server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

        ck_assert_int_eq(connect(fd[i], (struct sockaddr *)(void *)&to, sizeof(to)), 0);
        SAY(fd[i], HELLO PING);
    }
    expect_line("cannot accept connections for now");
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[0]);
    expect_silence(fd[3]);
    SAY(used, HELLO PING);
    HEAR(used, "1234");
    poll(NULL, 0, 150);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[1]);
    ck_assert_int_lt((cpu[1].tv_sec - cpu[0].tv_sec) * 1000 +
                         (cpu[1].tv_nsec - cpu[0].tv_nsec) / 1000000,
                     100);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 4; i++) {
        struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };

        setsockopt(fd[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        HEAR(fd[i], "1234");
        close(fd[i]);
    }
    ck_assert_uint_le(lines_seen(), 3);
    close(used);
}
