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

static struct log_place write_file(const char *text)
{
    int fd = open(t.path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    struct log_place place = log_place_of(fd);

    ck_assert_int_eq(write(fd, text, strlen(text)), strlen(text));
    place.written = strlen(text);
    close(fd);
    return place;
}

static void run_reads(const struct log_file_read *list, size_t count)
{
    struct log_file_read *own = calloc(count, sizeof(*own));
    uint64_t until = clock_ms() + 20000;

    for (size_t i = 0; i < count; i++) {
        own[i] = list[i];
        own[i].path = strdup(list[i].path);
    }
    ck_assert(log_file_reads_start(t.reads, own, count));
    while (!t.done && clock_ms() < until)
        loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.count, count);
}

static const struct {
    uint64_t offset, written;
    uint32_t lines;
    size_t size;
    uint64_t from; /* what comes */
    const char *text;
} parts[] = {
    { 0, 14, 0, 100, 0, "one\ntwo\nthree\n" },
    { 4, 14, 0, 100, 4, "two\nthree\n" },
    { 4, 14, 0, 3, 4, "two" },
    { 4, 8, 0, 100, 4, "two\n" }, /* more is written meanwhile */
    { 14, 14, 0, 100, 14, "" },
    { 20, 14, 0, 100, 14, "" },
    { 14, 14, 1, 100, 8, "three\n" },
    { 14, 14, 2, 100, 4, "two\nthree\n" },
    { 10, 10, 2, 100, 4, "two\nth" },
    { 14, 14, 9, 100, 0, "one\ntwo\nthree\n" },
};

FIXTURE(setup, teardown);

TEST_EACH(the_part_that_is_asked_for_is_read, parts)
{
    struct log_file_read r = { .path = t.path,
                               .place = write_file("one\ntwo\nthree\n"),
                               .offset = parts[_i].offset,
                               .lines = parts[_i].lines,
                               .size = parts[_i].size };

    r.place.written = parts[_i].written;
    run_reads(&r, 1);
    ck_assert_int_eq(t.got[0].errnum, 0);
    ck_assert_uint_eq(t.got[0].offset, parts[_i].from);
    ck_assert_str_eq(t.got[0].data, parts[_i].text);
}

/* Somebody has emptied it, or another file has its name. */
TEST_LOOP(what_is_gone_is_passed_over, 0, 2)
{
    struct log_file_read r = {
        .path = t.path, .place = write_file("one\ntwo\n"), .offset = 4, .size = 100
    };

    if (_i == 0)
        ck_assert_int_eq(truncate(t.path, 0), 0);
    else
        r.place.inode++;
    run_reads(&r, 1);
    ck_assert_int_eq(t.got[0].errnum, 0);
    ck_assert_uint_eq(t.got[0].offset, 8);
    ck_assert_str_eq(t.got[0].data, "");
}

TEST(lines_are_found_far_before_the_end)
{
    struct log_file_read r = { .path = t.path, .lines = 1, .size = 10 };
    char text[200008];

    snprintf(text, sizeof(text), "first\n%0200000d\n", 1);
    r.place = write_file(text);
    run_reads(&r, 1);
    ck_assert_uint_eq(t.got[0].offset, 6);
    ck_assert_str_eq(t.got[0].data, "0000000000");
}

TEST(a_list_is_read_in_its_order)
{
    struct log_place all = write_file("abc");
    char missing[128];
    const struct log_file_read list[] = {
        { .path = t.path, .place = all, .size = 10 },
        { .path = missing, .place = all, .size = 10 },
        { .path = t.path, .place = all, .offset = 1, .size = 10 },
    };

    snprintf(missing, sizeof(missing), "%s/missing", t.folder);
    run_reads(list, 3);
    ck_assert_str_eq(t.got[0].data, "abc");
    ck_assert_int_eq(t.got[1].errnum, ENOENT);
    ck_assert_uint_eq(t.got[1].size, 0);
    ck_assert_uint_eq(t.got[1].offset, 3);
    ck_assert_str_eq(t.got[2].data, "bc");
}

TEST_LOOP(neither_a_link_nor_a_pipe_is_read, 0, 2)
{
    const struct log_file_read r = { .path = t.path, .place.written = 10, .size = 10 };

    if (_i == 0)
        ck_assert_int_eq(symlink("/etc/passwd", t.path), 0);
    else
        ck_assert_int_eq(mkfifo(t.path, 0600), 0);
    run_reads(&r, 1);
    ck_assert_uint_eq(t.got[0].size, 0);
}

/* A sanitizer sees what is left. */
TEST(reads_are_given_up_at_the_end)
{
    struct log_file_read *list = calloc(1, sizeof(*list));

    list->place = write_file("abc");
    list->path = strdup(t.path);
    list->size = 3;
    ck_assert(log_file_reads_start(t.reads, list, 1));
}
