/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/events/notify.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/event_kinds.h"
#include "rendezvous/job/events/notify_process.h"

#define QUEUE_BYTES (1 << 20) /* of events that wait; the system may allow less */

struct notify {
    int socket;
    pid_t pid;
    bool calls;      /* those that event_kind_calls says */
    uint64_t chosen; /* kinds, if not */
    unsigned left_out;
    bool gone; /* the process has ended, which was told */
};

/* -- flags ------------------------------------------------------------------------- */

int notify_check_kinds(const char *kinds, struct err *e)
{
    uint64_t chosen;

    return event_kinds_select(kinds, &chosen, e);
}

int notify_check(const struct notify_config *c, struct err *e)
{
    if (c->kinds && !c->command)
        return err_set(e, "--on-event-kinds needs --on-event");
    return 0;
}

/* -- its process ------------------------------------------------------------------- */

int notify_start(const struct notify_config *c, struct notify **n, struct err *e)
{
    int end[2], queue = QUEUE_BYTES;
    struct notify *made;

    *n = NULL;
    if (!c->command)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, end) < 0)
        return err_set_errno(e, errno, "cannot make a socket pair");
    (void)setsockopt(end[0], SOL_SOCKET, SO_SNDBUF, &queue, sizeof(queue));
    made = xcalloc(1, sizeof(*made));
    made->calls = !c->kinds;
    if (c->kinds && event_kinds_select(c->kinds, &made->chosen, e) < 0)
        goto failed;
    made->pid = fork();
    if (made->pid == 0) {
        if (c->secret)
            explicit_bzero(c->secret, strlen(c->secret));
        notify_process_run(c, end[1]);
    }
    if (made->pid < 0) {
        (void)err_set_errno(e, errno, "cannot start a process that notifies");
        goto failed;
    }
    made->socket = end[0];
    close(end[1]);
    *n = made;
    return 0;
failed:
    close(end[0]);
    close(end[1]);
    free(made);
    return -1;
}

static void send_packet(struct notify *n, const struct notify_packet *p)
{
    if (n->gone)
        return;
    if (send(n->socket, p, sizeof(*p), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
        n->left_out = 0;
        return;
    }
    if (errno == EPIPE || errno == ECONNRESET) {
        log_warn("the process that notifies others has died: there are no more "
                 "notifications");
        n->gone = true;
    } else {
        n->left_out++;
    }
}

void notify_event(struct notify *n, const struct msg_event *event)
{
    struct notify_packet p = { .left_out = n ? n->left_out : 0 };
    const struct event_kind *k = event_kind_find(event->kind);
    bool is_chosen;

    if (!n || !k)
        return;
    is_chosen = n->calls ? event_kind_calls(event)
                         : (n->chosen & UINT64_C(1) << (k - event_kinds)) != 0;
    if (!is_chosen)
        return;
    p.event = *event;
    send_packet(n, &p);
}

/* Its end of the socket is closed when it has ended: whether it is reaped here is not
 * known. */
void notify_end(struct notify *n)
{
    uint64_t until = clock_ms() + NOTIFY_LAST_MS + 500, now;
    struct pollfd p;
    int rc = 0;

    if (!n)
        return;
    shutdown(n->socket, SHUT_WR);
    p = (struct pollfd){ .fd = n->socket, .events = POLLIN };
    while (rc <= 0 && (now = clock_ms()) < until)
        rc = poll(&p, 1, (int)(until - now));
    close(n->socket);
    if (waitpid(n->pid, NULL, rc > 0 ? 0 : WNOHANG) == 0) {
        kill(n->pid, SIGKILL);
        (void)waitpid(n->pid, NULL, 0);
    }
    free(n);
}
