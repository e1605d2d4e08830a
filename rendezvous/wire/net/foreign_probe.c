/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/net/foreign_probe.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/protocol/foreign_server.h"

#define TLS_ALERT 0x15

struct foreign_probe {
    struct loop *loop;
    struct net_addr addr;
    foreign_probe_fn *done;
    void *arg;
    size_t question;
    int fd;
    struct event *event; /* NULL: no connection */
    struct loop_timer limit;
};

static void foreign_probe_close(struct foreign_probe *p)
{
    if (!p->event)
        return;
    event_free(p->event);
    close(p->fd);
    p->event = NULL;
}

void foreign_probe_cancel(struct foreign_probe *p)
{
    if (!p)
        return;
    foreign_probe_close(p);
    loop_timer_fini(&p->limit);
    free(p);
}

static void foreign_probe_end(struct foreign_probe *p, const char *name)
{
    foreign_probe_fn *done = p->done;
    void *arg = p->arg;

    foreign_probe_cancel(p);
    done(arg, name);
}

static void foreign_probe_ask(struct foreign_probe *p);

static void foreign_probe_ask_next(struct foreign_probe *p)
{
    foreign_probe_close(p);
    if (++p->question < FOREIGN_QUESTIONS)
        foreign_probe_ask(p);
    else
        foreign_probe_end(p, NULL);
}

static void foreign_probe_on_answer(evutil_socket_t fd, short what, void *arg)
{
    struct foreign_probe *p = arg;
    const struct foreign_question *q = &foreign_questions[p->question];
    uint8_t data[64];
    ssize_t n = recv(fd, data, sizeof(data), 0);

    const char *name = NULL;

    if (n >= (ssize_t)q->answer_size && memcmp(data, q->answer, q->answer_size) == 0)
        name = q->name;
    else if (n > 0 && data[0] != TLS_ALERT) /* which a rendezvous sends, too */
        name = foreign_server_name(data, (size_t)n);
    if (name)
        foreign_probe_end(p, name);
    else
        foreign_probe_ask_next(p);
}

/* The socket is connected, or has failed: then the question cannot be sent. */
static void foreign_probe_on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct foreign_probe *p = arg;
    const struct foreign_question *q = &foreign_questions[p->question];

    if (send(fd, q->bytes, q->size, MSG_NOSIGNAL) != (ssize_t)q->size) {
        foreign_probe_ask_next(p);
        return;
    }
    event_free(p->event);
    p->event = event_new(loop_base(p->loop), fd, EV_READ, foreign_probe_on_answer, p);
    event_add(p->event, NULL);
}

static void foreign_probe_on_limit(void *arg)
{
    foreign_probe_ask_next(arg);
}

static void foreign_probe_ask(struct foreign_probe *p)
{
    struct err e;

    p->fd = net_connect(&p->addr, &e);
    loop_timer_arm(&p->limit, clock_ms() + (p->fd < 0 ? 0 : FOREIGN_ANSWER_MS));
    if (p->fd < 0)
        return;
    p->event = event_new(loop_base(p->loop), p->fd, EV_WRITE, foreign_probe_on_writable,
                         p);
    event_add(p->event, NULL);
}

struct foreign_probe *foreign_probe_start(struct loop *loop,
                                          const struct net_addr *addr,
                                          foreign_probe_fn *done, void *arg)
{
    struct foreign_probe *p = xcalloc(1, sizeof(*p));

    p->loop = loop;
    p->addr = *addr;
    p->done = done;
    p->arg = arg;
    loop_timer_init(&p->limit, loop, foreign_probe_on_limit, p);
    foreign_probe_ask(p);
    return p;
}
