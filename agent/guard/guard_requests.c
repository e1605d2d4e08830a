/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_requests.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/xalloc.h"

struct guard_waiting_ask { /* that the socket had no room for */
    struct guard_waiting_ask *next;
    struct guard_ask ask;
    int fd[GUARD_ASK_FDS]; /* ours; -1: none */
};

/* 0, or -1 and errno; EAGAIN: no room. */
static int send_ask(int socket, const struct guard_ask *ask, const int *fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(GUARD_ASK_FDS * sizeof(int))];
    } control = { 0 };
    struct iovec iov = { (void *)ask, sizeof(*ask) };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (fd && fd[0] >= 0) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(GUARD_ASK_FDS * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fd, GUARD_ASK_FDS * sizeof(int));
    }
    while (sendmsg(socket, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        if (errno == ENOBUFS || errno == ETOOMANYREFS || errno == ENOMEM)
            errno = EAGAIN;
        if (errno != EINTR)
            return -1;
    }
    return 0;
}

static void free_ask(struct guard_waiting_ask *w)
{
    int saved_errno = errno;

    for (int i = 0; i < GUARD_ASK_FDS; i++)
        if (w->fd[i] >= 0)
            close(w->fd[i]);
    free(w);
    errno = saved_errno;
}

static int keep(struct guard_requests *asks, const struct guard_ask *ask, const int *fd)
{
    struct guard_waiting_ask *w = xcalloc(1, sizeof(*w));

    w->ask = *ask;
    memset(w->fd, -1, sizeof(w->fd));
    for (int i = 0; fd && i < GUARD_ASK_FDS; i++) {
        w->fd[i] = fcntl(fd[i], F_DUPFD_CLOEXEC, 0);
        if (w->fd[i] < 0) {
            free_ask(w);
            return -1;
        }
    }
    *asks->last = w;
    asks->last = &w->next;
    event_add(asks->writable, NULL);
    return 0;
}

static struct guard_waiting_ask *take_first(struct guard_requests *asks)
{
    struct guard_waiting_ask *w = asks->first;

    asks->first = w->next;
    if (!asks->first)
        asks->last = &asks->first;
    return w;
}

static bool guard_is_gone(int errnum)
{
    return errnum == EPIPE || errnum == ECONNRESET;
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct guard_requests *asks = arg;

    (void)what;
    while (asks->first) {
        struct guard_waiting_ask *w = asks->first;
        int rc = send_ask((int)fd, &w->ask, w->fd), errnum = errno;

        if (rc < 0 && errnum == EAGAIN) {
            event_add(asks->writable, NULL);
            return;
        }
        take_first(asks);
        if (rc < 0 && !guard_is_gone(errnum))
            asks->lost(asks->arg, &w->ask, errnum);
        free_ask(w);
    }
}

int guard_requests_put(struct guard_requests *asks, const struct guard_ask *ask,
                       const int *fd)
{
    if (asks->socket < 0)
        return 0;
    if (!asks->first) {
        if (send_ask(asks->socket, ask, fd) == 0 || guard_is_gone(errno))
            return 0;
        if (errno != EAGAIN)
            return -1;
    }
    return keep(asks, ask, fd);
}

void guard_requests_try(struct guard_requests *asks, const struct guard_ask *ask)
{
    if (asks->socket >= 0 && !asks->first)
        (void)!send_ask(asks->socket, ask, NULL);
}

void guard_requests_init(struct guard_requests *asks, struct event_base *base,
                         int socket)
{
    asks->socket = socket;
    asks->first = NULL;
    asks->last = &asks->first;
    asks->writable = event_new(base, socket, EV_WRITE, on_writable, asks);
    if (!asks->writable)
        abort();
}

void guard_requests_fini(struct guard_requests *asks)
{
    event_free(asks->writable);
    asks->socket = -1;
    while (asks->first)
        free_ask(take_first(asks));
}
