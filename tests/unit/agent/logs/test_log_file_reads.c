/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_file_reads.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"

static struct {
    struct loop *loop;
    struct log_file_reads *reads;
    char folder[64], path[96];
    struct log_file_read got[4]; /* data as a text of its own */
    size_t count;
    bool done;
} t;

static void on_done(void *arg, struct log_file_read *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        t.got[i] = list[i];
        t.got[i].data = xasprintf("%.*s", (int)list[i].size,
                                  list[i].data ? list[i].data : "");
    }
    t.count = count;
    t.done = true;
}

static void setup(void)
{
    memset(&t, 0, sizeof(t));
    snprintf(t.folder, sizeof(t.folder), "/tmp/test_log_file_reads_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(t.folder));
    snprintf(t.path, sizeof(t.path), "%s/out", t.folder);
    t.loop = loop_create();
    t.reads = log_file_reads_create(t.loop, on_done, NULL);
}

static void teardown(void)
{
    log_file_reads_destroy(t.reads);
    loop_destroy(t.loop);
    for (size_t i = 0; i < t.count; i++)
        free(t.got[i].data);
    unlink(t.path);
    rmdir(t.folder);
}

static void write_file(const char *text)
{
    FILE *f = fopen(t.path, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void run_reads(const struct log_file_read *list, size_t count)
{
    struct log_file_read *own = calloc(count, sizeof(*own));
    uint64_t until = clock_ms() + 20000;

    for (size_t i = 0; i < count; i++) {
        own[i] = list[i];
        own[i].path = strdup(list[i].path);
    }
    ck_assert(!log_file_reads_busy(t.reads));
    ck_assert(log_file_reads_start(t.reads, own, count));
    ck_assert(log_file_reads_busy(t.reads));
    while (!t.done && clock_ms() < until)
        loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.count, count);
    ck_assert(!log_file_reads_busy(t.reads));
}

static const struct {
    uint64_t offset, end;
    uint32_t lines;
    size_t size;
    uint64_t from; /* what comes */
    const char *text;
} parts[] = {
    { 0, 100, 0, 100, 0, "one\ntwo\nthree\n" },
    { 4, 100, 0, 100, 4, "two\nthree\n" },
    { 4, 100, 0, 3, 4, "two" },
    { 4, 8, 0, 100, 4, "two\n" },
    { 14, 14, 0, 100, 14, "" },
    { 0, 8, 1, 100, 8, "" }, /* the part behind the last end of a line */
    { 0, 8, 2, 100, 4, "two\n" },
    { 0, 10, 2, 100, 4, "two\nth" },
    { 0, 8, 9, 100, 0, "one\ntwo\n" },
    { 4, 8, 9, 100, 4, "two\n" },
};

START_TEST(the_part_that_is_asked_for_is_read)
{
    const struct log_file_read r = { .path = t.path,
                                     .offset = parts[_i].offset,
                                     .end = parts[_i].end,
                                     .lines = parts[_i].lines,
                                     .size = parts[_i].size };

    write_file("one\ntwo\nthree\n");
    run_reads(&r, 1);
    ck_assert_int_eq(t.got[0].errnum, 0);
    ck_assert_uint_eq(t.got[0].offset, parts[_i].from);
    ck_assert_str_eq(t.got[0].data, parts[_i].text);
}
END_TEST

static const struct {
    const char *older, *text;
    struct log_file_read read;
    uint64_t from;
    const char *wanted;
} followers[] = {
    /* of "one\ntwo\nthree\nfour\n" */
    { "one\ntwo\n", "three\nfour\n", { .offset = 0, .end = 19 }, 0, "one\ntwo\n" },
    { "one\ntwo\n", "three\nfour\n", { .offset = 4, .end = 19 }, 4, "two\n" },
    { "one\ntwo\n", "three\nfour\n", { .offset = 8, .end = 19 }, 8, "three\nfour\n" },
    { "one\ntwo\n", "three\nfour\n", { .offset = 10, .end = 16 }, 10, "ree\nfo" },
    { "one\ntwo\n", "three\nfour\n", { .end = 19, .lines = 2 }, 14, "four\n" },
    { "one\ntwo\n", "three\nfour\n", { .end = 19, .lines = 9 }, 8, "three\nfour\n" },
    { "one\ntwo\n", "three\nfour\n", { .end = 8, .lines = 2 }, 4, "two\n" },
    { "one\ntwo\n", "", { .offset = 4, .end = 19 }, 4, "two\n" }, /* being renamed */
    { NULL, "three\nfour\n", { .offset = 2, .end = 19 }, 8, "three\nfour\n" },
    { NULL, "three\nfour\n", { .offset = 2, .end = 5 }, 8, "" },
};

START_TEST(a_file_that_follows_another_says_where_it_begins)
{
    char older[128], text[256], header[128];
    struct log_file_read r = followers[_i].read;

    snprintf(older, sizeof(older), "%s.1", t.path);
    snprintf(header, sizeof(header), LOG_NEXT_FILE_LINE, (uint64_t)8, "out");
    if (followers[_i].older) {
        write_file(followers[_i].older);
        ck_assert_int_eq(rename(t.path, older), 0);
    }
    snprintf(text, sizeof(text), "%s%s", header, followers[_i].text);
    if (*followers[_i].text)
        write_file(text);
    r.path = t.path;
    r.size = 100;
    r.follows = true;
    run_reads(&r, 1);
    unlink(older);
    ck_assert_int_eq(t.got[0].errnum, 0);
    ck_assert_uint_eq(t.got[0].offset, followers[_i].from);
    ck_assert_str_eq(t.got[0].data, followers[_i].wanted);
}
END_TEST

START_TEST(lines_are_found_far_before_the_end)
{
    struct log_file_read r = { .path = t.path, .lines = 2, .size = 10 };
    FILE *f = fopen(t.path, "w");

    ck_assert_ptr_nonnull(f);
    fprintf(f, "first\n%0200000d\n", 1);
    r.end = (uint64_t)ftell(f);
    fclose(f);
    run_reads(&r, 1);
    ck_assert_uint_eq(t.got[0].offset, 6);
    ck_assert_str_eq(t.got[0].data, "0000000000");
}
END_TEST

START_TEST(a_list_is_read_in_its_order)
{
    char missing[128];
    const struct log_file_read list[] = {
        { .path = t.path, .end = 3, .size = 10 },
        { .path = missing, .end = 3, .size = 10 },
        { .path = t.path, .offset = 1, .end = 3, .size = 10 },
    };

    snprintf(missing, sizeof(missing), "%s/missing", t.folder);
    write_file("abc");
    run_reads(list, 3);
    ck_assert_str_eq(t.got[0].data, "abc");
    ck_assert_int_eq(t.got[1].errnum, ENOENT);
    ck_assert_uint_eq(t.got[1].size, 0);
    ck_assert_str_eq(t.got[2].data, "bc");
}
END_TEST

START_TEST(neither_a_link_nor_a_pipe_is_read)
{
    const struct log_file_read r = { .path = t.path, .end = 10, .size = 10 };

    if (_i == 0)
        ck_assert_int_eq(symlink("/etc/passwd", t.path), 0);
    else
        ck_assert_int_eq(mkfifo(t.path, 0600), 0);
    run_reads(&r, 1);
    ck_assert_int_ne(t.got[0].errnum, 0);
    ck_assert_uint_eq(t.got[0].size, 0);
}
END_TEST

/* A sanitizer sees what is left. */
START_TEST(reads_are_given_up_at_the_end)
{
    struct log_file_read *list = calloc(1, sizeof(*list));

    write_file("abc");
    list->path = strdup(t.path);
    list->end = list->size = 3;
    ck_assert(log_file_reads_start(t.reads, list, 1));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("log_file_reads");
    TCase *c = tcase_create("reads");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, the_part_that_is_asked_for_is_read, 0,
                        sizeof(parts) / sizeof(parts[0]));
    tcase_add_loop_test(c, a_file_that_follows_another_says_where_it_begins, 0,
                        sizeof(followers) / sizeof(followers[0]));
    tcase_add_test(c, lines_are_found_far_before_the_end);
    tcase_add_test(c, a_list_is_read_in_its_order);
    tcase_add_loop_test(c, neither_a_link_nor_a_pipe_is_read, 0, 2);
    tcase_add_test(c, reads_are_given_up_at_the_end);
    suite_add_tcase(s, c);
    return check_main(s);
}
