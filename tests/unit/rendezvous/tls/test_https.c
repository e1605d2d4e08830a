/* SPDX-License-Identifier: MIT */
/* URLs; tests/functional/launch/72-trainjob-status.py has a server. */
#include "rendezvous/tls/https.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/worlds/check_main.h"

static const struct {
    const char *text, *parts; /* "HOST PORT PATH"; NULL: refused */
} urls[] = {
    { "https://a", "a 443 /" },
    { "HTTPS://a:8443/", "a 8443 /" },
    { "https://trainer.kubeflow-system.svc:10443/apis/x/namespaces/a/trainjobs/b/"
      "status",
      "trainer.kubeflow-system.svc 10443 /apis/x/namespaces/a/trainjobs/b/status" },
    { "https://[fd00::1]:8443/x?y=%20", "fd00::1 8443 /x?y=%20" },
    { "https://10.0.0.1/x", "10.0.0.1 443 /x" },
    { "http://a/x", NULL },
    { "https://", NULL },
    { "https:///x", NULL },
    { "https://a:b/x", NULL },
    { "https://a/x y", NULL },
    { "https://a/x\r\nEvil: 1", NULL },
    { "https://a/\xc3\xa4", NULL },
    { "", NULL },
};

START_TEST(urls_are_taken_apart)
{
    struct https_url url;
    char parts[1500];
    struct err e;
    int rc = https_url_parse(urls[_i].text, &url, &e);

    ck_assert_msg(rc == (urls[_i].parts ? 0 : -1), "%s", urls[_i].text);
    if (rc < 0)
        return;
    snprintf(parts, sizeof(parts), "%s %u %s", url.host, url.port, url.path);
    ck_assert_str_eq(parts, urls[_i].parts);
}
END_TEST

START_TEST(some_may_be_without_tls)
{
    struct https_url url;
    struct err e;

    ck_assert_int_eq(https_url_parse_any("http://a/x", &url, &e), 0);
    ck_assert(url.plain);
    ck_assert_uint_eq(url.port, 80);
    ck_assert_int_eq(https_url_parse_any("https://a/x", &url, &e), 0);
    ck_assert(!url.plain);
    ck_assert_uint_eq(url.port, 443);
    ck_assert_int_eq(https_url_parse_any("ftp://a/x", &url, &e), -1);
    ck_assert_str_eq(e.text, "\"ftp://a/x\" does not begin with https:// or http://");
    ck_assert_int_eq(https_url_parse_any("http://", &url, &e), -1);
}
END_TEST

START_TEST(long_urls_are_refused)
{
    char text[4000] = "https://";
    struct https_url url;
    struct err e;

    memset(text + strlen(text), 'a', 300);
    ck_assert_int_eq(https_url_parse(text, &url, &e), -1);
    snprintf(text, sizeof(text), "https://a/%02000d", 0);
    ck_assert_int_eq(https_url_parse(text, &url, &e), -1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("https");
    TCase *t = tcase_create("https");

    tcase_add_loop_test(t, urls_are_taken_apart, 0, sizeof(urls) / sizeof(urls[0]));
    tcase_add_test(t, some_may_be_without_tls);
    tcase_add_test(t, long_urls_are_refused);
    suite_add_tcase(s, t);
    return check_main(s);
}
