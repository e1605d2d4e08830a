/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/net/socket_owner.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/proc.h"

/* what the kernel shows for a user that has no number here */
#define OVERFLOW_UID 65534
#define WHOLE_UID_MAP 4294967295u

/* The two addresses of a socket. v4-mapped addresses are v4: a socket of either
 * family may have them. */
struct socket_pair {
    int family;
    uint32_t interface;           /* of link-local addresses */
    uint32_t local[4], remote[4]; /* in network order; v4 is in the first */
    uint16_t local_port, remote_port;
};

/* Opened at the first use. A forked process opens its own, because answers on a shared
 * socket could reach the wrong process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int netlink = -1;
static pid_t netlink_pid;
static uint32_t netlink_sequence;
static bool netlink_answers; /* it has found a socket, so "not found" can be believed */

/* -- addresses -------------------------------------------------------------------- */

static int read_host(const struct net_addr *addr, uint32_t host[4], uint32_t *interface)
{
    const struct sockaddr_in *v4 = (const void *)&addr->sa;
    const struct sockaddr_in6 *v6 = (const void *)&addr->sa;

    memset(host, 0, 16);
    if (addr->sa.ss_family == AF_INET) {
        memcpy(host, &v4->sin_addr, 4);
        return AF_INET;
    }
    if (addr->sa.ss_family != AF_INET6)
        return AF_UNSPEC;
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        memcpy(host, v6->sin6_addr.s6_addr + 12, 4);
        return AF_INET;
    }
    memcpy(host, &v6->sin6_addr, 16);
    if (v6->sin6_scope_id != 0)
        *interface = v6->sin6_scope_id;
    return AF_INET6;
}

/* False if there can be no such socket. */
static bool read_pair(const struct net_addr *local, const struct net_addr *remote,
                      struct socket_pair *p)
{
    p->interface = 0;
    p->family = read_host(local, p->local, &p->interface);
    p->local_port = net_port(local);
    p->remote_port = net_port(remote);
    return read_host(remote, p->remote, &p->interface) == p->family &&
           p->family != AF_UNSPEC;
}

/* A socket that a process has open has an inode. A listener is no end of a connection,
 * and one that is still connecting has not come from this connection. */
static bool is_open_end(unsigned state, uint64_t inode)
{
    return inode != 0 && (state == TCP_ESTABLISHED || state == TCP_FIN_WAIT1 ||
                          state == TCP_FIN_WAIT2 || state == TCP_CLOSE_WAIT ||
                          state == TCP_CLOSING || state == TCP_LAST_ACK);
}

/* -- sock_diag -------------------------------------------------------------------- */

enum netlink_answer { NETLINK_FOUND, NETLINK_NONE, NETLINK_UNUSABLE };

static bool open_netlink(void)
{
    pid_t self = getpid();

    if (netlink >= 0 && netlink_pid == self)
        return true;
    if (netlink >= 0)
        close(netlink);
    netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    netlink_pid = self;
    return netlink >= 0;
}

/* The kernel answers within the call that sends the request. */
static bool send_request(const struct socket_pair *p)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 body;
    } request = {
        .header = { .nlmsg_len = sizeof(request),
                    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                    .nlmsg_flags = NLM_F_REQUEST,
                    .nlmsg_seq = ++netlink_sequence },
        .body = { .sdiag_family = (uint8_t)p->family,
                  .sdiag_protocol = IPPROTO_TCP,
                  .idiag_states = UINT32_MAX,
                  .id = { .idiag_sport = htons(p->local_port),
                          .idiag_dport = htons(p->remote_port),
                          .idiag_if = p->interface,
                          .idiag_cookie = { INET_DIAG_NOCOOKIE,
                                            INET_DIAG_NOCOOKIE } } },
    };

    memcpy(request.body.id.idiag_src, p->local, sizeof(p->local));
    memcpy(request.body.id.idiag_dst, p->remote, sizeof(p->remote));
    return send(netlink, &request, sizeof(request), MSG_DONTWAIT) ==
           (ssize_t)sizeof(request);
}

/* Answers to earlier requests, which were given up, are passed over. */
static enum netlink_answer receive_answer(struct inet_diag_msg *found)
{
    union {
        struct nlmsghdr header;
        char bytes[4096];
    } in;

    for (;;) {
        ssize_t n = recv(netlink, &in, sizeof(in), MSG_DONTWAIT);
        const struct nlmsgerr *error = NLMSG_DATA(&in.header);

        if (n < 0)
            return NETLINK_UNUSABLE;
        if (n < (ssize_t)NLMSG_HDRLEN || in.header.nlmsg_seq != netlink_sequence)
            continue;
        if (in.header.nlmsg_type == NLMSG_ERROR &&
            n >= (ssize_t)NLMSG_LENGTH(sizeof(*error)))
            return error->error == -ENOENT ? NETLINK_NONE : NETLINK_UNUSABLE;
        if (in.header.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
            n < (ssize_t)NLMSG_LENGTH(sizeof(*found)))
            return NETLINK_UNUSABLE;
        memcpy(found, NLMSG_DATA(&in.header), sizeof(*found));
        return NETLINK_FOUND;
    }
}

static enum netlink_answer ask_netlink(const struct socket_pair *p,
                                       struct inet_diag_msg *found)
{
    enum netlink_answer answer = NETLINK_UNUSABLE;

    if (open_netlink() && send_request(p))
        answer = receive_answer(found);
    if (answer == NETLINK_FOUND)
        netlink_answers = true;
    return answer;
}

/* A kernel without the module for TCP says "not found" for every socket. So the first
 * time it is asked for one that is there, a listener on loopback. */
static bool netlink_finds_listener(void)
{
    struct net_addr any = { .sa.ss_family = AF_INET,
                            .len = sizeof(struct sockaddr_in) };
    struct sockaddr_in *v4 = (void *)&any.sa;
    struct net_addr nowhere = any, own;
    struct inet_diag_msg found;
    struct socket_pair p;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 &&
        bind(fd, (const struct sockaddr *)(const void *)&any.sa, any.len) == 0 &&
        listen(fd, 1) == 0 && net_local_addr(fd, &own) == 0 &&
        read_pair(&own, &nowhere, &p))
        (void)ask_netlink(&p, &found);
    if (fd >= 0)
        close(fd);
    return netlink_answers;
}

static enum netlink_answer find_socket(const struct socket_pair *p,
                                       struct inet_diag_msg *found)
{
    enum netlink_answer answer;

    pthread_mutex_lock(&lock);
    answer = ask_netlink(p, found);
    if (answer == NETLINK_NONE && !netlink_answers && !netlink_finds_listener())
        answer = NETLINK_UNUSABLE;
    pthread_mutex_unlock(&lock);
    return answer;
}

static enum netlink_answer find_by_netlink(const struct socket_pair *p, uid_t *uid)
{
    struct inet_diag_msg found;
    enum netlink_answer answer = find_socket(p, &found);

    if (answer != NETLINK_FOUND)
        return answer;
    if (!is_open_end(found.idiag_state, found.idiag_inode))
        return NETLINK_NONE;
    *uid = found.idiag_uid;
    return NETLINK_FOUND;
}

/* -- /proc/net/tcp ---------------------------------------------------------------- */

/* Reads "0100007F", one number for each four bytes. v4-mapped becomes v4. */
static bool read_proc_host(const char *digits, uint32_t host[4])
{
    size_t words = strlen(digits) / 8;
    static const uint32_t no_words[2];

    memset(host, 0, 16);
    for (size_t i = 0; i < words && i < 4; i++)
        if (sscanf(digits + 8 * i, "%8" SCNx32, &host[i]) != 1)
            return false;
    if (words == 4 && memcmp(host, no_words, sizeof(no_words)) == 0 &&
        host[2] == htonl(0xffff)) {
        host[0] = host[3];
        host[2] = host[3] = 0;
    }
    return words == 1 || words == 4;
}

static bool proc_line_matches(const char *line, const struct socket_pair *p, uid_t *uid)
{
    char local[33], remote[33];
    unsigned local_port, remote_port, state, user;
    unsigned long inode;
    uint32_t host[4];

    return sscanf(
               line,
               " %*u: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %*x:%*x %*x:%*x %*x %u %*u %lu",
               local, &local_port, remote, &remote_port, &state, &user, &inode) == 7 &&
           local_port == p->local_port && remote_port == p->remote_port &&
           read_proc_host(local, host) && memcmp(host, p->local, 16) == 0 &&
           read_proc_host(remote, host) && memcmp(host, p->remote, 16) == 0 &&
           is_open_end(state, inode) && (*uid = user, true);
}

/* 1: found, 0: not there, -1: cannot be read here at all. A shortage of descriptors or
 * memory, which other users may cause, is no reason to let them in. */
static int find_in_proc_file(const char *path, const struct socket_pair *p, uid_t *uid)
{
    FILE *f = fopen(path, "re");
    bool found = false;
    char line[512];

    if (!f)
        return errno == ENOENT || errno == EACCES || errno == EPERM ? -1 : 0;
    while (!found && fgets(line, sizeof(line), f))
        found = proc_line_matches(line, p, uid);
    fclose(f);
    return found;
}

static enum socket_owner_result find_in_proc(const struct socket_pair *p, uid_t *uid)
{
    int v4 = p->family == AF_INET ? find_in_proc_file("/proc/net/tcp", p, uid) : -1;
    int v6 = v4 == 1 ? -1 : find_in_proc_file("/proc/net/tcp6", p, uid);

    if (v4 == 1 || v6 == 1)
        return SOCKET_OWNER_FOUND;
    return v4 == 0 || v6 == 0 ? SOCKET_OWNER_GONE : SOCKET_OWNER_UNKNOWN;
}

/* -- the user --------------------------------------------------------------------- */

/* Whether every user has a number in this user namespace. */
static bool all_users_have_numbers(void)
{
    FILE *f = fopen("/proc/self/uid_map", "re");
    unsigned inside, outside, count;
    bool all = !f || (fscanf(f, "%u %u %u", &inside, &outside, &count) == 3 &&
                      count == WHOLE_UID_MAP);

    if (f)
        fclose(f);
    return all;
}

/* In a user namespace the kernel shows one number for all users outside of it. A
 * process that has this number itself cannot tell its own sockets from theirs; it takes
 * them for its own, or nothing would work there. */
static uid_t uid_or_outside(uid_t uid)
{
    return uid == OVERFLOW_UID && geteuid() != OVERFLOW_UID && !all_users_have_numbers()
               ? SOCKET_OWNER_OUTSIDE
               : uid;
}

void socket_owner_prepare(void)
{
    pthread_mutex_lock(&lock);
    if (open_netlink())
        (void)netlink_finds_listener();
    pthread_mutex_unlock(&lock);
}

enum socket_owner_result socket_owner_find(const struct net_addr *local,
                                           const struct net_addr *remote, uid_t *uid)
{
    enum socket_owner_result result = SOCKET_OWNER_GONE;
    struct socket_pair p;

    if (!read_pair(local, remote, &p))
        return SOCKET_OWNER_GONE;
    switch (find_by_netlink(&p, uid)) {
    case NETLINK_FOUND:
        result = SOCKET_OWNER_FOUND;
        break;
    case NETLINK_NONE:
        break;
    case NETLINK_UNUSABLE:
        result = find_in_proc(&p, uid);
        break;
    }
    if (result == SOCKET_OWNER_FOUND)
        *uid = uid_or_outside(*uid);
    return result;
}

bool socket_owner_can_have_changed(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof(info);

    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0 ||
           (info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_CLOSE_WAIT);
}

enum socket_owner_result socket_owner_of_peer(int fd, uid_t *uid)
{
    enum socket_owner_result result;
    struct net_addr here, there;

    if (net_local_addr(fd, &here) < 0 || net_peer_addr(fd, &there) < 0)
        return SOCKET_OWNER_GONE;
    result = socket_owner_find(&there, &here, uid);
    if (result == SOCKET_OWNER_FOUND && socket_owner_can_have_changed(fd))
        return SOCKET_OWNER_GONE;
    return result;
}

/* The kernel shows a listener on the peer's port if there is no such socket. */
bool socket_owner_is_here(int fd)
{
    struct net_addr here, there;
    struct inet_diag_msg found;
    struct socket_pair p;

    return net_local_addr(fd, &here) == 0 && net_peer_addr(fd, &there) == 0 &&
           read_pair(&there, &here, &p) && find_socket(&p, &found) == NETLINK_FOUND &&
           found.idiag_state != TCP_LISTEN;
}

bool socket_owner_may(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

char *socket_owner_describe(uid_t uid, char *buf, size_t size)
{
    char name[64];

    if (uid == SOCKET_OWNER_OUTSIDE)
        snprintf(buf, size, "a user outside of this user namespace");
    else if (proc_user_name(uid, name, sizeof(name)))
        snprintf(buf, size, "user %s (uid %u)", name, (unsigned)uid);
    else
        snprintf(buf, size, "uid %u", (unsigned)uid);
    return buf;
}
