/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/security/sha256.h"
#include "rendezvous/show/web/page.h"
#include "rendezvous/wire/protocol/base64.h"
#include "tests/worlds/check_main.h"

#define HOSTILE "</script><script>alert(1)</script><!--js-->\xe2\x80\xae\x1b[31m"

/* NULL: the page of a browser. */
static char *render_page(const cJSON *job)
{
    char *html;
    size_t size;
    FILE *out = open_memstream(&html, &size);

    if (job)
        page_write_report(out, job, 1763820000000);
    else
        page_write(out);
    fclose(out);
    return html;
}

static unsigned count_of(const char *text, const char *word)
{
    unsigned count = 0;

    while ((text = strstr(text, word))) {
        count++;
        text++;
    }
    return count;
}

/* The digest of what is inside the last element that begins so. */
static void expect_digest(const char *html, const char *begin, const char *end,
                          const char *directive)
{
    char text[BASE64_SIZE(SHA256_BYTES)], wanted[96];
    const char *from = strstr(html, begin) + strlen(begin);
    uint8_t digest[SHA256_BYTES];
    struct sha256 h;

    sha256_init(&h);
    sha256_add(&h, from, (size_t)(strstr(from, end) - from));
    sha256_finish(&h, digest);
    snprintf(wanted, sizeof(wanted), "%s 'sha256-%s'", directive,
             base64_encode(digest, sizeof(digest), text));
    ck_assert_ptr_nonnull(strstr(page_policy(), wanted));
}

TEST(the_policy_has_the_digests_of_style_and_script)
{
    char *html = render_page(NULL);

    expect_digest(html, "<style>", "</style>", "style-src");
    expect_digest(html, "<script>", "</script>", "script-src");
    ck_assert_uint_eq(count_of(html, "<script"), count_of(html, "</script"));
    ck_assert_ptr_null(strstr(html, "<!--"));
    free(html);
}

TEST(no_text_of_a_report_ends_its_element)
{
    cJSON *job = cJSON_CreateObject(), *inside;
    char *html, *text, *from;

    cJSON_AddStringToObject(job, "text", HOSTILE);
    html = render_page(job);
    ck_assert_uint_eq(count_of(html, "<script"), 3);
    ck_assert_uint_eq(count_of(html, "</script"), 3);
    ck_assert_ptr_null(strstr(html, "<!--"));
    ck_assert_ptr_null(strchr(html, '\x1b'));
    ck_assert_ptr_nonnull(strstr(html, "http-equiv=\"Content-Security-Policy\""));
    from = strstr(html, "id=\"job\">") + strlen("id=\"job\">");
    text = strndup(from, (size_t)(strstr(from, "</script>") - from));
    inside = cJSON_Parse(text);
    ck_assert(cJSON_Compare(inside, job, true));
    cJSON_Delete(inside);
    cJSON_Delete(job);
    free(text);
    free(html);
}
