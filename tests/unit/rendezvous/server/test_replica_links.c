/* SPDX-License-Identifier: MIT */
/* A connection to another replica, and when it is known that its process is gone. */
#include "tests/worlds/server_world.h"

#include "rendezvous/server/replica_links.h"

#define REPLICA 7
#define ELECTION_MS 200

static struct replica_links *links;
static struct net_addr at;
static int port_fd;
static unsigned losses;
static bool gone;

static void on_lost(void *arg, uint64_t id, bool is_gone, const char *why)
{
    ck_assert_uint_eq(id, REPLICA);
    losses++;
    gone = is_gone;
}

static int accepted(void)
{
    int fd = -1;

    WAIT_FOR((fd = accept4(port_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0);
    return fd;
}

/* The other replica has been connected for a while. */
static int be_connected(void)
{
    struct msg hello, welcome = { .type = MSG_WELCOME };
    uint64_t later;
    char preface[FRAME_PREFACE_SIZE];
    struct err e;
    size_t count;
    int fd;

    create_server((struct server_config){ .run_id = "job" });
    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &at, 1, &count, &e), 0);
    ck_assert_msg((port_fd = net_listen(&at, 9, &e)) >= 0, "%s", e.text);
    ck_assert_int_eq(net_local_addr(port_fd, &at), 0);
    links = replica_links_create(server, ELECTION_MS, on_lost, NULL);
    replica_links_watch(links, REPLICA, &at);
    fd = accepted();
    WAIT_FOR(recv(fd, preface, sizeof(preface), MSG_DONTWAIT) == sizeof(preface));
    WAIT_FOR(peek_messages(fd, 1, &hello));
    ck_assert_int_eq(hello.hello.role, PEER_REPLICA);
    welcome.welcome.version = PROTO_VERSION_MAX;
    say_message(fd, &welcome);
    later = clock_ms() + ELECTION_MS;
    WAIT_FOR(clock_ms() > later);
    losses = 0;
    return fd;
}

static void end(void)
{
    replica_links_destroy(links);
    teardown();
}

FIXTURE(setup, end);

TEST(its_kernel_is_asked_without_a_message_to_it)
{
    int fd = be_connected();

    close(port_fd);
    close(fd);
    WAIT_FOR(losses == 2);
    ck_assert(gone);
    ck_assert(replica_links_is_gone(links, REPLICA));
}

TEST(it_is_asked_again_while_its_process_ends)
{
    struct linger reset = { .l_onoff = 1 };
    int fd = be_connected();

    close(fd);
    fd = accepted();
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(port_fd);
    close(fd);
    WAIT_FOR(gone);
    ck_assert_uint_eq(losses, 3);
}

/* One that takes connections and ends them is not tried all the time. */
TEST(it_is_not_asked_for_long)
{
    int fd = be_connected();
    unsigned tries = 0;
    uint64_t end_ms = clock_ms() + 4 * ELECTION_MS;

    close(fd);
    while (clock_ms() < end_ms) {
        loop_turn(loop, 10);
        if ((fd = accept(port_fd, NULL, NULL)) < 0)
            continue;
        tries++;
        close(fd);
    }
    ck_assert_uint_ge(tries, 1);
    ck_assert_uint_le(tries, 1 + ELECTION_MS / 20);
    ck_assert(!gone);
    close(port_fd);
}
