/* SPDX-License-Identifier: MIT */
/* Whose sockets they are, for sockets of this machine in each state. */
#include "rendezvous/wire/net/socket_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "tests/worlds/check_main.h"

#define OTHER_USER 12345
#define UNLISTED_USER 3999999999u
#define LOOKUPS 1000
#define LOOKUPS_IN_PROC 50      /* each reads the lines of all sockets */
#define QUIET_HOST "127.93.1.2" /* other programs use no ports of it */

static struct net_addr address_of(const char *host, uint16_t port)
{
    struct net_addr addr;
    size_t count;
    struct err e;

    ck_assert_int_eq(net_resolve(host, port, &addr, 1, &count, &e), 0);
    return addr;
}

static const struct sockaddr *sockaddr_of(const struct net_addr *addr)
{
    return (const struct sockaddr *)(const void *)&addr->sa;
}

/* -- a connection ------------------------------------------------------------------ */

struct link {
    int listener, client, server;
    struct net_addr client_addr, server_addr; /* as the client's socket has them */
};

/* `from` is the client's address, or NULL: the system chooses. */
static void link_open_from(struct link *l, const char *from, const char *listen_on,
                           const char *connect_to)
{
    struct net_addr addr = address_of(listen_on, 0), peer;
    struct err e;

    l->listener = net_listen(&addr, 16, &e);
    ck_assert_msg(l->listener >= 0, "%s", e.text);
    ck_assert_int_eq(net_local_addr(l->listener, &addr), 0);
    addr = address_of(connect_to, net_port(&addr));
    l->client = socket(addr.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (from) {
        peer = address_of(from, 0);
        ck_assert_int_eq(bind(l->client, sockaddr_of(&peer), peer.len), 0);
    }
    ck_assert_int_eq(connect(l->client, sockaddr_of(&addr), addr.len), 0);
    ck_assert_int_eq(net_local_addr(l->client, &l->client_addr), 0);
    ck_assert_int_eq(net_peer_addr(l->client, &l->server_addr), 0);
    ck_assert_int_eq(
        poll(&(struct pollfd){ .fd = l->listener, .events = POLLIN }, 1, 5000), 1);
    l->server = net_accept(l->listener, &peer);
    ck_assert_int_ge(l->server, 0);
}

static void link_open(struct link *l, const char *listen_on, const char *connect_to)
{
    link_open_from(l, NULL, listen_on, connect_to);
}

static void link_close(struct link *l)
{
    close(l->client);
    close(l->server);
    close(l->listener);
}

static void expect_user(int fd, uid_t user)
{
    uid_t uid = UNLISTED_USER;

    ck_assert_int_eq(socket_owner_of_peer(fd, &uid), SOCKET_OWNER_FOUND);
    ck_assert_uint_eq(uid, user);
}

static void expect_gone(int fd)
{
    uid_t uid;

    ck_assert_int_eq(socket_owner_of_peer(fd, &uid), SOCKET_OWNER_GONE);
}

static const struct {
    const char *listen_on, *connect_to;
} ways[] = {
    { "127.0.0.1", "127.0.0.1" },
    { "0.0.0.0", "127.0.0.1" },
    { "::1", "::1" },
    { "::", "::1" },
    { "::", "127.0.0.1" },
    { "::", "::ffff:127.0.0.1" },
    { "127.0.0.1", "::ffff:127.0.0.1" },
};

static bool way_is_there(int i)
{
    return !strchr(ways[i].listen_on, ':') || access("/proc/net/tcp6", R_OK) == 0;
}

static void expect_each_way(uid_t user)
{
    for (int i = 0; i < (int)(sizeof(ways) / sizeof(ways[0])); i++) {
        struct link l;

        if (!way_is_there(i))
            continue;
        link_open(&l, ways[i].listen_on, ways[i].connect_to);
        expect_user(l.server, user);
        expect_user(l.client, user);
        link_close(&l);
    }
}

/* -- other users ------------------------------------------------------------------- */

/* A child of that user, which runs `body` and exits with 0. */
static void run_as(uid_t user, void (*body)(void *arg), void *arg)
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (user != geteuid() && setresuid(user, user, user) < 0)
            _exit(2);
        body(arg);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

/* The child's client stays open in the child until this end is closed. */
static int accept_from(uid_t user, struct link *l, pid_t *pid)
{
    char byte;

    link_open(l, "127.0.0.1", "127.0.0.1");
    *pid = fork();
    ck_assert_int_ge(*pid, 0);
    if (*pid == 0) {
        int own;

        close(l->server);
        close(l->client);
        if (setresuid(user, user, user) < 0)
            _exit(2);
        own = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(own, sockaddr_of(&l->server_addr), l->server_addr.len) < 0)
            _exit(3);
        close(l->listener);
        _exit(read(own, &byte, 1) == 0 ? 0 : 4);
    }
    ck_assert_int_eq(
        poll(&(struct pollfd){ .fd = l->listener, .events = POLLIN }, 1, 5000), 1);
    return net_accept(l->listener, &(struct net_addr){ 0 });
}

TEST(own_sockets_are_found_in_every_family)
{
    expect_each_way(geteuid());
}

TEST(a_socket_of_another_user_is_told_apart)
{
    struct link l;
    int fd, status;
    pid_t pid;

    SKIP_UNLESS_ROOT();
    fd = accept_from(OTHER_USER, &l, &pid);
    ck_assert_int_ge(fd, 0);
    expect_user(fd, OTHER_USER);
    expect_user(l.server, 0);
    ck_assert(!socket_owner_may(OTHER_USER));
    close(fd);
    link_close(&l);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

/* -- ends that are gone ------------------------------------------------------------ */

TEST(a_peer_that_has_closed_is_gone)
{
    struct link l;

    link_open(&l, "127.0.0.1", "127.0.0.1");
    ck_assert_int_eq(send(l.client, "x", 1, 0), 1);
    ck_assert_int_eq(close(l.client), 0);
    expect_gone(l.server); /* the kernel shows its remains as user 0's */
    ck_assert_int_eq(close(l.server), 0);
    close(l.listener);
}

TEST(a_peer_that_only_sends_no_more_is_found)
{
    struct link l;

    link_open(&l, "127.0.0.1", "127.0.0.1");
    ck_assert_int_eq(shutdown(l.client, SHUT_WR), 0);
    expect_user(l.server, geteuid());
    link_close(&l);
}

TEST(a_server_is_found_once_it_has_accepted)
{
    struct net_addr addr = address_of("127.0.0.1", 0);
    struct err e;
    int listener = net_listen(&addr, 16, &e), client, server;

    ck_assert_int_eq(net_local_addr(listener, &addr), 0);
    client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(client, sockaddr_of(&addr), addr.len), 0);
    expect_gone(client);
    server = net_accept(listener, &(struct net_addr){ 0 });
    ck_assert_int_ge(server, 0);
    expect_user(client, geteuid());
    close(server);
    close(client);
    close(listener);
}

/* The kernel takes a listener on the peer's port for its socket. */
TEST(a_listener_in_the_place_of_a_gone_peer_does_not_count)
{
    struct linger reset = { .l_onoff = 1 };
    struct link l;
    struct err e;
    uid_t uid;
    int again;

    link_open_from(&l, QUIET_HOST, "127.0.0.1", "127.0.0.1");
    setsockopt(l.client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(l.client);
    again = net_listen(&l.client_addr, 1, &e);
    ck_assert_msg(again >= 0, "%s", e.text);
    ck_assert_int_eq(socket_owner_find(&l.client_addr, &l.server_addr, &uid),
                     SOCKET_OWNER_GONE);
    expect_gone(l.server);
    close(again);
    close(l.server);
    close(l.listener);
}

/* The same addresses belong to another socket then. */
TEST(a_peer_that_another_has_followed_is_gone)
{
    struct linger reset = { .l_onoff = 1 };
    struct link l;
    uid_t uid;
    int again, one = 1;

    link_open_from(&l, QUIET_HOST, "127.0.0.1", "127.0.0.1");
    ck_assert_int_eq(send(l.client, "x", 1, 0), 1);
    setsockopt(l.client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(l.client);
    again = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(again, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    ck_assert_int_eq(bind(again, sockaddr_of(&l.client_addr), l.client_addr.len), 0);
    ck_assert_int_eq(connect(again, sockaddr_of(&l.server_addr), l.server_addr.len), 0);
    ck_assert_int_eq(socket_owner_find(&l.client_addr, &l.server_addr, &uid),
                     SOCKET_OWNER_FOUND);
    expect_gone(l.server);
    close(again);
    close(l.server);
    close(l.listener);
}

TEST(addresses_of_two_families_have_no_socket)
{
    struct net_addr v4 = address_of("127.0.0.1", 1), v6 = address_of("::1", 1),
                    none = { 0 };
    uid_t uid;

    ck_assert_int_eq(socket_owner_find(&v4, &v6, &uid), SOCKET_OWNER_GONE);
    ck_assert_int_eq(socket_owner_find(&none, &none, &uid), SOCKET_OWNER_GONE);
    ck_assert_int_eq(socket_owner_find(&v4, &v4, &uid), SOCKET_OWNER_GONE);
}

/* -- what the system may lack ------------------------------------------------------ */

#define ANY_ARGUMENT UINT32_MAX

/* From now on that call fails with EPERM, in this process only, if its first argument
 * is `first`. */
static void refuse_call(uint32_t call, uint32_t first)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

    if (first == ANY_ARGUMENT)
        code[3] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0, 0, 1);
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void refuse_netlink(void)
{
    refuse_call(SYS_socket, AF_NETLINK);
    ck_assert_int_lt(socket(AF_NETLINK, SOCK_RAW, 0), 0);
}

static void find_without_call(void *arg)
{
    const uint32_t *call = arg;
    struct link l;

    refuse_call(*call, ANY_ARGUMENT);
    expect_each_way(geteuid());
    link_open(&l, "127.0.0.1", "127.0.0.1");
    close(l.client);
    expect_gone(l.server);
}

TEST(proc_serves_where_netlink_does_not_answer)
{
    uint32_t calls[] = { SYS_sendto, SYS_recvfrom };

    for (int i = 0; i < 2; i++)
        run_as(geteuid(), find_without_call, &calls[i]);
}

static void find_without_netlink(void *arg)
{
    struct link l;

    refuse_netlink();
    expect_each_way(geteuid());
    link_open(&l, "127.0.0.1", "127.0.0.1");
    close(l.client);
    expect_gone(l.server);
}

TEST(proc_serves_where_netlink_is_refused)
{
    run_as(geteuid(), find_without_netlink, NULL);
    if (geteuid() == 0)
        run_as(OTHER_USER, find_without_netlink, NULL);
}

static void use_all_descriptors(void)
{
    struct rlimit limit = { 64, 64 };

    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (dup(0) >= 0)
        ;
}

static void find_without_descriptors(void *arg)
{
    struct link l;

    link_open(&l, "127.0.0.1", "127.0.0.1");
    use_all_descriptors();
    expect_gone(l.server);
}

TEST(a_shortage_of_descriptors_lets_nobody_in)
{
    run_as(geteuid(), find_without_descriptors, NULL);
}

static void find_without_anything(void *arg)
{
    struct link l;
    uid_t uid;

    ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
    ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    ck_assert_int_eq(mount("none", "/proc", "tmpfs", 0, NULL), 0);
    refuse_netlink();
    link_open(&l, "127.0.0.1", "127.0.0.1");
    ck_assert_int_eq(socket_owner_of_peer(l.server, &uid), SOCKET_OWNER_UNKNOWN);
}

TEST(without_netlink_and_proc_it_is_unknown)
{
    SKIP_UNLESS_ROOT();
    run_as(0, find_without_anything, NULL);
}

/* As crund is once it is locked in. Else it would read all of /proc/net/tcp for each
 * connection from elsewhere. */
static void find_without_bind(void *arg)
{
    struct net_addr none = address_of("127.0.0.1", 1);
    uid_t uid;

    ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
    ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    ck_assert_int_eq(mount("none", "/proc", "tmpfs", 0, NULL), 0);
    socket_owner_prepare();
    refuse_call(SYS_bind, ANY_ARGUMENT);
    ck_assert_int_eq(socket_owner_find(&none, &none, &uid), SOCKET_OWNER_GONE);
}

TEST(one_that_may_bind_no_more_does_without_proc)
{
    SKIP_UNLESS_ROOT();
    run_as(0, find_without_bind, NULL);
}

/* -- user namespaces --------------------------------------------------------------- */

static void write_map(const char *path, const char *map)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, map, strlen(map)), (ssize_t)strlen(map));
    close(fd);
}

/* As root of a user namespace, whose sockets are found, and those outside are not its.
 */
static void find_in_user_namespace(void *arg)
{
    struct link *outside = arg, l;
    char map[32];

    snprintf(map, sizeof(map), "0 %u 1", (unsigned)geteuid());
    SKIP_UNLESS(prctl(PR_SET_DUMPABLE, 1) == 0 && unshare(CLONE_NEWUSER) == 0,
                "no user namespaces can be made here");
    write_map("/proc/self/uid_map", map);
    ck_assert_uint_eq(geteuid(), 0);
    expect_each_way(0);
    if (outside) {
        expect_user(outside->server, SOCKET_OWNER_OUTSIDE);
        ck_assert(!socket_owner_may(SOCKET_OWNER_OUTSIDE));
    }
    link_open(&l, "127.0.0.1", "127.0.0.1");
    close(l.client);
    expect_gone(l.server);
}

TEST(in_a_user_namespace_strangers_are_outside)
{
    struct link l;

    if (geteuid() != 0) {
        run_as(geteuid(), find_in_user_namespace, NULL);
        return;
    }
    link_open(&l, "127.0.0.1", "127.0.0.1");
    run_as(OTHER_USER, find_in_user_namespace, &l);
    link_close(&l);
}

/* -- the rest ---------------------------------------------------------------------- */

TEST(users_are_described)
{
    char text[80];

    ck_assert_str_eq(socket_owner_describe(0, text, sizeof(text)), "user root (uid 0)");
    ck_assert_str_eq(socket_owner_describe(UNLISTED_USER, text, sizeof(text)),
                     "uid 3999999999");
    ck_assert_str_eq(socket_owner_describe(SOCKET_OWNER_OUTSIDE, text, sizeof(text)),
                     "a user outside of this user namespace");
    ck_assert_str_eq(socket_owner_describe(0, text, 10), "user root");
}

TEST(own_user_and_root_may)
{
    ck_assert(socket_owner_may(geteuid()));
    ck_assert(socket_owner_may(0));
    ck_assert(!socket_owner_may(UNLISTED_USER));
}

static void time_lookups(const struct link *l, int count)
{
    uint64_t begin = clock_us();

    for (int i = 0; i < count; i++)
        expect_user(l->server, geteuid());
    printf("%.1f us a look-up\n", (double)(clock_us() - begin) / count);
    fflush(stdout);
}

static void time_lookups_in_proc(void *arg)
{
    refuse_netlink();
    printf("in /proc/net/tcp: ");
    time_lookups(arg, LOOKUPS_IN_PROC);
}

TEST(the_time_of_a_look_up_is_shown)
{
    struct link l;

    link_open(&l, "127.0.0.1", "127.0.0.1");
    time_lookups(&l, LOOKUPS);
    fflush(stdout);
    run_as(geteuid(), time_lookups_in_proc, &l);
    link_close(&l);
}
