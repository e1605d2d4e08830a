/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/memory_socket.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The name of an agent that is gone is anyone's. */
static bool is_own_agent(int fd)
{
    struct ucred user;
    socklen_t size = sizeof(user);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &size) == 0 &&
           (user.uid == geteuid() || user.uid == 0);
}

int memory_socket_open(const char *path, struct err *e)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    size_t n = strlen(path);
    int fd;

    if (n == 0 || n >= sizeof(a.sun_path))
        return err_set(e, "memory: bad address %s", path);
    memcpy(a.sun_path, path, n);
    if (a.sun_path[0] == '@')
        a.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
        (void)err_set_errno(e, errno, "memory: cannot reach the agent");
    else if (is_own_agent(fd))
        return fd;
    else
        (void)err_set(e, "memory: the agent is of another user");
    if (fd >= 0)
        close(fd);
    return -1;
}

static void close_all(int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
}

/* Returns how many descriptors have come, or -1. */
static int socket_receive(int fd, struct memory_answer *answer, int *fds)
{
    struct iovec part = { .iov_base = answer, .iov_len = sizeof(*answer) };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MEMORY_SLOTS * sizeof(int))];
    } control;
    struct msghdr m = { .msg_iov = &part,
                        .msg_iovlen = 1,
                        .msg_control = control.bytes,
                        .msg_controllen = sizeof(control.bytes) };
    struct cmsghdr *h;
    unsigned count = 0;
    ssize_t n;

    do
        n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    h = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
        count = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(h), count * sizeof(int));
    }
    if (n == (ssize_t)sizeof(*answer) && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
        count == answer->slots)
        return (int)count;
    close_all(fds, count);
    if (n >= 0)
        errno = n == 0 ? ECONNRESET : EPROTO;
    return -1;
}

int memory_socket_ask(int fd, const struct memory_ask *ask,
                      struct memory_answer *answer, int *fds, struct err *e)
{
    int got[MEMORY_SLOTS], count;
    ssize_t n;

    do
        n = send(fd, ask, sizeof(*ask), MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    count = n < 0 ? -1 : socket_receive(fd, answer, got);
    if (count < 0)
        return err_set_errno(e, errno, "memory: the agent does not answer");
    if (answer->status == MEMORY_OK && (unsigned)count == (fds ? answer->slots : 0)) {
        if (fds)
            memcpy(fds, got, (unsigned)count * sizeof(int));
        return 0;
    }
    close_all(got, (unsigned)count);
    answer->text[sizeof(answer->text) - 1] = '\0';
    (void)err_set(e, "%s", *answer->text ? answer->text : "memory: a bad answer");
    return err_set_code(e, (int)answer->status, 0);
}

void memory_socket_note(int fd, const struct memory_ask *ask)
{
    (void)!send(fd, ask, sizeof(*ask), MSG_NOSIGNAL | MSG_DONTWAIT);
}
