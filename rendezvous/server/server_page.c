/* SPDX-License-Identifier: MIT */
#include "rendezvous/server/server_internal.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/show/web/web.h"

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

static bool server_on_stands_by(void *arg, const char **leader)
{
    return server_stands_by(arg, leader);
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
                                 .stands_by = server_on_stands_by,
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
int server_on_page(void *arg, void *conn, const struct job_owner *owner,
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
