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

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/job/history/job_archive.h"
#include "rendezvous/job/records/disk.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/server/peer_list.h"
#include "rendezvous/server/tls_handshakes.h"
#include "rendezvous/show/views/metrics.h"
#include "rendezvous/show/web/web.h"
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
        .durable = s->config.peers != NULL,
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
        config.disk = s->config.peers ? NULL : s->disk;
    }
    s->registry = registry_create(&config, clock_ms(), clock_wall_ms(), e);
    if (!s->registry && s->config.state_dir)
        return err_wrap(e, "state directory %s", s->config.state_dir);
    if (!s->registry)
        return -1;
    if (s->config.peers) /* what it would keep may have ended elsewhere */
        return 0;
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
    if (config->peers)
        s->config.standby.instance = config->peers->id;
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
    if ((config->standby.election_ms && server_begin_standby(s, e) < 0) ||
        (config->peers && server_begin_peers(s, e) < 0))
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
    while (!s->failed && !STAILQ_EMPTY(&s->unsent) && registry_is_settled(s->registry));
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
