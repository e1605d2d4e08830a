/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/page/page_assets.h"

#include <stdio.h>

#include "rendezvous/show/page/page.h"
#include "rendezvous/wire/protocol/base64.h"
#include "rendezvous/common/tls/sha256.h"

/* The Makefile makes strings of the two files. */
static const char style_text[] =
#include "rendezvous/show/page/page.css.inc"
    ;
static const char script_text[] =
#include "rendezvous/show/page/page.js.inc"
    ;

struct page_asset page_style(void)
{
    return (struct page_asset){ style_text, sizeof(style_text) - 1 };
}

struct page_asset page_script(void)
{
    return (struct page_asset){ script_text, sizeof(script_text) - 1 };
}

static char *digest_asset(struct page_asset asset, char *text)
{
    struct sha256 h;
    uint8_t digest[SHA256_BYTES];

    sha256_init(&h);
    sha256_add(&h, asset.text, asset.size);
    sha256_finish(&h, digest);
    return base64_encode(digest, sizeof(digest), text);
}

const char *page_report_policy(void)
{
    static char policy[160];
    char style[BASE64_SIZE(SHA256_BYTES)];

    if (!*policy)
        snprintf(policy, sizeof(policy),
                 "default-src 'none'; style-src 'sha256-%s'; img-src data:",
                 digest_asset(page_style(), style));
    return policy;
}

const char *page_policy(void)
{
    static char policy[384];
    char script[BASE64_SIZE(SHA256_BYTES)];

    if (!*policy)
        snprintf(policy, sizeof(policy),
                 "%s; script-src 'sha256-%s'; connect-src 'self'; base-uri 'none'; "
                 "form-action 'none'; frame-ancestors 'none'",
                 page_report_policy(), digest_asset(page_script(), script));
    return policy;
}
