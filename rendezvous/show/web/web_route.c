/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/web/web_route.h"

#include <string.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/show/web/limits.h"
#include "rendezvous/wire/protocol/proto.h"

#define SEGMENTS_MAX 7
#define RANK_DIGITS_MAX 7

/* -- percent signs ---------------------------------------------------------------- */

static int hex_digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Only text is the result: no control characters, and no part of a character. */
static bool decode_percents(const char *from, size_t size, char *to, size_t room)
{
    size_t used = 0;

    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)from[i];

        if (c == '%') {
            int high = i + 2 < size ? hex_digit_value(from[i + 1]) : -1;
            int low = i + 2 < size ? hex_digit_value(from[i + 2]) : -1;

            if (high < 0 || low < 0)
                return false;
            c = (unsigned char)(high * 16 + low);
            i += 2;
        }
        if (c < ' ' || c == 0x7f || used + 1 >= room)
            return false;
        to[used++] = (char)c;
    }
    to[used] = '\0';
    return text_is_utf8(to, used);
}

/* -- the path --------------------------------------------------------------------- */

struct path_segments {
    char word[SEGMENTS_MAX][RUN_ID_MAX + 1];
    unsigned count;
};

/* "/a/b" has two segments, "/" has none. False: it is no path of ours. */
static bool split_path(const char *target, struct path_segments *s)
{
    size_t size = strcspn(target, "?");
    const char *at = target, *end = target + size;

    s->count = 0;
    if (*target != '/' || strlen(target) > WEB_TARGET_MAX)
        return false;
    if (size == 1)
        return true;
    while (at < end) {
        size_t length = strcspn(++at, "/?");
        char *word = s->word[s->count];

        if (s->count == SEGMENTS_MAX ||
            !decode_percents(at, length, word, sizeof(s->word[0])) || !*word ||
            strchr(word, '/') || strcmp(word, ".") == 0 || strcmp(word, "..") == 0)
            return false;
        s->count++;
        at += length;
    }
    return true;
}

static bool parse_rank(const char *text, uint32_t *rank)
{
    size_t digits = strspn(text, "0123456789");

    if (digits == 0 || digits > RANK_DIGITS_MAX || text[digits] ||
        (text[0] == '0' && digits > 1))
        return false;
    *rank = 0;
    for (; *text; text++)
        *rank = *rank * 10 + (uint32_t)(*text - '0');
    return true;
}

/* ID is the name of a job, N a rank. */
static const struct {
    const char *path;
    enum web_page page;
} pages[] = {
    { "", WEB_PAGE },
    { "/jobs/ID", WEB_PAGE },
    { "/jobs/ID/ranks/N", WEB_PAGE },
    { "/jobs/ID/report.html", WEB_REPORT },
    { "/api/v1/viewer", WEB_API_VIEWER },
    { "/api/v1/live", WEB_API_LIVE },
    { "/api/v1/jobs", WEB_API_JOBS },
    { "/api/v1/jobs/ID", WEB_API_JOB },
    { "/api/v1/jobs/ID/live", WEB_API_LIVE },
    { "/api/v1/jobs/ID/events", WEB_API_EVENTS },
    { "/api/v1/jobs/ID/ranks/N", WEB_API_RANK },
    { "/api/v1/jobs/ID/ranks/N/logs", WEB_API_LOGS },
    { "/api/v1/jobs/ID/ranks/N/stacks", WEB_API_STACKS },
    { "/metrics", WEB_METRICS },
    { "/healthz", WEB_HEALTH },
    { "/readyz", WEB_READY },
};

static bool match_path(const char *path, const struct path_segments *s,
                       struct web_route *r)
{
    unsigned i = 0;

    for (size_t length; *path; path += length, i++) {
        const char *word = s->word[i];

        length = strcspn(++path, "/");
        if (i == s->count)
            return false;
        if (strncmp(path, "ID", length) == 0) {
            if (!proto_is_name(word))
                return false;
            memcpy(r->run_id, word, sizeof(r->run_id));
        } else if (strncmp(path, "N", length) == 0) {
            if (!parse_rank(word, &r->rank))
                return false;
        } else if (strlen(word) != length || strncmp(path, word, length) != 0) {
            return false;
        }
    }
    return i == s->count;
}

struct web_route web_route_parse(const char *target)
{
    struct path_segments s;

    if (!split_path(target, &s))
        return (struct web_route){ .page = WEB_NOTHING };
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        struct web_route r = { .page = pages[i].page };

        if (match_path(pages[i].path, &s, &r))
            return r;
    }
    return (struct web_route){ .page = WEB_NOTHING };
}

/* -- the query -------------------------------------------------------------------- */

bool web_query_get(const char *target, const char *name, char *value, size_t size)
{
    const char *at = strchr(target, '?');
    size_t length = strlen(name);

    while (at) {
        at++;
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            at += length + 1;
            return decode_percents(at, strcspn(at, "&"), value, size);
        }
        at = strchr(at, '&');
    }
    return false;
}
