/* SPDX-License-Identifier: MIT */
#include <event2/buffer.h>
#include <event2/http.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/hash.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/event_object.h"
#include "rendezvous/show/page/page.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/show/views/job_json.h"
#include "rendezvous/show/web/web_internal.h"

/*
 * Live views: server-sent events. All viewers of a job with the same rights share a
 * feed, which renders the job once a second, as long as somebody looks, and sends the
 * sections that have changed. A browser that has not read its last news is sent none:
 * later it gets all that has changed meanwhile.
 */
struct live_section {
    char *id;
    char *json; /* "id":"html" */
    uint64_t hash;
    uint64_t version; /* of the feed, when it changed last */
    bool seen;        /* in the rendering under way */
};

struct live_feed {
    LIST_ENTRY(live_feed) entry;
    struct web *web;
    char run_id[RUN_ID_MAX + 1];
    struct id128 instance;
    enum access sight;
    bool sees_output;
    uint32_t generation; /* random: versions of another feed say nothing */
    uint64_t version, next_ms;
    struct live_section *section;
    size_t sections, room;
    LIST_HEAD(, live_viewer) viewers;
};

struct live_viewer {
    LIST_ENTRY(live_viewer) entry;
    struct live_feed *feed;
    struct evhttp_request *http;
    struct web_conn *conn;
    struct web_viewer viewer;
    uint64_t version;    /* that it has been sent */
    uint64_t last_event; /* likewise */
    uint64_t sent_ms, read_ms;
};

/* -- feeds ------------------------------------------------------------------------ */

static struct live_feed *live_feed_open(struct web *w, const struct web_request *r,
                                        const struct job *job)
{
    struct live_feed *f;

    LIST_FOREACH(f, &w->feeds, entry)
        if (id128_equal(&f->instance, &job->membership.instance) &&
            f->sight == r->viewer.sight && f->sees_output == r->sees_output)
            return f;
    f = xcalloc(1, sizeof(*f));
    f->web = w;
    memcpy(f->run_id, job->run_id, sizeof(f->run_id));
    f->instance = job->membership.instance;
    f->sight = r->viewer.sight;
    f->sees_output = r->sees_output;
    memcpy(&f->generation, id128_random().byte, sizeof(f->generation));
    LIST_INIT(&f->viewers);
    LIST_INSERT_HEAD(&w->feeds, f, entry);
    return f;
}

static void live_feed_close(struct live_feed *f)
{
    for (size_t i = 0; i < f->sections; i++) {
        free(f->section[i].id);
        free(f->section[i].json);
    }
    free(f->section);
    LIST_REMOVE(f, entry);
    free(f);
}

static const struct job *live_feed_job(const struct live_feed *f)
{
    const struct job *job = registry_jobs(f->web->config.registry);

    while (job && !id128_equal(&job->membership.instance, &f->instance))
        job = job->next;
    return job;
}

/* -- sections --------------------------------------------------------------------- */

/* The page has its sections in the same order each time, mostly. */
static struct live_section *live_feed_section(struct live_feed *f, const char *id,
                                              size_t *hint)
{
    for (size_t n = 0; n < f->sections; n++) {
        size_t i = (*hint + n) % f->sections;

        if (strcmp(f->section[i].id, id) == 0) {
            *hint = i + 1;
            return &f->section[i];
        }
    }
    if (f->sections == f->room) {
        f->room = f->room ? 2 * f->room : 32;
        f->section = xrealloc(f->section, f->room * sizeof(*f->section));
    }
    f->section[f->sections] = (struct live_section){ .id = xstrdup(id) };
    return &f->section[f->sections++];
}

static void live_section_set(struct live_section *s, const char *html, size_t size,
                             uint64_t version)
{
    size_t room = strlen(s->id) + 6 * size + 8;
    int before;

    s->json = xrealloc(s->json, room);
    before = snprintf(s->json, room, "\"%s\":\"", s->id);
    text_json_string(html, s->json + before, room - (size_t)before - 1);
    strcat(s->json + before, "\"");
    s->json = xrealloc(s->json, (size_t)before + strlen(s->json + before) + 1);
    s->version = version;
}

struct rendering {
    struct live_feed *feed;
    size_t hint;
};

static void take_section(void *arg, const char *id, const char *html, size_t size)
{
    struct rendering *r = arg;
    struct live_section *s = live_feed_section(r->feed, id, &r->hint);
    uint64_t hash = hash_fnv1a(HASH_FNV1A_BASIS, html, size);

    s->seen = true;
    if (s->json && s->hash == hash)
        return;
    s->hash = hash;
    live_section_set(s, html, size, r->feed->version);
}

/* Those that the page has no more are sent as empty. */
static void drop_sections(struct live_feed *f)
{
    uint64_t nothing = hash_fnv1a(HASH_FNV1A_BASIS, "", 0);

    for (size_t i = 0; i < f->sections; i++) {
        struct live_section *s = &f->section[i];

        if (!s->seen && s->hash != nothing) {
            s->hash = nothing;
            live_section_set(s, "", 0, f->version);
        }
        s->seen = false;
    }
}

static void live_feed_render(struct live_feed *f, const struct job *job)
{
    struct web *w = f->web;
    uint64_t began = clock_thread_us();
    cJSON *object = web_job_object(w, job, f->sight, true);
    struct page_reader reader = { .now_ms = w->wall_ms,
                                  .server = *w->config.endpoint ? w->config.endpoint
                                                                : NULL,
                                  .sees_output = f->sees_output,
                                  .has_list = w->config.standalone };
    struct rendering r = { .feed = f };

    f->version++;
    page_each_section(object, &reader, take_section, &r);
    drop_sections(f);
    cJSON_Delete(object);
    web_budget_spend(&w->documents, clock_thread_us() - began);
}

/* What has changed since a version, as one event; NULL: nothing. */
static struct web_document *live_feed_news(const struct live_feed *f, uint64_t since)
{
    const char *separator = "";
    char *text = NULL;
    size_t size = 0;
    FILE *out;

    for (size_t i = 0; i < f->sections && !*separator; i++)
        if (f->section[i].version > since)
            separator = "{";
    if (!*separator)
        return NULL;
    out = open_memstream(&text, &size);
    if (!out)
        abort();
    fprintf(out, "id: %" PRIu32 "-%" PRIu64 "\nevent: sections\ndata: ", f->generation,
            f->version);
    for (size_t i = 0; i < f->sections; i++)
        if (f->section[i].version > since) {
            fprintf(out, "%s%s", separator, f->section[i].json);
            separator = ",";
        }
    fputs("}\n\n", out);
    fclose(out);
    return web_document_create("", text, size);
}

/* -- viewers ---------------------------------------------------------------------- */

static void live_viewer_end(struct live_viewer *v)
{
    struct live_feed *f = v->feed;

    LIST_REMOVE(v, entry);
    free(v);
    if (LIST_EMPTY(&f->viewers))
        live_feed_close(f);
}

/* The connection is gone. The request too, if evhttp still has it in its list. */
static void on_viewer_closed(struct evhttp_connection *connection, void *arg)
{
    struct live_viewer *v = arg;

    if (!evhttp_request_get_connection(v->http))
        evhttp_request_free(v->http);
    live_viewer_end(v);
}

static void live_viewer_send(struct live_viewer *v, struct evbuffer *text, uint64_t now)
{
    if (evbuffer_get_length(text) == 0)
        return;
    v->sent_ms = now;
    evhttp_send_reply_chunk(v->http, text);
}

static void add_events(struct live_viewer *v, struct evbuffer *text)
{
    struct registry *g = v->feed->web->config.registry;
    struct msg_event event;

    for (int i = 0; i < WEB_EVENTS_AT_ONCE; i++) {
        char *json;

        if (!registry_show_event(g, v->last_event, v->feed->run_id, &v->viewer.owner,
                                 v->feed->sight, &event))
            return;
        v->last_event = event.number;
        json = event_object_line(&event);
        evbuffer_add_printf(text, "event: event\ndata: %s\n\n", json);
        free(json);
    }
}

/* `usual` is what those need that have all but the last version; NULL: nothing, or it
 * was not made. */
static void live_viewer_update(struct live_viewer *v, struct web_document *usual,
                               uint64_t now)
{
    struct live_feed *f = v->feed;
    struct evbuffer *text;
    bool is_usual = usual && v->version + 1 == f->version;

    if (!web_viewer_counts(f->web, &v->viewer)) {
        web_conn_set_deadline(v->conn, 0);
        web_conn_abort(v->conn);
        return;
    }
    if (web_conn_unread(v->conn) > 0) {
        if (now - v->read_ms > WEB_UNREAD_MS)
            web_conn_abort(v->conn);
        return;
    }
    v->read_ms = now;
    text = evbuffer_new();
    if (v->version < f->version) {
        struct web_document *d = is_usual ? usual : live_feed_news(f, v->version);

        if (d)
            web_document_add_to(d, text);
        if (!is_usual)
            web_document_release(d);
        v->version = f->version;
    }
    add_events(v, text);
    if (evbuffer_get_length(text) == 0 && now - v->sent_ms >= WEB_HEARTBEAT_MS)
        evbuffer_add(text, ":\n\n", 3);
    live_viewer_send(v, text, now);
    evbuffer_free(text);
}

/* It has ended, or is another job of that name: the browser asks again, and is told. */
static void live_feed_end(struct live_feed *f)
{
    struct live_viewer *v, *next;

    for (v = LIST_FIRST(&f->viewers); v; v = next) {
        next = LIST_NEXT(v, entry);
        web_conn_set_deadline(v->conn, 0);
        web_conn_abort(v->conn);
    }
}

static void live_feed_update(struct live_feed *f, uint64_t now)
{
    const struct job *job = live_feed_job(f);
    struct web_document *usual;
    struct live_viewer *v, *next;

    f->next_ms = now + WEB_LIVE_EVERY_MS;
    if (!job) {
        live_feed_end(f);
        return;
    }
    live_feed_render(f, job);
    usual = live_feed_news(f, f->version - 1);
    for (v = LIST_FIRST(&f->viewers); v; v = next) {
        next = LIST_NEXT(v, entry);
        live_viewer_update(v, usual, now);
    }
    web_document_release(usual);
}

void web_live_finish(struct web *w)
{
    struct live_feed *f, *next;
    struct live_viewer *v;

    for (f = LIST_FIRST(&w->feeds); f; f = next) {
        next = LIST_NEXT(f, entry);
        if (!live_feed_job(f))
            continue;
        live_feed_update(f, clock_ms());
        LIST_FOREACH(v, &f->viewers, entry)
            web_conn_send_now(v->conn);
    }
}

/* One feed in a turn. */
void on_live_tick(void *arg)
{
    struct web *w = arg;
    uint64_t now = clock_ms(), next = UINT64_MAX;
    struct live_feed *f, *due = NULL;

    if (!web_budget_allows(&w->documents, now)) {
        loop_timer_arm(&w->live, now + WEB_LIVE_EVERY_MS / 10);
        return;
    }
    LIST_FOREACH(f, &w->feeds, entry)
        if (!due || f->next_ms < due->next_ms)
            due = f;
    if (due && due->next_ms <= now)
        live_feed_update(due, now);
    LIST_FOREACH(f, &w->feeds, entry)
        if (f->next_ms < next)
            next = f->next_ms;
    if (next != UINT64_MAX)
        loop_timer_arm(&w->live, next);
}

/* A browser that comes back says what it has seen. */
static uint64_t version_seen(const struct live_feed *f, const struct web_request *r)
{
    const char *id = evhttp_find_header(evhttp_request_get_input_headers(r->http),
                                        "Last-Event-ID");
    uint32_t generation;
    uint64_t version;

    if (!id || sscanf(id, "%" SCNu32 "-%" SCNu64, &generation, &version) != 2 ||
        generation != f->generation || version > f->version)
        return 0;
    return version;
}

static uint64_t newest_event(const struct live_viewer *v)
{
    struct msg_event event = { .number = 0 };

    while (registry_show_event(v->feed->web->config.registry, event.number,
                               v->feed->run_id, &v->viewer.owner, v->feed->sight,
                               &event))
        ;
    return event.number;
}

void web_live_begin(struct web *w, struct web_request *r)
{
    const struct job *job = web_find_job(w, &r->viewer, r->route.run_id);
    struct live_feed *f;
    struct live_viewer *v;
    uint64_t now = clock_ms();

    web_answer_begin(r->http, "text/event-stream");
    if (evhttp_request_get_command(r->http) == EVHTTP_REQ_HEAD) {
        evhttp_send_reply(r->http, HTTP_OK, "OK", NULL);
        return;
    }
    f = live_feed_open(w, r, job);
    v = xcalloc(1, sizeof(*v));
    v->feed = f;
    v->http = r->http;
    v->conn = r->conn;
    v->viewer = r->viewer;
    v->version = version_seen(f, r);
    v->last_event = newest_event(v);
    v->sent_ms = v->read_ms = now;
    LIST_INSERT_HEAD(&f->viewers, v, entry);
    web_conn_set_deadline(r->conn, now + WEB_LIVE_MS);
    evhttp_connection_set_closecb(evhttp_request_get_connection(r->http),
                                  on_viewer_closed, v);
    evhttp_send_reply_start(r->http, HTTP_OK, "OK");
    if (f->version > 0)
        live_viewer_update(v, NULL, now);
    else
        loop_timer_arm(&w->live, 0);
}

void web_live_fini(struct web *w)
{
    struct live_feed *f, *next_feed;
    struct live_viewer *v, *next;

    for (f = LIST_FIRST(&w->feeds); f; f = next_feed) {
        next_feed = LIST_NEXT(f, entry);
        for (v = LIST_FIRST(&f->viewers); v; v = next) {
            next = LIST_NEXT(v, entry);
            evhttp_connection_set_closecb(evhttp_request_get_connection(v->http), NULL,
                                          NULL);
            live_viewer_end(v);
        }
    }
}
