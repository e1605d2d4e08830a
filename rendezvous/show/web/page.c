/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/web/page.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/version.h"
#include "rendezvous/common/security/sha256.h"
#include "rendezvous/wire/protocol/base64.h"

/* The Makefile makes strings of the files. */
static const char html[] =
#include "rendezvous/show/web/page.html.inc"
    ;
static const char style[] =
#include "rendezvous/show/web/page.css.inc"
    ;
/* clang-format off */
static const char script[] = /* one, in this order */
#include "rendezvous/show/web/page_elements.js.inc"
#include "rendezvous/show/web/page_summary.js.inc"
#include "rendezvous/show/web/page_curves.js.inc"
#include "rendezvous/show/web/page_epochs.js.inc"
#include "rendezvous/show/web/page_nodes.js.inc"
#include "rendezvous/show/web/page_pages.js.inc"
    ;
/* clang-format on */

/* -- the policy ------------------------------------------------------------------- */

static const char *digest_text(const char *text, char buf[BASE64_SIZE(SHA256_BYTES)])
{
    struct sha256 h;
    uint8_t digest[SHA256_BYTES];

    sha256_init(&h);
    sha256_add(&h, text, strlen(text));
    sha256_finish(&h, digest);
    return base64_encode(digest, sizeof(digest), buf);
}

/* Of a report; frame-ancestors counts in a header alone. */
static const char *report_policy(void)
{
    static char policy[320];
    char style_digest[BASE64_SIZE(SHA256_BYTES)], script_digest[sizeof(style_digest)];

    if (!*policy)
        snprintf(policy, sizeof(policy),
                 "default-src 'none'; style-src 'sha256-%s'; img-src data:; "
                 "script-src 'sha256-%s'; base-uri 'none'; form-action 'none'",
                 digest_text(style, style_digest), digest_text(script, script_digest));
    return policy;
}

const char *page_policy(void)
{
    static char policy[384];

    if (!*policy)
        snprintf(policy, sizeof(policy),
                 "%s; connect-src 'self'; frame-ancestors 'none'", report_policy());
    return policy;
}

/* -- the document ----------------------------------------------------------------- */

/* Inside, nothing ends the element or begins another. */
static void write_json_element(FILE *out, const char *id, const cJSON *json)
{
    char *text = text_printable_json(cJSON_PrintUnformatted(json));

    fprintf(out, "<script type=\"application/json\" id=\"%s\">", id);
    for (const char *c = text; *c; c++)
        if (*c == '<')
            fputs("\\u003c", out);
        else
            fputc(*c, out);
    fputs("</script>\n", out);
    free(text);
}

static void write_report_elements(FILE *out, const cJSON *job, uint64_t now_ms)
{
    cJSON *viewer = cJSON_CreateObject();

    cJSON_AddStringToObject(viewer, "version", CRUN_VERSION);
    cJSON_AddNumberToObject(viewer, "now_ms", (double)now_ms);
    write_json_element(out, "job", job);
    write_json_element(out, "viewer", viewer);
    cJSON_Delete(viewer);
}

/* page.html has the marks <!--policy-->, <!--css-->, <!--job--> and <!--js-->. */
void page_write_report(FILE *out, const cJSON *job, uint64_t now_ms)
{
    const char *at = html, *mark;

    for (; (mark = strstr(at, "<!--")); at = strstr(mark, "-->") + strlen("-->")) {
        fwrite(at, 1, (size_t)(mark - at), out);
        mark += strlen("<!--");
        if (strncmp(mark, "css", 3) == 0)
            fputs(style, out);
        else if (strncmp(mark, "js", 2) == 0)
            fputs(script, out);
        else if (job && strncmp(mark, "policy", 6) == 0)
            fprintf(out, "<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">",
                    report_policy());
        else if (job)
            write_report_elements(out, job, now_ms);
    }
    fputs(at, out);
}

void page_write(FILE *out)
{
    page_write_report(out, NULL, 0);
}
