/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/logs/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "tests/worlds/check_main.h"

#define QUEUE_MAX 65536
#define MUCH (1 << 20)
#define PATIENCE_MS 60000

static struct {
    struct loop *loop;
    struct log_writer *writer;
    unsigned news;
    bool all_written;
    char logged[4096];
} t;

static void on_news(void *arg)
{
    t.news++;
}

static void on_line(void *arg, enum log_level level, const char *line)
{
    strncat(t.logged, line, sizeof(t.logged) - strlen(t.logged) - 1);
}

static void setup(void)
{
    struct log_writer_calls calls = { .news = on_news };

    memset(&t, 0, sizeof(t));
    t.loop = loop_create();
    t.writer = log_writer_create(t.loop, &calls);
    log_set_sink(on_line, NULL);
}

static void end_writer(uint64_t wait_ms)
{
    t.all_written = log_writer_destroy(t.writer, clock_ms() + wait_ms);
    t.writer = NULL;
}

static void teardown(void)
{
    end_writer(0);
    loop_destroy(t.loop);
    log_set_sink(NULL, NULL);
}

static struct outlet *outlet(int fd, bool mark)
{
    struct outlet_options options = {
        .fd = fd, .mark = mark, .queue_max = QUEUE_MAX, .name = "the file"
    };

    return outlet_create(t.writer, &options);
}

static void turn_until(bool (*done)(struct outlet *), struct outlet *o)
{
    uint64_t until = clock_ms() + PATIENCE_MS;

    while (!done(o) && clock_ms() < until)
        loop_turn(t.loop, 20);
    ck_assert(done(o));
}

static bool is_ready(struct outlet *o)
{
    return outlet_ready(o);
}

static bool has_losses(struct outlet *o)
{
    return log_writer_has_losses(t.writer);
}

static bool is_given_up(struct outlet *o)
{
    (void)outlet_ready(o); /* a worker waits */
    (void)log_writer_check(t.writer, clock_ms());
    return outlet_ready(o);
}

static void put_text(struct outlet *o, const char *text)
{
    outlet_put(o, text, strlen(text));
}

/* Until the pipe is full as well, which shows in that the queue stays full. */
static void fill(struct outlet *o, int pipe_fd)
{
    static const char junk[4096];
    struct pollfd room = { .fd = pipe_fd, .events = POLLOUT };

    for (int full = 0; full < 50; full += poll(&room, 1, 0) == 0) {
        for (; outlet_ready(o); full = 0)
            outlet_put(o, junk, sizeof(junk));
        usleep(1000);
    }
    ck_assert(!outlet_ready(o));
}

FIXTURE(setup, teardown);

TEST(what_is_put_is_written_in_order)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    struct outlet *o = outlet(fd, true);
    char expected[20 * 1000], got[20 * 1000] = "";
    size_t n = 0;

    for (int i = 0; i < 2000; i++) {
        char text[16];

        n += (size_t)sprintf(expected + n, "%d\n", i);
        snprintf(text, sizeof(text), "%d\n", i);
        put_text(o, text);
    }
    outlet_close(o);
    end_writer(PATIENCE_MS);
    ck_assert(t.all_written);
    ck_assert_int_eq(pread(fd, got, sizeof(got) - 1, 0), (ssize_t)n);
    ck_assert_str_eq(got, expected);
    ck_assert_str_eq(t.logged, "");
    close(fd);
}

TEST(a_writer_without_output_has_nothing_to_wait_for)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    outlet_close(outlet(fd, true));
    (void)outlet(fd, true); /* goes with the writer */
    end_writer(PATIENCE_MS);
    close(fd);
}

TEST(a_full_disk_costs_the_output_and_is_told)
{
    struct outlet *o = outlet(open("/dev/full", O_WRONLY | O_CLOEXEC), true);

    put_text(o, "hello");
    turn_until(has_losses, o);
    log_writer_report_losses(t.writer);
    ck_assert_str_eq(t.logged,
                     "crun: the file: 5 bytes of output lost so far: No space "
                     "left on device");
    log_writer_report_losses(t.writer); /* not again */
    ck_assert_ptr_null(strstr(t.logged + 1, "crun:"));
    put_text(o, "more");
    outlet_close(o);
    end_writer(PATIENCE_MS);
    ck_assert_ptr_nonnull(
        strstr(t.logged, "the file: 9 bytes of output lost: No space"));
}

TEST(a_closed_pipe_takes_no_more)
{
    int end_of[2];
    struct outlet *o;

    ck_assert_int_eq(pipe2(end_of, O_CLOEXEC), 0);
    close(end_of[0]);
    o = outlet(end_of[1], false);
    put_text(o, "hello");
    turn_until(has_losses, o);
    for (int i = 0; i < 1000; i++) {
        ck_assert(outlet_ready(o));
        put_text(o, "hello");
    }
    log_writer_report_losses(t.writer);
    ck_assert_ptr_nonnull(strstr(t.logged, "Broken pipe; the job continues"));
    end_writer(PATIENCE_MS);
    ck_assert_ptr_nonnull(strstr(t.logged, "5005 bytes of output lost: Broken pipe"));
    ck_assert(!t.all_written);
    close(end_of[1]);
}

static void *read_slowly(void *arg)
{
    int fd = *(int *)arg;
    static char text[WRITER_PART_BYTES];
    size_t all = 0;
    ssize_t n;

    while ((n = read(fd, text, sizeof(text))) > 0) {
        all += (size_t)n;
        usleep(30000);
    }
    ck_assert_uint_eq(all, MUCH);
    return NULL;
}

/* At the end, a reader has as much time as it needs while it reads. */
TEST(a_slow_reader_gets_all)
{
    static char junk[MUCH];
    uint64_t began = clock_ms();
    pthread_t reader;
    int end_of[2];

    ck_assert_int_eq(pipe2(end_of, O_CLOEXEC), 0);
    ck_assert_int_eq(pthread_create(&reader, NULL, read_slowly, &end_of[0]), 0);
    outlet_put(outlet(end_of[1], false), junk, sizeof(junk));
    end_writer(10 * LOG_FLUSH_MS);
    ck_assert(t.all_written);
    ck_assert_uint_gt(clock_ms() - began, LOG_FLUSH_MS);
    close(end_of[1]);
    pthread_join(reader, NULL);
    close(end_of[0]);
}

TEST(a_reader_that_stops_is_not_waited_for)
{
    static char junk[MUCH];
    uint64_t began = clock_ms();
    int end_of[2];

    ck_assert_int_eq(pipe2(end_of, O_CLOEXEC), 0);
    outlet_put(outlet(end_of[1], false), junk, sizeof(junk));
    end_writer(PATIENCE_MS);
    ck_assert(!t.all_written);
    ck_assert_uint_lt(clock_ms() - began, PATIENCE_MS);
    close(end_of[0]); /* the thread that was left behind ends, too */
}

TEST(room_is_news)
{
    static char junk[4096];
    int end_of[2];
    struct outlet *o;

    ck_assert_int_eq(pipe2(end_of, O_CLOEXEC | O_NONBLOCK), 0);
    o = outlet(end_of[1], false);
    fill(o, end_of[1]);
    for (uint64_t until = clock_ms() + PATIENCE_MS; !t.news && clock_ms() < until;) {
        while (read(end_of[0], junk, sizeof(junk)) > 0)
            ;
        loop_turn(t.loop, 1);
    }
    ck_assert_uint_gt(t.news, 0);
    turn_until(is_ready, o);
    close(end_of[0]); /* nothing blocks the end */
    end_writer(PATIENCE_MS);
    close(end_of[1]);
}

/* There is no reader: the writer waits at first, then drops lines and counts them. */
TEST(a_blocked_outlet_is_given_up_on_until_it_recovers)
{
    static char junk[1 << 20], got[256];
    uint64_t began = clock_ms();
    int end_of[2];
    size_t used = 0;
    struct outlet *o;
    ssize_t n;

    ck_assert_int_eq(pipe2(end_of, O_CLOEXEC), 0);
    fcntl(end_of[0], F_SETFL, O_NONBLOCK);
    o = outlet(end_of[1], true);
    fill(o, end_of[1]);
    ck_assert(!outlet_ready(o));
    turn_until(is_given_up, o);
    ck_assert_uint_ge(clock_ms() - began, WRITER_SLOW_MS - 10);
    put_text(o, "lost");
    turn_until(has_losses, o);
    log_writer_report_losses(t.writer);
    ck_assert_ptr_nonnull(
        strstr(t.logged, "4 bytes of output lost so far: it was too slow"));
    /* the reader is back: all that was queued, then a mark */
    for (bool put_more = false; !strstr(got, "more");) {
        n = read(end_of[0], junk, sizeof(junk) - 1);
        if (n <= 0) {
            /* once what was queued has been written */
            if (!put_more && !log_writer_check(t.writer, clock_ms())) {
                put_text(o, "more\n");
                put_more = true;
            }
            loop_turn(t.loop, 10);
            ck_assert_uint_lt(clock_ms() - began, 2 * PATIENCE_MS);
            continue;
        }
        for (ssize_t i = 0; i < n; i++)
            if (junk[i] && used < sizeof(got) - 1)
                got[used++] = junk[i];
    }
    ck_assert_str_eq(got, "\n[crun: 4 bytes of output lost: too slow]\nmore\n");
    close(end_of[0]);
    end_writer(PATIENCE_MS);
    close(end_of[1]);
}

TEST(a_hanging_write_does_not_hold_up_the_end)
{
    uint64_t began = clock_ms();
    int end_of[2];
    struct outlet *o;

    ck_assert_int_eq(pipe2(end_of, O_CLOEXEC), 0);
    o = outlet(end_of[1], false);
    fill(o, end_of[1]);
    end_writer(50);
    ck_assert_uint_lt(clock_ms() - began, PATIENCE_MS);
    ck_assert_msg(strstr(t.logged, "bytes of output lost: it was too slow"), "%s",
                  t.logged);
    close(end_of[0]); /* lets the thread that was left behind go */
}

TEST(one_outlet_that_is_full_does_not_fill_another)
{
    int end_of[2], fd = memfd_create("test", MFD_CLOEXEC);
    struct outlet *o, *other;

    ck_assert_int_eq(pipe2(end_of, O_CLOEXEC), 0);
    o = outlet(end_of[1], false);
    other = outlet(fd, false);
    fill(o, end_of[1]);
    ck_assert(outlet_ready(other));
    close(end_of[0]);
    put_text(other, "hello");
    end_writer(PATIENCE_MS);
    ck_assert_int_eq(lseek(fd, 0, SEEK_END), 5);
    close(end_of[1]);
    close(fd);
}
