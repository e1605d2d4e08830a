/* SPDX-License-Identifier: MIT */
#include "agent/logs/console.h"

#include <stdlib.h>
#include <string.h>

#include "agent/logs/limits.h"
#include "rendezvous/common/base/clock.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/written.h"

/* The writers: two workers with a prefix, two without, the first of them when more is
 * to follow at once, crun itself, and what crun has at the foot. ALONE makes PLAIN the
 * only source, and FILE the console a file, which is not live. */
enum {
    NOBODY,
    P0,
    P1,
    PLAIN,
    OTHER,
    SOURCES,
    PLAIN_CUT = SOURCES,
    CRUN,
    FOOT,
    GONE, /* PLAIN has ended */
    ALONE,
    FILE_SINK
};

#define ERASE "\r\033[J"

struct piece {
    int who;
    const char *text; /* NULL: what is held back is shown now */
};

static const struct {
    const char *what;
    struct piece piece[8]; /* ended by NOBODY's */
    const char *shown;
} cases[] = {
    { "a line gets a prefix", { { P0, "one\n" } }, "[0]:one\n" },
    { "each line gets one", { { P0, "one\ntwo\n" } }, "[0]:one\n[0]:two\n" },
    { "an empty line gets one", { { P0, "\n\n" } }, "[0]:\n[0]:\n" },
    { "the last line may lack its end", { { P0, "one\ntwo" } }, "[0]:one\n[0]:two" },
    { "a line that comes in pieces is one line",
      { { P0, "on" }, { P0, "e\n" } },
      "[0]:one\n" },
    { "a partial line that was shown goes on without a prefix",
      { { P0, "on" }, { P0, NULL }, { P0, "e\n" } },
      "[0]:one\n" },
    { "a line held back does not hold up another's",
      { { P0, "on" }, { P1, "two\n" }, { P0, "e\n" } },
      "[1]:two\n[0]:one\n" },
    { "an open line of another is ended first",
      { { P0, "on" }, { P0, NULL }, { P1, "two\n" }, { P0, "e\n" } },
      "[0]:on\n[1]:two\n[0]:e\n" },
    { "a redrawn line has its prefix again",
      { { P0, "\r10%\r20%\r30%\n" } },
      "\r[0]:10%\r[0]:20%\r[0]:30%\n" },
    { "a bar is shown when it is quiet",
      { { P0, "\r10%" }, { P0, NULL }, { P0, "\r20%" }, { P0, NULL } },
      "\r[0]:10%\r[0]:20%" },
    { "bars of two are drawn one over the other, each whole",
      { { P0, "\r10%" }, { P0, NULL }, { P1, "\r20%" }, { P1, NULL }, { P0, "\r30%" } },
      "\r[0]:10%\r[1]:20%\r[0]:30%" },
    { "a text after a bar begins on a new line",
      { { P0, "\r10%" }, { P0, NULL }, { P1, "hello\n" }, { P0, "\r20%\n" } },
      "\r[0]:10%\n[1]:hello\n\r[0]:20%\n" },
    { "lines may end in carriage return and newline",
      { { P0, "one\r\ntwo\r\n\r\n" } },
      "[0]:one\r\n[0]:two\r\n[0]:\r\n" },
    { "also when these come apart",
      { { P0, "one\r" }, { P0, "\n" }, { P0, "two\n" } },
      "[0]:one\r\n[0]:two\n" },
    { "also when they come apart and late",
      { { P0, "one\r" }, { P0, NULL }, { P0, "\ntwo\n" } },
      "[0]:one\r\n[0]:two\n" },
    { "without a prefix bytes are passed on",
      { { ALONE, NULL }, { PLAIN, "o" }, { PLAIN, "ne\r" }, { PLAIN, "\ntwo" } },
      "one\r\ntwo" },
    { "without a prefix a piece that goes on is cut at a line",
      { { ALONE, NULL }, { PLAIN_CUT, "one\ntw" }, { P0, "zero\n" }, { PLAIN, "o\n" } },
      "one\n[0]:zero\ntwo\n" },
    { "without a prefix nothing is put between",
      { { ALONE, NULL }, { PLAIN, "a" }, { PLAIN, "b" }, { PLAIN, "\n" } },
      "ab\n" },
    { "a prefixed line begins on a line of its own",
      { { PLAIN, "open" }, { PLAIN, NULL }, { P0, "one\n" } },
      "open\n[0]:one\n" },
    { "lines of two without a prefix stay whole",
      { { PLAIN, "on" }, { OTHER, "two\nthr" }, { PLAIN, "e\n" }, { OTHER, "ee\n" } },
      "two\none\nthree\n" },
    { "a prompt of one of several is shown when it is quiet",
      { { OTHER, "two\n" }, { PLAIN, "why? " }, { PLAIN, NULL } },
      "two\nwhy? " },
    { "crun speaks on a line of its own",
      { { ALONE, NULL },
        { PLAIN, "open" },
        { CRUN, "crun: hello" },
        { PLAIN, "more\n" } },
      "open\ncrun: hello\nmore\n" },
    { "also after a worker that has ended",
      { { PLAIN, "open" }, { GONE, NULL }, { CRUN, "crun: hello" } },
      "open\ncrun: hello\n" },
    { "so does a worker",
      { { PLAIN, "open" }, { GONE, NULL }, { OTHER, "other\n" } },
      "open\nother\n" },
    { "also one with an open line",
      { { PLAIN, "a" }, { PLAIN, NULL }, { OTHER, "b" }, { OTHER, NULL } },
      "a\nb" },
    { "a line that was ended is not ended again",
      { { PLAIN, "a" }, { PLAIN, NULL }, { OTHER, "b\n" }, { PLAIN, "\nc\n" } },
      "a\nb\nc\n" },
    { "nor by its newline alone",
      { { PLAIN, "a" },
        { PLAIN, NULL },
        { OTHER, "b\n" },
        { PLAIN, "\n" },
        { PLAIN, "\n" } },
      "a\nb\n\n" },
    { "nor with a prefix",
      { { P0, "a" }, { P0, NULL }, { P1, "b\n" }, { P0, "\nc\n" } },
      "[0]:a\n[1]:b\n[0]:c\n" },
    { "nor after a message",
      { { ALONE, NULL }, { PLAIN, "a" }, { CRUN, "crun: hello" }, { PLAIN, "\n" } },
      "a\ncrun: hello\n" },
    { "a line without an end is not shown in a file",
      { { FILE_SINK, NULL },
        { PLAIN, "on" },
        { PLAIN, NULL },
        { OTHER, "two\n" },
        { PLAIN, "e\n" } },
      "two\none\n" },
    { "until its worker ends",
      { { FILE_SINK, NULL },
        { PLAIN, "on" },
        { OTHER, "two\n" },
        { GONE, NULL },
        { OTHER, "three\n" } },
      "two\non\nthree\n" },
    { "a bar in a file moves with its next state",
      { { FILE_SINK, NULL },
        { PLAIN, "\r10%" },
        { PLAIN, "\r20%" },
        { OTHER, "two\n" } },
      "\r10%\ntwo\n\r20%" },
    { "also if its return comes last",
      { { FILE_SINK, NULL },
        { PLAIN, "10%" },
        { PLAIN, "\r" },
        { PLAIN, "20%" },
        { OTHER, "two\n" } },
      "10%\r\ntwo\n20%" },
    { "a return that belongs to a newline does not end a bar",
      { { FILE_SINK, NULL }, { PLAIN, "one\r" }, { OTHER, "two\n" }, { PLAIN, "\n" } },
      "two\none\r\n" },
    { "a bar is not drawn over a prompt",
      { { PLAIN, "why? " }, { PLAIN, NULL }, { OTHER, "\r10%" }, { OTHER, NULL } },
      "why? \n\r10%" },
    { "crun ends no line that is not open",
      { { P0, "one\n" }, { CRUN, "crun: hello" }, { CRUN, "crun: you" } },
      "[0]:one\ncrun: hello\ncrun: you\n" },
    { "a bar that was erased leaves no empty line",
      { { PLAIN, "\r10%" },
        { PLAIN, NULL },
        { PLAIN, "\r\033[K" },
        { PLAIN, NULL },
        { CRUN, "crun: hello" } },
      "\r10%\r\033[Kcrun: hello\n" },
    { "also when its line was ended before",
      { { PLAIN, "\r10%" },
        { PLAIN, NULL },
        { CRUN, "crun: hello" },
        { PLAIN, "\r\033[K" },
        { PLAIN, NULL },
        { CRUN, "crun: you" } },
      "\r10%\ncrun: hello\n\r\033[Kcrun: you\n" },
    { "the foot is drawn over",
      { { FOOT, "1 s" }, { FOOT, "2 s" }, { FOOT, "" } },
      ERASE "1 s\r" ERASE "2 s\r" ERASE },
    { "what is written takes the place of the foot",
      { { FOOT, "1 s" }, { PLAIN, "one\n" }, { FOOT, "2 s" }, { CRUN, "crun: hello" } },
      ERASE "1 s\r" ERASE "one\n" ERASE "2 s\r" ERASE "crun: hello\n" },
    { "also with a prefix",
      { { FOOT, "1 s" }, { P0, "one\n" } },
      ERASE "1 s\r" ERASE "[0]:one\n" },
    { "there is no foot below an open line",
      { { ALONE, NULL },
        { PLAIN, "one" },
        { FOOT, "1 s" },
        { PLAIN, "\n" },
        { FOOT, "2 s" } },
      "one\n" ERASE "2 s\r" },
    { "no foot leaves no trace", { { FOOT, "" }, { PLAIN, "one\n" } }, "one\n" },
};

static const char *play(const struct piece *p)
{
    static const char *const prefixes[SOURCES] = { [P0] = "[0]:", [P1] = "[1]:" };
    struct console *c = console_create(written_begin());
    struct console_source *s[SOURCES] = { NULL };

    for (const struct piece *q = p; q->who != NOBODY; q++) {
        int i = q->who == PLAIN_CUT ? PLAIN : q->who;

        if (i < SOURCES && !s[i])
            s[i] = console_source_create(c, prefixes[i]);
    }
    for (; p->who != NOBODY; p++) {
        if (p->who == ALONE)
            console_set_sharing(c, (struct console_sharing){ false, true });
        else if (p->who == FILE_SINK)
            console_set_sharing(c, (struct console_sharing){ true, false });
        else if (p->who == GONE) {
            console_source_destroy(s[PLAIN]);
            s[PLAIN] = NULL;
        } else if (p->who == CRUN)
            console_write_line(c, p->text);
        else if (p->who == FOOT)
            console_set_status(c, p->text);
        else if (p->text)
            console_put(s[p->who == PLAIN_CUT ? PLAIN : p->who], p->text,
                        strlen(p->text), p->who == PLAIN_CUT);
        else
            ck_assert(
                !console_source_show_partial(s[p->who], clock_ms() + LOG_PARTIAL_MS));
    }
    for (int i = P0; i < SOURCES; i++)
        console_source_destroy(s[i]);
    console_destroy(c);
    return written_end();
}

TEST_EACH(console_shows_each_case, cases)
{
    const char *shown = play(cases[_i].piece);

    ck_assert_msg(strcmp(shown, cases[_i].shown) == 0, "%s: shown as \"%s\"",
                  cases[_i].what, shown);
}

/* No line is cut that is not longer than LOG_CONSOLE_LINE_MAX. */
TEST_LOOP(lines_up_to_the_limit_stay_whole, 0, 3)
{
    static const size_t sizes[] = { 1, LOG_CONSOLE_LINE_MAX / 2,
                                    LOG_CONSOLE_LINE_MAX - 1 };
    char *line = malloc(LOG_CONSOLE_LINE_MAX + 1),
         *shown = malloc(2 * LOG_CONSOLE_LINE_MAX);
    struct piece p[] = {
        { P0, line }, { P1, "two\n" }, { P0, "\n" }, { NOBODY, NULL }
    };

    memset(line, 'x', sizes[_i]);
    line[sizes[_i]] = '\0';
    strcpy(shown, "[1]:two\n[0]:");
    strcat(shown, line);
    strcat(shown, "\n");
    ck_assert(strcmp(play(p), shown) == 0); /* too long for a message */
    free(line);
    free(shown);
}

TEST(a_longer_line_is_shown_in_parts_and_complete)
{
    size_t size = 3 * LOG_CONSOLE_LINE_MAX;
    char *line = malloc(size + 1);
    struct piece p[] = { { P0, line }, { P0, line }, { P0, "\n" }, { NOBODY, NULL } };
    const char *got;

    memset(line, 'x', size);
    line[size] = '\0';
    got = play(p);
    ck_assert_uint_eq(strlen(got), 2 * size + strlen("[0]:\n"));
    ck_assert_ptr_null(strchr(got + 1, '['));
    free(line);
}

TEST(put_says_whether_something_is_held_back)
{
    struct console *c = console_create(written_begin());
    struct console_source *s = console_source_create(c, "[0]:");

    ck_assert(!console_put(s, "one\n", 4, false));
    ck_assert(console_put(s, "tw", 2, false));
    ck_assert(console_put(s, "", 0, false));
    ck_assert(console_source_show_partial(s, clock_ms())); /* too early */
    ck_assert(!console_put(s, "o\n", 2, false));
    ck_assert(!console_source_show_partial(s, clock_ms()));
    console_set_sharing(c, (struct console_sharing){ true, false });
    ck_assert(!console_put(s, "three", 5, false));
    console_source_destroy(s);
    console_destroy(c);
    ck_assert_str_eq(written_end(), "[0]:one\n[0]:two\n[0]:three");
}
