/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <string.h>

#include "rendezvous/show/web/limits.h"
#include "rendezvous/show/web/web_head.h"
#include "tests/worlds/check_main.h"

/* -- the head --------------------------------------------------------------------- */

static const struct {
    const char *head, *fault;
} heads[] = {
    { "GET / HTTP/1.1\r\nHost: a\r\n\r\n", NULL },
    { "GET / HTTP/1.1\r\nA:\tb c\r\n\r\n", NULL },
    { "GET / HTTP/1.1\nHost: a\n\n", "CR LF" },
    { "GET / HTTP/1.1\r\nHost: a\n\r\n", "CR LF" },
    { "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", "CR LF" },
    { "GET / HTTP/1.1\r\r\n", "CR LF" },
    { "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "next line" },
    { "GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n", "next line" },
    { " GET / HTTP/1.1\r\n\r\n", "next line" },
    { "\r\nGET / HTTP/1.1\r\n\r\n", "empty line" },
    { "GET /\x01 HTTP/1.1\r\n\r\n", "control" },
    { "GET /\x7f HTTP/1.1\r\n\r\n", "control" },
    { "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", "after its head" },
    { "GET / HTTP/1.1\r\n\r\n0", "after its head" },
};

static void check_fault(const struct web_head *h, const char *fault, const char *head)
{
    ck_assert_msg(!fault == !h->fault, "%s: %s", head, h->fault ? h->fault : "");
    if (fault)
        ck_assert_msg(strstr(h->fault, fault) != NULL, "%s: %s", head, h->fault);
}

TEST_EACH(each_head_has_its_fault, heads)
{
    struct web_head whole = { .lines = 0 }, bytes = { .lines = 0 };
    const char *head = heads[_i].head;

    web_head_add(&whole, head, strlen(head));
    for (size_t i = 0; head[i]; i++)
        web_head_add(&bytes, head + i, 1);
    check_fault(&whole, heads[_i].fault, head);
    check_fault(&bytes, heads[_i].fault, head);
    ck_assert(heads[_i].fault || whole.ended);
}

TEST(a_head_has_a_zero_byte_or_too_many_lines)
{
    struct web_head zero = { .lines = 0 }, many = { .lines = 0 };

    web_head_add(&zero, "GET /\0", 6);
    ck_assert_ptr_nonnull(zero.fault);
    web_head_add(&many, "GET / HTTP/1.1\r\n", 16);
    for (int i = 0; i < WEB_HEAD_LINES_MAX; i++)
        web_head_add(&many, "A: b\r\n", 6);
    ck_assert_ptr_null(many.fault);
    web_head_add(&many, "A: b\r\n", 6);
    ck_assert_ptr_nonnull(many.fault);
}

/* -- hosts ------------------------------------------------------------------------ */

static const struct {
    const char *host;
    bool ours;
} hosts[] = {
    { "localhost", true },
    { "LocalHost:8080", true },
    { "127.0.0.1:29480", true },
    { "127.9.8.7", true },
    { "[::1]:29480", true },
    { "10.20.30.40:1", true }, /* where the connection has come to */
    { "train.example:80", true },
    { "TRAIN.example", true },
    { "", false },
    { ":80", false },
    { "10.20.30.41", false },
    { "evil.example", false },
    { "evil.example:29480", false },
    { "127.0.0.1.evil.example", false },
    { "localhost.evil.example", false },
    { "localhost.", false },
    { "localhost:80:80", false },
    { "localhost:", false },
    { "localhost:x", false },
    { "train.example@evil.example", false },
    { "[localhost]", false },
    { "[::1", false },
    { "[::1]x", false },
    { "::1", false },
    { "a localhost", false },
};

TEST_EACH(a_host_is_ours_by_its_name_or_address, hosts)
{
    struct web_names names = { .name = { "train.example" }, .count = 1 };
    struct net_addr own;
    struct err e;

    ck_assert_int_eq(net_parse_host("10.20.30.40", 29480, &own, &e), 0);
    ck_assert_msg(web_host_is_ours(hosts[_i].host, &names, &own) == hosts[_i].ours,
                  "%s", hosts[_i].host);
}

TEST(an_origin_is_the_same_host)
{
    ck_assert(web_origin_is_host("http://localhost:80", "localhost:80"));
    ck_assert(web_origin_is_host("https://Train.example", "train.example"));
    ck_assert(!web_origin_is_host("http://localhost:81", "localhost:80"));
    ck_assert(!web_origin_is_host("http://localhost:80.evil", "localhost:80"));
    ck_assert(!web_origin_is_host("null", "localhost:80"));
    ck_assert(!web_origin_is_host("", ""));
    ck_assert(!web_origin_is_host("ftp://localhost", "localhost"));
}

TEST(a_cookie_is_found_by_its_whole_name)
{
    char value[5];

    ck_assert(web_cookie_get("a=1; crun_1=abcd", "crun_1", value, sizeof(value)));
    ck_assert_str_eq(value, "abcd");
    ck_assert(web_cookie_get("crun_1=ab;b=2", "crun_1", value, sizeof(value)));
    ck_assert_str_eq(value, "ab");
    ck_assert(!web_cookie_get("xcrun_1=ab", "crun_1", value, sizeof(value)));
    ck_assert(!web_cookie_get("crun_12=ab", "crun_1", value, sizeof(value)));
    ck_assert(!web_cookie_get("crun_1=abcde", "crun_1", value, sizeof(value)));
    ck_assert(!web_cookie_get("", "crun_1", value, sizeof(value)));
    ck_assert(!web_cookie_get(";;; ;", "crun_1", value, sizeof(value)));
}
