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
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/stacks/stack_groups.h"
#include "rendezvous/show/web/web_internal.h"
#include "rendezvous/wire/net/conn.h"
#include "rendezvous/wire/protocol/base64.h"

/*
 * The last lines that a rank has written, or what it does now. Its node is asked as
 * crunctl asks it, over a connection of its own to the control port, with the rights of
 * the viewer.
 */
struct rank_text {
    char *bytes;
    size_t size;
};

struct rank_ask {
    LIST_ENTRY(rank_ask) entry;
    struct web *web;
    struct evhttp_request *http;
    struct msg question;
    struct conn *conn; /* NULL: it has ended */
    struct loop_timer deadline;
    struct rank_text output, errors;       /* output: or stacks */
    char note[ERROR_TEXT_MAX_BYTES + 128]; /* what it is, or why there is none */
    int status;                            /* of the answer, if there is none */
};

/* -- the answer ------------------------------------------------------------------- */

static void free_rank_ask(void *arg)
{
    struct rank_ask *a = arg;

    loop_timer_fini(&a->deadline);
    free(a->output.bytes);
    free(a->errors.bytes);
    free(a);
}

static void rank_ask_end(struct rank_ask *a)
{
    conn_destroy(a->conn);
    a->conn = NULL;
    loop_timer_cancel(&a->deadline);
    LIST_REMOVE(a, entry);
    a->web->asks_count--;
    loop_defer(a->web->loop, free_rank_ask, a);
}

static void on_rank_reader_gone(struct evhttp_connection *connection, void *arg)
{
    struct rank_ask *a = arg;

    if (!evhttp_request_get_connection(a->http))
        evhttp_request_free(a->http);
    rank_ask_end(a);
}

/* As a terminal would show it. */
static void add_rank_text(struct evbuffer *body, struct rank_text *text,
                          const char *heading)
{
    if (text->size == 0)
        return;
    evbuffer_add_printf(body, "%s", heading);
    evbuffer_add(body, text->bytes, text_drawn(text->bytes, text->size));
}

static void on_rank_deadline(void *arg)
{
    struct rank_ask *a = arg;
    struct evhttp_connection *connection = evhttp_request_get_connection(a->http);
    bool is_empty = a->output.size + a->errors.size == 0;
    struct evbuffer *body = evbuffer_new();

    if (connection)
        evhttp_connection_set_closecb(connection, NULL, NULL);
    if (*a->note)
        evbuffer_add_printf(body, "%s\n", a->note);
    add_rank_text(body, &a->output, "");
    add_rank_text(body, &a->errors, "\n-- standard error --\n");
    if (is_empty && a->status)
        web_answer_line(a->http, a->status, "%s",
                        *a->note ? a->note : "the node has not answered in time");
    else
        web_answer_buffer(a->http, WEB_TYPE_TEXT, body);
    evbuffer_free(body);
    rank_ask_end(a);
}

/* -- what the node says ----------------------------------------------------------- */

/* The newest bytes are kept. */
static void rank_text_add(struct rank_text *t, const char *bytes, size_t size)
{
    size_t kept;

    if (size > WEB_LOG_BYTES) {
        bytes += size - WEB_LOG_BYTES;
        size = WEB_LOG_BYTES;
    }
    kept = t->size + size > WEB_LOG_BYTES ? WEB_LOG_BYTES - size : t->size;
    if (!t->bytes)
        t->bytes = xmalloc(WEB_LOG_BYTES);
    memmove(t->bytes, t->bytes + t->size - kept, kept);
    memcpy(t->bytes + kept, bytes, size);
    t->size = kept + size;
}

static void take_rank_logs(struct rank_ask *a, const struct msg_logs *m)
{
    char bytes[LOGS_PIECE_MAX];
    ssize_t n;

    switch (m->kind) {
    case LOGS_TEXT:
        n = base64_decode(m->text, bytes, sizeof(bytes));
        if (n > 0)
            rank_text_add(m->stream == OUTPUT_STDERR ? &a->errors : &a->output, bytes,
                          (size_t)n);
        break;
    case LOGS_PASSED:
        snprintf(a->note, sizeof(a->note), "it writes to %s, and not through crun",
                 *m->where ? m->where : "crun's own standard output");
        break;
    case LOGS_MISSING:
        snprintf(a->note, sizeof(a->note), "%s does not show it: %s", m->host,
                 m->where);
        break;
    case LOGS_FAILED:
        snprintf(a->note, sizeof(a->note), "its log file lacks output: %s", m->where);
        break;
    default:
        break;
    }
}

static void take_rank_stacks(struct rank_ask *a, const struct msg_stacks *m)
{
    struct stack_groups groups = { .count = 0 };

    stack_groups_add(&groups, m);
    if (groups.count > 0)
        stack_group_describe(&groups.group[0], a->note, sizeof(a->note));
    rank_text_add(&a->output, m->threads, strlen(m->threads));
    stack_groups_fini(&groups);
}

static int on_rank_message(void *arg, struct conn *c, const struct msg *m,
                           struct err *e)
{
    struct rank_ask *a = arg;

    switch (m->type) {
    case MSG_WELCOME:
        conn_send(c, &a->question);
        conn_flush(c);
        return 0;
    case MSG_RANK_LOGS:
        take_rank_logs(a, &m->logs);
        return 0;
    case MSG_RANK_STACKS:
        take_rank_stacks(a, &m->stacks);
        return 0;
    case MSG_REFUSED:
        snprintf(a->note, sizeof(a->note), "%s", m->refused.text);
        a->status = HTTP_NOTFOUND;
        break;
    case MSG_END_OF_LIST:
        a->status = *a->note && a->question.type == MSG_SHOW_LOGS ? HTTP_OK : 0;
        break;
    default:
        return 0;
    }
    loop_timer_arm(&a->deadline, 0);
    return 0;
}

static void on_rank_closed(void *arg, struct conn *c, const char *why)
{
    struct rank_ask *a = arg;

    a->conn = NULL; /* frees itself */
    loop_timer_arm(&a->deadline, 0);
}

static uint32_t on_rank_body_max(void *arg, struct conn *c)
{
    return proto_body_max(PROTO_CTL);
}

/* -- the request ------------------------------------------------------------------ */

static struct msg logs_question(const struct web_request *r)
{
    struct msg m = { .type = MSG_SHOW_LOGS,
                     .sequence = 1,
                     .ask_logs = { .stream = OUTPUT_BOTH, .tail = WEB_LOG_TAIL } };
    char lines[8];

    memcpy(m.ask_logs.run_id, r->route.run_id, sizeof(m.ask_logs.run_id));
    snprintf(m.ask_logs.ranks, sizeof(m.ask_logs.ranks), "%" PRIu32, r->route.rank);
    if (web_query_get(r->target, "lines", lines, sizeof(lines)) && atoi(lines) > 0 &&
        atoi(lines) < WEB_LOG_TAIL)
        m.ask_logs.tail = (uint32_t)atoi(lines);
    return m;
}

static struct msg stacks_question(const struct web_request *r)
{
    struct msg m = { .type = MSG_SHOW_STACKS, .sequence = 1 };

    memcpy(m.show_stacks.run_id, r->route.run_id, sizeof(m.show_stacks.run_id));
    snprintf(m.show_stacks.ranks, sizeof(m.show_stacks.ranks), "%" PRIu32,
             r->route.rank);
    return m;
}

/* Stacks interrupt the program for a moment. */
static bool may_ask_rank(struct web *w, const struct web_request *r)
{
    bool is_stacks = r->route.page == WEB_API_STACKS;
    uint64_t now = clock_ms();

    if (!r->sees_output)
        web_answer_line(r->http, 403,
                        "the output of the workers is for their user: crunctl page "
                        "prints a link");
    else if (is_stacks && web_is_of_other_site(r))
        web_answer_line(r->http, 403, "a page of another site may not ask");
    else if (is_stacks && w->stacks_asked_ms &&
             now - w->stacks_asked_ms < WEB_STACKS_EVERY_MS)
        web_answer_line(r->http, HTTP_SERVUNAVAIL,
                        "stacks have just been asked for: try again in some seconds");
    else if (w->asks_count >= WEB_ASKS_MAX)
        web_answer_line(r->http, HTTP_SERVUNAVAIL, "too many pages are asked for");
    else {
        if (is_stacks)
            w->stacks_asked_ms = now;
        return true;
    }
    return false;
}

static int rank_ask_open(struct rank_ask *a, const struct web_viewer *viewer,
                         struct err *e)
{
    static const struct msg hello = { .type = MSG_HELLO,
                                      .hello = { .version_min = PROTO_VERSION_MIN,
                                                 .version_max = PROTO_VERSION_MAX,
                                                 .role = PEER_CTL,
                                                 .software = "page " CRUN_VERSION } };
    struct conn_calls calls = { .message = on_rank_message,
                                .body_max = on_rank_body_max,
                                .closed = on_rank_closed,
                                .arg = a };
    int fd = a->web->config.connect(a->web->config.arg, viewer, e);

    if (fd < 0)
        return -1;
    a->conn = conn_create(a->web->loop, fd, false, NULL, &calls);
    conn_send(a->conn, &hello);
    conn_flush(a->conn);
    return 0;
}

void web_rank_begin(struct web *w, struct web_request *r, const struct job *job)
{
    struct rank_ask *a;
    struct err e;

    if (!may_ask_rank(w, r))
        return;
    a = xcalloc(1, sizeof(*a));
    a->web = w;
    a->http = r->http;
    a->status = HTTP_SERVUNAVAIL;
    a->question = r->route.page == WEB_API_LOGS ? logs_question(r) : stacks_question(r);
    loop_timer_init(&a->deadline, w->loop, on_rank_deadline, a);
    LIST_INSERT_HEAD(&w->asks, a, entry);
    w->asks_count++;
    evhttp_connection_set_closecb(evhttp_request_get_connection(r->http),
                                  on_rank_reader_gone, a);
    if (rank_ask_open(a, &r->viewer, &e) < 0)
        snprintf(a->note, sizeof(a->note), "%s", e.text);
    loop_timer_arm(&a->deadline, a->conn ? clock_ms() + WEB_ASK_MS : 0);
}

void web_rank_fini(struct web *w)
{
    struct rank_ask *a, *next;

    for (a = LIST_FIRST(&w->asks); a; a = next) {
        next = LIST_NEXT(a, entry);
        evhttp_connection_set_closecb(evhttp_request_get_connection(a->http), NULL,
                                      NULL);
        conn_destroy(a->conn);
        LIST_REMOVE(a, entry);
        free_rank_ask(a);
    }
}
