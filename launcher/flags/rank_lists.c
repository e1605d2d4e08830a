/* SPDX-License-Identifier: MIT */
#include "launcher/flags/rank_lists.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/xalloc.h"

/* A local rank at *text, which moves past it. -1: there is none. */
static int64_t read_rank(const char **text)
{
    size_t digits = strspn(*text, "0123456789");
    unsigned long rank;

    if (digits == 0 || digits > 9)
        return -1;
    rank = strtoul(*text, NULL, 10);
    *text += digits;
    return rank < WORKERS_PER_NODE_MAX ? (int64_t)rank : -1;
}

static bool is_stream(char c)
{
    return c >= '0' && c <= '3';
}

static int refuse_streams(const char *text, struct err *e)
{
    return err_set(e,
                   "\"%s\" is not 0 (none), 1 (stdout), 2 (stderr) or 3 (both), nor "
                   "that for each local rank, as in 0:1,1:3",
                   text);
}

int rank_lists_streams(const char *text, uint8_t *streams, uint32_t workers,
                       struct err *e)
{
    const char *next = text;

    if (is_stream(text[0]) && text[1] == '\0') {
        memset(streams, text[0] - '0', workers);
        return 0;
    }
    memset(streams, 0, workers);
    for (;; next++) {
        int64_t rank = read_rank(&next);

        if (rank < 0 || next[0] != ':' || !is_stream(next[1]))
            return refuse_streams(text, e);
        if (rank < workers)
            streams[rank] = (uint8_t)(next[1] - '0');
        next += 2;
        if (*next == '\0')
            return 0;
        if (*next != ',')
            return refuse_streams(text, e);
    }
}

int rank_lists_shown(const char *text, bool *shown, uint32_t workers, struct err *e)
{
    const char *next = text;

    memset(shown, *text == '\0', workers);
    while (*next) {
        int64_t rank;

        next += strspn(next, " ");
        rank = read_rank(&next);
        next += strspn(next, " ");
        if (rank < 0 || (*next != '\0' && (*next != ',' || next[1] == '\0')))
            return err_set(e, "\"%s\" is not a list of local ranks, as in 0,1", text);
        if (rank < workers)
            shown[rank] = true;
        next += *next == ',';
    }
    return 0;
}

/* Copies an item of the list into out, with ",," as ",". Returns its end in text. */
static const char *copy_word(const char *text, char **out)
{
    while (*text && (text[0] != ',' || text[1] == ',')) {
        text += text[0] == ',';
        *(*out)++ = *text++;
    }
    *(*out)++ = '\0';
    return text;
}

const char **rank_lists_words(const char *text)
{
    size_t slots = strlen(text) / 2 + 2, used = 0;
    const char **words = xmalloc(slots * sizeof(*words) + strlen(text) + 1);
    char *out = (char *)(words + slots);

    while (*text) {
        char *word = out;

        text = copy_word(text, &out);
        if (*word)
            words[used++] = word;
        else
            out = word;
        text += *text == ',';
    }
    words[used] = NULL;
    return words;
}
