/* SPDX-License-Identifier: MIT */
/*
 * The rendezvous on the network: takes connections from the listener, carries messages
 * between them and the registry, and at the end of every turn commits what the registry
 * has decided before any answer leaves. It decides nothing about jobs itself.
 *
 * Visitors share what a turn may spend on them: one whose answers wait to go out is not
 * read, the others take turns. So a member is answered soon, whatever they ask.
 *
 * When connections run out, the least that is lost goes first: a stranger, then a
 * visitor, the oldest first. A member's connection is never given up for another's.
 */
#include "rendezvous/server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/limits.h"
#include "rendezvous/net/limits.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/version.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/net/conn.h"
#include "rendezvous/journal/disk.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/registry/registry.h"

enum standing {
    STRANGER, /* has not said hello, or is an agent that has not joined: has a deadline
               */
    VISITOR,  /* crunctl */
    MEMBER,   /* an agent that has joined a job */
    STANDING_COUNT
};

struct guest {
    TAILQ_ENTRY(guest) entry; /* in the list of its standing, oldest first */
    STAILQ_ENTRY(guest) unsent_entry;
    TAILQ_ENTRY(guest) queue_entry;
    struct server *server;
    struct conn *conn; /* NULL once it is closed */
    struct registry_peer *peer;
    enum standing standing;
    bool unsent; /* something is queued: in server.unsent */
    bool queued; /* its requests wait for their share of a turn: in server.queue */
    uint64_t turn;
    unsigned requests; /* in that turn */
    uint64_t spent;    /* on it since it came, as server.share counts */
};

struct server {
    struct loop *loop;
    struct server_config config;
    struct disk *disk;
    struct registry *registry;
    struct listener *listener; /* NULL once it takes no more */
    struct net_addr address;
    TAILQ_HEAD(guests, guest) guests[STANDING_COUNT];
    unsigned count[STANDING_COUNT];
    STAILQ_HEAD(, guest) unsent;
    struct guests queue;  /* visitors; the first is the next */
    struct guest *served; /* the one whose turn it is */
    struct loop_timer serve;
    uint64_t turn;
    int64_t share;         /* what is left of this turn for visitors, in bytes */
    size_t visitors_bytes; /* what waits for all but members: that much at most */
    struct loop_timer tick;
    bool touched; /* the registry was given something in this turn */
    bool failed;  /* nothing may leave any more */
    struct log_limit limit;
};

/* -- the end of a turn ----------------------------------------------------------- */

static void send_all(struct server *s)
{
    struct guest *g;

    while ((g = STAILQ_FIRST(&s->unsent))) {
        STAILQ_REMOVE_HEAD(&s->unsent, unsent_entry);
        g->unsent = false;
        conn_flush(g->conn);
    }
}

static void drop_heaviest(struct server *s);

static void commit(struct server *s)
{
    struct err e;

    if (s->failed)
        return;
    if (registry_commit(s->registry, &e) == 0) {
        send_all(s);
        return;
    }
    s->failed = true;
    s->config.fatal(s->config.arg, e.text);
}

static void on_turn_end(void *arg)
{
    struct server *s = arg;
    uint64_t now = clock_ms(), next;

    s->turn++;
    s->share = VISITORS_TURN_BYTES;
    while (s->visitors_bytes > VISITORS_OUT_MAX)
        drop_heaviest(s);
    if (s->failed || !s->touched)
        return;
    s->touched = false;
    next = registry_next_tick(s->registry);
    if (now >= next)
        next = registry_tick(s->registry, now, clock_wall_ms());
    loop_timer_arm(&s->tick, next);
    commit(s);
}

static void on_tick(void *arg)
{
    ((struct server *)arg)->touched = true;
}

/* -- guests ---------------------------------------------------------------------- */

static void enlist(struct guest *g, enum standing standing)
{
    g->standing = standing;
    TAILQ_INSERT_TAIL(&g->server->guests[standing], g, entry);
    g->server->count[standing]++;
}

static void delist(struct guest *g)
{
    TAILQ_REMOVE(&g->server->guests[g->standing], g, entry);
    g->server->count[g->standing]--;
}

/* Its connection is gone already, or goes now. */
static void dismiss(struct guest *g)
{
    struct server *s = g->server;

    delist(g);
    if (g->queued)
        TAILQ_REMOVE(&s->queue, g, queue_entry);
    if (g->unsent)
        STAILQ_REMOVE(&s->unsent, g, guest, unsent_entry);
    conn_destroy(g->conn);
    g->conn = NULL;
    registry_disconnect(s->registry, g->peer, clock_ms());
    s->touched = true;
    free(g);
}

/* A standing once gained is kept: an agent that was told to go is to hear it. */
static void recognise(struct guest *g)
{
    enum proto_phase phase = registry_phase(g->peer);

    if (g->standing != STRANGER || (phase != PROTO_JOINED && phase != PROTO_CTL))
        return;
    delist(g);
    enlist(g, phase == PROTO_CTL ? VISITOR : MEMBER);
    conn_set_deadline(g->conn, 0, NULL);
}

static int on_message(void *arg, struct conn *c, const struct msg *m, struct err *e)
{
    struct guest *g = arg;
    struct server *s = g->server;
    size_t before = conn_waiting(c);

    s->touched = true;
    if (registry_message(s->registry, g->peer, m, clock_ms(), clock_wall_ms(), e) < 0)
        return -1;
    if (g->standing == VISITOR) {
        size_t spent = VISITOR_REQUEST_COST + conn_waiting(c) - before;

        s->share -= (int64_t)spent;
        g->spent += spent;
    }
    recognise(g);
    return 0;
}

/* -- whose requests are answered in a turn ------------------------------------------
 */

/* One that has had little so far, as an operator's, goes before those that had much. */
static void enqueue(struct guest *g)
{
    struct server *s = g->server;

    if (!g->queued && g != s->served && g->spent < VISITORS_TURN_BYTES)
        TAILQ_INSERT_HEAD(&s->queue, g, queue_entry);
    else if (!g->queued)
        TAILQ_INSERT_TAIL(&s->queue, g, queue_entry);
    g->queued = true;
    loop_timer_arm(&s->serve, 0);
}

static bool on_ready(void *arg, struct conn *c)
{
    struct guest *g = arg;
    struct server *s = g->server;

    if (g->standing == MEMBER)
        return true;
    if (conn_waiting(c) > VISITOR_OUT_WAIT)
        return false; /* until some of it is out */
    if (g->standing == STRANGER)
        return true;
    if (g->turn != s->turn)
        g->requests = 0;
    g->turn = s->turn;
    if (s->share > 0 && g->requests < VISITOR_REQUESTS_PER_TURN &&
        (s->served == g || TAILQ_EMPTY(&s->queue))) {
        g->requests++;
        return true;
    }
    enqueue(g);
    return false;
}

/* Each of those that wait once, as far as the share of this turn goes. */
static void on_serve(void *arg)
{
    struct server *s = arg;
    const struct guest *last = TAILQ_LAST(&s->queue, guests);

    while (s->share > 0 && s->served != last) {
        s->served = TAILQ_FIRST(&s->queue);
        TAILQ_REMOVE(&s->queue, s->served, queue_entry);
        s->served->queued = false;
        conn_resume(s->served->conn);
    }
    s->served = NULL;
    if (!TAILQ_EMPTY(&s->queue))
        loop_timer_arm(&s->serve, 0);
}

static bool on_unreadable(void *arg, struct conn *c, const struct frame_header *h,
                          const char *why)
{
    struct guest *g = arg;
    struct msg m = { .type = (enum msg_type)h->type, .sequence = h->sequence };

    (void)c;
    g->server->touched = true;
    return registry_unreadable(g->server->registry, g->peer, &m, why);
}

static uint32_t on_body_max(void *arg, struct conn *c)
{
    struct guest *g = arg;

    (void)c;
    return proto_body_max(registry_phase(g->peer));
}

static void on_closed(void *arg, struct conn *c, const char *why)
{
    struct guest *g = arg;
    char who[256] = "";

    if (g->standing != STRANGER)
        registry_describe(g->peer, who, sizeof(who));
    if (why[0])
        net_log_peer(&g->server->limit, LOG_INFO, conn_peer(c), "closed: %s%s%s", who,
                     who[0] ? ": " : "", why);
    dismiss(g);
}

/* Count anew what waits for all but members; the one with the most goes if that is too
 * much. */
static void drop_heaviest(struct server *s)
{
    struct guest *g, *heaviest = NULL;

    s->visitors_bytes = 0;
    for (int i = STRANGER; i <= VISITOR; i++)
        TAILQ_FOREACH(g, &s->guests[i], entry)
        {
            s->visitors_bytes += conn_waiting(g->conn);
            if (!heaviest || conn_waiting(g->conn) > conn_waiting(heaviest->conn))
                heaviest = g;
        }
    if (s->visitors_bytes <= VISITORS_OUT_MAX)
        return;
    s->visitors_bytes -= conn_waiting(heaviest->conn);
    net_log_peer(&s->limit, LOG_INFO, conn_peer(heaviest->conn),
                 "closed: too much waits to be read by it and others");
    dismiss(heaviest);
}

/* `host` is where it comes from, "" for this process, whose preface nobody needs. */
static void take_guest(struct server *s, int fd, const char *host, uint64_t since_ms)
{
    struct guest *g = xcalloc(1, sizeof(*g));
    struct conn_calls calls = { .message = on_message,
                                .unreadable = on_unreadable,
                                .ready = on_ready,
                                .body_max = on_body_max,
                                .closed = on_closed,
                                .arg = g };

    g->server = s;
    g->conn = conn_create(s->loop, fd, *host != '\0', &calls);
    g->peer = registry_connect(s->registry, g, host);
    enlist(g, STRANGER);
    conn_set_deadline(g->conn, since_ms + HELLO_DEADLINE_MS,
                      "it has not joined in time");
}

int server_connect_local(struct server *s, struct err *e)
{
    int end[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) < 0)
        return err_set_errno(e, errno, "cannot make a socket pair");
    take_guest(s, end[0], "", clock_ms());
    return end[1];
}

/* -- what the listener calls ----------------------------------------------------- */

static void on_arrived(void *arg, int fd, enum frame_kind kind, const char *first,
                       const struct net_addr *from, uint64_t since_ms)
{
    static const char *const refused[] = {
        [FRAME_KIND_STORE] = "a PyTorch store client; there is no store on this port",
        [FRAME_KIND_TLS] = "a TLS hello; this port does not speak TLS",
    };
    struct server *s = arg;
    char host[NET_TEXT_SIZE];

    if (kind == FRAME_KIND_CONTROL) {
        take_guest(s, fd, net_format_host(from, host, sizeof(host)), since_ms);
        return;
    }
    if (kind == FRAME_KIND_STORE && s->config.store_client) {
        s->config.store_client(s->config.arg, fd);
        return;
    }
    net_log_peer(&s->limit, LOG_INFO, from, "refused: %s",
                 kind == FRAME_KIND_UNKNOWN ? first : refused[kind]);
    close(fd);
}

static bool drop_one(struct server *s)
{
    struct guest *g = TAILQ_FIRST(&s->guests[STRANGER]);

    if (listener_drop_oldest(s->listener))
        return true;
    if (!g)
        g = TAILQ_FIRST(&s->guests[VISITOR]);
    if (g)
        dismiss(g);
    return g != NULL;
}

static bool on_make_room(void *arg, const struct net_addr *from)
{
    struct server *s = arg;
    unsigned strangers = listener_waiting(s->listener) + s->count[STRANGER];

    if ((strangers < CONTROL_CONNS_UNKNOWN_MAX &&
         server_connections(s) < s->config.conns_max) ||
        drop_one(s))
        return true;
    net_log_peer(&s->limit, LOG_INFO, from,
                 "refused: all of the %u connections there may be are in use",
                 s->config.conns_max);
    return false;
}

/* -- what the registry calls ----------------------------------------------------- */

static void on_send(void *arg, void *conn, const struct msg *m)
{
    struct server *s = arg;
    struct guest *g = conn;

    size_t before;

    if (!g->conn)
        return;
    before = conn_waiting(g->conn);
    conn_send(g->conn, m);
    if (g->standing != MEMBER)
        s->visitors_bytes += conn_waiting(g->conn) - before;
    if (!g->unsent)
        STAILQ_INSERT_TAIL(&s->unsent, g, unsent_entry);
    g->unsent = true;
}

static void on_hang_up(void *arg, void *conn)
{
    struct guest *g = conn;

    (void)arg;
    if (g->conn)
        conn_hang_up(g->conn);
}

static void on_event(void *arg, const struct msg_event *event)
{
    const struct server *s = arg;

    /* embedded, the agent says what its user should know */
    log_at(s->config.standalone ? LOG_INFO : LOG_DEBUG, "job \"%s\": %s", event->run_id,
           event->text);
}

static struct id128 on_random_id(void *arg)
{
    (void)arg;
    return id128_random();
}

/* -- the whole ------------------------------------------------------------------- */

/* What descriptors allow, with some kept for everything else. */
static unsigned conns_allowed(unsigned wanted)
{
    unsigned max = wanted ? wanted : CONTROL_CONNS_MAX;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
        limit.rlim_cur >= max + DESCRIPTORS_RESERVED)
        return max;
    return limit.rlim_cur > 2 * DESCRIPTORS_RESERVED
               ? (unsigned)limit.rlim_cur - DESCRIPTORS_RESERVED
               : DESCRIPTORS_RESERVED;
}

static int open_registry(struct server *s, struct err *e)
{
    struct registry_config config = {
        .standalone = s->config.standalone,
        .run_id = s->config.run_id,
        .job = s->config.job,
        .software = "crund " CRUN_VERSION,
        .random_id = on_random_id,
        .send = on_send,
        .hang_up = on_hang_up,
        .event = on_event,
        .arg = s,
    };

    if (s->config.state_dir) {
        s->disk = disk_open_directory(s->config.state_dir, e);
        if (!s->disk)
            return -1;
        config.disk = s->disk;
    }
    s->registry = registry_create(&config, clock_ms(), clock_wall_ms(), e);
    if (!s->registry && s->config.state_dir)
        return err_wrap(e, "state directory %s", s->config.state_dir);
    return s->registry ? 0 : -1;
}

struct server *server_create(struct loop *loop, const struct server_config *config,
                             struct err *e)
{
    struct server *s = xcalloc(1, sizeof(*s));
    struct listener_calls calls = { .arrived = on_arrived,
                                    .make_room = on_make_room,
                                    .arg = s };

    s->loop = loop;
    s->config = *config;
    s->config.conns_max = conns_allowed(config->conns_max);
    for (int i = 0; i < STANDING_COUNT; i++)
        TAILQ_INIT(&s->guests[i]);
    STAILQ_INIT(&s->unsent);
    TAILQ_INIT(&s->queue);
    s->share = VISITORS_TURN_BYTES;
    loop_timer_init(&s->serve, loop, on_serve, s);
    loop_timer_init(&s->tick, loop, on_tick, s);
    loop_on_turn_end(loop, on_turn_end, s);
    if (open_registry(s, e) < 0)
        goto fail;
    if (config->listen.len > 0) {
        s->listener = listener_create(loop, &config->listen, &calls, e);
        if (!s->listener)
            goto fail;
        s->address = *listener_address(s->listener);
    }
    s->touched = true;
    loop_timer_arm(&s->tick, 0);
    return s;
fail:
    server_destroy(s);
    return NULL;
}

void server_destroy(struct server *s)
{
    struct guest *g;

    if (!s)
        return;
    listener_destroy(s->listener);
    for (int i = 0; i < STANDING_COUNT; i++)
        while ((g = TAILQ_FIRST(&s->guests[i])))
            dismiss(g);
    loop_off_turn_end(s->loop, on_turn_end, s);
    loop_timer_fini(&s->serve);
    loop_timer_fini(&s->tick);
    registry_destroy(s->registry);
    disk_destroy(s->disk);
    free(s);
}

void server_shut(struct server *s)
{
    listener_destroy(s->listener);
    s->listener = NULL;
    commit(s);
}

const struct net_addr *server_address(const struct server *s)
{
    return &s->address;
}

struct registry *server_registry(struct server *s)
{
    return s->registry;
}

unsigned server_connections(const struct server *s)
{
    unsigned count = s->listener ? listener_waiting(s->listener) : 0;

    for (int i = 0; i < STANDING_COUNT; i++)
        count += s->count[i];
    return count;
}
