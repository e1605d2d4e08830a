/* SPDX-License-Identifier: MIT */
#pragma once

#include <cjson/cJSON.h>
#include <sys/queue.h>

#include "rendezvous/common/base/loop.h"
#include "rendezvous/show/web/web.h"
#include "rendezvous/show/web/web_conns.h"
#include "rendezvous/show/web/web_grants.h"
#include "rendezvous/show/web/web_head.h"
#include "rendezvous/show/web/web_objects.h"
#include "rendezvous/show/web/web_route.h"

/*
 * Shared by the files of the page: web.c (the whole), web_access.c (which requests are
 * answered, and as of whom), web_answers.c (what an answer is), web_pages.c (what is
 * answered), web_objects.c (the objects of the API), web_live.c (their streams),
 * web_rank.c (the output and the stacks of a rank).
 */
struct evbuffer;
struct evhttp;
struct evhttp_request;
struct rank_ask;

struct web {
    struct loop *loop;
    struct web_config config;
    struct evhttp *http;
    struct web_conns conns;
    struct web_names names;
    char own_name[256], url[160], cookie_name[32];
    char *given_host, *endpoint;
    char *given_names; /* cut at the commas */
    struct web_budget budget;
    struct evbuffer *page;
    struct web_grants grants;
    uint64_t wall_offset_ms, wall_ms; /* see web_look */

    LIST_HEAD(, web_object) objects;
    struct loop_timer live;

    LIST_HEAD(, rank_ask) asks;
    unsigned asks_count;
    uint64_t stacks_asked_ms;
};

/* A request that may be answered. */
struct web_request {
    struct evhttp_request *http;
    struct web_conn *conn;
    const char *target;
    struct web_route route;
    struct web_viewer viewer;
    bool sees_output; /* of the workers */
};

/* web_access.c: false: it is refused, and answered. */
bool web_access_check(struct web *w, struct web_request *r);
/* A page of another site has made the browser send it, maybe by a link that was
 * clicked. */
bool web_is_of_other_site(const struct web_request *r);
/* A request with a link of crunctl page: true: it is answered. */
bool web_access_follow_link(struct web *w, struct web_request *r);

/* A link ends with the key of the crunctl that it was printed for. */
bool web_viewer_counts(const struct web *w, const struct web_viewer *viewer);

/* web_answers.c */
#define WEB_TYPE_TEXT "text/plain; charset=utf-8"
#define WEB_TYPE_HTML "text/html; charset=utf-8"
#define WEB_TYPE_JSON "application/json; charset=utf-8"

/* The headers of each answer. */
void web_answer_begin(struct evhttp_request *http, const char *type);
/* One line; of the API, an object with it as "error". */
void web_answer_line(struct evhttp_request *http, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The text, which it takes over, and a newline. */
struct evbuffer *web_line(char *text);
/* The text is shared. */
void web_answer_buffer(struct evhttp_request *http, const char *type,
                       struct evbuffer *text);
void web_answer_redirect(struct evhttp_request *http, const char *to,
                         const char *cookie);

/* web_pages.c */
void web_pages_answer(struct web *w, struct web_request *r);
/* The job of that name that exists for the viewer; NULL: there is none. */
const struct job *web_find_job(const struct web *w, const struct web_viewer *viewer,
                               const char *run_id);
/* The next one from `job` on that exists for the viewer. */
const struct job *web_next_job(const struct job *job, const struct web_viewer *viewer);
/* The time of what is shown next, for registry_show_job and others. Both clocks go in
 * step: a time that is computed back from an age is the same each time. */
void web_look(struct web *w);

/* web_live.c: the stream of an object, of that job or of all. */
void web_live_begin(struct web *w, struct web_request *r, const struct job *job);
/* What has happened since the last turn is sent as far as it can be at once: the page
 * of a crun that ends shows how its job did. */
void web_live_finish(struct web *w);
void web_live_fini(struct web *w);
void on_live_tick(void *arg);

/* web_rank.c: the output and the stacks of a rank. */
void web_rank_begin(struct web *w, struct web_request *r, const struct job *job);
void web_rank_fini(struct web *w);
