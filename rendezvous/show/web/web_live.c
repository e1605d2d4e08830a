/* SPDX-License-Identifier: MIT */
#include <event2/buffer.h>
#include <event2/http.h>
#include <stdlib.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/show/web/web_internal.h"

/*
 * Live objects: server-sent events. A reader is sent the whole object first, and then
 * the patch to each next version. One that has missed a version, because it has not
 * read what it was sent before, gets the whole again.
 */
struct live_reader {
    LIST_ENTRY(live_reader) entry;
    struct web_object *object;
    struct evhttp_request *http;
    struct web_conn *conn;
    struct web_viewer viewer;
    uint64_t version; /* that it has been sent; 0: none */
    uint64_t sent_ms, read_ms;
};

static void live_reader_free(struct live_reader *reader)
{
    struct web_object *o = reader->object;

    LIST_REMOVE(reader, entry);
    free(reader);
    if (LIST_EMPTY(&o->readers))
        web_object_forget(o);
}

/* The connection is gone. The request too, if evhttp still has it in its list. */
static void on_reader_closed(struct evhttp_connection *connection, void *arg)
{
    struct live_reader *reader = arg;

    if (!evhttp_request_get_connection(reader->http))
        evhttp_request_free(reader->http);
    live_reader_free(reader);
}

/* The browser asks again. */
static void live_reader_cut(struct live_reader *reader)
{
    web_conn_set_deadline(reader->conn, 0);
    web_conn_abort(reader->conn);
}

static void add_stream_event(struct evbuffer *text, const char *name,
                             struct evbuffer *data)
{
    evbuffer_add_printf(text, "event: %s\ndata: ", name);
    evbuffer_add_buffer_reference(text, data);
    evbuffer_add(text, "\n", 1);
}

static void live_reader_update(struct live_reader *reader, bool is_last, uint64_t now)
{
    struct web_object *o = reader->object;
    struct evbuffer *text;

    if (web_conn_unread(reader->conn) > 0) {
        if (now - reader->read_ms > WEB_UNREAD_MS)
            live_reader_cut(reader);
        return;
    }
    reader->read_ms = now;
    text = evbuffer_new();
    if (o->patch && reader->version + 1 == o->version)
        add_stream_event(text, "patch", o->patch);
    else if (reader->version != o->version && web_object_whole(o))
        add_stream_event(text, "whole", o->whole);
    else if (!is_last && now - reader->sent_ms >= WEB_HEARTBEAT_MS)
        evbuffer_add(text, ":\n\n", 3);
    reader->version = o->version;
    if (is_last)
        evbuffer_add_printf(text, "event: end\ndata: {}\n\n");
    if (evbuffer_get_length(text) > 0) {
        reader->sent_ms = now;
        evhttp_send_reply_chunk(reader->http, text);
    }
    evbuffer_free(text);
    if (is_last) {
        web_conn_set_deadline(reader->conn, clock_ms() + WEB_UNREAD_MS);
        evhttp_connection_set_closecb(evhttp_request_get_connection(reader->http), NULL,
                                      NULL);
        evhttp_send_reply_end(reader->http);
        live_reader_free(reader);
    }
}

/* Another job of that run id is another object, for which the browser asks again. The
 * rights of a reader may have ended since the last time. */
static void web_object_update(struct web *w, struct web_object *o, bool at_end)
{
    bool is_gone = !id128_is_zero(&o->instance) && !web_object_job(w, o);
    bool is_replaced = is_gone && web_find_job(w, &o->viewer, o->run_id), is_last;
    struct live_reader *reader, *next;
    uint64_t now = clock_ms();

    if (!is_gone)
        web_object_render(w, o);
    o->rendered_ms = now;
    is_last = is_gone || web_object_is_final(w, o, at_end);
    for (reader = LIST_FIRST(&o->readers); reader; reader = next) {
        struct web_conn *conn = reader->conn;

        next = LIST_NEXT(reader, entry);
        if (is_replaced || !web_viewer_counts(w, &reader->viewer))
            live_reader_cut(reader);
        else
            live_reader_update(reader, is_last, now);
        if (at_end)
            web_conn_send_now(conn);
    }
}

void web_live_finish(struct web *w)
{
    struct web_object *o;

    LIST_FOREACH(o, &w->objects, entry)
        if (!LIST_EMPTY(&o->readers))
            web_object_update(w, o, true);
}

/* One object in a turn. */
void on_live_tick(void *arg)
{
    struct web *w = arg;
    uint64_t now = clock_ms(), next = UINT64_MAX;
    struct web_object *o, *due = NULL;

    if (!web_budget_allows(&w->budget, now)) {
        loop_timer_arm(&w->live, now + WEB_LIVE_EVERY_MS / 10);
        return;
    }
    LIST_FOREACH(o, &w->objects, entry)
        if (!LIST_EMPTY(&o->readers) && (!due || o->rendered_ms < due->rendered_ms))
            due = o;
    if (due && due->rendered_ms + WEB_LIVE_EVERY_MS <= now)
        web_object_update(w, due, false);
    LIST_FOREACH(o, &w->objects, entry)
        if (!LIST_EMPTY(&o->readers) && o->rendered_ms + WEB_LIVE_EVERY_MS < next)
            next = o->rendered_ms + WEB_LIVE_EVERY_MS;
    if (next != UINT64_MAX)
        loop_timer_arm(&w->live, next);
}

void web_live_begin(struct web *w, struct web_request *r, const struct job *job)
{
    struct web_object *o;
    struct live_reader *reader;
    uint64_t now = clock_ms();

    web_answer_begin(r->http, "text/event-stream");
    if (evhttp_request_get_command(r->http) == EVHTTP_REQ_HEAD) {
        evhttp_send_reply(r->http, HTTP_OK, "OK", NULL);
        return;
    }
    o = web_object_open(w, r, *r->route.run_id ? WEB_API_JOB : WEB_API_JOBS, job);
    reader = xcalloc(1, sizeof(*reader));
    *reader = (struct live_reader){ .object = o,
                                    .http = r->http,
                                    .conn = r->conn,
                                    .viewer = r->viewer,
                                    .sent_ms = now,
                                    .read_ms = now };
    LIST_INSERT_HEAD(&o->readers, reader, entry);
    web_conn_set_deadline(r->conn, now + WEB_LIVE_MS);
    evhttp_connection_set_closecb(evhttp_request_get_connection(r->http),
                                  on_reader_closed, reader);
    evhttp_send_reply_start(r->http, HTTP_OK, "OK");
    if (o->json) {
        live_reader_update(reader, false, now);
        return;
    }
    o->rendered_ms = 0; /* as soon as that may be */
    loop_timer_arm(&w->live, 0);
}

void web_live_fini(struct web *w)
{
    struct web_object *o;
    struct live_reader *reader, *next;

    LIST_FOREACH(o, &w->objects, entry)
        for (reader = LIST_FIRST(&o->readers); reader; reader = next) {
            next = LIST_NEXT(reader, entry);
            evhttp_connection_set_closecb(evhttp_request_get_connection(reader->http),
                                          NULL, NULL);
            live_reader_free(reader);
        }
}
