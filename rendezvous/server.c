/* SPDX-License-Identifier: MIT */
/*
 * The rendezvous on the network: takes connections from the listener, carries messages
 * between them and the registry, and at the end of every turn commits what the registry
 * has decided before any answer leaves. It decides nothing about jobs itself.
 *
 * Visitors, which are all connections but those of agents that have joined, share a
 * limited part of each turn, in time and in bytes. A connection with many unsent bytes
 * is not read. A connection that has much to say waits for its turn behind the others.
 * So agents get their answers soon, regardless of those requests.
 *
 * When connections run out, an unidentified one is closed for a new one, else a
 * connection of crunctl. Some are reserved for both, so that members come back and
 * operators are served: agents that join may use the others. If those run out, an agent
 * that has had no place in an epoch gives way. Of crunctl and of such agents, the
 * source with the most connections loses one. The connection of a member that has had a
 * place stays.
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
#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/version.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/conn_sources.h"
#include "rendezvous/journal/disk.h"
#include "rendezvous/handshakes.h"
#include "rendezvous/keys/key.h"
#include "rendezvous/keys/key_ring.h"
#include "rendezvous/limits.h"
#include "rendezvous/net/conn.h"
#include "rendezvous/net/limits.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/net/local_peer.h"
#include "rendezvous/net/socket_owner.h"
#include "rendezvous/protocol/message.h"
#include "rendezvous/registry/registry.h"
#include "rendezvous/tls/tls.h"

enum conn_class {
    CLASS_UNIDENTIFIED, /* no HELLO yet, or no JOIN: it has a deadline */
    CLASS_CTL,          /* crunctl */
    CLASS_AGENT,        /* has joined a job */
    CLASS_COUNT
};

/* Connections that wait for their turn, and how long all of each kind are served in a
 * turn. What agents send in small numbers does not wait. */
enum share {
    SHARE_AGENTS,
    SHARE_NEW,  /* has asked little: has not joined yet, or is an operator's */
    SHARE_REST, /* crunctl that asks much */
    SHARE_COUNT
};

static const uint64_t share_us[] = {
    [SHARE_AGENTS] = AGENTS_TURN_US,
    [SHARE_NEW] = VISITORS_TURN_US * 3 / 4,
    [SHARE_REST] = VISITORS_TURN_US / 4,
};

struct peer_conn {
    TAILQ_ENTRY(peer_conn) entry; /* in the list of its class, oldest first */
    STAILQ_ENTRY(peer_conn) unsent_entry;
    TAILQ_ENTRY(peer_conn) queue_entry;
    struct server *server;
    struct conn *conn; /* NULL once it is closed */
    struct registry_peer *peer;
    struct handshake *handshake; /* until it is done; NULL: plain */
    enum conn_class class;
    bool unsent; /* something is queued: in server.unsent */
    bool queued; /* in server.queue[share] */
    enum share share;
    uint64_t turn;
    unsigned messages; /* in that turn */
    uint64_t turn_us;  /* spent on it in that turn */
    uint64_t spent;    /* since it connected, in bytes */
    struct conn_source_entry by_source;
};

struct server {
    struct loop *loop;
    struct server_config config;
    struct disk *disk;
    struct registry *registry;
    struct listener *listener; /* NULL once it accepts no more */
    struct tls_door *door;     /* NULL before the first TLS connection */
    struct handshakes *handshakes;
    struct loop_timer check_keys;
    bool keys_changed;      /* not all connections of retired keys have ended */
    unsigned agents_before; /* when the last of them ended, and when that was */
    uint64_t ended_at;
    struct net_addr address;
    TAILQ_HEAD(peer_conns, peer_conn) conns[CLASS_COUNT];
    unsigned count[CLASS_COUNT];
    unsigned reserved; /* connections that are not for agents that join */
    struct conn_sources sources[CLASS_COUNT]; /* of those that may give way */
    STAILQ_HEAD(, peer_conn) unsent;
    struct peer_conns queue[SHARE_COUNT]; /* the first is next */
    struct peer_conn *served;             /* the one being served */
    struct loop_timer serve;
    uint64_t turn;
    int64_t bytes_left;            /* in this turn, for answers to crunctl */
    uint64_t turn_us[SHARE_COUNT]; /* spent in this turn */
    size_t visitors_out;           /* upper bound of the bytes that wait for them */
    struct loop_timer tick;
    bool touched; /* the registry was given something in this turn */
    bool failed;  /* nothing may leave any more */
    struct log_limit limit;
    struct log_bursts event_lines;
};

/* -- the end of a turn ----------------------------------------------------------- */

static void server_flush(struct server *s)
{
    struct peer_conn *p;

    while ((p = STAILQ_FIRST(&s->unsent))) {
        STAILQ_REMOVE_HEAD(&s->unsent, unsent_entry);
        p->unsent = false;
        conn_flush(p->conn);
    }
}

static void server_drop_heaviest(struct server *s);
static void server_limit_agents(struct server *s);

static void server_commit(struct server *s)
{
    struct err e;

    if (s->failed)
        return;
    if (registry_commit(s->registry, &e) == 0) {
        server_flush(s);
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
    s->bytes_left = CTL_TURN_BYTES;
    memset(s->turn_us, 0, sizeof(s->turn_us));
    for (int i = 0; i < SHARE_COUNT; i++)
        if (!TAILQ_EMPTY(&s->queue[i]))
            loop_timer_arm(&s->serve, 0);
    while (s->visitors_out > VISITORS_OUT_MAX)
        server_drop_heaviest(s);
    server_limit_agents(s);
    if (s->failed || !s->touched)
        return;
    s->touched = false;
    next = registry_next_tick(s->registry);
    if (now >= next)
        next = registry_tick(s->registry, now, clock_wall_ms());
    loop_timer_arm(&s->tick, next);
    server_commit(s);
}

static void on_tick(void *arg)
{
    ((struct server *)arg)->touched = true;
}

/* -- connections ----------------------------------------------------------------- */

static void peer_conn_enter_class(struct peer_conn *p, enum conn_class class)
{
    p->class = class;
    TAILQ_INSERT_TAIL(&p->server->conns[class], p, entry);
    p->server->count[class]++;
    if (conn_peer(p->conn)->sa.ss_family != AF_UNIX)
        conn_sources_add(&p->server->sources[class], net_hash_host(conn_peer(p->conn)),
                         &p->by_source, p);
}

static void peer_conn_leave_class(struct peer_conn *p)
{
    conn_sources_remove(&p->server->sources[p->class], &p->by_source);
    TAILQ_REMOVE(&p->server->conns[p->class], p, entry);
    p->server->count[p->class]--;
}

static void peer_conn_end_handshake(struct peer_conn *p)
{
    if (p->handshake)
        handshake_fini(p->handshake);
    free(p->handshake);
    p->handshake = NULL;
}

/* Also after its connection has closed. */
static void peer_conn_destroy(struct peer_conn *p)
{
    struct server *s = p->server;

    peer_conn_leave_class(p);
    if (p->queued)
        TAILQ_REMOVE(&s->queue[p->share], p, queue_entry);
    if (p->unsent)
        STAILQ_REMOVE(&s->unsent, p, peer_conn, unsent_entry);
    peer_conn_end_handshake(p);
    conn_destroy(p->conn);
    p->conn = NULL;
    registry_disconnect(s->registry, p->peer, clock_ms());
    s->touched = true;
    free(p);
}

/* The class is kept, because an agent that must leave its job still has to be
 * informed. */
static void peer_conn_classify(struct peer_conn *p)
{
    enum proto_phase phase = registry_phase(p->peer);

    if (p->class != CLASS_UNIDENTIFIED || (phase != PROTO_JOINED && phase != PROTO_CTL))
        return;
    peer_conn_leave_class(p);
    peer_conn_enter_class(p, phase == PROTO_CTL ? CLASS_CTL : CLASS_AGENT);
    conn_set_deadline(p->conn, 0, NULL);
}

/* -- shares of a turn ------------------------------------------------------------- */

static enum share peer_conn_share(const struct peer_conn *p)
{
    if (p->class == CLASS_AGENT)
        return SHARE_AGENTS;
    return p->spent < CTL_TURN_BYTES ? SHARE_NEW : SHARE_REST;
}

static bool server_has_share(const struct server *s, enum share share)
{
    return s->turn_us[share] < share_us[share] &&
           (share == SHARE_AGENTS || s->bytes_left > 0);
}

/* For the time since began_us, and the bytes queued since `waited` were waiting. */
static void peer_conn_charge(struct peer_conn *p, size_t waited, uint64_t began_us)
{
    struct server *s = p->server;
    uint64_t us = clock_us() - began_us;
    size_t bytes = conn_waiting(p->conn) - waited;

    p->turn_us += us;
    s->turn_us[peer_conn_share(p)] += us;
    p->spent += bytes;
    if (p->class == CLASS_CTL)
        s->bytes_left -= (int64_t)bytes;
}

/* What may wait for one visitor: less if there are many, so that all together stay
 * within half of their limit. */
static size_t visitor_out_wait(const struct server *s)
{
    size_t each = VISITORS_OUT_MAX / 2 / (s->count[CLASS_CTL] + 1);

    return each < CONN_OUT_WAIT ? each : CONN_OUT_WAIT;
}

static bool peer_conn_has_room(const struct peer_conn *p)
{
    size_t most = p->class == CLASS_AGENT ? CONN_OUT_WAIT : visitor_out_wait(p->server);

    return conn_waiting(p->conn) <= most;
}

/* The registry asks before each message of a list. */
static bool on_room(void *arg, void *conn)
{
    const struct server *s = arg;
    struct peer_conn *p = conn;

    return p->conn && s->bytes_left > 0 && peer_conn_has_room(p);
}

static void peer_conn_queue(struct peer_conn *p)
{
    struct server *s = p->server;

    if (p->queued)
        return;
    p->queued = true;
    p->share = peer_conn_share(p);
    TAILQ_INSERT_TAIL(&s->queue[p->share], p, queue_entry);
}

static bool peer_conn_has_share(struct peer_conn *p)
{
    struct server *s = p->server;
    enum share share = peer_conn_share(p);

    if (p->turn != s->turn)
        p->messages = p->turn_us = 0;
    p->turn = s->turn;
    if (p->messages >= MESSAGES_PER_TURN || p->turn_us >= CONN_TURN_US)
        return false;
    if (p->class == CLASS_AGENT || s->served == p)
        return true;
    return TAILQ_EMPTY(&s->queue[share]) && server_has_share(s, share);
}

/* A list that is under way goes on first. Without room, the connection waits until some
 * of its bytes are sent. */
static bool on_ready(void *arg, struct conn *c)
{
    struct peer_conn *p = arg;
    size_t waited = conn_waiting(c);
    uint64_t began_us;
    bool complete;

    if (!peer_conn_has_room(p))
        return false;
    if (!peer_conn_has_share(p)) {
        peer_conn_queue(p);
        return false;
    }
    if (registry_has_no_list(p->peer))
        return true;
    began_us = clock_us();
    complete = registry_continue_list(p->server->registry, p->peer, clock_ms(),
                                      clock_wall_ms());
    peer_conn_charge(p, waited, began_us);
    if (!complete && peer_conn_has_room(p)) /* the share of this turn is used up */
        peer_conn_queue(p);
    return complete;
}

static int on_message(void *arg, struct conn *c, const struct msg *m, struct err *e)
{
    struct peer_conn *p = arg;
    struct server *s = p->server;
    size_t waited = conn_waiting(c);
    uint64_t began_us = clock_us();
    int r;

    s->touched = true;
    p->messages++;
    p->spent += MESSAGE_COST;
    r = registry_message(s->registry, p->peer, m, clock_ms(), clock_wall_ms(), e);
    peer_conn_classify(p);
    peer_conn_charge(p, waited, began_us);
    if (r == 0 && !registry_has_no_list(p->peer)) {
        conn_hold(c);
        if (peer_conn_has_room(p))
            peer_conn_queue(p);
    }
    return r;
}

/* Serve each queued connection once, until the share of this turn is used up. */
static void server_serve_queue(struct server *s, enum share share)
{
    struct peer_conns *queue = &s->queue[share];
    const struct peer_conn *last = TAILQ_LAST(queue, peer_conns);

    while (server_has_share(s, share) && s->served != last) {
        s->served = TAILQ_FIRST(queue);
        TAILQ_REMOVE(queue, s->served, queue_entry);
        s->served->queued = false;
        conn_resume(s->served->conn);
    }
    s->served = NULL;
}

static void on_serve(void *arg)
{
    for (enum share share = 0; share < SHARE_COUNT; share++)
        server_serve_queue(arg, share);
}

static bool on_unreadable(void *arg, struct conn *c, const struct frame_header *h,
                          const char *why)
{
    struct peer_conn *p = arg;
    struct msg m = { .type = (enum msg_type)h->type, .sequence = h->sequence };

    (void)c;
    p->server->touched = true;
    return registry_unreadable(p->server->registry, p->peer, &m, why);
}

static uint32_t on_body_max(void *arg, struct conn *c)
{
    struct peer_conn *p = arg;

    (void)c;
    return proto_body_max(registry_phase(p->peer));
}

/* -- keys ------------------------------------------------------------------------- */

static bool on_may_shake(void *arg, struct conn *c)
{
    struct peer_conn *p = arg;

    return handshake_may_step(p->handshake, tls_identity(conn_session(c))[0] != '\0');
}

static int on_secured(void *arg, struct conn *c, struct err *e)
{
    struct peer_conn *p = arg;
    struct key_identity identity;
    char owner[256];

    if (!key_identity_parse(conn_identity(c), &identity))
        return err_set(e, "its key has no use here");
    registry_identify(
        p->peer, identity.access, identity.id,
        key_ring_owner(p->server->config.keys, conn_identity(c), owner, sizeof(owner)));
    handshake_succeeded(p->handshake);
    peer_conn_end_handshake(p);
    conn_set_deadline(c, clock_ms() + HELLO_DEADLINE_MS, HANDSHAKE_LATE);
    return 0;
}

/* Why a handshake has failed, and what to do. */
static void peer_conn_log_refusal(const struct peer_conn *p, const char *why)
{
    const struct tls_session *tls = conn_session(p->conn);
    bool key = tls_failure(tls) == TLS_FAILURE_KEY;
    char text[512];

    if (key)
        key_ring_explain(p->server->config.keys, tls_identity(tls), text, sizeof(text));
    net_log_peer(&p->server->limit, key ? LOG_WARN : LOG_INFO, conn_peer(p->conn),
                 "refused: %s%s",
                 key ? text : "it has not completed the TLS handshake: ",
                 key ? "; both ends need the same key file" : why);
}

static bool peer_conn_is_retired(const struct peer_conn *p)
{
    const char *identity = conn_identity(p->conn);

    return *identity && !key_ring_has(p->server->config.keys, identity);
}

/* The other end sees an end in good order. */
static void peer_conn_end_retired(struct peer_conn *p)
{
    char why[512];

    net_log_peer(&p->server->limit, LOG_WARN, conn_peer(p->conn), "closed: %s",
                 key_ring_explain(p->server->config.keys, conn_identity(p->conn), why,
                                  sizeof(why)));
    conn_hang_up(p->conn);
    registry_expect_back(p->peer);
    peer_conn_destroy(p);
}

/* Most agents whose connection was ended have come back, or had the time to. */
static bool server_agents_are_back(const struct server *s)
{
    return s->count[CLASS_AGENT] + KEYS_ENDED_AT_ONCE / 4 >= s->agents_before ||
           clock_ms() >= s->ended_at + KEYS_ENDED_WAIT_MS;
}

/*
 * Connections whose key is no longer accepted end, those of agents some at a time: all
 * come back at once with their new key, and a node that is away for longer than the
 * reconnect grace is lost.
 */
static void server_end_retired(struct server *s)
{
    struct peer_conn *p, *next;
    unsigned agents = 0;

    if (s->keys_changed && !server_agents_are_back(s))
        return;
    s->keys_changed = false;
    s->agents_before = s->count[CLASS_AGENT];
    s->ended_at = clock_ms();
    for (int i = 0; i < CLASS_COUNT; i++)
        for (p = TAILQ_FIRST(&s->conns[i]); p; p = next) {
            next = TAILQ_NEXT(p, entry);
            if (!peer_conn_is_retired(p))
                continue;
            if (p->class == CLASS_AGENT && ++agents > KEYS_ENDED_AT_ONCE) {
                s->keys_changed = true;
                return;
            }
            peer_conn_end_retired(p);
        }
}

static void server_check_keys(struct server *s)
{
    if (!key_ring_refresh(s->config.keys) || s->keys_changed)
        return;
    server_end_retired(s);
    if (s->keys_changed)
        loop_timer_arm(&s->check_keys, clock_ms() + KEYS_ENDED_EVERY_MS);
}

static void on_check_keys(void *arg)
{
    struct server *s = arg;

    if (key_ring_refresh(s->config.keys) || s->keys_changed)
        server_end_retired(s);
    loop_timer_arm(&s->check_keys, clock_ms() + (s->keys_changed ? KEYS_ENDED_EVERY_MS
                                                                 : KEYS_CHECK_MS));
}

/* OpenSSL is loaded here: by crund at its start, by an agent's rendezvous, which may
 * never need it, when the first TLS connection comes. */
static int server_open_door(struct server *s, struct err *e)
{
    if (!s->door)
        s->door = tls_door_create(key_ring_find, s->config.keys, e);
    if (!s->door)
        return err_wrap(e, "cannot take connections with a key");
    if (!s->handshakes)
        s->handshakes = handshakes_create(s->loop);
    return 0;
}

static void on_closed(void *arg, struct conn *c, const char *why)
{
    struct peer_conn *p = arg;
    char who[256] = "";

    if (p->handshake && tls_failure(conn_session(c)) != TLS_FAILURE_NONE) {
        peer_conn_log_refusal(p, why);
        peer_conn_destroy(p);
        return;
    }
    if (p->class != CLASS_UNIDENTIFIED)
        registry_describe(p->peer, who, sizeof(who));
    if (why[0])
        net_log_peer(&p->server->limit, LOG_INFO, conn_peer(c), "closed: %s%s%s", who,
                     who[0] ? ": " : "", why);
    peer_conn_destroy(p);
}

/* Count the unsent answers again, for all connections but the agents'. If there are too
 * many, the connection with the most is closed. */
static void server_drop_heaviest(struct server *s)
{
    struct peer_conn *p, *heaviest = NULL;

    s->visitors_out = 0;
    for (int i = CLASS_UNIDENTIFIED; i <= CLASS_CTL; i++)
        TAILQ_FOREACH(p, &s->conns[i], entry)
        {
            s->visitors_out += conn_waiting(p->conn);
            if (!heaviest || conn_waiting(p->conn) > conn_waiting(heaviest->conn))
                heaviest = p;
        }
    if (s->visitors_out <= VISITORS_OUT_MAX)
        return;
    s->visitors_out -= conn_waiting(heaviest->conn);
    net_log_peer(&s->limit, LOG_INFO, conn_peer(heaviest->conn),
                 "closed: too many bytes wait for it and others to read");
    peer_conn_destroy(heaviest);
}

/* Agents that join leave the reserved connections to others. */
static void server_limit_agents(struct server *s)
{
    struct peer_conn *p;

    while (s->count[CLASS_AGENT] > s->config.conns_max - s->reserved &&
           (p = conn_sources_newest(&s->sources[CLASS_AGENT]))) {
        if (registry_has_place(p->peer)) { /* since it joined */
            conn_sources_remove(&s->sources[CLASS_AGENT], &p->by_source);
            continue;
        }
        net_log_peer(&s->limit, LOG_INFO, conn_peer(p->conn),
                     "closed: all connections for agents are in use");
        peer_conn_destroy(p);
    }
}

/* `host` is its source address, "" for this process, which sends no preface. What it
 * may do is known at the end of the handshake, if it has a session. */
static void peer_conn_create(struct server *s, int fd, const char *host, uid_t uid,
                             struct tls_session *tls, uint64_t since_ms)
{
    struct peer_conn *p = xcalloc(1, sizeof(*p));
    struct conn_calls calls = { .message = on_message,
                                .unreadable = on_unreadable,
                                .ready = on_ready,
                                .may_shake = on_may_shake,
                                .secured = on_secured,
                                .body_max = on_body_max,
                                .closed = on_closed,
                                .arg = p };
    struct peer_origin origin = { .address = host,
                                  .uid = uid,
                                  .access = tls ? ACCESS_NONE : ACCESS_AGENT };

    p->server = s;
    p->conn = conn_create(s->loop, fd, *host != '\0', tls, &calls);
    p->peer = registry_connect(s->registry, p, &origin);
    peer_conn_enter_class(p, CLASS_UNIDENTIFIED);
    conn_set_deadline(p->conn, since_ms + HELLO_DEADLINE_MS, HANDSHAKE_LATE);
    if (!tls)
        return;
    p->handshake = xcalloc(1, sizeof(*p->handshake));
    handshake_init(p->handshake, s->handshakes, p->conn, host,
                   since_ms + HELLO_DEADLINE_MS);
}

int server_connect_local(struct server *s, struct err *e)
{
    int end[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) < 0)
        return err_set_errno(e, errno, "cannot make a socket pair");
    peer_conn_create(s, end[0], "", geteuid(), NULL, clock_ms());
    return end[1];
}

/* -- what the listener calls ----------------------------------------------------- */

/* An embedded rendezvous serves its own user. crund serves all users of its machine
 * that have a number here, and the registry keeps their jobs apart. A key decides for
 * itself. */
static void server_admit(struct server *s, int fd, const struct net_addr *from,
                         uint64_t since_ms)
{
    char host[NET_TEXT_SIZE], why[256];
    uid_t uid = PEER_UID_UNKNOWN;
    enum local_peer kind = local_peer_find(fd, &uid);

    if ((s->config.standalone && kind == LOCAL_PEER_USER &&
         uid != SOCKET_OWNER_OUTSIDE) ||
        local_peer_may_come(kind, uid, why, sizeof(why))) {
        peer_conn_create(s, fd, net_format_host(from, host, sizeof(host)), uid, NULL,
                         since_ms);
        return;
    }
    net_log_peer(&s->limit, LOG_WARN, from, "refused: %s", why);
    close(fd);
}

static void server_admit_tls(struct server *s, int fd, const struct net_addr *from,
                             uint64_t since_ms)
{
    struct tls_session *tls = NULL;
    uid_t uid = PEER_UID_UNKNOWN;
    char host[NET_TEXT_SIZE];
    struct err e;

    if (server_open_door(s, &e) < 0)
        net_log_peer(&s->limit, LOG_ERROR, from, "%s", e.text);
    else
        tls = tls_accept(s->door, fd);
    if (!tls) {
        close(fd);
        return;
    }
    server_check_keys(s);
    (void)local_peer_find(fd, &uid);
    peer_conn_create(s, fd, net_format_host(from, host, sizeof(host)), uid, tls,
                     since_ms);
}

/* NULL: this kind of connection is taken. */
static const char *server_refusal(const struct server *s, enum frame_kind kind,
                                  const char *first)
{
    switch (kind) {
    case FRAME_KIND_CONTROL:
        return s->config.keys
                   ? "it has no key, and this rendezvous asks for one: give it "
                     "the same key file (--key-file)"
                   : NULL;
    case FRAME_KIND_TLS:
        return s->config.keys ? NULL
                              : "a TLS hello: if it is crun's, it has a key and this "
                                "rendezvous has none (--key-file)";
    case FRAME_KIND_STORE:
        return s->config.store_client
                   ? NULL
                   : "a PyTorch store client; there is no store on this port";
    default:
        return first;
    }
}

/* A hello of TLS that names a store's secret. It is the last thing in the hello, which
 * our own clients send at once. */
static bool is_store_hello(int fd)
{
    char hello[1024];
    ssize_t n = recv(fd, hello, sizeof(hello), MSG_PEEK | MSG_DONTWAIT);

    return n > 0 && memmem(hello, (size_t)n, STORE_IDENTITY, strlen(STORE_IDENTITY));
}

static void on_arrived(void *arg, int fd, enum frame_kind kind, const char *first,
                       const struct net_addr *from, uint64_t since_ms)
{
    struct server *s = arg;
    const char *refusal = server_refusal(s, kind, first);

    if (refusal) {
        net_log_peer(&s->limit, LOG_INFO, from, "refused: %s", refusal);
        close(fd);
    } else if (kind == FRAME_KIND_TLS &&
               !(s->config.store_client && is_store_hello(fd))) {
        server_admit_tls(s, fd, from, since_ms);
    } else if (kind == FRAME_KIND_CONTROL) {
        server_admit(s, fd, from, since_ms);
    } else {
        s->config.store_client(s->config.arg, fd);
    }
}

/* Half of the reserved connections are for crunctl, the other half for those that have
 * not identified themselves: the kind that has more loses one. */
static bool server_drop_oldest(struct server *s, unsigned unidentified)
{
    struct peer_conn *p = NULL;

    if (unidentified <= s->reserved / 2 && s->count[CLASS_CTL] > s->reserved / 2)
        p = conn_sources_oldest(&s->sources[CLASS_CTL]);
    if (!p && listener_drop_oldest(s->listener))
        return true;
    if (!p)
        p = conn_sources_oldest(&s->sources[CLASS_UNIDENTIFIED]);
    if (p)
        peer_conn_destroy(p);
    return p != NULL;
}

static bool on_make_room(void *arg, const struct net_addr *from)
{
    struct server *s = arg;
    unsigned unidentified = listener_waiting(s->listener) +
                            s->count[CLASS_UNIDENTIFIED];

    if ((unidentified < CONNS_UNIDENTIFIED_MAX &&
         server_connections(s) < s->config.conns_max) ||
        server_drop_oldest(s, unidentified))
        return true;
    net_log_peer(&s->limit, LOG_INFO, from, "refused: all %u connections are in use",
                 s->config.conns_max);
    return false;
}

/* -- what the registry calls ----------------------------------------------------- */

static void on_send(void *arg, void *conn, const struct msg *m)
{
    struct server *s = arg;
    struct peer_conn *p = conn;

    size_t before;

    if (!p->conn)
        return;
    before = conn_waiting(p->conn);
    conn_send(p->conn, m);
    if (p->class != CLASS_AGENT)
        s->visitors_out += conn_waiting(p->conn) - before;
    if (!p->unsent)
        STAILQ_INSERT_TAIL(&s->unsent, p, unsent_entry);
    p->unsent = true;
}

static void on_hang_up(void *arg, void *conn)
{
    struct peer_conn *p = conn;

    (void)arg;
    if (p->conn)
        conn_hang_up(p->conn);
}

static void on_event(void *arg, const struct msg_event *event, uint32_t source)
{
    struct server *s = arg;
    unsigned held_back;

    if (!s->config.standalone) { /* it has a user, for this message */
        log_debug("job \"%s\": %s", event->run_id, event->text);
        return;
    }
    if (!log_bursts_pass(&s->event_lines, source, clock_ms(), &held_back))
        return;
    if (held_back)
        log_info("%u more lines about jobs of the address of the next one held back",
                 held_back);
    log_info("job \"%s\": %s", event->run_id, event->text);
}

static void on_denied(void *arg, void *conn, const char *why)
{
    struct server *s = arg;
    const struct peer_conn *p = conn;

    if (p->conn)
        net_log_peer(&s->limit, LOG_WARN, conn_peer(p->conn), "refused: %s", why);
}

static struct id128 on_random_id(void *arg)
{
    (void)arg;
    return id128_random();
}

static struct id128 on_digest(void *arg, const struct id128 *incarnation)
{
    uint8_t digest[32];
    struct id128 half;
    struct err e;

    (void)arg;
    if (tls_sha256(incarnation->byte, sizeof(incarnation->byte), digest, &e) < 0)
        abort(); /* it needs no library */
    memcpy(half.byte, digest, sizeof(half.byte));
    return half;
}

/* -- the whole ------------------------------------------------------------------- */

/* The limit of descriptors, less those that the rest of the program needs. A program
 * that does more than this has a store too, whose clients get half of what is left, but
 * no node is refused for them. */
static unsigned conns_allowed(const struct server_config *c)
{
    unsigned max = c->conns_max ? c->conns_max : CONTROL_CONNS_MAX;
    rlim_t reserved = c->fds_reserved ? c->fds_reserved : DESCRIPTORS_RESERVED;
    rlim_t left,
        nodes = c->job ? (c->job->max_nodes + DESCRIPTORS_RESERVED) * 8ull / 7 : 0;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return max;
    left = limit.rlim_cur > reserved ? limit.rlim_cur - reserved : 0;
    if (c->fds_reserved && left / 2 > nodes)
        left /= 2;
    else if (c->fds_reserved && left > nodes)
        left = nodes;
    if (left < DESCRIPTORS_RESERVED)
        left = DESCRIPTORS_RESERVED;
    return left < max ? (unsigned)left : max;
}

static int server_open_registry(struct server *s, struct err *e)
{
    struct registry_config config = {
        .standalone = s->config.standalone,
        .run_id = s->config.run_id,
        .job = s->config.job,
        .software = "crund " CRUN_VERSION,
        .random_id = on_random_id,
        .digest = on_digest,
        .send = on_send,
        .room = on_room,
        .hang_up = on_hang_up,
        .denied = on_denied,
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
    s->config.conns_max = conns_allowed(config);
    for (int i = 0; i < CLASS_COUNT; i++) {
        TAILQ_INIT(&s->conns[i]);
        conn_sources_init(&s->sources[i]);
    }
    STAILQ_INIT(&s->unsent);
    s->reserved = s->config.conns_max / 8;
    if (s->reserved > CONNS_RESERVED_MAX)
        s->reserved = CONNS_RESERVED_MAX;
    for (int i = 0; i < SHARE_COUNT; i++)
        TAILQ_INIT(&s->queue[i]);
    s->bytes_left = CTL_TURN_BYTES;
    loop_timer_init(&s->serve, loop, on_serve, s);
    loop_timer_init(&s->tick, loop, on_tick, s);
    loop_timer_init(&s->check_keys, loop, on_check_keys, s);
    loop_on_turn_end(loop, on_turn_end, s);
    if (server_open_registry(s, e) < 0 ||
        (config->keys && config->standalone && server_open_door(s, e) < 0))
        goto fail;
    if (config->listen.len > 0) {
        s->listener = listener_create(loop, &config->listen, &calls, e);
        if (!s->listener)
            goto fail;
        s->address = *listener_address(s->listener);
        socket_owner_prepare();
    }
    if (config->keys)
        loop_timer_arm(&s->check_keys, clock_ms() + KEYS_CHECK_MS);
    s->touched = true;
    loop_timer_arm(&s->tick, 0);
    return s;
fail:
    server_destroy(s);
    return NULL;
}

void server_destroy(struct server *s)
{
    struct peer_conn *p;

    if (!s)
        return;
    listener_destroy(s->listener);
    for (int i = 0; i < CLASS_COUNT; i++)
        while ((p = TAILQ_FIRST(&s->conns[i])))
            peer_conn_destroy(p);
    loop_off_turn_end(s->loop, on_turn_end, s);
    loop_timer_fini(&s->serve);
    loop_timer_fini(&s->tick);
    loop_timer_fini(&s->check_keys);
    handshakes_destroy(s->handshakes);
    tls_door_destroy(s->door);
    registry_destroy(s->registry);
    disk_destroy(s->disk);
    free(s);
}

void server_set_confinement(struct server *s, const char *text)
{
    registry_set_confinement(s->registry, text);
}

void server_shut(struct server *s)
{
    listener_destroy(s->listener);
    s->listener = NULL;
    server_commit(s);
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

    for (int i = 0; i < CLASS_COUNT; i++)
        count += s->count[i];
    return count;
}
