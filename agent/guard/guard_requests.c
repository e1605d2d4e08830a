/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_requests.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"

struct guard_waiting_request { /* for which the socket had no room */
    struct guard_waiting_request *next;
    struct guard_request request;
    int fd[GUARD_REQUEST_FDS]; /* duplicates; -1: none */
};

/* 0, or -1 and errno; EAGAIN: no room. */
static int send_request(int socket, const struct guard_request *request, const int *fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(GUARD_REQUEST_FDS * sizeof(int))];
    } control = { 0 };
    struct iovec iov = { (void *)request, sizeof(*request) };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (fd && fd[0] >= 0) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(GUARD_REQUEST_FDS * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fd, GUARD_REQUEST_FDS * sizeof(int));
    }
    while (sendmsg(socket, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        if (errno == ENOBUFS || errno == ETOOMANYREFS || errno == ENOMEM)
            errno = EAGAIN;
        if (errno != EINTR)
            return -1;
    }
    return 0;
}

static void free_waiting_request(struct guard_waiting_request *w)
{
    int saved_errno = errno;

    for (int i = 0; i < GUARD_REQUEST_FDS; i++)
        if (w->fd[i] >= 0)
            close(w->fd[i]);
    free(w);
    errno = saved_errno;
}

static int queue_request(struct guard_requests *requests,
                         const struct guard_request *request, const int *fd)
{
    struct guard_waiting_request *w = xcalloc(1, sizeof(*w));

    w->request = *request;
    memset(w->fd, -1, sizeof(w->fd));
    for (int i = 0; fd && i < GUARD_REQUEST_FDS; i++) {
        w->fd[i] = fcntl(fd[i], F_DUPFD_CLOEXEC, 0);
        if (w->fd[i] < 0) {
            free_waiting_request(w);
            return -1;
        }
    }
    *requests->last = w;
    requests->last = &w->next;
    event_add(requests->writable, NULL);
    return 0;
}

static struct guard_waiting_request *
remove_first_request(struct guard_requests *requests)
{
    struct guard_waiting_request *w = requests->first;

    requests->first = w->next;
    if (!requests->first)
        requests->last = &requests->first;
    return w;
}

static bool guard_is_gone(int errnum)
{
    return errnum == EPIPE || errnum == ECONNRESET;
}

static void on_socket_writable(evutil_socket_t fd, short what, void *arg)
{
    struct guard_requests *requests = arg;

    while (requests->first) {
        struct guard_waiting_request *w = requests->first;
        int rc = send_request((int)fd, &w->request, w->fd), errnum = errno;

        if (rc < 0 && errnum == EAGAIN) {
            event_add(requests->writable, NULL);
            return;
        }
        remove_first_request(requests);
        if (rc < 0 && !guard_is_gone(errnum))
            requests->lost(requests->arg, &w->request, errnum);
        free_waiting_request(w);
    }
}

int guard_requests_put(struct guard_requests *requests,
                       const struct guard_request *request, const int *fd)
{
    if (requests->socket < 0)
        return 0;
    if (!requests->first) {
        if (send_request(requests->socket, request, fd) == 0 || guard_is_gone(errno))
            return 0;
        if (errno != EAGAIN)
            return -1;
    }
    return queue_request(requests, request, fd);
}

void guard_requests_try(struct guard_requests *requests,
                        const struct guard_request *request)
{
    if (requests->socket >= 0 && !requests->first)
        (void)!send_request(requests->socket, request, NULL);
}

void guard_requests_init(struct guard_requests *requests, struct event_base *base,
                         int socket)
{
    requests->socket = socket;
    requests->first = NULL;
    requests->last = &requests->first;
    requests->writable = event_new(base, socket, EV_WRITE, on_socket_writable,
                                   requests);
    if (!requests->writable)
        abort();
}

void guard_requests_fini(struct guard_requests *requests)
{
    event_free(requests->writable);
    requests->socket = -1;
    while (requests->first)
        free_waiting_request(remove_first_request(requests));
}
