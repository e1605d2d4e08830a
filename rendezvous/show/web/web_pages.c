/* SPDX-License-Identifier: MIT */
#include <event2/buffer.h>
#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/version.h"
#include "rendezvous/show/page/page.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/show/views/job_json.h"
#include "rendezvous/show/views/job_view.h"
#include "rendezvous/show/web/web_internal.h"

/* -- jobs ------------------------------------------------------------------------- */

const struct job *web_next_job(const struct job *job, const struct web_viewer *viewer)
{
    while (job && !job_owner_admits(&job->owner, &viewer->owner))
        job = job->next;
    return job;
}

const struct job *web_find_job(const struct web *w, const struct web_viewer *viewer,
                               const char *run_id)
{
    const struct job *job = web_next_job(registry_jobs(w->config.registry), viewer);

    while (job && strcmp(job->run_id, run_id) != 0)
        job = web_next_job(job->next, viewer);
    return job;
}

void web_look(struct web *w)
{
    uint64_t now = clock_ms(), offset = clock_wall_ms() - now;
    int64_t moved = (int64_t)(offset - w->wall_offset_ms);

    if (moved > WEB_CLOCK_STEP_MS || moved < -WEB_CLOCK_STEP_MS)
        w->wall_offset_ms = offset;
    w->wall_ms = now + w->wall_offset_ms;
    registry_set_time(w->config.registry, now, w->wall_ms);
}

static void add_job_view(struct web *w, struct job_views *views, const struct job *job,
                         enum access sight, bool with_nodes)
{
    struct job_view *view;
    struct msg m;

    registry_show_job(w->config.registry, job, sight, &m);
    view = job_views_add(views, &m.job_status);
    view->wall_ms = w->wall_ms;
    if (!with_nodes) {
        view->step = registry_slowest_step(job);
        return;
    }
    MEMBERSHIP_EACH(i, &job->membership) {
        registry_show_node(w->config.registry, job, i, sight, &m);
        job_views_add_node(views, &m.node_status);
    }
}

cJSON *web_job_object(struct web *w, const struct job *job, enum access sight,
                      bool with_nodes)
{
    struct job_views views = { .count = 0 };
    cJSON *object;

    web_look(w);
    add_job_view(w, &views, job, sight, with_nodes);
    views.job[0].history = registry_show_history(w->config.registry, job, sight);
    object = job_json_object(&views.job[0]);
    job_views_clear(&views);
    return object;
}

/* One that is over and is not in the registry any more. NULL: there is none. */
static cJSON *past_job_object(struct web *w, const struct web_request *r)
{
    struct job_views views = { .count = 0 };
    struct job_view *view;
    cJSON *history, *object;
    struct msg m;
    struct err e;

    web_look(w);
    history = registry_show_past_job(w->config.registry, r->route.run_id,
                                     &r->viewer.owner, r->viewer.sight, &m, &e);
    if (!history)
        return NULL;
    view = job_views_add(&views, &m.job_status);
    view->wall_ms = w->wall_ms;
    view->history = history;
    object = job_json_object(view);
    job_views_clear(&views);
    return object;
}

static void add_past_jobs(struct web *w, struct job_views *views,
                          const struct web_viewer *viewer)
{
    unsigned at = 0;
    struct msg m;

    for (unsigned i = 0; i < WEB_PAST_JOBS_MAX &&
                         registry_next_past_job(w->config.registry, &at, &viewer->owner,
                                                viewer->sight, &m);
         i++)
        job_views_add(views, &m.job_status)->wall_ms = w->wall_ms;
}

/* Those that have not ended come first. */
static cJSON *job_list(struct web *w, const struct web_viewer *viewer, bool with_nodes)
{
    struct job_views views = { .count = 0 };
    const struct job *job = web_next_job(registry_jobs(w->config.registry), viewer);
    cJSON *list;

    web_look(w);
    for (; job; job = web_next_job(job->next, viewer))
        add_job_view(w, &views, job, viewer->sight, with_nodes);
    if (!with_nodes)
        add_past_jobs(w, &views, viewer);
    job_views_sort(&views);
    list = job_json_list(&views);
    job_views_clear(&views);
    return list;
}

/* -- documents -------------------------------------------------------------------- */

static bool has_several_jobs(const struct web *w, const struct web_viewer *viewer)
{
    const struct job *job = web_next_job(registry_jobs(w->config.registry), viewer);

    return w->config.standalone || (job && web_next_job(job->next, viewer));
}

static struct page_reader reader_of(struct web *w, const struct web_request *r)
{
    return (struct page_reader){ .now_ms = w->wall_ms,
                                 .server = *w->config.endpoint ? w->config.endpoint
                                                               : NULL,
                                 .sees_output = r->sees_output,
                                 .has_list = has_several_jobs(w, &r->viewer) };
}

static void write_jobs(struct web *w, const struct web_request *r, FILE *out)
{
    cJSON *list = job_list(w, &r->viewer, false);
    struct page_reader reader = reader_of(w, r);

    page_write_list(out, list, &reader);
    cJSON_Delete(list);
}

static void write_job(struct web *w, const struct web_request *r, const struct job *job,
                      FILE *out)
{
    cJSON *object = web_job_object(w, job, r->viewer.sight, true);
    struct page_reader reader = reader_of(w, r);

    if (r->route.page == WEB_REPORT)
        page_write_report(out, object, &reader);
    else
        page_write_job(out, object, &reader);
    cJSON_Delete(object);
}

/* Nothing of it changes: its page is its report. */
static void write_past_job(struct web *w, const struct web_request *r, FILE *out)
{
    cJSON *object = past_job_object(w, r);
    struct page_reader reader = reader_of(w, r);

    if (object)
        page_write_report(out, object, &reader);
    else
        page_write_error(out, HTTP_NOTFOUND, "this job is not kept any more", &reader);
    cJSON_Delete(object);
}

static void write_document(struct web *w, const struct web_request *r,
                           const struct job *job, FILE *out)
{
    if (job)
        write_job(w, r, job, out);
    else if (*r->route.run_id)
        write_past_job(w, r, out);
    else
        write_jobs(w, r, out);
}

/* Viewers with the same key are shown the same. */
static void format_key(const struct web_request *r, const struct job *job, char *key,
                       size_t size)
{
    char instance[sizeof(r->route.run_id)];

    if (job)
        id128_format(&job->membership.instance, instance);
    else
        snprintf(instance, sizeof(instance), "%s", r->route.run_id);
    snprintf(key, size, "%d %s %d %d %s %u", r->route.page, instance, r->viewer.sight,
             r->sees_output, r->viewer.owner.key_file, (unsigned)r->viewer.owner.uid);
}

static struct web_document *render_document(struct web *w, const struct web_request *r,
                                            const struct job *job, const char *key)
{
    uint64_t began = clock_thread_us();
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        abort();
    write_document(w, r, job, out);
    fclose(out);
    web_budget_spend(&w->documents, clock_thread_us() - began);
    return web_documents_add(&w->documents, key, text, size, clock_ms());
}

static void answer_document(struct web *w, const struct web_request *r,
                            const struct job *job)
{
    uint64_t now = clock_ms();
    struct web_document *d;
    char key[512];

    format_key(r, job, key, sizeof(key));
    d = web_documents_find(&w->documents, key, now);
    if (!d && !web_budget_allows(&w->documents, now)) {
        evhttp_add_header(evhttp_request_get_output_headers(r->http), "Retry-After",
                          "1");
        web_answer_line(r->http, HTTP_SERVUNAVAIL, "too many pages are asked for");
        return;
    }
    if (!d)
        d = render_document(w, r, job, key);
    web_answer_document(r->http, WEB_TYPE_HTML, d);
}

/* -- routes ----------------------------------------------------------------------- */

static void answer_readiness(struct web *w, struct web_request *r)
{
    const struct job *job = registry_jobs(w->config.registry);

    if (w->config.standalone || (job && job->membership.state == JOB_RUNNING))
        web_answer_line(r->http, HTTP_OK, "ready");
    else
        web_answer_line(r->http, HTTP_SERVUNAVAIL, "the job does not run");
}

/* The only job that there is has the page to itself. */
static void answer_home(struct web *w, struct web_request *r)
{
    const struct job *job = web_next_job(registry_jobs(w->config.registry), &r->viewer);

    if (!w->config.standalone && job) {
        r->route.page = WEB_JOB;
        answer_document(w, r, job);
    } else {
        answer_document(w, r, NULL);
    }
}

static bool page_may_be_past(enum web_page page)
{
    return page == WEB_JOB || page == WEB_REPORT || page == WEB_API_JOB ||
           page == WEB_API_LIVE;
}

static bool is_object(enum web_page page)
{
    return page == WEB_API_JOB || page == WEB_API_EVENTS || page == WEB_API_RANK;
}

static void answer_kept_job(struct web *w, struct web_request *r)
{
    if (r->route.page == WEB_API_LIVE)
        web_stream_begin(w, r, NULL);
    else if (is_object(r->route.page))
        web_object_answer(w, r, NULL);
    else
        answer_document(w, r, NULL);
}

/* What the page must know beside its object. */
static void answer_viewer(struct web *w, struct web_request *r)
{
    struct evbuffer *text = evbuffer_new();
    cJSON *o = cJSON_CreateObject();
    char *json;

    web_look(w);
    cJSON_AddStringToObject(o, "version", CRUN_VERSION);
    cJSON_AddNumberToObject(o, "now_ms", (double)w->wall_ms);
    if (*w->config.endpoint)
        cJSON_AddStringToObject(o, "server", w->config.endpoint);
    else
        cJSON_AddNullToObject(o, "server");
    cJSON_AddBoolToObject(o, "sees_output", r->sees_output);
    cJSON_AddBoolToObject(o, "has_list", has_several_jobs(w, &r->viewer));
    json = text_printable_json(cJSON_PrintUnformatted(o));
    evbuffer_add_printf(text, "%s\n", json);
    web_answer_buffer(r->http, WEB_TYPE_JSON, text);
    free(json);
    cJSON_Delete(o);
    evbuffer_free(text);
}

static void answer_of_job(struct web *w, struct web_request *r)
{
    const struct job *job = web_find_job(w, &r->viewer, r->route.run_id);

    if (!job && page_may_be_past(r->route.page) &&
        registry_has_past_job(w->config.registry, r->route.run_id, &r->viewer.owner))
        answer_kept_job(w, r);
    else if (!job)
        web_answer_line(r->http, HTTP_NOTFOUND, "there is no job \"%s\" here",
                        r->route.run_id);
    else if (r->route.page == WEB_LIVE)
        web_live_begin(w, r);
    else if (r->route.page == WEB_API_LIVE)
        web_stream_begin(w, r, job);
    else if (r->route.page == WEB_RANK || r->route.page == WEB_API_LOGS ||
             r->route.page == WEB_API_STACKS)
        web_rank_begin(w, r);
    else if (is_object(r->route.page))
        web_object_answer(w, r, job);
    else
        answer_document(w, r, job);
}

void web_pages_answer(struct web *w, struct web_request *r)
{
    switch (r->route.page) {
    case WEB_NOTHING:
        web_answer_line(r->http, HTTP_NOTFOUND, "there is no such page");
        break;
    case WEB_READY:
        answer_readiness(w, r);
        break;
    case WEB_HEALTH:
        web_answer_line(r->http, HTTP_OK, "alive");
        break;
    case WEB_HOME:
        answer_home(w, r);
        break;
    case WEB_API_VIEWER:
        answer_viewer(w, r);
        break;
    case WEB_API_JOBS:
    case WEB_METRICS:
        web_object_answer(w, r, NULL);
        break;
    default:
        if (r->route.page == WEB_API_LIVE && !*r->route.run_id)
            web_stream_begin(w, r, NULL);
        else
            answer_of_job(w, r);
        break;
    }
}
