/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/net/resolver.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <event2/event.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/net/limits.h"

/* Shared by the thread and the loop; the last of them to release it frees it. The
 * thread writes the answer before it signals `ready`, and nothing after that. */
struct lookup {
    atomic_int users;
    int ready; /* an eventfd */
    char host[HOST_NAME_MAX_BYTES + 1];
    uint16_t port;
    struct net_addr list[ADDRESSES_PER_NAME_MAX];
    size_t count;
    struct err e;
};

struct resolver {
    struct lookup *lookup;
    struct event *event;
    struct loop_timer limit;
    resolver_done_fn *done;
    void *arg;
};

static void lookup_release(struct lookup *l)
{
    if (atomic_fetch_sub(&l->users, 1) > 1)
        return;
    close(l->ready);
    free(l);
}

static void *lookup_run(void *arg)
{
    static const uint64_t one = 1;
    struct lookup *l = arg;

    if (net_resolve(l->host, l->port, l->list, ADDRESSES_PER_NAME_MAX, &l->count,
                    &l->e) < 0)
        l->count = 0;
    (void)!write(l->ready, &one, sizeof(one));
    lookup_release(l);
    return NULL;
}

static void lookup_start(struct lookup *l)
{
    pthread_t thread;
    int errnum = thread_start(&thread, lookup_run, l);

    if (errnum == 0) {
        pthread_detach(thread);
        return;
    }
    (void)err_set_errno(&l->e, errnum, "cannot look up \"%s\"", l->host);
    eventfd_write(l->ready, 1);
    lookup_release(l);
}

void resolver_cancel(struct resolver *r)
{
    if (!r)
        return;
    event_free(r->event);
    loop_timer_fini(&r->limit);
    lookup_release(r->lookup);
    free(r);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
    struct resolver *r = arg;
    struct lookup *l = r->lookup;
    resolver_done_fn *done = r->done;
    void *done_arg = r->arg;

    atomic_fetch_add(&l->users, 1);
    resolver_cancel(r);
    done(done_arg, l->list, l->count, l->e.text);
    lookup_release(l);
}

static void on_limit(void *arg)
{
    struct resolver *r = arg;
    resolver_done_fn *done = r->done;
    void *done_arg = r->arg;
    char why[ERROR_TEXT_MAX_BYTES + 1];

    snprintf(why, sizeof(why), "no answer when looking up \"%s\"", r->lookup->host);
    resolver_cancel(r);
    done(done_arg, NULL, 0, why);
}

struct resolver *resolver_start(struct loop *loop, const char *host, uint16_t port,
                                uint64_t limit_ms, resolver_done_fn *done, void *arg)
{
    struct resolver *r = xcalloc(1, sizeof(*r));
    struct lookup *l = xcalloc(1, sizeof(*l));

    atomic_init(&l->users, 2);
    l->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->port = port;
    snprintf(l->host, sizeof(l->host), "%s", host);
    r->lookup = l;
    r->done = done;
    r->arg = arg;
    r->event = event_new(loop_base(loop), l->ready, EV_READ, on_ready, r);
    event_add(r->event, NULL);
    loop_timer_init(&r->limit, loop, on_limit, r);
    loop_timer_arm(&r->limit, clock_ms() + limit_ms);
    lookup_start(l);
    return r;
}

bool resolver_is_numeric(const char *host)
{
    struct in_addr v4;

    return strchr(host, ':') || inet_pton(AF_INET, host, &v4) == 1;
}
