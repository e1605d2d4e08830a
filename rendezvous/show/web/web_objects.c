/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/web/web_objects.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/event_object.h"
#include "rendezvous/job/events/json_fields.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/show/views/job_json.h"
#include "rendezvous/show/views/json_patch.h"
#include "rendezvous/show/views/metrics.h"
#include "rendezvous/show/web/page.h"
#include "rendezvous/show/web/web_internal.h"

/* -- jobs ------------------------------------------------------------------------- */

static struct job_view *add_job_view(struct web *w, struct job_views *views,
                                     const struct msg_job_status *status)
{
    struct job_view *view = job_views_add(views, status);

    view->wall_ms = w->wall_ms;
    return view;
}

static void add_node_views(struct web *w, struct job_views *views,
                           const struct job *job, enum access sight)
{
    const struct membership *m = &job->membership;
    struct msg msg;

    MEMBERSHIP_EACH(i, m) {
        registry_show_node(w->config.registry, job, i, sight, &msg);
        /* what changes with each look alone would be most of a patch */
        msg.node_status.heard_ms -= msg.node_status.heard_ms % 1000;
        job_views_add_node(views, &msg.node_status);
    }
}

static cJSON *job_object(struct web *w, const struct web_object *o)
{
    struct job_views views = { .count = 0 };
    const struct job *job = web_object_job(w, o);
    enum access sight = o->viewer.sight;
    cJSON *history, *object;
    struct msg m;
    struct err e;

    if (job) {
        registry_show_job(w->config.registry, job, sight, &m);
        history = registry_show_history(w->config.registry, job, sight);
    } else {
        history = registry_show_past_job(w->config.registry, o->run_id,
                                         &o->viewer.owner, sight, &m, &e);
        if (!history)
            return NULL;
    }
    add_job_view(w, &views, &m.job_status)->history = history;
    if (job)
        add_node_views(w, &views, job, sight);
    object = job_json_object(&views.job[0]);
    job_views_clear(&views);
    return object;
}

/* NULL: no node runs it. */
static cJSON *rank_object(struct web *w, const struct web_object *o)
{
    cJSON *job = job_object(w, o), *object = NULL, *node;

    cJSON_ArrayForEach(node, cJSON_GetObjectItemCaseSensitive(job, "nodes"))
    {
        const cJSON *first = cJSON_GetObjectItemCaseSensitive(node, "first_rank");

        if (!cJSON_IsNumber(first) || o->rank < json_count(node, "first_rank") ||
            o->rank - json_count(node, "first_rank") >= json_count(node, "workers"))
            continue;
        object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "job", o->run_id);
        json_add_count(object, "rank", o->rank);
        json_add_count(object, "local_rank", o->rank - json_count(node, "first_rank"));
        cJSON_AddItemToObject(object, "node", cJSON_Duplicate(node, true));
    }
    cJSON_Delete(job);
    return object;
}

/* As job_view_step and job_view_steps have them of the nodes, which a list leaves out.
 */
static void add_steps(struct job_view *view, const struct job *job)
{
    const struct membership *m = &job->membership;

    MEMBERSHIP_EACH(i, m) {
        const struct msg_heartbeat *told = &job->node[i]->progress;

        if (m->node[i].group_rank != MEMBERSHIP_NONE && told->step > 0 &&
            (!view->step || told->step < view->step))
            view->step = told->step;
        if (told->steps > view->steps)
            view->steps = told->steps;
    }
}

/* Those that have not ended come first. */
static cJSON *list_object(struct web *w, const struct web_object *o)
{
    const struct web_viewer *viewer = &o->viewer;
    struct job_views views = { .count = 0 };
    const struct job *job = web_next_job(registry_jobs(w->config.registry), viewer);
    cJSON *object = cJSON_CreateObject(), *list, *item;
    unsigned at = 0;
    struct msg m;

    for (; job; job = web_next_job(job->next, viewer)) {
        registry_show_job(w->config.registry, job, viewer->sight, &m);
        add_steps(add_job_view(w, &views, &m.job_status), job);
    }
    for (unsigned i = 0; i < WEB_PAST_JOBS_MAX &&
                         registry_next_past_job(w->config.registry, &at, &viewer->owner,
                                                viewer->sight, &m);
         i++)
        add_job_view(w, &views, &m.job_status);
    job_views_sort(&views);
    list = job_json_list(&views);
    cJSON_ArrayForEach(item, list)
    {
        cJSON_DeleteItemFromObjectCaseSensitive(item, "nodes");
        cJSON_DeleteItemFromObjectCaseSensitive(item, "history");
    }
    job_views_clear(&views);
    cJSON_AddItemToObject(object, "jobs", list);
    return object;
}

static cJSON *events_object(struct web *w, const struct web_object *o)
{
    cJSON *array = cJSON_CreateArray();
    struct msg_event event = { .number = 0 };

    while (registry_show_event(w->config.registry, event.number, o->run_id,
                               &o->viewer.owner, o->viewer.sight, &event))
        cJSON_AddItemToArray(array, event_object(&event));
    return array;
}

/* -- what it costs ---------------------------------------------------------------- */

bool web_budget_allows(struct web_budget *b, uint64_t now_ms)
{
    b->us += (int64_t)(now_ms - b->at_ms) * 10 * WEB_RENDER_PERCENT;
    b->at_ms = now_ms;
    if (b->us > WEB_RENDER_BURST_US)
        b->us = WEB_RENDER_BURST_US;
    return b->us > 0;
}

void web_budget_spend(struct web_budget *b, uint64_t us)
{
    b->us -= (int64_t)us;
}

/* -- objects ---------------------------------------------------------------------- */

static bool is_object_for(const struct web_object *o, const struct web_object *wanted)
{
    const struct job_owner *owner = &o->viewer.owner;

    return o->page == wanted->page && o->rank == wanted->rank &&
           strcmp(o->run_id, wanted->run_id) == 0 &&
           id128_equal(&o->instance, &wanted->instance) &&
           o->viewer.sight == wanted->viewer.sight &&
           owner->uid == wanted->viewer.owner.uid &&
           strcmp(owner->key_file, wanted->viewer.owner.key_file) == 0;
}

static void web_object_clear(struct web_object *o)
{
    cJSON_Delete(o->json);
    o->json = NULL;
    if (o->whole)
        evbuffer_free(o->whole);
    if (o->patch)
        evbuffer_free(o->patch);
    o->whole = o->patch = NULL;
}

void web_object_forget(struct web_object *o)
{
    web_object_clear(o);
    o->rendered_ms = 0;
}

static void web_object_free(struct web_object *o)
{
    web_object_clear(o);
    LIST_REMOVE(o, entry);
    free(o);
}

struct web_object *web_object_open(struct web *w, const struct web_request *r,
                                   enum web_page page, const struct job *job)
{
    struct web_object *o,
        *oldest = NULL,
        wanted = { .page = page, .viewer = r->viewer, .rank = r->route.rank };
    unsigned unread = 0;

    memcpy(wanted.run_id, r->route.run_id, sizeof(wanted.run_id));
    if (job)
        wanted.instance = job->membership.instance;
    LIST_FOREACH(o, &w->objects, entry) {
        if (is_object_for(o, &wanted))
            return o;
        if (LIST_EMPTY(&o->readers)) {
            unread++;
            oldest = o;
        }
    }
    if (unread >= WEB_SHARED_MAX)
        web_object_free(oldest);
    o = xmalloc(sizeof(*o));
    *o = wanted;
    LIST_INIT(&o->readers);
    LIST_INSERT_HEAD(&w->objects, o, entry);
    return o;
}

void web_objects_fini(struct web *w)
{
    while (!LIST_EMPTY(&w->objects))
        web_object_free(LIST_FIRST(&w->objects));
}

const struct job *web_object_job(const struct web *w, const struct web_object *o)
{
    const struct job *job = registry_jobs(w->config.registry);

    while (job && !id128_equal(&job->membership.instance, &o->instance))
        job = job->next;
    return job;
}

/* -- renderings ------------------------------------------------------------------- */

static void render_text(struct web *w, struct web_object *o)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        abort();
    if (o->page == WEB_METRICS) {
        struct metrics_view view;

        w->config.view_metrics(w->config.arg, &view);
        view.viewer = &o->viewer.owner;
        metrics_write(&view, out);
    } else {
        cJSON *job = job_object(w, o);

        if (job)
            page_write_report(out, job, w->wall_ms);
        cJSON_Delete(job);
    }
    fclose(out);
    web_object_clear(o);
    if (size > 0) {
        o->whole = evbuffer_new();
        evbuffer_add(o->whole, text, size);
    }
    free(text);
}

static cJSON *make_object(struct web *w, const struct web_object *o)
{
    switch (o->page) {
    case WEB_API_JOBS:
        return list_object(w, o);
    case WEB_API_RANK:
        return rank_object(w, o);
    case WEB_API_EVENTS:
        return events_object(w, o);
    default:
        return job_object(w, o);
    }
}

static void render_object(struct web *w, struct web_object *o)
{
    cJSON *json = make_object(w, o);
    char *patch = o->json && json ? json_patch(o->json, json) : NULL;

    if (o->json && json && !patch) {
        cJSON_Delete(json);
        return;
    }
    web_object_clear(o);
    o->json = json;
    o->version++;
    if (patch)
        o->patch = web_line(patch);
}

void web_object_render(struct web *w, struct web_object *o)
{
    uint64_t began = clock_thread_us();

    web_look(w);
    o->rendered_ms = clock_ms();
    if (o->page == WEB_METRICS || o->page == WEB_REPORT)
        render_text(w, o);
    else
        render_object(w, o);
    web_budget_spend(&w->budget, clock_thread_us() - began);
}

bool web_object_is_final(const struct web *w, const struct web_object *o, bool at_once)
{
    if (!*o->run_id)
        return false;
    return !web_object_job(w, o) || !o->json ||
           (strcmp(json_text(o->json, "state"), proto_state_name(JOB_DONE)) == 0 &&
            (at_once || json_count(o->json, "state_ms") >= WEB_END_MS));
}

struct evbuffer *web_object_whole(struct web_object *o)
{
    char *text = o->whole ? NULL : cJSON_PrintUnformatted(o->json);

    if (text)
        o->whole = web_line(text_printable_json(text));
    return o->whole;
}

static const char *type_of_object(const struct web_object *o)
{
    if (o->page == WEB_METRICS)
        return METRICS_CONTENT_TYPE;
    return o->page == WEB_REPORT ? WEB_TYPE_HTML : WEB_TYPE_JSON;
}

void web_object_answer(struct web *w, struct web_request *r, const struct job *job)
{
    struct web_object *o = web_object_open(w, r, r->route.page, job);
    uint64_t now = clock_ms();
    bool is_fresh = o->rendered_ms && now - o->rendered_ms < WEB_SHARED_MS;

    if (!is_fresh && (LIST_EMPTY(&o->readers) || !o->json)) {
        if (!web_budget_allows(&w->budget, now)) {
            evhttp_add_header(evhttp_request_get_output_headers(r->http), "Retry-After",
                              "1");
            web_answer_line(r->http, HTTP_SERVUNAVAIL, "too many pages are asked for");
            return;
        }
        web_object_render(w, o);
    }
    if (web_object_whole(o))
        web_answer_buffer(r->http, type_of_object(o), o->whole);
    else if (o->page == WEB_API_RANK)
        web_answer_line(r->http, HTTP_NOTFOUND, "no node runs a rank %u now", o->rank);
    else
        web_answer_line(r->http, HTTP_NOTFOUND, "this job is not kept any more");
    if (LIST_EMPTY(&o->readers)) {
        cJSON_Delete(o->json);
        o->json = NULL;
    }
}
