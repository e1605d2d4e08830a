/* SPDX-License-Identifier: MIT */
#include "agent/memory/keeper_internal.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* -- from threads to the loop ------------------------------------------------------ */

void memory_keeper_note(struct memory_keeper *k, struct memory_note note)
{
    struct memory_note *n = xmemdup(&note, sizeof(note));

    pthread_mutex_lock(&k->notes_lock);
    STAILQ_INSERT_TAIL(&k->notes, n, entry);
    pthread_mutex_unlock(&k->notes_lock);
    eventfd_write(k->notes_ready, 1);
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

static void report_held(struct memory_keeper *k)
{
    char held[MEMORY_HELD_SIZE];

    memory_keeper_held(k, held, sizeof(held));
    k->calls.held(k->calls.arg, held);
}

static void on_notes(evutil_socket_t fd, short what, void *arg)
{
    struct memory_keeper *k = arg;
    struct memory_note *n;
    eventfd_t count;

    (void)!eventfd_read(fd, &count);
    for (; (n = take_note(k)); free(n)) {
        switch (n->kind) {
        case NOTE_VERIFIED:
            report_held(k);
            break;
        case NOTE_FETCHED:
            memory_for_workers_look(k);
            break;
        case NOTE_SAID:
            k->calls.said(k->calls.arg, n->text);
            break;
        case NOTE_FLUSHED:
            k->calls.flushed(k->calls.arg, n->flush, n->code, n->text);
            break;
        }
    }
}

/* -- for threads ------------------------------------------------------------------- */

struct memory_task {
    struct memory_keeper *keeper;
    enum memory_thread kind;
    void (*run)(void *);
    void *arg;
};

static void *run_task(void *arg)
{
    struct memory_task t = *(struct memory_task *)arg;

    free(arg);
    t.run(t.arg);
    t.keeper->threads[t.kind]--;
    pthread_cond_broadcast(&t.keeper->changed);
    pthread_mutex_unlock(&t.keeper->lock);
    return NULL;
}

int memory_keeper_spawn(struct memory_keeper *k, enum memory_thread kind,
                        void (*run)(void *), void *arg)
{
    static const unsigned most[MEMORY_THREADS] = { MEMORY_PEERS_MAX, 1,
                                                   MEMORY_FETCHERS_MAX,
                                                   MEMORY_FLUSHES_MAX, 1 };
    struct memory_task task = { k, kind, run, arg }, *t;
    pthread_t thread;

    if (k->stop || k->threads[kind] >= most[kind])
        return -1;
    t = xmemdup(&task, sizeof(task));
    if (thread_start(&thread, run_task, t) != 0) {
        free(t);
        return -1;
    }
    pthread_detach(thread);
    k->threads[kind]++;
    return 0;
}

int memory_keeper_grow(struct memory_keeper *k, struct memory_file *f, uint64_t bytes,
                       struct err *e)
{
    if (bytes > f->bytes) {
        struct memory_free now = memory_budget_free();
        uint64_t resident, granted = memory_table_bytes(&k->table, &resident);

        if (memory_budget_check(k->config.limit, &now, granted, resident,
                                bytes - f->bytes, e) < 0)
            return -1;
    }
    return memory_file_grow(f, bytes, e);
}

/* A neighbour's epoch may begin a moment before this agent's, which knows no job before
 * its first one. */
struct id128 memory_keeper_job(struct memory_keeper *k)
{
    uint64_t until_ms = clock_ms() + MEMORY_PEER_DIAL_MS;
    struct id128 job;

    pthread_mutex_lock(&k->lock);
    while (id128_is_zero(&k->now.job) && !k->stop &&
           thread_wait_until(&k->changed, &k->lock, until_ms))
        ;
    job = k->now.job;
    pthread_mutex_unlock(&k->lock);
    return job;
}

/* -- opening and closing ----------------------------------------------------------- */

static void on_worker(evutil_socket_t fd, short what, void *arg)
{
    memory_for_workers_accept(arg);
}

static void on_peer(evutil_socket_t fd, short what, void *arg)
{
    memory_for_agents_accept(arg);
}

static struct event *keeper_watch(struct memory_keeper *k, int fd, event_callback_fn fn)
{
    struct event *event = event_new(loop_base(k->config.loop), fd, EV_READ | EV_PERSIST,
                                    fn, k);

    event_add(event, NULL);
    return event;
}

/* A name that vanishes with the last process that has the socket. */
static int keeper_listen(struct memory_keeper *k, struct err *e)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    struct id128 random = id128_random();
    char hex[ID128_HEX_SIZE];
    int n = snprintf(k->path, sizeof(k->path), "@crun-memory-%s",
                     id128_format(&random, hex));

    memcpy(a.sun_path + 1, k->path + 1, (size_t)n - 1);
    k->notes_ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    k->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (k->notes_ready < 0 || k->listener < 0 ||
        bind(k->listener, (struct sockaddr *)&a,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)) < 0 ||
        listen(k->listener, SOMAXCONN) < 0)
        return err_set_errno(e, errno, "the socket for checkpoints in memory");
    k->on_notes = keeper_watch(k, k->notes_ready, on_notes);
    k->on_worker = keeper_watch(k, k->listener, on_worker);
    return 0;
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
    k->on_peer = keeper_watch(k, k->port_listener, on_peer);
    return 0;
}

struct memory_keeper *memory_keeper_open(const struct memory_keeper_config *config,
                                         const struct memory_keeper_callbacks *calls,
                                         struct err *e)
{
    struct memory_keeper *k = xcalloc(1, sizeof(*k));

    k->config = *config;
    k->calls = *calls;
    k->listener = k->port_listener = k->notes_ready = -1;
    pthread_mutex_init(&k->lock, NULL);
    pthread_mutex_init(&k->notes_lock, NULL);
    thread_cond_init(&k->changed);
    STAILQ_INIT(&k->notes);
    memory_table_init(&k->table);
    if (keeper_listen(k, e) == 0 && keeper_listen_for_peers(k, e) == 0)
        return k;
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
    for (unsigned i = 0; i < MEMORY_THREADS; i++)
        while (k->threads[i] > 0)
            pthread_cond_wait(&k->changed, &k->lock);
    pthread_mutex_unlock(&k->lock);
}

static void close_watched(struct event *event, int fd)
{
    if (event)
        event_free(event);
    if (fd >= 0)
        close(fd);
}

void memory_keeper_close(struct memory_keeper *k)
{
    struct memory_note *n;

    keeper_stop(k);
    memory_for_workers_close(k);
    close_watched(k->on_worker, k->listener);
    close_watched(k->on_peer, k->port_listener);
    close_watched(k->on_notes, k->notes_ready);
    while ((n = take_note(k)))
        free(n);
    memory_table_fini(&k->table);
    free(k->holders);
    free(k->want);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    pthread_mutex_destroy(&k->notes_lock);
    free(k);
}

/* -- an epoch ---------------------------------------------------------------------- */

const char *memory_keeper_path(const struct memory_keeper *k)
{
    return k->path;
}

uint16_t memory_keeper_port(const struct memory_keeper *k)
{
    return k->port;
}

void memory_keeper_begin(struct memory_keeper *k, const struct memory_epoch *epoch)
{
    pthread_mutex_lock(&k->lock);
    free(k->holders);
    k->holders = xstrdup(epoch->holders ? epoch->holders : "");
    k->now = *epoch;
    k->now.holders = k->holders;
    k->runs = k->can_hold = true;
    k->restored = false;
    memory_flush_let_go(k);
    memory_table_look(&k->table);
    memory_copier_begin(k);
    memory_fetcher_begin(k);
    pthread_mutex_unlock(&k->lock);
}

void memory_keeper_end(struct memory_keeper *k)
{
    bool verifies;

    pthread_mutex_lock(&k->lock);
    k->runs = false;
    memory_flush_let_go(k);
    memory_table_collect(&k->table); /* the last words of workers may be unread */
    verifies = !TAILQ_EMPTY(&k->table.files) &&
               memory_keeper_spawn(k, MEMORY_VERIFIER, memory_verify, k) == 0;
    pthread_mutex_unlock(&k->lock);
    if (!verifies)
        report_held(k);
}

void memory_keeper_held(struct memory_keeper *k, char *text, size_t size)
{
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
    pthread_mutex_lock(&k->lock);
    if (k->held_until_ms && !k->flush && now_ms >= k->held_until_ms)
        memory_flush_let_go(k); /* the rendezvous has forgotten it */
    memory_table_look(&k->table);
    newest = memory_table_newest(&k->table, k->config.workers, false);
    copied = memory_table_newest(&k->table, k->config.workers, true);
    (void)memory_table_bytes(&k->table, &figures->bytes);
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
    if (!memory_flush_start(k, set, 0, grace_ms))
        k->calls.flushed(k->calls.arg, 0, -1, "");
}

int memory_keeper_hold(struct memory_keeper *k, char *text, size_t size, struct err *e)
{
    struct memory_file *f;
    int rc = 0;

    pthread_mutex_lock(&k->lock);
    if (k->flush)
        rc = err_set(e, "an earlier checkpoint is still being written");
    else if (!k->can_hold)
        rc = err_set(e, "the program's worker library is older than this crun");
    TAILQ_FOREACH(f, &k->table.files, entry)
        if (rc == 0 && f->origin == MEMORY_OWN)
            memory_file_set_held(f, true);
    if (rc == 0) {
        k->held_until_ms = clock_ms() + MEMORY_HOLD_MS;
        memory_table_look(&k->table); /* not before: it may change until it is held */
        memory_table_print(&k->table, text, size);
    }
    pthread_mutex_unlock(&k->lock);
    return rc;
}

void memory_keeper_flush_held(struct memory_keeper *k, uint64_t flush,
                              const struct memory_set *set)
{
    if (!memory_flush_start(k, set, flush, 0))
        k->calls.flushed(k->calls.arg, flush, 1, "it is not held any more");
}

void memory_keeper_let_go(struct memory_keeper *k)
{
    pthread_mutex_lock(&k->lock);
    memory_flush_let_go(k);
    pthread_mutex_unlock(&k->lock);
}
