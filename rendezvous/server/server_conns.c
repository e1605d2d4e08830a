/* SPDX-License-Identifier: MIT */
#include "rendezvous/server/server_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/server/tls_handshakes.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/protocol/message.h"

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

struct peer_conn *peer_conn_add(struct server *s, int fd, bool expect_preface,
                                struct tls_session *tls,
                                const struct peer_origin *origin, uint64_t since_ms)
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
