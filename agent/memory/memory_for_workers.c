/* SPDX-License-Identifier: MIT */
/*
 * The socket of the workers, in the agent's loop: each message is a question of one
 * worker, which has no other question before that is answered.
 */
#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/memory/keeper_internal.h"
#include "agent/memory/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"

struct memory_client {
    LIST_ENTRY(memory_client) entry;
    struct memory_keeper *keeper;
    int fd;
    struct event *event;
    bool greeted, waits; /* for the part that it asked for last */
    bool is_gone;        /* it is closed at the end of its turn */
    struct memory_ask ask;
    uint64_t epoch; /* of both, once it is greeted */
    uint32_t local_rank;
};

static void client_close(struct memory_client *c)
{
    LIST_REMOVE(c, entry);
    event_free(c->event);
    close(c->fd);
    free(c);
}

/* -- answers ----------------------------------------------------------------------- */

static void client_answer(struct memory_client *c, const struct memory_answer *answer,
                          const int *fds)
{
    struct iovec part = { .iov_base = (void *)(uintptr_t)answer,
                          .iov_len = sizeof(*answer) };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MEMORY_SLOTS * sizeof(int))];
    } control = { .bytes = "" };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };

    if (answer->slots > 0) {
        struct cmsghdr *h = &control.align;
        size_t size = answer->slots * sizeof(int);

        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(size);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(size);
        memcpy(CMSG_DATA(h), fds, size);
    }
    /* a worker that does not read its answers is not served */
    c->is_gone |= sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0;
}

static void client_refuse(struct memory_client *c, enum memory_status status,
                          const char *why)
{
    struct memory_answer answer = { .status = status };

    snprintf(answer.text, sizeof(answer.text), "%s", why);
    client_answer(c, &answer, NULL);
}

/* -- questions --------------------------------------------------------------------- */

/* Two processes that write to the same slots would destroy both. */
static bool is_taken(const struct memory_keeper *k, uint32_t local_rank)
{
    const struct memory_client *c;

    LIST_FOREACH(c, &k->clients, entry)
        if (c->greeted && c->epoch == k->now.epoch && c->local_rank == local_rank)
            return true;
    return false;
}

static const char *hello_fault(const struct memory_keeper *k,
                               const struct memory_client *c)
{
    if (!k->runs || c->ask.epoch != k->now.epoch)
        return "memory: not a worker of the epoch that runs";
    if (c->ask.local_rank >= k->config.workers)
        return "memory: no such local rank";
    if (c->greeted || is_taken(k, c->ask.local_rank))
        return "memory: another process of this rank has its slots";
    return NULL;
}

/* With the lock. */
static void answer_hello(struct memory_keeper *k, struct memory_client *c)
{
    struct memory_answer answer = { .slots = MEMORY_SLOTS, .restore = k->now.restore };
    const char *fault = hello_fault(k, c);
    int fds[MEMORY_SLOTS];
    struct err e;

    answer.copies = *k->now.neighbour != '\0';
    for (uint32_t i = 0; i < MEMORY_SLOTS && !fault; i++) {
        struct memory_file *f = memory_table_slot(&k->table, c->ask.local_rank, i, &e);

        fds[i] = f ? f->fd : -1;
        fault = f ? NULL : e.text;
    }
    if (fault) {
        client_refuse(c, MEMORY_REFUSED, fault);
        return;
    }
    k->can_hold &= c->ask.can_hold != 0;
    c->greeted = true;
    c->epoch = k->now.epoch;
    c->local_rank = c->ask.local_rank;
    if (*c->ask.command)
        memcpy(k->command, c->ask.command, sizeof(k->command));
    client_answer(c, &answer, fds);
}

static struct memory_file *client_slot(struct memory_keeper *k,
                                       const struct memory_client *c, struct err *e)
{
    if (c->ask.slot < MEMORY_SLOTS)
        return memory_table_slot(&k->table, c->local_rank, c->ask.slot, e);
    (void)err_set(e, "memory: no such slot");
    return NULL;
}

static void answer_resize(struct memory_keeper *k, struct memory_client *c)
{
    struct memory_file *f;
    struct err e;

    f = client_slot(k, c, &e);
    if (!f)
        client_refuse(c, MEMORY_REFUSED, e.text);
    else if (memory_keeper_grow(k, f, c->ask.bytes, &e) < 0)
        client_refuse(c, MEMORY_NO_MEMORY, e.text);
    else
        client_answer(c, &(struct memory_answer){ .status = MEMORY_OK }, NULL);
}

static void note_commit(struct memory_keeper *k, struct memory_client *c)
{
    struct err e;
    struct memory_file *f = client_slot(k, c, &e);

    memory_table_collect(&k->table);
    if (f && !*k->now.neighbour)
        memory_file_set_kept(f);
    pthread_cond_broadcast(&k->changed);
}

static void answer_open(struct memory_keeper *k, struct memory_client *c)
{
    struct memory_file *f = memory_table_find(&k->table, &k->now.restore, c->ask.rank,
                                              c->ask.shared != 0);
    struct memory_answer answer = { .slots = 1, .restore = k->now.restore };
    const char *why = "memory: the job restores nothing that is in memory";
    int fd = f && k->now.restore.world > 0 ? memory_file_reader(f) : -1;

    c->waits = false;
    if (fd >= 0) {
        answer.is_sound = f->sound == f->header.header_hash;
        client_answer(c, &answer, &fd);
        close(fd);
    } else if (!f && k->now.restore.world > 0 &&
               memory_fetcher_want(k, c->ask.rank, c->ask.shared != 0, &why)) {
        c->waits = true;
    } else {
        client_refuse(c, MEMORY_NOT_HERE, why);
    }
}

static void note_restored(struct memory_keeper *k, struct memory_client *c)
{
    bool from_memory = k->now.restore.world > 0 && c->ask.bytes == k->now.restore.step;

    if (!k->restored)
        k->calls.restored(k->calls.arg, from_memory ? c->ask.bytes : 0);
    k->restored = true;
}

static void client_serve(struct memory_client *c)
{
    static void (*const answers[])(struct memory_keeper *, struct memory_client *) = {
        [MEMORY_ASK_HELLO] = answer_hello,     [MEMORY_ASK_RESIZE] = answer_resize,
        [MEMORY_ASK_COMMITTED] = note_commit,  [MEMORY_ASK_OPEN] = answer_open,
        [MEMORY_ASK_RESTORED] = note_restored,
    };
    struct memory_keeper *k = c->keeper;
    ssize_t n = recv(c->fd, &c->ask, sizeof(c->ask), MSG_DONTWAIT | MSG_TRUNC);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    /* one that waits has ended, or asks before it has its answer */
    if (n == sizeof(c->ask) && !c->waits && c->ask.kind >= MEMORY_ASK_HELLO &&
        c->ask.kind <= MEMORY_ASK_RESTORED &&
        (c->greeted ? c->epoch == k->now.epoch : c->ask.kind == MEMORY_ASK_HELLO))
        answers[c->ask.kind](k, c);
    else
        c->is_gone = true;
}

static void on_client(evutil_socket_t fd, short what, void *arg)
{
    struct memory_client *c = arg;
    struct memory_keeper *k = c->keeper;

    pthread_mutex_lock(&k->lock);
    client_serve(c);
    pthread_mutex_unlock(&k->lock);
    if (c->is_gone)
        client_close(c);
}

void memory_for_workers_look(struct memory_keeper *k)
{
    struct memory_client *c, *next;

    for (c = LIST_FIRST(&k->clients); c; c = next) {
        next = LIST_NEXT(c, entry);
        pthread_mutex_lock(&k->lock);
        if (c->waits)
            answer_open(k, c);
        pthread_mutex_unlock(&k->lock);
        if (c->is_gone)
            client_close(c);
    }
}

/* -- connections ------------------------------------------------------------------- */

static bool is_own_user(int fd)
{
    struct ucred user;
    socklen_t size = sizeof(user);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &size) == 0 &&
           user.uid == geteuid();
}

void memory_for_workers_accept(struct memory_keeper *k)
{
    int fd = accept4(k->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct memory_client *c;
    unsigned count = 0;

    LIST_FOREACH(c, &k->clients, entry)
        count++;
    if (fd < 0) {
        if (errno != EAGAIN) /* no descriptors: it stays readable */
            poll(NULL, 0, 20);
        return;
    }
    if (!is_own_user(fd) || count >= MEMORY_CLIENTS_PER_WORKER * k->config.workers) {
        close(fd);
        return;
    }
    c = xcalloc(1, sizeof(*c));
    c->keeper = k;
    c->fd = fd;
    c->event = event_new(loop_base(k->config.loop), fd, EV_READ | EV_PERSIST, on_client,
                         c);
    event_add(c->event, NULL);
    LIST_INSERT_HEAD(&k->clients, c, entry);
}

void memory_for_workers_close(struct memory_keeper *k)
{
    while (!LIST_EMPTY(&k->clients))
        client_close(LIST_FIRST(&k->clients));
}
