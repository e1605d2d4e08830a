/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/net/acceptor.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/wire/net/limits.h"

void acceptor_init(struct acceptor *a, const char *name, uint64_t hello_ms)
{
    *a = (struct acceptor){ .name = name, .fd = -1, .hello_ms = hello_ms };
    TAILQ_INIT(&a->unidentified);
}

int acceptor_listen(struct acceptor *a, const struct net_addr *addr, struct err *e)
{
    a->fd = net_listen(addr, LISTEN_BACKLOG, e);
    return a->fd < 0 ? -1 : 0;
}

void acceptor_fini(struct acceptor *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
}

int acceptor_accept(struct acceptor *a, struct net_addr *peer)
{
    int fd = net_accept(a->fd, peer), errnum = errno;
    unsigned held_back;

    /* No descriptors, or no memory in the kernel: the socket stays ready, and a loop
     * that watched it would spin. The connections wait in the kernel. */
    if (fd >= 0 || !(errnum == EMFILE || errnum == ENFILE || errnum == ENOBUFS ||
                     errnum == ENOMEM))
        return fd;
    if (log_limit_pass(&a->limit, 0, clock_ms(), &held_back))
        log_warn("%s: cannot accept connections for now: %s", a->name,
                 strerror(errnum));
    acceptor_pause(a);
    return -1;
}

bool acceptor_is_paused(const struct acceptor *a)
{
    return a->paused_till_ms > 0;
}

void acceptor_pause(struct acceptor *a)
{
    a->paused_till_ms = clock_ms() + ACCEPT_PAUSE_MS;
}

bool acceptor_resume(struct acceptor *a, uint64_t now_ms)
{
    if (!acceptor_is_paused(a) || a->paused_till_ms > now_ms)
        return false;
    a->paused_till_ms = 0;
    return true;
}

void acceptor_add(struct acceptor *a, struct acceptor_entry *entry, void *owner)
{
    entry->since_ms = clock_ms();
    entry->owner = owner;
    TAILQ_INSERT_TAIL(&a->unidentified, entry, entry);
    a->count++;
}

void acceptor_remove(struct acceptor *a, struct acceptor_entry *entry)
{
    TAILQ_REMOVE(&a->unidentified, entry, entry);
    a->count--;
}

void *acceptor_oldest(const struct acceptor *a)
{
    struct acceptor_entry *first = TAILQ_FIRST(&a->unidentified);

    return first ? first->owner : NULL;
}

void *acceptor_late(const struct acceptor *a, uint64_t now_ms)
{
    struct acceptor_entry *first = TAILQ_FIRST(&a->unidentified);

    return first && first->since_ms + a->hello_ms <= now_ms ? first->owner : NULL;
}

uint64_t acceptor_next_ms(const struct acceptor *a)
{
    struct acceptor_entry *first = TAILQ_FIRST(&a->unidentified);
    uint64_t next = first ? first->since_ms + a->hello_ms : UINT64_MAX;

    return acceptor_is_paused(a) && a->paused_till_ms < next ? a->paused_till_ms : next;
}
