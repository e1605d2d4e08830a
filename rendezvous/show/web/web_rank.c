/* SPDX-License-Identifier: MIT */
#include <event2/buffer.h>
#include <event2/http.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/version.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/net/conn.h"
#include "rendezvous/show/page/page.h"
#include "rendezvous/wire/protocol/base64.h"
#include "rendezvous/wire/protocol/stack_groups.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/show/web/web_internal.h"

/*
 * The page of a rank: the last lines that it has written, and on demand what it does
 * now. Its node is asked as crunctl asks it, over a connection of its own to the
 * control port, with the rights of the viewer.
 */
enum rank_question { ASKS_LOGS = 1, ASKS_STACKS = 2 };

struct rank_output {
    char *text;
    size_t size;
    char note[ERROR_TEXT_MAX_BYTES + 128];
};

struct rank_view {
    LIST_ENTRY(rank_view) entry;
    struct web *web;
    struct evhttp_request *http; /* NULL: the browser is gone */
    struct web_viewer viewer;
    char run_id[RUN_ID_MAX + 1];
    struct id128 instance;
    uint32_t rank;
    struct conn *conn; /* NULL: it has ended */
    struct loop_timer deadline;
    unsigned open; /* questions that are not answered */
    enum web_page page;
    uint32_t lines;
    int status; /* of an answer that is a note */
    bool asks_stacks;
    char host[HOST_NAME_MAX_BYTES + 1];
    struct rank_output output, errors, stacks;
};

/* -- the answer ------------------------------------------------------------------- */

static void free_rank_view(void *arg)
{
    struct rank_view *v = arg;

    loop_timer_fini(&v->deadline);
    free(v->output.text);
    free(v->errors.text);
    free(v->stacks.text);
    free(v);
}

static void rank_view_end(struct rank_view *v)
{
    conn_destroy(v->conn);
    v->conn = NULL;
    loop_timer_cancel(&v->deadline);
    LIST_REMOVE(v, entry);
    v->web->rank_views_count--;
    loop_defer(v->web->loop, free_rank_view, v);
}

static const struct job *find_job_of_rank(const struct rank_view *v)
{
    const struct job *job = registry_jobs(v->web->config.registry);

    while (job && !id128_equal(&job->membership.instance, &v->instance))
        job = job->next;
    return job;
}

static void write_rank_page(struct rank_view *v, const struct job *job, FILE *out)
{
    struct web *w = v->web;
    cJSON *object = web_job_object(w, job, v->viewer.sight, true);
    struct page_reader reader = { .now_ms = w->wall_ms,
                                  .server = *w->config.endpoint ? w->config.endpoint
                                                                : NULL,
                                  .sees_output = true,
                                  .has_list = w->config.standalone };
    struct page_rank page = { .rank = v->rank,
                              .host = *v->host ? v->host : NULL,
                              .output = v->output.text,
                              .output_note = v->output.note,
                              .stacks = v->stacks.text,
                              .stacks_note = v->stacks.note };

    page_write_rank(out, object, &page, &reader);
    cJSON_Delete(object);
}

static void rank_view_answer(struct rank_view *v)
{
    const struct job *job = find_job_of_rank(v);
    struct evhttp_connection *connection = evhttp_request_get_connection(v->http);
    struct web_document *d;
    char *text = NULL;
    size_t size = 0;
    FILE *out;

    if (connection)
        evhttp_connection_set_closecb(connection, NULL, NULL);
    if (!job) {
        web_answer_line(v->http, HTTP_NOTFOUND, "there is no job \"%s\" here",
                        v->run_id);
        rank_view_end(v);
        return;
    }
    out = open_memstream(&text, &size);
    if (!out)
        abort();
    write_rank_page(v, job, out);
    fclose(out);
    d = web_document_create("", text, size);
    web_answer_document(v->http, WEB_TYPE_HTML, d);
    web_document_release(d);
    rank_view_end(v);
}

static void on_rank_browser_gone(struct evhttp_connection *connection, void *arg)
{
    struct rank_view *v = arg;

    if (!evhttp_request_get_connection(v->http))
        evhttp_request_free(v->http);
    rank_view_end(v);
}

/* -- what the node says ----------------------------------------------------------- */

static void rank_output_add(struct rank_output *o, const char *bytes, size_t size)
{
    if (o->size + size > WEB_LOG_BYTES)
        return;
    o->text = xrealloc(o->text, o->size + size + 1);
    memcpy(o->text + o->size, bytes, size);
    o->size += size;
    o->text[o->size] = '\0';
}

static void take_rank_logs(struct rank_view *v, const struct msg_logs *m)
{
    struct rank_output *o = &v->output;
    char bytes[LOGS_PIECE_MAX];
    ssize_t n;

    if (*m->host)
        memcpy(v->host, m->host, sizeof(v->host));
    switch (m->kind) {
    case LOGS_TEXT:
        n = base64_decode(m->text, bytes, sizeof(bytes));
        if (n > 0)
            rank_output_add(m->stream == OUTPUT_STDERR ? &v->errors : o, bytes,
                            (size_t)n);
        break;
    case LOGS_PASSED:
        snprintf(o->note, sizeof(o->note), "it writes to %s, and not through crun",
                 *m->where ? m->where : "crun's own standard output");
        break;
    case LOGS_MISSING:
        snprintf(o->note, sizeof(o->note), "%s does not show it: %s", m->host,
                 m->where);
        break;
    case LOGS_FAILED:
        snprintf(o->note, sizeof(o->note), "its log file cannot be read: %s", m->where);
        break;
    default:
        break;
    }
}

static void take_rank_stacks(struct rank_view *v, const struct msg_stacks *m)
{
    struct stack_groups groups = { .count = 0 };

    if (*m->host)
        memcpy(v->host, m->host, sizeof(v->host));
    stack_groups_add(&groups, m);
    if (groups.count > 0)
        stack_group_describe(&groups.group[0], v->stacks.note, sizeof(v->stacks.note));
    rank_output_add(&v->stacks, m->threads, strlen(m->threads));
    stack_groups_fini(&groups);
}

static void ask_rank(struct rank_view *v)
{
    struct msg logs = { .type = MSG_SHOW_LOGS,
                        .sequence = ASKS_LOGS,
                        .ask_logs = { .stream = OUTPUT_BOTH, .tail = v->lines } };
    struct msg stacks = { .type = MSG_SHOW_STACKS, .sequence = ASKS_STACKS };

    memcpy(logs.ask_logs.run_id, v->run_id, sizeof(v->run_id));
    snprintf(logs.ask_logs.ranks, sizeof(logs.ask_logs.ranks), "%" PRIu32, v->rank);
    memcpy(stacks.show_stacks.run_id, v->run_id, sizeof(v->run_id));
    snprintf(stacks.show_stacks.ranks, sizeof(stacks.show_stacks.ranks), "%" PRIu32,
             v->rank);
    if (v->page != WEB_API_STACKS) {
        conn_send(v->conn, &logs);
        v->open = ASKS_LOGS;
    }
    if (v->asks_stacks) {
        conn_send(v->conn, &stacks);
        v->open |= ASKS_STACKS;
    }
    conn_flush(v->conn);
}

/* The text alone, or why there is none. */
static void rank_view_answer_text(struct rank_view *v)
{
    const struct rank_output *o = v->page == WEB_API_STACKS ? &v->stacks : &v->output;
    struct evhttp_connection *connection = evhttp_request_get_connection(v->http);
    struct evbuffer *text = evbuffer_new();

    if (connection)
        evhttp_connection_set_closecb(connection, NULL, NULL);
    if (v->page == WEB_API_STACKS && o->size > 0 && *o->note)
        evbuffer_add_printf(text, "%s\n", o->note);
    if (o->size > 0)
        evbuffer_add(text, o->text, o->size);
    if (*o->note && o->size == 0)
        web_answer_line(v->http, v->status, "%s", o->note);
    else
        web_answer_buffer(v->http, WEB_TYPE_TEXT, text);
    evbuffer_free(text);
    rank_view_end(v);
}

static void rank_view_conclude(struct rank_view *v)
{
    if (v->errors.text) {
        static const char heading[] = "\n-- standard error --\n";

        rank_output_add(&v->output, heading, sizeof(heading) - 1);
        rank_output_add(&v->output, v->errors.text, v->errors.size);
    }
    if (v->output.text)
        v->output.size = text_drawn(v->output.text, v->output.size);
    if (v->output.text)
        v->output.text[v->output.size] = '\0';
    if (v->page == WEB_RANK)
        rank_view_answer(v);
    else
        rank_view_answer_text(v);
}

static int on_rank_message(void *arg, struct conn *c, const struct msg *m,
                           struct err *e)
{
    struct rank_view *v = arg;
    struct rank_output *asked = m->sequence == ASKS_STACKS ? &v->stacks : &v->output;

    if (m->type == MSG_WELCOME)
        ask_rank(v);
    else if (m->type == MSG_RANK_LOGS)
        take_rank_logs(v, &m->logs);
    else if (m->type == MSG_RANK_STACKS)
        take_rank_stacks(v, &m->stacks);
    else if (m->type == MSG_REFUSED)
        snprintf(asked->note, sizeof(asked->note), "%s", m->refused.text);
    if (m->type != MSG_END_OF_LIST && m->type != MSG_REFUSED)
        return 0;
    v->open &= ~(unsigned)m->sequence;
    if (!v->open)
        loop_timer_arm(&v->deadline, 0);
    return 0;
}

static void on_rank_closed(void *arg, struct conn *c, const char *why)
{
    struct rank_view *v = arg;

    v->conn = NULL; /* frees itself */
    loop_timer_arm(&v->deadline, 0);
}

static void on_rank_deadline(void *arg)
{
    struct rank_view *v = arg;

    if (v->open & ASKS_LOGS && !*v->output.note)
        snprintf(v->output.note, sizeof(v->output.note),
                 "the node has not answered in time");
    if (v->open & ASKS_STACKS && !*v->stacks.note)
        snprintf(v->stacks.note, sizeof(v->stacks.note),
                 "the node has not answered in time");
    if (v->open)
        v->status = HTTP_SERVUNAVAIL;
    rank_view_conclude(v);
}

static uint32_t on_rank_body_max(void *arg, struct conn *c)
{
    return proto_body_max(PROTO_CTL);
}

/* -- the request ------------------------------------------------------------------ */

/* Stacks interrupt the program for a moment. */
static bool stacks_are_wanted(struct web *w, struct rank_view *v,
                              const struct web_request *r)
{
    uint64_t now = clock_ms();
    char value[8];

    if ((v->page != WEB_API_STACKS &&
         !web_query_get(r->target, "stacks", value, sizeof(value))) ||
        web_is_of_other_site(r) || v->page == WEB_API_LOGS)
        return false;
    if (w->stacks_asked_ms && now - w->stacks_asked_ms < WEB_STACKS_EVERY_MS) {
        snprintf(v->stacks.note, sizeof(v->stacks.note),
                 "stacks have just been asked for: try again in some seconds");
        v->status = HTTP_SERVUNAVAIL;
        return false;
    }
    w->stacks_asked_ms = now;
    return true;
}

static int rank_view_open(struct rank_view *v, struct err *e)
{
    static const struct msg hello = { .type = MSG_HELLO,
                                      .hello = { .version_min = PROTO_VERSION_MIN,
                                                 .version_max = PROTO_VERSION_MAX,
                                                 .role = PEER_CTL,
                                                 .software = "page " CRUN_VERSION } };
    struct conn_calls calls = { .message = on_rank_message,
                                .body_max = on_rank_body_max,
                                .closed = on_rank_closed,
                                .arg = v };
    struct web *w = v->web;
    int fd = w->config.connect(w->config.arg, &v->viewer, e);

    if (fd < 0)
        return -1;
    v->conn = conn_create(w->loop, fd, false, NULL, &calls);
    conn_send(v->conn, &hello);
    conn_flush(v->conn);
    return 0;
}

static uint32_t lines_wanted(const struct web_request *r)
{
    char value[8];
    long lines = WEB_LOG_TAIL;

    if (web_query_get(r->target, "lines", value, sizeof(value)))
        lines = strtol(value, NULL, 10);
    return lines > 0 && lines < WEB_LOG_TAIL ? (uint32_t)lines : WEB_LOG_TAIL;
}

static struct rank_view *rank_view_create(struct web *w, const struct web_request *r,
                                          const struct job *job)
{
    struct rank_view *v = xcalloc(1, sizeof(*v));

    v->web = w;
    v->http = r->http;
    v->viewer = r->viewer;
    v->rank = r->route.rank;
    v->page = r->route.page;
    v->status = HTTP_NOTFOUND;
    v->lines = lines_wanted(r);
    v->instance = job->membership.instance;
    memcpy(v->run_id, job->run_id, sizeof(v->run_id));
    v->asks_stacks = stacks_are_wanted(w, v, r);
    loop_timer_init(&v->deadline, w->loop, on_rank_deadline, v);
    LIST_INSERT_HEAD(&w->rank_views, v, entry);
    w->rank_views_count++;
    evhttp_connection_set_closecb(evhttp_request_get_connection(r->http),
                                  on_rank_browser_gone, v);
    return v;
}

void web_rank_begin(struct web *w, struct web_request *r)
{
    const struct job *job = web_find_job(w, &r->viewer, r->route.run_id);
    struct rank_view *v;
    struct err e;

    if (!r->sees_output) {
        web_answer_line(r->http, 403,
                        "the output of the workers is for their user: crunctl page "
                        "prints a link");
        return;
    }
    if (w->rank_views_count >= WEB_ASKS_MAX ||
        !web_budget_allows(&w->documents, clock_ms())) {
        web_answer_line(r->http, HTTP_SERVUNAVAIL, "too many pages are asked for");
        return;
    }
    if (r->route.page == WEB_API_STACKS && web_is_of_other_site(r)) {
        web_answer_line(r->http, 403, "a page of another site may not ask");
        return;
    }
    v = rank_view_create(w, r, job);
    if (rank_view_open(v, &e) < 0)
        snprintf(v->output.note, sizeof(v->output.note), "%s", e.text);
    loop_timer_arm(&v->deadline, v->conn ? clock_ms() + WEB_ASK_MS : 0);
}

void web_rank_fini(struct web *w)
{
    struct rank_view *v, *next;

    for (v = LIST_FIRST(&w->rank_views); v; v = next) {
        next = LIST_NEXT(v, entry);
        evhttp_connection_set_closecb(evhttp_request_get_connection(v->http), NULL,
                                      NULL);
        conn_destroy(v->conn);
        LIST_REMOVE(v, entry);
        free_rank_view(v);
    }
}
