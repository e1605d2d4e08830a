/* SPDX-License-Identifier: MIT */
/*
 * The rendezvous on the network: takes connections from the listener, carries messages
 * between them and the registry, and at the end of every turn commits what the registry
 * has decided before any answer leaves. It decides nothing about jobs itself.
 *
 * When connections run out, an unidentified one is closed for a new one, else a
 * connection of crunctl. Some are reserved for both, so that members come back and
 * operators are served: agents that join may use the others. If those run out, an agent
 * that has had no place in an epoch gives way. Of crunctl and of such agents, the
 * source with the most connections loses one. The connection of a member that has had a
 * place stays.
 */
#include "rendezvous/server/server_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/job/history/job_archive.h"
#include "rendezvous/job/records/disk.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/server/tls_handshakes.h"
#include "rendezvous/show/views/metrics.h"
#include "rendezvous/show/web/web.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/net/socket_owner.h"
#include "rendezvous/wire/protocol/message.h"
#include "rendezvous/wire/protocol/own_build.h"

/* -- the end of a turn ----------------------------------------------------------- */

/* Answers to what was read in this turn come first. Of the rest, which may be for all
 * nodes of a job, some leave in each turn. */
static void server_flush(struct server *s)
{
    struct peer_conn *p;

    for (unsigned n = 0; (p = STAILQ_FIRST(&s->unsent)); n++) {
        if (n >= FLUSHED_PER_TURN && p->turn != s->turn)
            break;
        STAILQ_REMOVE_HEAD(&s->unsent, unsent_entry);
        p->unsent = false;
        conn_flush(p->conn);
    }
    if (p)
        loop_timer_arm(&s->tick, 0);
}

/* Most turns change nothing that must last, and are not counted. */
static void server_commit(struct server *s)
{
    uint64_t begun_us = clock_us();
    struct err e;

    if (s->failed)
        return;
    if (!registry_is_saved(s->registry)) {
        s->failed = registry_commit(s->registry, &e) < 0;
        histogram_add(&s->commits, METRICS_COMMIT_UNIT_US, clock_us() - begun_us);
    }
    if (s->failed) {
        s->config.fatal(s->config.arg, e.text);
        return;
    }
    if (registry_is_settled(s->registry)) /* else when it is, in a later turn */
        server_flush(s);
}

static void on_turn_end(void *arg)
{
    struct server *s = arg;
    uint64_t now = clock_ms(), next;

    s->visitors_read = 0;
    s->bytes_left = CTL_TURN_BYTES;
    memset(s->turn_us, 0, sizeof(s->turn_us));
    for (int i = 0; i < SHARE_COUNT; i++)
        if (!TAILQ_EMPTY(&s->queue[i]))
            loop_timer_arm(&s->serve, 0);
    while (s->visitors_out > VISITORS_OUT_MAX)
        server_drop_heaviest(s);
    server_limit_agents(s);
    if (!s->failed && s->touched) {
        s->touched = false;
        server_keep_on(s);
        next = registry_next_tick(s->registry);
        if (now >= next && server_may_decide(s))
            next = registry_tick(s->registry, now, clock_wall_ms());
        if (now < next) /* else when it may decide again */
            loop_timer_arm(&s->tick, next);
        server_commit(s);
    }
    s->turn++;
}

static void on_tick(void *arg)
{
    ((struct server *)arg)->touched = true;
}

/* -- connections ----------------------------------------------------------------- */

static uint64_t peer_conn_source(const struct peer_conn *p)
{
    return net_hash_source(conn_peer(p->conn), p->server->source_key);
}

static void peer_conn_enter_class(struct peer_conn *p, enum conn_class class)
{
    p->class = class;
    TAILQ_INSERT_TAIL(&p->server->conns[class], p, entry);
    p->server->count[class]++;
    if (conn_peer(p->conn)->sa.ss_family != AF_UNIX)
        conn_sources_add(&p->server->sources[class], peer_conn_source(p), &p->by_source,
                         p);
}

static void peer_conn_leave_class(struct peer_conn *p)
{
    conn_sources_remove(&p->server->sources[p->class], &p->by_source);
    TAILQ_REMOVE(&p->server->conns[p->class], p, entry);
    p->server->count[p->class]--;
}

void peer_conn_end_handshake(struct peer_conn *p)
{
    if (p->handshake)
        handshake_fini(p->handshake);
    free(p->handshake);
    p->handshake = NULL;
}

void peer_conn_destroy(struct peer_conn *p)
{
    struct server *s = p->server;

    peer_conn_leave_class(p);
    if (p->queued)
        TAILQ_REMOVE(&s->queue[p->share], p, queue_entry);
    if (p->unsent)
        STAILQ_REMOVE(&s->unsent, p, peer_conn, unsent_entry);
    peer_conn_end_handshake(p);
    s->adopted -= p->adopted;
    conn_destroy(p->conn);
    p->conn = NULL;
    free(p->held);
    free(p->part);
    registry_disconnect(s->registry, p->peer, clock_ms());
    s->touched = true;
    free(p);
}

/* The class is kept, because an agent that must leave its job still has to be
 * informed. */
void peer_conn_classify(struct peer_conn *p)
{
    enum proto_phase phase = registry_phase(p->peer);

    if (p->class != CLASS_UNIDENTIFIED || phase == PROTO_NEW || phase == PROTO_AGENT)
        return;
    peer_conn_leave_class(p);
    peer_conn_enter_class(p, phase == PROTO_CTL ? CLASS_CTL : CLASS_AGENT);
    conn_set_deadline(p->conn, 0, NULL);
}

static bool on_unreadable(void *arg, struct conn *c, const struct frame_header *h,
                          const char *why)
{
    struct peer_conn *p = arg;
    struct msg m = { .type = (enum msg_type)h->type, .sequence = h->sequence };

    p->server->touched = true;
    return registry_unreadable(p->server->registry, p->peer, &m, why);
}

static uint32_t on_body_max(void *arg, struct conn *c)
{
    struct peer_conn *p = arg;

    return proto_body_max(registry_phase(p->peer));
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
    /* a crunctl that goes away is no news in the terminal of its user's job */
    if (why[0])
        net_log_peer(&p->server->limit, p->adopted ? LOG_DEBUG : LOG_INFO, conn_peer(c),
                     "closed: %s%s%s", who, who[0] ? ": " : "", why);
    peer_conn_destroy(p);
}

static struct peer_conn *peer_conn_add(struct server *s, int fd, bool expect_preface,
                                       struct tls_session *tls,
                                       const struct peer_origin *origin,
                                       uint64_t since_ms)
{
    struct peer_conn *p = xcalloc(1, sizeof(*p));
    struct conn_calls calls = { .message = peer_conn_on_message,
                                .unreadable = on_unreadable,
                                .ready = peer_conn_on_ready,
                                .may_read = peer_conn_on_may_read,
                                .may_shake = peer_conn_on_may_shake,
                                .secured = peer_conn_on_secured,
                                .body_max = on_body_max,
                                .closed = on_closed,
                                .arg = p };

    p->server = s;
    p->conn = conn_create(s->loop, fd, expect_preface, tls, &calls);
    p->peer = registry_connect(s->registry, p, origin);
    peer_conn_enter_class(p, CLASS_UNIDENTIFIED);
    conn_set_deadline(p->conn, since_ms + HELLO_DEADLINE_MS, HANDSHAKE_LATE);
    return p;
}

void peer_conn_create(struct server *s, int fd, const char *host, uid_t uid,
                      struct tls_session *tls, uint64_t since_ms)
{
    struct peer_origin origin = { .address = host,
                                  .uid = uid,
                                  .access = tls ? ACCESS_NONE : ACCESS_AGENT };
    struct peer_conn *p = peer_conn_add(s, fd, *host != '\0', tls, &origin, since_ms);

    if (!tls)
        return;
    p->handshake = xcalloc(1, sizeof(*p->handshake));
    handshake_init(p->handshake, s->handshakes, p->conn, peer_conn_source(p),
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

void server_adopt(struct server *s, int fd)
{
    struct peer_origin origin = { .address = "",
                                  .uid = geteuid(),
                                  .access = ACCESS_OPERATE };
    struct peer_conn *p;

    TAILQ_FOREACH(p, &s->conns[CLASS_UNIDENTIFIED], entry)
        if (p->adopted) /* the oldest that has not identified itself */
            break;
    if (s->adopted >= CONNS_ADOPTED_MAX && p)
        peer_conn_destroy(p);
    if (s->adopted >= CONNS_ADOPTED_MAX) {
        log_debug("a tool on this machine: all its connections are in use");
        close(fd);
        return;
    }
    p = peer_conn_add(s, fd, true, NULL, &origin, clock_ms());
    p->adopted = true;
    registry_show_all(p->peer);
    s->adopted++;
}

/* -- the page --------------------------------------------------------------------- */

/* A connection that the page makes, with the rights of one of its viewers. */
static int server_connect_viewer(void *arg, const struct web_viewer *viewer,
                                 struct err *e)
{
    struct server *s = arg;
    struct peer_origin origin = { .address = "",
                                  .uid = viewer->owner.uid,
                                  .access = viewer->sight,
                                  .owner = viewer->owner.key_file };
    int end[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) < 0)
        return err_set_errno(e, errno, "cannot make a socket pair");
    peer_conn_add(s, end[0], false, NULL, &origin, clock_ms());
    return end[1];
}

static bool server_accepts_key(void *arg, const char *identity)
{
    struct server *s = arg;

    return s->config.keys && key_ring_has(s->config.keys, identity);
}

int server_open_page(struct server *s, const struct server_page *page, struct err *e)
{
    struct web_config config = { .registry = s->registry,
                                 .standalone = s->config.standalone,
                                 .needs_key = s->config.keys != NULL,
                                 .host = page->host,
                                 .names = page->names,
                                 .endpoint = page->endpoint,
                                 .connect = server_connect_viewer,
                                 .accepts_key = server_accepts_key,
                                 .view_metrics = server_view_metrics,
                                 .arg = s };

    s->web = web_create(s->loop, &config, &page->listen, e);
    return s->web ? 0 : -1;
}

const char *server_page_url(const struct server *s)
{
    return s->web ? web_url(s->web) : NULL;
}

/* A crund is locked in, and opens no port. */
static int server_on_page(void *arg, void *conn, const struct job_owner *owner,
                          enum access sight, const char *run_id, char *url, size_t size,
                          struct err *e)
{
    struct server *s = arg;
    const struct peer_conn *p = conn;
    struct web_viewer viewer = { .owner = *owner, .sight = sight };
    struct server_page page = { .host = "", .endpoint = "" };

    if (!s->web && s->config.standalone)
        return err_set(e, "this rendezvous shows no page: crund --http opens one");
    if (!s->web && (net_parse_host("127.0.0.1", 0, &page.listen, e) < 0 ||
                    server_open_page(s, &page, e) < 0))
        return -1;
    snprintf(viewer.identity, sizeof(viewer.identity), "%s", conn_identity(p->conn));
    web_link(s->web, &viewer, run_id, url, size);
    return 0;
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
    if (!p->unsent && p->turn == s->turn)
        STAILQ_INSERT_HEAD(&s->unsent, p, unsent_entry);
    else if (!p->unsent)
        STAILQ_INSERT_TAIL(&s->unsent, p, unsent_entry);
    p->unsent = true;
}

static void on_hang_up(void *arg, void *conn)
{
    struct peer_conn *p = conn;

    if (p->conn)
        conn_hang_up(p->conn);
}

static void on_event(void *arg, const struct msg_event *event, uint32_t source)
{
    struct server *s = arg;
    unsigned held_back;

    if (s->config.event)
        s->config.event(s->config.arg, event);
    if (!s->config.standalone) { /* it has a user, for this message */
        log_debug("job \"%s\": %s", event->run_id, event->text);
        return;
    }
    if (!log_bursts_pass(s->event_lines, source, clock_ms(), &held_back))
        return;
    if (held_back)
        log_info("%u more lines about jobs of the address of the next one held back",
                 held_back);
    log_info("job \"%s\": %s", event->run_id, event->text);
}

static void server_on_elsewhere(void *arg, const char *endpoints)
{
    struct server *s = arg;

    s->config.elsewhere(s->config.arg, endpoints);
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
    return id128_random();
}

static struct id128 on_digest(void *arg, const struct id128 *incarnation)
{
    uint8_t digest[32];
    struct id128 half;

    tls_sha256(incarnation->byte, sizeof(incarnation->byte), digest);
    memcpy(half.byte, digest, sizeof(half.byte));
    return half;
}

/* -- the whole ------------------------------------------------------------------- */

static int server_open_registry(struct server *s, struct err *e)
{
    struct registry_config config = {
        .standalone = s->config.standalone,
        .witness = s->config.is_witness,
        .run_id = s->config.run_id,
        .job = s->config.job,
        .software = own_build_crund,
        .random_id = on_random_id,
        .digest = on_digest,
        .send = on_send,
        .room = server_on_room,
        .hang_up = on_hang_up,
        .page = server_on_page,
        .denied = on_denied,
        .stands_by = s->config.standby.instance,
        .replicate = server_on_replicate,
        .keeping = server_on_keeping,
        .elsewhere = s->config.elsewhere ? server_on_elsewhere : NULL,
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
    if (!s->registry)
        return -1;
    if (s->config.state_dir && (s->archive = job_archive_open(s->config.state_dir, e)))
        registry_set_archive(s->registry, s->archive);
    else if (s->config.state_dir) /* a rendezvous can do without it */
        log_warn("what jobs have done is not kept: %s", e->text);
    return 0;
}

struct server *server_create(struct loop *loop, const struct server_config *config,
                             struct err *e)
{
    struct server *s = xcalloc(1, sizeof(*s));
    struct listener_calls calls = { .arrived = server_on_arrived,
                                    .make_room = server_on_make_room,
                                    .arg = s };

    s->loop = loop;
    s->config = *config;
    s->config.conns_max = server_conns_allowed(config);
    memcpy(s->source_key, id128_random().byte, sizeof(s->source_key));
    for (int i = 0; i < CLASS_COUNT; i++) {
        TAILQ_INIT(&s->conns[i]);
        conn_sources_init(&s->sources[i]);
    }
    STAILQ_INIT(&s->unsent);
    if (config->standalone)
        s->event_lines = xcalloc(1, sizeof(*s->event_lines));
    s->reserved = s->config.conns_max / 8;
    if (s->reserved > CONNS_RESERVED_MAX)
        s->reserved = CONNS_RESERVED_MAX;
    for (int i = 0; i < SHARE_COUNT; i++)
        TAILQ_INIT(&s->queue[i]);
    s->bytes_left = CTL_TURN_BYTES;
    loop_timer_init(&s->serve, loop, server_on_serve, s);
    loop_timer_init(&s->tick, loop, on_tick, s);
    loop_timer_init(&s->check_keys, loop, server_on_check_keys, s);
    loop_on_turn_end(loop, on_turn_end, s);
    if (server_open_registry(s, e) < 0 ||
        (config->keys && config->standalone && server_open_door(s, e) < 0))
        goto fail;
    if (config->listen.len > 0 || config->listener) {
        s->listener = config->listener
                          ? listener_adopt(loop, config->listener, &calls)
                          : listener_create(loop, &config->listen, &calls, e);
        if (!s->listener)
            goto fail;
        s->address = *listener_address(s->listener);
        socket_owner_prepare();
    }
    if (config->standby.election_ms && server_begin_standby(s, e) < 0)
        goto fail;
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
    web_destroy(s->web);
    server_end_keeping(s);
    listener_destroy(s->listener);
    for (int i = 0; i < CLASS_COUNT; i++) {
        while ((p = TAILQ_FIRST(&s->conns[i])))
            peer_conn_destroy(p);
        conn_sources_fini(&s->sources[i]);
    }
    free(s->event_lines);
    loop_off_turn_end(s->loop, on_turn_end, s);
    loop_timer_fini(&s->serve);
    loop_timer_fini(&s->tick);
    loop_timer_fini(&s->check_keys);
    handshakes_destroy(s->handshakes);
    tls_door_destroy(s->door);
    registry_destroy(s->registry);
    job_archive_close(s->archive);
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
    do
        server_commit(s);
    while (!s->failed && !STAILQ_EMPTY(&s->unsent));
    if (s->archive)
        registry_archive_all(s->registry);
}

const struct net_addr *server_address(const struct server *s)
{
    return &s->address;
}

struct registry *server_registry(struct server *s)
{
    return s->registry;
}

bool server_reached_at(const struct server *s, struct net_addr *addr)
{
    const struct peer_conn *p;

    TAILQ_FOREACH(p, &s->conns[CLASS_AGENT], entry)
        if (conn_peer(p->conn)->sa.ss_family != AF_UNIX && conn_local(p->conn, addr) &&
            !net_is_loopback(addr))
            return true;
    return false;
}

unsigned server_connections(const struct server *s)
{
    unsigned count = s->listener ? listener_waiting(s->listener) : 0;

    for (int i = 0; i < CLASS_COUNT; i++)
        count += s->count[i];
    return count;
}

void server_view_metrics(void *server, struct metrics_view *view)
{
    struct server *s = server;

    *view = (struct metrics_view){ .registry = s->registry,
                                   .now_ms = clock_ms(),
                                   .wall_ms = clock_wall_ms(),
                                   .is_daemon = s->config.standalone,
                                   .connections = server_connections(s),
                                   .commits = s->disk ? &s->commits : NULL };
}
