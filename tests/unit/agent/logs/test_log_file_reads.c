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

/* As a part of a stream: `text` follows a header. */
static struct log_part write_part(const char *path, const char *header,
                                  const char *text, uint64_t start)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    struct log_part part;

    ck_assert_int_eq(write(fd, header, strlen(header)), strlen(header));
    part = log_part_of(fd, start);
    ck_assert_int_eq(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return part;
}

static struct log_parts write_file(const char *text)
{
    return (struct log_parts){ .written = strlen(text),
                               .part = { write_part(t.path, "", text, 0) } };
}

static void run_reads(const struct log_file_read *list, size_t count)
{
    struct log_file_read *own = calloc(count, sizeof(*own));
    uint64_t until = clock_ms() + 60000;

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
                               .parts = write_file("one\ntwo\nthree\n"),
                               .offset = parts[_i].offset,
                               .lines = parts[_i].lines,
                               .size = parts[_i].size };

    r.parts.written = parts[_i].written;
    run_reads(&r, 1);
    ck_assert_int_eq(t.got[0].errnum, 0);
    ck_assert_uint_eq(t.got[0].offset, parts[_i].from);
    ck_assert_str_eq(t.got[0].data, parts[_i].text);
}

/* Of "one\ntwo\nthree\nfour\n", the first two lines are in the older file. */
enum { BOTH, RENAMED, NO_OLDER, TWICE, SHORTER };

static const struct {
    int files;
    uint64_t offset;
    uint32_t lines;
    uint64_t from;
    const char *wanted;
} rotated[] = {
    { BOTH, 0, 0, 0, "one\ntwo\nthree\nfour\n" },
    { BOTH, 10, 0, 10, "ree\nfour\n" },
    { BOTH, 0, 1, 14, "four\n" },
    { BOTH, 0, 3, 4, "two\nthree\nfour\n" },
    { RENAMED, 10, 0, 10, "ree\nfour\n" }, /* the newer file just now */
    { NO_OLDER, 2, 0, 8, "three\nfour\n" },
    { TWICE, 2, 0, 19, "" },    /* both are gone: others have their names */
    { SHORTER, 14, 0, 19, "" }, /* somebody has emptied it */
};

TEST_EACH(a_stream_is_read_from_both_its_files, rotated)
{
    struct log_file_read r = { .path = t.path,
                               .parts.written = 19,
                               .offset = rotated[_i].offset,
                               .lines = rotated[_i].lines,
                               .size = 100 };
    char older[128];

    snprintf(older, sizeof(older), "%s.1", t.path);
    r.parts.part[1] = write_part(older, "", "one\ntwo\n", 0);
    r.parts.part[0] = write_part(t.path, "[header]\n", "three\nfour\n", 8);
    if (rotated[_i].files == RENAMED)
        ck_assert_int_eq(rename(t.path, older), 0);
    if (rotated[_i].files == NO_OLDER)
        unlink(older);
    if (rotated[_i].files == SHORTER)
        ck_assert_int_eq(truncate(t.path, 0), 0);
    if (rotated[_i].files == TWICE)
        r.parts.part[0].inode = r.parts.part[1].inode = 1;
    run_reads(&r, 1);
    unlink(older);
    ck_assert_int_eq(t.got[0].errnum, 0);
    ck_assert_uint_eq(t.got[0].offset, rotated[_i].from);
    ck_assert_str_eq(t.got[0].data, rotated[_i].wanted);
}

TEST(lines_are_found_far_before_the_end)
{
    struct log_file_read r = { .path = t.path, .lines = 1, .size = 10 };
    char text[200008];

    snprintf(text, sizeof(text), "first\n%0200000d\n", 1);
    r.parts = write_file(text);
    run_reads(&r, 1);
    ck_assert_uint_eq(t.got[0].offset, 6);
    ck_assert_str_eq(t.got[0].data, "0000000000");
}

TEST(a_list_is_read_in_its_order)
{
    struct log_parts all = write_file("abc");
    char missing[128];
    const struct log_file_read list[] = {
        { .path = t.path, .parts = all, .size = 10 },
        { .path = missing, .parts = all, .size = 10 },
        { .path = t.path, .parts = all, .offset = 1, .size = 10 },
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
    const struct log_file_read r = { .path = t.path, .parts.written = 10, .size = 10 };

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

    list->parts = write_file("abc");
    list->path = strdup(t.path);
    list->size = 3;
    ck_assert(log_file_reads_start(t.reads, list, 1));
}
