/* SPDX-License-Identifier: MIT */
#include "agent/memory/keeper_internal.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/memory/limits.h"
#include "agent/memory/memory_budget.h"
#include "agent/memory/memory_link.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"

#define EVENTS_PER_TURN 64

/* -- what the agent's loop is told ------------------------------------------------- */

static void raise_event(int fd)
{
    uint64_t one = 1;

    while (fd >= 0 && write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

static void clear_event(int fd)
{
    uint64_t count;

    (void)!read(fd, &count, sizeof(count));
}

void memory_keeper_note(struct memory_keeper *k, struct memory_note note)
{
    struct memory_note *n = xmemdup(&note, sizeof(note));

    pthread_mutex_lock(&k->notes_lock);
    STAILQ_INSERT_TAIL(&k->notes, n, entry);
    pthread_mutex_unlock(&k->notes_lock);
    raise_event(k->notes_ready);
}

void memory_keeper_say(struct memory_keeper *k, const char *fmt, ...)
{
    struct memory_note note = { .kind = NOTE_SAID };
    va_list args;

    va_start(args, fmt);
    vsnprintf(note.text, sizeof(note.text), fmt, args);
    va_end(args);
    memory_keeper_note(k, note);
}

void memory_keeper_wake(struct memory_keeper *k)
{
    raise_event(k->wake);
}

static void deliver_note(const struct memory_keeper *k, const struct memory_note *n)
{
    const struct memory_keeper_callbacks *c = &k->calls;

    switch (n->kind) {
    case NOTE_HELD:
        c->held(c->arg, n->text);
        break;
    case NOTE_RESTORED:
        c->restored(c->arg, n->step, n->from, n->text);
        break;
    case NOTE_SAID:
        c->said(c->arg, n->text);
        break;
    case NOTE_FLUSHED:
        c->flushed(c->arg, n->code, n->text);
        break;
    }
}

static struct memory_note *take_note(struct memory_keeper *k)
{
    struct memory_note *n;

    pthread_mutex_lock(&k->notes_lock);
    n = STAILQ_FIRST(&k->notes);
    if (n)
        STAILQ_REMOVE_HEAD(&k->notes, entry);
    pthread_mutex_unlock(&k->notes_lock);
    return n;
}

static void on_notes(evutil_socket_t fd, short what, void *arg)
{
    struct memory_keeper *k = arg;
    struct memory_note *n;

    clear_event(fd);
    while ((n = take_note(k))) {
        deliver_note(k, n);
        free(n);
    }
}

/* -- the thread -------------------------------------------------------------------- */

int memory_keeper_grant(struct memory_keeper *k, uint64_t more, struct err *e)
{
    struct memory_free now = memory_budget_free();

    return memory_budget_check(k->config.limit, &now, memory_table_bytes(&k->table),
                               memory_table_resident(&k->table), more, e);
}

int memory_keeper_spawn(struct memory_keeper *k, unsigned *count, unsigned max,
                        void *(*run)(void *), void *arg)
{
    pthread_t thread;

    if (k->stop || *count >= max || thread_start(&thread, run, arg) != 0)
        return -1;
    pthread_detach(thread);
    ++*count;
    return 0;
}

void memory_keeper_leave(struct memory_keeper *k, unsigned *count)
{
    --*count;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

void memory_keeper_release(struct memory_keeper *k, struct memory_file *f)
{
    pthread_mutex_lock(&k->lock);
    f->users--;
    pthread_mutex_unlock(&k->lock);
}

struct id128 memory_keeper_job(struct memory_keeper *k)
{
    struct id128 instance;

    pthread_mutex_lock(&k->lock);
    instance = k->instance;
    pthread_mutex_unlock(&k->lock);
    return instance;
}

/* Parts, as they were looked at with the lock. */
struct verification {
    struct memory_part {
        struct memory_file *of, seen;
        bool sound;
    } * part;
    size_t count;
    atomic_size_t next;
};

static void *verify_parts(void *arg)
{
    struct verification *v = arg;
    size_t i;

    while ((i = atomic_fetch_add(&v->next, 1)) < v->count)
        v->part[i].sound = memory_file_is_sound(&v->part[i].seen);
    return NULL;
}

static void verify_in_parallel(struct verification *v)
{
    pthread_t thread[MEMORY_VERIFIERS_MAX];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned threads = 0;

    while (threads + 1 < v->count && threads < MEMORY_VERIFIERS_MAX &&
           (long)threads + 1 < cores &&
           thread_start(&thread[threads], verify_parts, v) == 0)
        threads++;
    verify_parts(v);
    while (threads > 0)
        pthread_join(thread[--threads], NULL);
}

/* The newest part of each worker; one that is damaged is dropped, and makes another the
 * newest. An older one is read only by workers that verify it: it costs a restart no
 * time. No worker lives, so no slot changes meanwhile. True: one was dropped. */
static bool verify_newest(struct memory_keeper *k)
{
    struct verification v = { .part = xcalloc(k->config.workers,
                                              MEMORY_SLOTS * sizeof(*v.part)) };
    struct memory_file *f;
    bool dropped = false;

    pthread_mutex_lock(&k->lock);
    memory_table_look(&k->table);
    TAILQ_FOREACH(f, &k->table.files, entry)
        if (f->sound != f->header.header_hash && memory_table_is_newest(&k->table, f))
            v.part[v.count++] = (struct memory_part){ .of = f, .seen = *f };
    pthread_mutex_unlock(&k->lock);
    verify_in_parallel(&v);
    pthread_mutex_lock(&k->lock);
    for (struct memory_part *p = v.part; p < v.part + v.count; p++) {
        const struct memory_header *h = &p->seen.header;

        p->of->sound = p->sound ? h->header_hash : 0;
        if (p->sound)
            continue;
        memory_keeper_say(k,
                          "the checkpoint in memory of rank %u, step %" PRIu64
                          ", is damaged: an older one is used",
                          h->rank, h->set.step);
        memory_file_drop(p->of);
        dropped = true;
    }
    pthread_mutex_unlock(&k->lock);
    free(v.part);
    return dropped;
}

/* All that was asked of the thread since it was woken last. */
static void keeper_work(struct memory_keeper *k)
{
    struct memory_note note = { .kind = NOTE_HELD };
    bool ending;

    pthread_mutex_lock(&k->lock);
    ending = k->ending;
    k->ending = false;
    pthread_mutex_unlock(&k->lock);
    if (ending) {
        while (verify_newest(k))
            ;
        memory_keeper_held(k, note.text, sizeof(note.text));
        memory_keeper_note(k, note);
    }
    memory_service_look(k);
}

bool memory_keeper_stops(struct memory_keeper *k)
{
    bool stop;

    pthread_mutex_lock(&k->lock);
    stop = k->stop;
    pthread_mutex_unlock(&k->lock);
    return stop;
}

static void *keep(void *arg)
{
    struct memory_keeper *k = arg;
    struct epoll_event event[EVENTS_PER_TURN];

    while (!memory_keeper_stops(k)) {
        int n = epoll_wait(k->epoll, event, EVENTS_PER_TURN, -1);

        for (int i = 0; i < n; i++) {
            void *of = event[i].data.ptr;

            if (of == &k->listener)
                memory_service_accept(k);
            else if (of == &k->port)
                memory_peers_accept(k);
            else if (of == &k->wake)
                clear_event(k->wake);
            else
                memory_service_ready(k, of, event[i].events);
        }
        keeper_work(k);
        memory_service_free(k);
    }
    memory_service_close(k);
    return NULL;
}

int memory_keeper_watch(struct memory_keeper *k, int fd, void *ptr, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = ptr };

    return epoll_ctl(k->epoll, EPOLL_CTL_ADD, fd, &ev);
}

static int keeper_start_thread(struct memory_keeper *k)
{
    k->epoll = epoll_create1(EPOLL_CLOEXEC);
    k->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    k->notes_ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (k->epoll < 0 || k->wake < 0 || k->notes_ready < 0 ||
        memory_keeper_watch(k, k->listener, &k->listener, EPOLLIN) < 0 ||
        (k->port && memory_keeper_watch(k, k->port_listener, &k->port, EPOLLIN) < 0) ||
        memory_keeper_watch(k, k->wake, &k->wake, EPOLLIN) < 0)
        return errno;
    k->on_notes = event_new(loop_base(k->config.loop), k->notes_ready,
                            EV_READ | EV_PERSIST, on_notes, k);
    event_add(k->on_notes, NULL);
    return thread_start(&k->thread, keep, k);
}

/* Once; from then on its loop has the listeners. */
static void keeper_start(struct memory_keeper *k)
{
    int errnum;

    if (k->started)
        return;
    k->started = true;
    event_del(k->on_first);
    if (k->on_first_peer)
        event_del(k->on_first_peer);
    errnum = keeper_start_thread(k);
    k->has_thread = errnum == 0;
    if (errnum)
        k->calls.said(k->calls.arg, strerror(errnum));
}

static void on_first(evutil_socket_t fd, short what, void *arg)
{
    keeper_start(arg);
}

/* -- the agent's side -------------------------------------------------------------- */

/* A name that vanishes with the last process that has the socket. */
static int keeper_listen(struct memory_keeper *k, struct err *e)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    struct id128 random = id128_random();
    char hex[ID128_HEX_SIZE];
    int n = snprintf(k->path, sizeof(k->path), "@crun-memory-%s",
                     id128_format(&random, hex));

    memcpy(a.sun_path + 1, k->path + 1, (size_t)n - 1);
    k->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (k->listener >= 0 &&
        bind(k->listener, (struct sockaddr *)&a,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)) == 0 &&
        listen(k->listener, SOMAXCONN) == 0)
        return 0;
    return err_set_errno(e, errno, "the socket for checkpoints in memory");
}

/* The agents of other nodes find it by JOIN. */
static int keeper_listen_for_peers(struct memory_keeper *k, struct err *e)
{
    struct net_addr here;

    if (!k->config.copies)
        return 0;
    k->port_listener = net_listen_everywhere(0, SOMAXCONN, e);
    if (k->port_listener < 0)
        return -1;
    k->port = net_local_addr(k->port_listener, &here) < 0 ? 0 : net_port(&here);
    k->on_first_peer = event_new(loop_base(k->config.loop), k->port_listener, EV_READ,
                                 on_first, k);
    event_add(k->on_first_peer, NULL);
    return 0;
}

static void keeper_init(struct memory_keeper *k)
{
    pthread_condattr_t attr;

    k->epoll = k->wake = k->notes_ready = k->listener = k->port_listener = -1;
    pthread_mutex_init(&k->lock, NULL);
    pthread_mutex_init(&k->notes_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->changed, &attr);
    pthread_condattr_destroy(&attr);
    STAILQ_INIT(&k->notes);
    LIST_INIT(&k->clients);
    LIST_INIT(&k->closed);
    LIST_INIT(&k->links);
    memory_table_init(&k->table);
}

struct memory_keeper *memory_keeper_open(const struct memory_keeper_config *config,
                                         const struct memory_keeper_callbacks *calls,
                                         struct err *e)
{
    struct memory_keeper *k = xcalloc(1, sizeof(*k));

    k->config = *config;
    k->calls = *calls;
    keeper_init(k);
    if (keeper_listen(k, e) == 0 && keeper_listen_for_peers(k, e) == 0) {
        k->on_first = event_new(loop_base(config->loop), k->listener, EV_READ, on_first,
                                k);
        event_add(k->on_first, NULL);
        return k;
    }
    memory_keeper_close(k);
    return NULL;
}

/* What threads wait for ends at once: links, and the condition. */
static void keeper_stop(struct memory_keeper *k)
{
    struct memory_link *l;

    pthread_mutex_lock(&k->lock);
    k->stop = true;
    LIST_FOREACH(l, &k->links, entry)
        shutdown(l->fd, SHUT_RDWR);
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    memory_keeper_wake(k);
    if (k->has_thread)
        pthread_join(k->thread, NULL);
    pthread_mutex_lock(&k->lock);
    while (k->peers + k->copiers + k->fetchers + k->flushers > 0)
        pthread_cond_wait(&k->changed, &k->lock);
    pthread_mutex_unlock(&k->lock);
}

static void free_event(struct event *event)
{
    if (event)
        event_free(event);
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

void memory_keeper_close(struct memory_keeper *k)
{
    struct memory_note *n;

    if (!k)
        return;
    keeper_stop(k);
    free_event(k->on_first);
    free_event(k->on_first_peer);
    free_event(k->on_notes);
    while ((n = take_note(k)))
        free(n);
    close_if_open(k->listener);
    close_if_open(k->port_listener);
    close_if_open(k->epoll);
    close_if_open(k->wake);
    close_if_open(k->notes_ready);
    memory_table_fini(&k->table);
    memory_fetcher_fini(k);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    pthread_mutex_destroy(&k->notes_lock);
    free(k);
}

const char *memory_keeper_path(const struct memory_keeper *k)
{
    return k ? k->path : "";
}

uint16_t memory_keeper_port(const struct memory_keeper *k)
{
    return k ? k->port : 0;
}

void memory_keeper_instance(struct memory_keeper *k, const struct id128 *instance)
{
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->instance = *instance;
    pthread_mutex_unlock(&k->lock);
}

/* It may be another one, or have lost what it had: it is asked. */
static void keeper_set_neighbour(struct memory_keeper *k, const char *neighbour)
{
    struct memory_file *f;

    snprintf(k->neighbour, sizeof(k->neighbour), "%s", neighbour);
    k->copy_again_ms = 0;
    TAILQ_FOREACH(f, &k->table.files, entry)
        f->copied = 0;
    if (*neighbour)
        memory_copier_start(k);
}

void memory_keeper_begin(struct memory_keeper *k, uint64_t epoch, uint32_t first_rank,
                         uint32_t world, const struct memory_set *restore,
                         const char *neighbour)
{
    if (!k)
        return;
    if (restore->world > 0)
        keeper_start(k);
    pthread_mutex_lock(&k->lock);
    k->epoch = epoch;
    k->first_rank = first_rank;
    k->world = world;
    k->restore = *restore;
    k->runs = true;
    k->restored = false;
    memory_table_look(&k->table);
    keeper_set_neighbour(k, k->config.copies ? neighbour : "");
    memory_fetcher_begin(k);
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    memory_keeper_wake(k);
}

void memory_keeper_holder(struct memory_keeper *k, const char *address,
                          const char *held)
{
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    memory_fetcher_add_holder(k, address, held);
    pthread_mutex_unlock(&k->lock);
}

void memory_keeper_end(struct memory_keeper *k)
{
    char held[MEMORY_HELD_SIZE];

    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->runs = false;
    k->ending = k->has_thread;
    pthread_mutex_unlock(&k->lock);
    memory_keeper_wake(k);
    if (k->has_thread)
        return;
    memory_keeper_held(k, held, sizeof(held));
    k->calls.held(k->calls.arg, held);
}

void memory_keeper_held(struct memory_keeper *k, char *text, size_t size)
{
    *text = '\0';
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    memory_table_look(&k->table);
    memory_table_print(&k->table, text, size);
    pthread_mutex_unlock(&k->lock);
}

void memory_keeper_figures(struct memory_keeper *k, struct memory_figures *figures)
{
    struct memory_header newest, copied;
    uint64_t now_ms = clock_ms();

    *figures = (struct memory_figures){ .step = 0 };
    if (!k || !k->has_thread)
        return;
    pthread_mutex_lock(&k->lock);
    memory_table_look(&k->table);
    newest = memory_table_newest(&k->table, k->config.workers, false);
    figures->bytes = memory_table_resident(&k->table);
    copied = memory_table_newest(&k->table, k->config.workers, true);
    pthread_mutex_unlock(&k->lock);
    figures->step = newest.set.step;
    if (copied.set.step <= newest.set.step) /* else it is one that is done again */
        figures->copied = copied.set.step;
    if (newest.saved_ns && now_ms > newest.saved_ns / 1000000)
        figures->age_ms = now_ms - newest.saved_ns / 1000000;
}

void memory_keeper_flush(struct memory_keeper *k, const struct memory_set *set,
                         uint32_t grace_ms)
{
    if (!k)
        return;
    if (k->has_thread && set->world > 0)
        memory_flush_start(k, set, grace_ms);
    else
        k->calls.flushed(k->calls.arg, -1, "");
}
