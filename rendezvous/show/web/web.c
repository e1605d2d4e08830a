/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/web/web.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/show/web/web_internal.h"

/* -- requests --------------------------------------------------------------------- */

/* What evhttp takes and no client of ours sends: see web_head.h. A body would be a
 * second request to others that read the connection. */
static const char *find_request_fault(const struct web_request *r)
{
    struct evkeyvalq *headers = evhttp_request_get_input_headers(r->http);

    if (r->conn->head.fault)
        return r->conn->head.fault;
    if (!r->target || *r->target != '/')
        return "its target is no path";
    if (evhttp_find_header(headers, "Content-Length") ||
        evhttp_find_header(headers, "Transfer-Encoding"))
        return "it has a body";
    return NULL;
}

static void on_request(struct evhttp_request *http, void *arg)
{
    struct web *w = arg;
    struct web_request r = { .http = http,
                             .conn = web_conn_of(&w->conns, http),
                             .target = evhttp_request_get_uri(http) };
    enum evhttp_cmd_type method = evhttp_request_get_command(http);
    const char *fault;

    if (!r.conn) {
        evhttp_send_error(http, HTTP_INTERNAL, NULL);
        return;
    }
    fault = find_request_fault(&r);
    if (!fault)
        web_conn_set_deadline(r.conn, clock_ms() + WEB_ANSWER_MS);
    if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) {
        /* evhttp keeps the connection of a CONNECT */
        web_conn_set_deadline(r.conn, clock_ms() + WEB_REFUSED_MS);
        evhttp_add_header(evhttp_request_get_output_headers(http), "Allow",
                          "GET, HEAD");
        web_answer_line(http, HTTP_BADMETHOD, "this server only shows: GET and HEAD");
    } else if (fault) {
        web_answer_line(http, HTTP_BADREQUEST, "the request is refused: %s", fault);
    } else {
        r.route = web_route_parse(r.target);
        if (!web_access_follow_link(w, &r) && web_access_check(w, &r))
            web_pages_answer(w, &r);
    }
}

/* -- the address ------------------------------------------------------------------ */

int web_parse_listen(const char *text, struct net_addr *addr, char *host, size_t size,
                     struct err *e)
{
    struct net_addr list[16];
    uint16_t port;
    size_t count;

    if (net_is_port(text)) {
        char with_colon[16];

        snprintf(with_colon, sizeof(with_colon), ":%s", text);
        return web_parse_listen(with_colon, addr, host, size, e);
    }
    if (net_split(text, -1, host, size, &port, e) < 0 ||
        net_resolve(*host ? host : "127.0.0.1", port, list, 16, &count, e) < 0)
        return err_wrap(e, "--http");
    *addr = list[0];
    return 0;
}

static bool is_any_address(const struct net_addr *addr)
{
    char host[NET_TEXT_SIZE];

    net_format_host(addr, host, sizeof(host));
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

/* The host as it was given, for it may be a name; else the address. */
static void format_url(struct web *w, const struct net_addr *own)
{
    char text[NET_TEXT_SIZE];
    const char *given = w->config.host;

    if (is_any_address(own))
        given = w->own_name;
    if (*given && !strchr(given, ':'))
        snprintf(w->url, sizeof(w->url), "http://%.120s:%u/", given, net_port(own));
    else
        snprintf(w->url, sizeof(w->url), "http://%s/",
                 net_format(own, text, sizeof(text)));
    /* cookies are those of a host: other servers of it have other ports */
    snprintf(w->cookie_name, sizeof(w->cookie_name), "crun_%u", net_port(own));
}

static void web_add_name(struct web *w, const char *name)
{
    if (*name && w->names.count < WEB_NAMES_MAX)
        w->names.name[w->names.count++] = name;
}

/* The names that the Host of a request may have. */
static void web_add_names(struct web *w)
{
    char *rest, *name;

    if (gethostname(w->own_name, sizeof(w->own_name)) < 0)
        w->own_name[0] = '\0';
    w->own_name[sizeof(w->own_name) - 1] = '\0';
    web_add_name(w, w->own_name);
    w->given_host = xstrdup(w->config.host);
    w->config.host = w->given_host;
    web_add_name(w, w->given_host);
    w->given_names = xstrdup(w->config.names ? w->config.names : "");
    rest = w->given_names;
    while ((name = strsep(&rest, ",")))
        web_add_name(w, name);
}

/* -- the whole -------------------------------------------------------------------- */

static void web_set_limits(struct web *w)
{
    evhttp_set_gencb(w->http, on_request, w);
    evhttp_set_max_headers_size(w->http, WEB_HEAD_MAX);
    evhttp_set_max_body_size(w->http, 0);
    evhttp_set_timeout(w->http, WEB_ANSWER_MS / 1000);
    /* others are answered by on_request */
    evhttp_set_allowed_methods(
        w->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
                     EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH |
                     EVHTTP_REQ_TRACE | EVHTTP_REQ_CONNECT);
}

struct web *web_create(struct loop *loop, const struct web_config *config,
                       const struct net_addr *listen, struct err *e)
{
    struct web *w = xcalloc(1, sizeof(*w));
    struct net_addr own;
    int fd = net_listen(listen, WEB_BACKLOG, e);

    if (fd < 0) {
        free(w);
        return NULL;
    }
    w->loop = loop;
    w->config = *config;
    w->endpoint = xstrdup(config->endpoint);
    w->config.endpoint = w->endpoint;
    LIST_INIT(&w->objects);
    LIST_INIT(&w->asks);
    w->budget = (struct web_budget){ WEB_RENDER_BURST_US, clock_ms() };
    loop_timer_init(&w->live, loop, on_live_tick, w);
    web_add_names(w);
    if (net_local_addr(fd, &own) == 0)
        format_url(w, &own);
    w->http = evhttp_new(loop_base(loop));
    if (!w->http)
        abort();
    web_set_limits(w);
    if (web_conns_init(&w->conns, loop, w->http, fd, e) < 0) {
        web_destroy(w);
        return NULL;
    }
    return w;
}

void web_destroy(struct web *w)
{
    if (!w)
        return;
    web_live_finish(w);
    web_live_fini(w);
    web_rank_fini(w);
    web_conns_close(&w->conns);
    evhttp_free(w->http);
    web_conns_fini(&w->conns);
    loop_timer_fini(&w->live);
    web_objects_fini(w);
    if (w->page)
        evbuffer_free(w->page);
    free(w->given_names);
    free(w->given_host);
    free(w->endpoint);
    free(w);
}

const char *web_url(const struct web *w)
{
    return w->url;
}

char *web_link(struct web *w, const struct web_viewer *viewer, const char *run_id,
               char *buf, size_t size)
{
    struct id128 secret = web_grants_add(&w->grants, viewer, clock_ms());
    char hex[ID128_HEX_SIZE], path[3 * RUN_ID_MAX + 16] = "";
    size_t used = 0;

    if (*run_id && w->config.standalone)
        used = (size_t)snprintf(path, sizeof(path), "jobs/");
    /* a percent sign is all that a name has and a path cannot */
    for (; used > 0 && *run_id; run_id++)
        used += (size_t)snprintf(path + used, sizeof(path) - used, "%c%s", *run_id,
                                 *run_id == '%' ? "25" : "");
    snprintf(buf, size, "%s%s?token=%s", w->url, path, id128_format(&secret, hex));
    return buf;
}
