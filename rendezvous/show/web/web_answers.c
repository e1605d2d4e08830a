/* SPDX-License-Identifier: MIT */
#include <event2/buffer.h>
#include <event2/http.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/show/web/page.h"
#include "rendezvous/show/web/web_internal.h"

void web_answer_begin(struct evhttp_request *http, const char *type)
{
    static const char *const always[][2] = {
        { "Cache-Control", "no-store" },
        { "X-Content-Type-Options", "nosniff" },
        { "X-Frame-Options", "DENY" },
        { "Referrer-Policy", "no-referrer" },
        { "Cross-Origin-Resource-Policy", "same-origin" },
        { "Cross-Origin-Opener-Policy", "same-origin" },
        { "Connection", "close" },
    };
    struct evkeyvalq *headers = evhttp_request_get_output_headers(http);

    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
        evhttp_add_header(headers, always[i][0], always[i][1]);
    evhttp_add_header(headers, "Content-Security-Policy",
                      strcmp(type, WEB_TYPE_HTML) == 0
                          ? page_policy()
                          : "default-src 'none'; frame-ancestors 'none'");
    evhttp_add_header(headers, "Content-Type", type);
}

static const char *reason_of(int status)
{
    switch (status) {
    case HTTP_OK:
        return "OK";
    case HTTP_BADREQUEST:
        return "Bad Request";
    case 303:
        return "See Other";
    case 403:
        return "Forbidden";
    case HTTP_NOTFOUND:
        return "Not Found";
    case HTTP_BADMETHOD:
        return "Method Not Allowed";
    case 421:
        return "Misdirected Request";
    default:
        return "Service Unavailable";
    }
}

/* evhttp would send the body after a HEAD, too. */
static void send_answer(struct evhttp_request *http, int status, struct evbuffer *body)
{
    bool is_head = evhttp_request_get_command(http) == EVHTTP_REQ_HEAD;
    char length[32];

    snprintf(length, sizeof(length), "%zu", evbuffer_get_length(body));
    evhttp_add_header(evhttp_request_get_output_headers(http), "Content-Length",
                      length);
    evhttp_send_reply(http, status, reason_of(status), is_head ? NULL : body);
    evbuffer_free(body);
}

struct evbuffer *web_line(char *text)
{
    struct evbuffer *line = evbuffer_new();

    evbuffer_add(line, text, strlen(text));
    evbuffer_add(line, "\n", 1);
    free(text);
    return line;
}

void web_answer_line(struct evhttp_request *http, int status, const char *fmt, ...)
{
    const char *target = evhttp_request_get_uri(http);
    bool is_api = target && strncmp(target, "/api/", 5) == 0;
    char text[1024];
    cJSON *o;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    web_answer_begin(http, is_api ? WEB_TYPE_JSON : WEB_TYPE_TEXT);
    if (!is_api) {
        send_answer(http, status, web_line(xstrdup(text)));
        return;
    }
    o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, status == HTTP_OK ? "note" : "error", text);
    send_answer(http, status, web_line(text_printable_json(cJSON_PrintUnformatted(o))));
    cJSON_Delete(o);
}

void web_answer_buffer(struct evhttp_request *http, const char *type,
                       struct evbuffer *text)
{
    struct evbuffer *body = evbuffer_new();

    evbuffer_add_buffer_reference(body, text);
    web_answer_begin(http, type);
    send_answer(http, HTTP_OK, body);
}

void web_answer_redirect(struct evhttp_request *http, const char *to,
                         const char *cookie)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(http);

    evhttp_add_header(headers, "Location", to);
    evhttp_add_header(headers, "Set-Cookie", cookie);
    web_answer_line(http, 303, "the page is at %s", to);
}
