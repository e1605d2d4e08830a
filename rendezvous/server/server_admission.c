/* SPDX-License-Identifier: MIT */
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/security/tls.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/net/local_peer.h"
#include "rendezvous/wire/net/socket_owner.h"

/* Without a key. An embedded rendezvous serves its own user, crund all users of its
 * machine: the registry keeps their jobs apart. */
static void server_admit(struct server *s, int fd, const struct net_addr *from,
                         uint64_t since_ms)
{
    char host[NET_TEXT_SIZE], why[256];
    uid_t uid = PEER_UID_UNKNOWN;
    enum local_peer kind = local_peer_find(fd, &uid);

    if (local_peer_may_join(kind, uid, s->config.standalone, why, sizeof(why))) {
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

void server_on_arrived(void *arg, int fd, enum frame_kind kind, const char *first,
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

bool server_on_make_room(void *arg, const struct net_addr *from)
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

/* Count the unsent answers again, for all connections but the agents'. If there are too
 * many, the connection with the most is closed. */
void server_drop_heaviest(struct server *s)
{
    struct peer_conn *p, *heaviest = NULL;

    s->visitors_out = 0;
    for (int i = CLASS_UNIDENTIFIED; i <= CLASS_CTL; i++)
        TAILQ_FOREACH(p, &s->conns[i], entry) {
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
void server_limit_agents(struct server *s)
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

unsigned server_conns_allowed(const struct server_config *c)
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
