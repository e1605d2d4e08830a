/* SPDX-License-Identifier: MIT */
/*
 * What the page reads of a request beside evhttp: the first digit chooses the head, the
 * target, the query, Host, Origin or Cookie, and the rest is its text.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/show/web/limits.h"
#include "rendezvous/show/web/web_head.h"
#include "rendezvous/show/web/web_route.h"
#include "rendezvous/wire/protocol/proto.h"

static void check_http(int holds)
{
    if (!holds)
        abort();
}

/* In pieces it is the same as a whole; one that is taken has one end, and lines that
 * end in CR LF. */
static void check_head(const char *text, size_t size)
{
    struct web_head whole = { .lines = 0 }, pieces = { .lines = 0 };

    web_head_add(&whole, text, size);
    for (size_t i = 0; i < size; i++)
        web_head_add(&pieces, text + i, 1);
    check_http(whole.fault == pieces.fault && whole.ended == pieces.ended);
    if (whole.fault)
        return;
    check_http(!memchr(text, '\0', size) && whole.lines <= WEB_HEAD_LINES_MAX + 1);
    if (whole.ended)
        check_http(size >= 4 && memcmp(text + size - 4, "\r\n\r\n", 4) == 0 &&
                   memmem(text, size, "\r\n\r\n", 4) == text + size - 4);
}

static void check_target(const char *text)
{
    struct web_route r = web_route_parse(text);

    check_http(!*r.run_id || proto_is_name(r.run_id));
    check_http(strcmp(r.run_id, "..") != 0);
    check_http(r.page == WEB_NOTHING || (text[0] == '/' && text[1] != '/'));
    check_http(r.rank == 0 || *r.run_id);
}

static void check_query(const char *text)
{
    char value[24];

    if (web_query_get(text, "token", value, sizeof(value)))
        check_http(strstr(text, "token=") && text_is_utf8(value, strlen(value)) &&
                   strlen(value) < sizeof(value));
}

static void check_host(const char *text)
{
    struct web_names names = { .name = { "train.example" }, .count = 1 };
    struct net_addr own;
    struct err e;

    check_http(net_parse_host("10.20.30.40", 1, &own, &e) == 0);
    if (web_host_is_ours(text, &names, &own))
        check_http(strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ.-_:[]%") == strlen(text));
    if (web_origin_is_host(text, "train.example:80"))
        check_http(strncmp(text, "http", 4) == 0);
}

static void check_cookie(const char *text)
{
    char value[16];

    if (web_cookie_get(text, "crun_1", value, sizeof(value)))
        check_http(strstr(text, "crun_1=") && !strpbrk(value, "; "));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size < 1 || size > 8192)
        return 0;
    text = xmalloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch ((uint8_t)(data[0] - '0') % 5) {
    case 0:
        check_head(text, size - 1);
        break;
    case 1:
        check_target(text);
        break;
    case 2:
        check_query(text);
        break;
    case 3:
        check_host(text);
        break;
    default:
        check_cookie(text);
        break;
    }
    free(text);
    return 0;
}
