/* SPDX-License-Identifier: MIT */
/* takes: 6 s */
/* Jobs on disk: what is kept of many, and what becomes of files that are not whole. */
#include <check.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/history/job_archive.h"
#include "tests/worlds/check_main.h"

static char dir[] = "/tmp/test_job_archive.XXXXXX";
static char path[300];
static struct job_archive *a;

static void open_archive(void)
{
    struct err e;

    job_archive_close(a);
    a = job_archive_open(dir, &e);
    ck_assert_msg(a != NULL, "%s", a ? "" : e.text);
}

static void begin_archive(void)
{
    log_init("test", LOG_ERROR, LOG_TEXT);
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    open_archive();
}

static void end_archive(void)
{
    char *command = xasprintf("rm -rf %s", dir);

    job_archive_close(a);
    a = NULL;
    ck_assert_int_eq(system(command), 0);
    free(command);
}

static struct archived_job job_number(unsigned n)
{
    struct archived_job job = { .instance = { { 0x1d, (uint8_t)(n >> 8), (uint8_t)n } },
                                .owner = { .key_file = "alice", .uid = 1000 },
                                .created_ms = 1000000 + n,
                                .ended_ms = 2000000 + n,
                                .written_ms = 2000000 + n };

    snprintf(job.run_id, sizeof(job.run_id), "job-%u", n);
    return job;
}

/* points: of its curve */
static bool write_job_as(struct archived_job job, unsigned points)
{
    struct msg_job_status status = { .state = job.ended_ms ? JOB_DONE : JOB_RUNNING,
                                     .reason = JOB_REASON_FAILURE,
                                     .exit_code = 85,
                                     .instance = job.instance,
                                     .failure = { .kind = FAILURE_EXIT, .code = 85 },
                                     .text = "rank 5 \"failed\" \\ \x01" };
    struct job_history *h = job_history_create();
    bool is_written;

    memcpy(status.run_id, job.run_id, sizeof(status.run_id));
    strcpy(status.failure.said, "Traceback\n  line 2");
    for (unsigned i = 0; i < points; i++)
        curve_add(&h->curve,
                  &(struct curve_point){ 1000ull * i, i, { NAN, 1.5, NAN, NAN, NAN } });
    is_written = job_archive_write(a, &job, &status, h);
    job_history_destroy(h);
    return is_written;
}

static void write_job(unsigned n)
{
    ck_assert(write_job_as(job_number(n), 3));
}

static const char *file_of_job(unsigned n)
{
    struct archived_job job = job_number(n);
    char instance[ID128_HEX_SIZE];

    snprintf(path, sizeof(path), "%s/history/%" PRIu64 "-%s.json", dir, job.created_ms,
             id128_format(&job.instance, instance));
    return path;
}

FIXTURE(begin_archive, end_archive);

TEST_LOOP(a_job_is_read_as_it_was_written, 0, 2)
{
    const struct archived_job *job;
    struct msg_job_status status;
    struct job_history *h;
    struct stat st;
    struct err e;

    write_job(1);
    write_job(3);
    write_job(2);
    if (_i)
        open_archive();
    ck_assert_uint_eq(job_archive_count(a), 3);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_uint_eq(job_archive_at(a, i)->created_ms, 1000003 - i);
    job = job_archive_find(a, &job_archive_at(a, 1)->instance);
    ck_assert_ptr_eq(job, job_archive_at(a, 1));
    ck_assert_str_eq(job->run_id, "job-2");
    ck_assert_str_eq(job->owner.key_file, "alice");
    ck_assert_uint_eq(job->owner.uid, 1000);
    ck_assert_uint_eq(job->ended_ms, 2000002);
    ck_assert_int_eq(job_archive_status(job, 2000102, &status, &e), 0);
    ck_assert_str_eq(status.run_id, "job-2");
    ck_assert_str_eq(status.text, "rank 5 \"failed\" \\ \x01");
    ck_assert_str_eq(status.failure.said, "Traceback\n  line 2");
    ck_assert_uint_eq(status.age_ms, 1000100);
    ck_assert_uint_eq(status.state_ms, 100);
    h = job_archive_history(a, job, &e);
    ck_assert_ptr_nonnull(h);
    ck_assert_uint_eq(h->curve.count, 3);
    job_history_destroy(h);
    ck_assert_int_eq(stat(file_of_job(2), &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
}

TEST(a_job_that_is_written_again_is_there_once)
{
    struct archived_job job = job_number(1);

    job.ended_ms = 0;
    ck_assert(write_job_as(job, 2));
    write_job(2);
    write_job(1);
    ck_assert_uint_eq(job_archive_count(a), 2);
    open_archive();
    ck_assert_uint_eq(job_archive_count(a), 2);
    ck_assert_uint_eq(job_archive_at(a, 1)->ended_ms, 2000001);
}

static void put_file(const char *name, const char *text, size_t size)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fd_write_all(fd, text, &size), 0);
    close(fd);
}

static char *file_text(size_t *size)
{
    char *text = xmalloc(1 << 16);
    ssize_t n = fd_read_file(AT_FDCWD, file_of_job(1), text, 1 << 16);

    ck_assert_int_gt(n, 0);
    *size = (size_t)n;
    return text;
}

/* At each length; and each byte of it may be any other. */
TEST(a_torn_file_is_left_out)
{
    size_t size;
    char *text;

    write_job(2);
    write_job(1);
    text = file_text(&size);
    for (size_t cut = 0; cut < size; cut += cut < 40 || size - cut < 40 ? 1 : 97) {
        put_file(file_of_job(1), text, cut);
        open_archive();
        ck_assert_uint_eq(job_archive_count(a), 2);
        ck_assert_ptr_nonnull(job_archive_at(a, 0)->status);
        ck_assert_ptr_null(job_archive_at(a, 1)->status);
    }
    free(text);
    write_job(1); /* it is replaced */
    ck_assert_ptr_nonnull(job_archive_at(a, 1)->status);
}

TEST(a_damaged_file_does_no_harm)
{
    static const char bytes[] = "\0\"{}[],:-9e\\\xff";
    struct msg_job_status status;
    struct err e;
    size_t size;
    char *text;

    write_job(1);
    text = file_text(&size);
    for (size_t at = 0; at < size; at++) {
        char good = text[at];

        text[at] = bytes[at % (sizeof(bytes) - 1)];
        put_file(file_of_job(1), text, size);
        text[at] = good;
        open_archive();
        ck_assert_uint_eq(job_archive_count(a), 1);
        if (job_archive_at(a, 0)->status) {
            ck_assert_int_eq(job_archive_status(job_archive_at(a, 0), 1, &status, &e),
                             0);
            job_history_destroy(job_archive_history(a, job_archive_at(a, 0), &e));
        }
    }
    free(text);
}

/* One is of another job, one is long, one is deep, one has no owner, one is no file. */
TEST(files_of_others_are_left_out)
{
    static char large[ARCHIVE_FILE_MAX + 2];
    const char *no_owner = "{\"version\":1,\"status\":{}}";
    size_t size;
    char *text;

    write_job(1);
    text = file_text(&size);
    put_file(file_of_job(2), text, size);
    free(text);
    memset(large, ' ', sizeof(large) - 1);
    put_file(file_of_job(3), large, sizeof(large) - 1);
    memset(large, '[', 1000);
    put_file(file_of_job(4), large, 1000);
    put_file(file_of_job(5), no_owner, strlen(no_owner));
    ck_assert_int_eq(mkdir(file_of_job(6), 0700), 0);
    ck_assert_int_eq(mkfifo(file_of_job(7), 0600), 0);
    ck_assert_int_eq(symlink("/etc/passwd", file_of_job(8)), 0);
    snprintf(path, sizeof(path), "%s/history/notes.txt", dir);
    put_file(path, "mine", 4);
    open_archive();
    for (unsigned i = 0; i < job_archive_count(a); i++)
        ck_assert(!job_archive_at(a, i)->status == (i + 1 < job_archive_count(a)));
    ck_assert_uint_eq(job_archive_count(a), 8);
    ck_assert_int_eq(access(path, F_OK), 0);
}

TEST(the_newest_jobs_are_kept)
{
    for (unsigned n = 0; n < ARCHIVE_JOBS_MAX + 50; n++)
        ck_assert(write_job_as(job_number(n), 1));
    ck_assert_uint_eq(job_archive_count(a), ARCHIVE_JOBS_MAX);
    ck_assert_uint_eq(job_archive_at(a, ARCHIVE_JOBS_MAX - 1)->created_ms, 1000050);
    ck_assert_int_lt(access(file_of_job(49), F_OK), 0);
    ck_assert_int_eq(access(file_of_job(50), F_OK), 0);
    open_archive();
    ck_assert_uint_eq(job_archive_count(a), ARCHIVE_JOBS_MAX);
}

TEST(so_many_bytes_are_kept)
{
    struct job_history *h = job_history_create();
    struct msg_event event = { .kind = "joined" };
    uint64_t bytes = 0;

    memset(event.text, 'x', 200);
    for (unsigned i = 0; i < JOB_EVENTS_KEPT; i++)
        job_history_add_event(h, &event);
    for (unsigned n = 0; n < 900; n++) {
        struct archived_job job = job_number(n);
        struct msg_job_status status = { .instance = job.instance };

        memcpy(status.run_id, job.run_id, sizeof(status.run_id));
        ck_assert(job_archive_write(a, &job, &status, h));
    }
    job_history_destroy(h);
    for (unsigned i = 0; i < job_archive_count(a); i++)
        bytes += job_archive_at(a, i)->size;
    ck_assert_uint_le(bytes, ARCHIVE_BYTES_MAX);
    ck_assert_uint_gt(bytes, ARCHIVE_BYTES_MAX * 9 / 10);
    ck_assert_uint_eq(job_archive_at(a, 0)->created_ms, 1000899);
}

TEST(a_job_that_runs_is_kept_before_those_that_have_ended)
{
    struct archived_job job = job_number(0);

    job.ended_ms = 0;
    ck_assert(write_job_as(job, 1));
    for (unsigned n = 1; n < ARCHIVE_JOBS_MAX + 5; n++)
        ck_assert(write_job_as(job_number(n), 1));
    ck_assert_ptr_nonnull(job_archive_find(a, &job.instance));
}

TEST(what_cannot_be_written_is_no_error)
{
    char moved[300];

    write_job(1);
    snprintf(path, sizeof(path), "%s/history", dir);
    snprintf(moved, sizeof(moved), "%s/away", dir);
    ck_assert_int_eq(rename(path, moved), 0); /* it is used by its descriptor */
    write_job(2);
    snprintf(moved, sizeof(moved), "%s/away/new", dir);
    ck_assert_int_eq(mkdir(moved, 0700), 0);
    ck_assert(!write_job_as(job_number(3), 1));
    ck_assert(!write_job_as(job_number(3), 1));
    ck_assert_uint_eq(job_archive_count(a), 2);
    ck_assert_int_eq(rmdir(moved), 0);
    write_job(3);
    ck_assert_uint_eq(job_archive_count(a), 3);
}

TEST(what_a_killed_writer_has_left_is_removed)
{
    snprintf(path, sizeof(path), "%s/history/new", dir);
    put_file(path, "{", 1);
    open_archive();
    ck_assert_int_lt(access(path, F_OK), 0);
}
