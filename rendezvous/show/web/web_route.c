/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/web/web_route.h"

#include <string.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/wire/protocol/proto.h"
#include "rendezvous/show/web/limits.h"

#define SEGMENTS_MAX 5
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

static bool segments_are(const struct path_segments *s, const char *first)
{
    return s->count > 0 && strcmp(s->word[0], first) == 0;
}

/* What follows the job's name. */
static enum web_page page_of_job(const struct path_segments *s, uint32_t *rank)
{
    if (s->count == 2)
        return WEB_JOB;
    if (s->count == 3 && strcmp(s->word[2], "live") == 0)
        return WEB_LIVE;
    if (s->count == 3 && strcmp(s->word[2], "report.html") == 0)
        return WEB_REPORT;
    if (s->count == 4 && strcmp(s->word[2], "ranks") == 0 &&
        parse_rank(s->word[3], rank))
        return WEB_RANK;
    return WEB_NOTHING;
}

static bool is_api(const struct path_segments *s)
{
    return s->count >= 3 && segments_are(s, "api") && strcmp(s->word[1], "v1") == 0 &&
           strcmp(s->word[2], "jobs") == 0;
}

static enum web_page page_of_word(const char *word)
{
    return strcmp(word, "metrics") == 0   ? WEB_METRICS
           : strcmp(word, "healthz") == 0 ? WEB_HEALTH
           : strcmp(word, "readyz") == 0  ? WEB_READY
                                          : WEB_NOTHING;
}

static struct web_route route_to_job(enum web_page page, const char *run_id)
{
    struct web_route r = { .page = page };

    if (!proto_is_name(run_id))
        return (struct web_route){ .page = WEB_NOTHING };
    memcpy(r.run_id, run_id, sizeof(r.run_id));
    return r;
}

struct web_route web_route_parse(const char *target)
{
    struct web_route r = { .page = WEB_NOTHING };
    struct path_segments s;
    uint32_t rank = 0;

    if (!split_path(target, &s))
        return r;
    if (s.count == 0)
        r.page = WEB_HOME;
    else if (s.count == 1)
        r.page = page_of_word(s.word[0]);
    else if (is_api(&s) && s.count == 3)
        r.page = WEB_API_JOBS;
    else if (is_api(&s) && s.count == 4)
        r = route_to_job(WEB_API_JOB, s.word[3]);
    else if (is_api(&s) && strcmp(s.word[4], "events") == 0)
        r = route_to_job(WEB_API_EVENTS, s.word[3]);
    else if (segments_are(&s, "jobs") && page_of_job(&s, &rank) != WEB_NOTHING)
        r = route_to_job(page_of_job(&s, &rank), s.word[1]);
    r.rank = r.page == WEB_RANK ? rank : 0;
    return r;
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
