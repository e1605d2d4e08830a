/* SPDX-License-Identifier: MIT */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "rendezvous/show/views/metrics.h"
#include "rendezvous/show/web/web_grants.h"
#include "rendezvous/show/web/web_route.h"

/*
 * What the API gives. An object is rendered for all viewers of the same rights at once,
 * at most once a second, and is of one job: another job of the same run id is another
 * object.
 */
struct evbuffer;
struct job;
struct live_reader;
struct web;
struct web_request;

/* What rendering may cost: see limits.h. */
struct web_budget {
    int64_t us;
    uint64_t at_ms;
};

/* Whether something may be rendered now. */
bool web_budget_allows(struct web_budget *b, uint64_t now_ms);
void web_budget_spend(struct web_budget *b, uint64_t us);

struct web_object {
    LIST_ENTRY(web_object) entry;
    enum web_page page;
    struct web_viewer viewer;    /* one of them */
    char run_id[RUN_ID_MAX + 1]; /* "": of all jobs */
    struct id128 instance;       /* zero: of no job in the registry */
    uint32_t rank;
    uint64_t rendered_ms; /* 0: it was not rendered yet */
    uint64_t version;     /* changes with the content */
    cJSON *json;          /* of this version, as long as somebody reads it live */
    struct evbuffer *whole, *patch; /* NULL: not made; the patch is from version - 1 */
    LIST_HEAD(, live_reader) readers;
};

/* The object that is asked for; job NULL: of all jobs, or of one that is over and kept.
 */
struct web_object *web_object_open(struct web *w, const struct web_request *r,
                                   enum web_page page, const struct job *job);
void web_object_render(struct web *w, struct web_object *o);
/* In one line; NULL: there is none. */
struct evbuffer *web_object_whole(struct web_object *o);
/* It does not change any more, or not at once after the end of its job. */
bool web_object_is_final(const struct web *w, const struct web_object *o, bool at_once);
/* Nobody reads it any more. */
void web_object_forget(struct web_object *o);
/* The job of the object, NULL: it is not in the registry any more. */
const struct job *web_object_job(const struct web *w, const struct web_object *o);
void web_object_answer(struct web *w, struct web_request *r, const struct job *job);
void web_objects_fini(struct web *w);
