/* SPDX-License-Identifier: MIT */
#include "rendezvous/server/replica_links.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/protocol/base64.h"

#define WAITING_MAX 16 /* messages to a replica that is being connected */
#define ASK_EVERY_MS 20

/* To one other replica. Nothing is sent before it has shown itself. */
struct replica_link {
    LIST_ENTRY(replica_link) entry;
    struct replica_links *all;
    uint64_t id;
    struct net_addr addr;
    struct conn *conn; /* NULL: none */
    bool ready;
    bool replaced, gone; /* the last try: its process is not there any more */
    uint64_t next_try_ms;
    uint64_t ask_until_ms;
    struct loop_timer ask;
    struct {
        void *data;
        size_t size;
    } waiting[WAITING_MAX];
    unsigned waiting_count;
};

struct replica_links {
    LIST_HEAD(, replica_link) list;
    struct server *server;
    uint32_t election_ms;
    void (*lost)(void *arg, uint64_t id, bool gone, const char *why);
    void *arg;
};

static struct replica_link *link_find(const struct replica_links *all, uint64_t id)
{
    struct replica_link *l;

    LIST_FOREACH(l, &all->list, entry)
        if (l->id == id)
            break;
    return l;
}

static void link_write(struct replica_link *l, const void *data, size_t size)
{
    struct msg m = { .type = MSG_REPLICATE };

    if (conn_waiting(l->conn) > CONTROL_OUT_MAX / 2)
        return;
    for (size_t at = 0, part; at < size; at += part) {
        part = size - at < LOGS_PIECE_MAX ? size - at : LOGS_PIECE_MAX;
        base64_encode((const char *)data + at, part, m.replicate.text);
        m.replicate.last = at + part == size;
        conn_send(l->conn, &m);
    }
    conn_flush(l->conn);
}

/* What has waited is sent, or (false) forgotten. */
static void link_end_wait(struct replica_link *l, bool send)
{
    for (unsigned i = 0; i < l->waiting_count; i++) {
        if (send)
            link_write(l, l->waiting[i].data, l->waiting[i].size);
        free(l->waiting[i].data);
    }
    l->waiting_count = 0;
}

static int link_on_message(void *arg, struct conn *c, const struct msg *m,
                           struct err *e)
{
    struct replica_link *l = arg;
    uid_t uid = 0;
    char why[256];

    /* another process has the port: the one of the list is gone */
    l->replaced = m->type == MSG_REFUSED && m->refused.why == REFUSED_FENCED;
    if (m->type != MSG_WELCOME)
        return err_set(e, "%s",
                       m->type == MSG_REFUSED ? m->refused.text : "not a replica");
    if (!l->all->server->config.keys &&
        !local_peer_may_serve(conn_local_peer(c, &uid), uid, geteuid(), why,
                              sizeof(why)))
        return err_set(e, "%s", why);
    l->ready = true;
    l->gone = false;
    link_end_wait(l, true);
    return 0;
}

/* The kernel there is asked at once whether the process is gone, for a while: its port
 * may be open until then. */
static void link_on_closed(void *arg, struct conn *c, const char *why)
{
    struct replica_link *l = arg;
    struct replica_links *all = l->all;
    uint64_t now = clock_ms();
    bool was_there = l->ready && now >= l->next_try_ms;

    log_debug("replica %016" PRIx64 ": %s", l->id, *why ? why : "closed");
    l->gone = l->replaced || strcmp(why, strerror(ECONNREFUSED)) == 0;
    l->replaced = false;
    l->next_try_ms = l->ready ? 0 : now + all->election_ms / 4;
    if (was_there)
        l->ask_until_ms = now + all->election_ms;
    if (!l->gone && now < l->ask_until_ms)
        loop_timer_arm(&l->ask, was_there ? now : now + ASK_EVERY_MS);
    l->conn = NULL;
    l->ready = false;
    link_end_wait(l, false);
    all->lost(all->arg, l->id, l->gone, why);
}

static void link_on_connected(void *arg, struct conn *c)
{
    struct replica_link *l = arg;

    server_greet(l->all->server, c, PEER_REPLICA);
}

static void link_connect(void *arg)
{
    struct replica_link *l = arg;
    struct conn_calls calls = { .message = link_on_message,
                                .body_max = server_on_body_max,
                                .closed = link_on_closed,
                                .arg = l };

    if (l->conn)
        return;
    l->next_try_ms = clock_ms() + l->all->election_ms / 4;
    l->conn = server_dial(l->all->server, &l->addr, link_on_connected, &calls);
}

void replica_links_watch(struct replica_links *all, uint64_t id,
                         const struct net_addr *addr)
{
    struct replica_link *l = link_find(all, id);

    if (!l) {
        l = xcalloc(1, sizeof(*l));
        *l = (struct replica_link){ .all = all, .id = id, .addr = *addr };
        loop_timer_init(&l->ask, all->server->loop, link_connect, l);
        LIST_INSERT_HEAD(&all->list, l, entry);
    }
    if (clock_ms() >= l->next_try_ms)
        link_connect(l);
}

void replica_links_send(struct replica_links *all, uint64_t to,
                        const struct net_addr *addr, const void *data, size_t size)
{
    struct replica_link *l;

    replica_links_watch(all, to, addr);
    l = link_find(all, to);
    if (l->ready) {
        link_write(l, data, size);
    } else if (l->conn && l->waiting_count < WAITING_MAX) {
        l->waiting[l->waiting_count].data = xmemdup(data, size);
        l->waiting[l->waiting_count++].size = size;
    }
}

bool replica_links_is_gone(const struct replica_links *all, uint64_t id)
{
    const struct replica_link *l = link_find(all, id);

    return l && l->gone;
}

struct replica_links *replica_links_create(struct server *s, uint32_t election_ms,
                                           void (*lost)(void *arg, uint64_t id,
                                                        bool gone, const char *why),
                                           void *arg)
{
    struct replica_links *all = xcalloc(1, sizeof(*all));

    *all = (struct replica_links){
        .server = s, .election_ms = election_ms, .lost = lost, .arg = arg
    };
    return all;
}

void replica_links_destroy(struct replica_links *all)
{
    struct replica_link *l;

    while ((l = all ? LIST_FIRST(&all->list) : NULL)) {
        LIST_REMOVE(l, entry);
        link_end_wait(l, false);
        conn_destroy(l->conn);
        loop_timer_fini(&l->ask);
        free(l);
    }
    free(all);
}
