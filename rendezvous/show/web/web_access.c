/* SPDX-License-Identifier: MIT */
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/show/web/web_internal.h"
#include "rendezvous/wire/net/local_peer.h"
#include "rendezvous/wire/net/socket_owner.h"

static const char *request_header(const struct web_request *r, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(r->http), name);
}

static unsigned count_headers(const struct web_request *r, const char *name)
{
    const struct evkeyval *header;
    unsigned count = 0;

    TAILQ_FOREACH(header, evhttp_request_get_input_headers(r->http), next)
        count += strcasecmp(header->key, name) == 0;
    return count;
}

/* -- the sender of a request ------------------------------------------------------ */

bool web_is_of_other_site(const struct web_request *r)
{
    const char *site = request_header(r, "Sec-Fetch-Site");

    return site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0;
}

static bool is_hidden_request(const struct web_request *r)
{
    const char *mode = request_header(r, "Sec-Fetch-Mode");

    return web_is_of_other_site(r) && (!mode || strcmp(mode, "navigate") != 0);
}

static bool sender_is_trusted(struct web *w, const struct web_request *r)
{
    const char *host = request_header(r, "Host");
    const char *origin = request_header(r, "Origin");
    struct net_addr own;

    if (net_local_addr(web_conn_fd(r->conn), &own) < 0)
        return false;
    if (!host || count_headers(r, "Host") != 1) {
        web_answer_line(r->http, HTTP_BADREQUEST, "a request has one header Host");
        return false;
    }
    if (!web_host_is_ours(host, &w->names, &own)) {
        web_answer_line(r->http, 421,
                        "this server does not know the name in Host: --http-name adds "
                        "names");
        return false;
    }
    if ((origin && !web_origin_is_host(origin, host)) || is_hidden_request(r)) {
        web_answer_line(r->http, 403, "a page of another site may not ask");
        return false;
    }
    return true;
}

/* -- the viewer ------------------------------------------------------------------- */

bool web_viewer_counts(const struct web *w, const struct web_viewer *viewer)
{
    return !*viewer->identity || w->config.accepts_key(w->config.arg, viewer->identity);
}

static const struct web_grant *find_grant(const struct web *w,
                                          const struct web_request *r)
{
    const char *cookies = request_header(r, "Cookie");
    const struct web_grant *grant;
    char hex[ID128_HEX_SIZE];

    if (!cookies || !web_cookie_get(cookies, w->cookie_name, hex, sizeof(hex)))
        return NULL;
    grant = web_grants_find_cookie(&w->grants, hex, clock_ms());
    if (!grant || !web_viewer_counts(w, &grant->viewer) ||
        (grant->uid != r->conn->uid && r->conn->uid != 0))
        return NULL;
    return grant;
}

/* By a proxy: who looks is not its user. */
static bool is_passed_on(const struct web_request *r)
{
    static const char *const added[] = { "Via", "Forwarded", "X-Forwarded-For",
                                         "X-Forwarded-Host", "X-Real-IP" };

    for (size_t i = 0; i < sizeof(added) / sizeof(added[0]); i++)
        if (request_header(r, added[i]))
            return true;
    return false;
}

/* As server_admit does it with crunctl, and registry_sight. */
static bool admit_without_key(const struct web *w, struct web_request *r)
{
    enum local_peer kind;
    uid_t uid = PEER_UID_UNKNOWN;
    char why[256];
    bool is_own;

    kind = local_peer_find(web_conn_fd(r->conn), &uid);
    is_own = kind == LOCAL_PEER_USER && socket_owner_may(uid) && !is_passed_on(r);
    r->viewer.owner = (struct job_owner){ .uid = uid };
    /* a user that the system does not tell may be any other */
    r->viewer.sight = kind == LOCAL_PEER_USER && !is_passed_on(r) ? ACCESS_AGENT
                                                                  : ACCESS_OPERATE;
    if (is_own)
        return true;
    if (w->config.needs_key) {
        web_answer_line(r->http, 403,
                        "this rendezvous asks for a key: crunctl page prints a link");
        return false;
    }
    if (local_peer_may_join(kind, uid, w->config.standalone, why, sizeof(why)))
        return true;
    web_answer_line(r->http, 403, "%s", why);
    return false;
}

bool web_access_check(struct web *w, struct web_request *r)
{
    const struct web_grant *grant;

    if (!sender_is_trusted(w, r))
        return false;
    if (r->route.page == WEB_HEALTH || r->route.page == WEB_READY)
        return true; /* for probes, which have no user and no key */
    grant = find_grant(w, r);
    r->conn->has_grant = grant != NULL;
    if (grant)
        r->viewer = grant->viewer;
    else if (!admit_without_key(w, r))
        return false;
    /* An anonymous crunctl may ask for less than its access allows. */
    r->sees_output = r->viewer.sight >= (grant ? ACCESS_OPERATE : ACCESS_AGENT);
    return true;
}

/* -- links ------------------------------------------------------------------------ */

/* The secret leaves the address of the page, which people copy. */
bool web_access_follow_link(struct web *w, struct web_request *r)
{
    char secret[ID128_HEX_SIZE + 1], id[ID128_HEX_SIZE], cookie[192];
    char path[WEB_TARGET_MAX + 1];
    struct web_grant *grant;

    if (!web_query_get(r->target, "token", secret, sizeof(secret)))
        return false;
    if (!sender_is_trusted(w, r))
        return true;
    grant = web_grants_find_link(&w->grants, secret, clock_ms());
    if (!grant || !web_viewer_counts(w, &grant->viewer) ||
        (grant->is_followed && find_grant(w, r) != grant)) {
        web_answer_line(r->http, 403,
                        "this link counts no more: crunctl page prints a new one");
        return true;
    }
    grant->is_followed = true;
    grant->uid = r->conn->uid;
    /* a link that is followed from a chat has its cookie at once; requests that a page
     * of another site hides have none */
    snprintf(cookie, sizeof(cookie),
             "%s=%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Lax", w->cookie_name,
             id128_format(&grant->cookie, id), WEB_GRANT_MS / 1000);
    snprintf(path, sizeof(path), "%.*s", (int)strcspn(r->target, "?"), r->target);
    web_answer_redirect(r->http, r->route.page == WEB_NOTHING ? "/" : path, cookie);
    return true;
}
