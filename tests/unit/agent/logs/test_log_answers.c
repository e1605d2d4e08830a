/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_answers.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/logs/kept_output.h"
#include "agent/logs/limits.h"
#include "agent/logs/log_writer.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/base64.h"
#include "tests/worlds/check_main.h"

#define WORKERS 2
#define EPOCH 3
#define FIRST_RANK 4
#define LONG_MS 60000

static struct {
    struct loop *loop;
    struct kept_output kept;
    struct log_answers *answers;
    struct msg_logs got[64]; /* without the last of each answer */
    unsigned count, complete;
    unsigned shown;
    uint64_t follower; /* of the next questions */
    int drained_fd;    /* 0: none */
} t;

bool __real_outlet_find_parts(struct outlet *o, struct log_parts *parts);
bool __wrap_outlet_find_parts(struct outlet *o, struct log_parts *parts);

/* A writer that waits for this pipe is done right after it was looked at. */
bool __wrap_outlet_find_parts(struct outlet *o, struct log_parts *parts)
{
    bool is_written = __real_outlet_find_parts(o, parts);
    static char bytes[65536];
    struct log_parts after;

    if (t.drained_fd > 0)
        while (!__real_outlet_find_parts(o, &after))
            (void)!read(t.drained_fd, bytes, sizeof(bytes));
    return is_written;
}

static void on_answer(void *arg, const struct msg *m)
{
    ck_assert_uint_eq(m->type, MSG_LOGS);
    if (m->logs.last)
        t.complete++;
    else if (t.count < sizeof(t.got) / sizeof(*t.got))
        t.got[t.count++] = m->logs;
}

static void on_shown(void *arg)
{
    t.shown++;
}

static void setup(void)
{
    memset(&t, 0, sizeof(t));
    t.loop = loop_create();
    kept_output_init(&t.kept, WORKERS);
    kept_output_begin(&t.kept, EPOCH, FIRST_RANK);
    t.answers = log_answers_create(t.loop, &t.kept, on_answer, NULL);
}

static void teardown(void)
{
    log_answers_destroy(t.answers);
    kept_output_fini(&t.kept);
    loop_destroy(t.loop);
}

static void write_text(uint32_t local_rank, const char *text)
{
    kept_output_add(&t.kept, local_rank, LOG_OUT, text, strlen(text));
    log_answers_note(t.answers);
}

static void end_worker(uint32_t local_rank)
{
    kept_output_end(&t.kept, local_rank);
    log_answers_note_end(t.answers);
}

static void ask(const char *ranks, uint64_t epoch, const char *offsets, uint32_t tail,
                uint32_t wait_ms)
{
    struct msg_ask_logs m = { .ask = 7,
                              .of_epoch = epoch,
                              .stream = OUTPUT_STDOUT,
                              .tail = tail,
                              .wait_ms = wait_ms,
                              .follower = t.follower };

    t.count = t.complete = 0;
    snprintf(m.ranks, sizeof(m.ranks), "%s", ranks);
    snprintf(m.offsets, sizeof(m.offsets), "%s", offsets);
    log_answers_ask(t.answers, &m);
}

static void run_until_complete(void)
{
    uint64_t until = clock_ms() + 60000;

    while (!t.complete && clock_ms() < until)
        loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.complete, 1);
}

/* All text that has come, without what separates its pieces. */
static const char *got_text(void)
{
    static char text[sizeof(t.got) / sizeof(*t.got) * LOGS_PIECE_MAX + 1];
    size_t used = 0;

    for (unsigned i = 0; i < t.count; i++) {
        ssize_t n = base64_decode(t.got[i].text, text + used, LOGS_PIECE_MAX);

        ck_assert_int_ge(n, 0);
        ck_assert_uint_eq(t.got[i].next, t.got[i].offset + (uint64_t)n);
        used += (size_t)n;
    }
    text[used] = '\0';
    return text;
}

FIXTURE(setup, teardown);

TEST(a_node_answers_for_its_ranks)
{
    write_text(0, "one\ntwo\n");
    write_text(1, "three\n");
    ask("0-5", 0, "", UINT32_MAX, 0);
    ck_assert_uint_eq(t.complete, 1);
    ck_assert_uint_eq(t.count, 2);
    ck_assert_str_eq(got_text(), "one\ntwo\nthree\n");
    ck_assert_uint_eq(t.got[0].rank, FIRST_RANK);
    ck_assert_uint_eq(t.got[1].rank, FIRST_RANK + 1);
    ck_assert_uint_eq(t.got[0].of_epoch, EPOCH);
    ck_assert_uint_eq(t.got[0].ask, 7);
    ck_assert(!t.got[0].ended);
    ask("4-5", 0, "", 1, 0);
    ck_assert_str_eq(got_text(), "two\nthree\n");
    ask("0-3,6", 0, "", UINT32_MAX, 0);
    ck_assert_uint_eq(t.count, 0);
    ck_assert_uint_eq(t.complete, 1);
}

TEST_LOOP(a_question_without_sense_is_answered_with_nothing, 0, 3)
{
    static const char *const ranks[] = { "x", "0-100000", "5-4" };

    write_text(0, "one\n");
    ask(ranks[_i], 0, "", UINT32_MAX, LONG_MS);
    ck_assert_uint_eq(t.count, 0);
    ck_assert_uint_eq(t.complete, 1);
}

TEST(a_question_waits_for_output)
{
    write_text(0, "one\n");
    ask("4-5", EPOCH, "4:0 0:0", 0, LONG_MS);
    loop_turn(t.loop, 0);
    ck_assert_uint_eq(t.complete, 0);
    write_text(1, "two\n");
    run_until_complete();
    ck_assert_uint_eq(t.count, 1);
    ck_assert_str_eq(got_text(), "two\n");
    ck_assert_uint_eq(t.got[0].rank, FIRST_RANK + 1);
}

TEST(a_question_waits_no_longer_than_it_says)
{
    ask("4", EPOCH, "0:0", 0, 1);
    run_until_complete();
    ck_assert_uint_eq(t.count, 0);
    ask("4", EPOCH, "0:0", 0, LONG_MS);
    ck_assert_uint_eq(t.complete, 0);
    log_answers_ask(t.answers, &(struct msg_ask_logs){ .ask = 7 }); /* hurry */
    ck_assert_uint_eq(t.complete, 1);
}

TEST(questions_beyond_the_limit_do_not_wait)
{
    for (int i = 0; i < LOG_ANSWERS_WAITING_MAX; i++) {
        ask("4", EPOCH, "0:0", 0, LONG_MS);
        ck_assert_uint_eq(t.complete, 0);
    }
    ask("4", EPOCH, "0:0", 0, LONG_MS);
    ck_assert_uint_eq(t.complete, 1);
}

TEST(the_end_is_told_with_the_last_byte)
{
    char *text = malloc(LOGS_PIECE_MAX + 101);

    memset(text, 'x', LOGS_PIECE_MAX + 100);
    text[LOGS_PIECE_MAX + 100] = '\0';
    write_text(0, text);
    ask("4", EPOCH, "0:0", 0, LONG_MS);
    ck_assert_uint_eq(t.count, 2);
    ck_assert(!t.got[1].ended);
    end_worker(0);
    ask("4", EPOCH, "0:0", 0, LONG_MS);
    ck_assert(!t.got[0].ended);
    ck_assert(t.got[1].ended);
    ck_assert_str_eq(got_text(), text);
    free(text);
}

TEST(what_came_before_the_ring_is_lost)
{
    size_t size = t.kept.now.worker[0][LOG_OUT].ring.capacity + 10;
    char *text = calloc(1, size + 1);

    memset(text, 'x', size);
    write_text(0, text);
    ask("4", 0, "", UINT32_MAX, 0);
    ck_assert_uint_eq(t.got[0].offset, 10);
    free(text);
}

static void on_news(void *arg)
{
}

/* A stream with a file is read from there, whatever a ring could have. */
TEST(a_stream_with_a_file_is_read_from_it)
{
    char folder[] = "/tmp/test_log_answers_XXXXXX";
    struct log_writer *writer = log_writer_create(
        t.loop, &(struct log_writer_calls){ .news = on_news });
    struct outlet_options options = {
        .owned = true, .mark = true, .queue_max = 1 << 20, .name = "out"
    };
    struct outlet *o;
    char *path;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    path = xasprintf("%s/out", folder);
    options.fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    o = outlet_create(writer, &options);
    kept_output_set_file(&t.kept, 0, LOG_OUT, o, xstrdup(path));
    outlet_put(o, "one\ntwo\n", 8);
    write_text(0, "one\ntwo\n");
    ask("4", 0, "", 1, 0); /* waits for the writer */
    run_until_complete();
    ck_assert_str_eq(got_text(), "two\n");
    ask("4", EPOCH, "8:0", 0, LONG_MS);
    ck_assert_int_eq(truncate(path, 0), 0); /* as logrotate does */
    outlet_put(o, "three\n", 6);
    log_answers_note(t.answers);
    run_until_complete();
    ck_assert_str_eq(got_text(), "three\n");
    ck_assert_uint_eq(t.got[0].offset, 8);
    outlet_put(o, "last\n", 5);
    outlet_close(o);
    end_worker(0);
    ask("4", EPOCH, "14:0", 0, LONG_MS);
    run_until_complete();
    ck_assert_str_eq(got_text(), "last\n");
    ck_assert(t.got[0].ended);
    unlink(path);
    ask("4", EPOCH, "0:0", 0, LONG_MS);
    run_until_complete();
    ck_assert_uint_eq(t.got[0].kind, LOGS_FAILED);
    kept_output_begin(&t.kept, EPOCH + 1, FIRST_RANK);
    kept_output_begin(&t.kept, EPOCH + 2, FIRST_RANK); /* releases the outlet */
    log_writer_destroy(writer, clock_ms() + 60000);
    rmdir(folder);
    free(path);
}

TEST(the_attempt_before_is_kept_too)
{
    write_text(0, "old\n");
    kept_output_begin(&t.kept, EPOCH + 1, 0);
    write_text(0, "new\n");
    ask("4", EPOCH, "0:0", 0, LONG_MS);
    ck_assert_str_eq(got_text(), "old\n");
    ck_assert(t.got[0].ended);
    ask("0", EPOCH - 1, "9:9", 0, LONG_MS); /* not known any more */
    ck_assert_str_eq(got_text(), "new\n");
    ck_assert_uint_eq(t.got[0].of_epoch, EPOCH + 1);
}

TEST(what_a_full_disk_has_not_taken_is_told)
{
    struct log_writer *writer = log_writer_create(
        t.loop, &(struct log_writer_calls){ .news = on_news });
    struct outlet_options options = { .fd = open("/dev/full", O_WRONLY),
                                      .owned = true,
                                      .mark = true,
                                      .queue_max = 1 << 20,
                                      .name = "out" };
    struct outlet *o = outlet_create(writer, &options);

    kept_output_set_file(&t.kept, 0, LOG_OUT, o, xstrdup("/dev/full"));
    outlet_put(o, "one\n", 4);
    ask("4", 0, "", UINT32_MAX, 0);
    run_until_complete();
    ck_assert_uint_eq(t.count, 2);
    ck_assert_uint_eq(t.got[0].kind, LOGS_FAILED);
    ck_assert_uint_eq(t.got[0].next, t.got[0].size);
    ck_assert_ptr_nonnull(strstr(t.got[0].where, "4 bytes of standard output lost"));
    ck_assert_uint_eq(t.got[1].kind, LOGS_TEXT);
    ask("4", EPOCH, "0:0", 0, 1);
    run_until_complete();
    ck_assert_uint_eq(t.count, 0); /* not with each answer */
    outlet_put(o, "two\n", 4);
    outlet_close(o);
    end_worker(0);
    ask("4", EPOCH, "0:0", 0, LONG_MS);
    run_until_complete();
    ck_assert_ptr_nonnull(strstr(t.got[0].where, "8 bytes of standard output lost"));
    ck_assert(t.got[1].ended);
    kept_output_begin(&t.kept, EPOCH + 1, FIRST_RANK);
    kept_output_begin(&t.kept, EPOCH + 2, FIRST_RANK);
    log_writer_destroy(writer, clock_ms() + 60000);
}

/* No later output brings the answer. */
TEST(what_is_written_between_two_looks_is_an_answer)
{
    struct log_writer *writer = log_writer_create(
        t.loop, &(struct log_writer_calls){ .news = on_news });
    struct outlet_options options = { .owned = true,
                                      .queue_max = 1 << 20,
                                      .name = "out" };
    struct outlet *o;
    int full[2];

    ck_assert_int_eq(pipe2(full, O_NONBLOCK), 0);
    while (write(full[1], "x", 1) == 1)
        ;
    fcntl(full[1], F_SETFL, 0);
    options.fd = full[1];
    o = outlet_create(writer, &options);
    kept_output_set_file(&t.kept, 0, LOG_OUT, o, xstrdup("/dev/null"));
    outlet_put(o, "one\n", 4);
    t.drained_fd = full[0];
    ask("4", EPOCH, "0:0", 0, LONG_MS);
    run_until_complete();
    ck_assert_uint_eq(t.got[0].size, 4);
    close(full[0]);
    outlet_close(o);
    kept_output_begin(&t.kept, EPOCH + 1, FIRST_RANK);
    kept_output_begin(&t.kept, EPOCH + 2, FIRST_RANK);
    log_writer_destroy(writer, clock_ms() + 60000);
}

/* A disk may be slower than a restart. */
TEST(more_of_the_attempt_before_may_come)
{
    struct log_writer *writer = log_writer_create(
        t.loop, &(struct log_writer_calls){ .news = on_news });
    struct outlet_options options = {
        .owned = true, .mark = true, .queue_max = 1 << 20, .name = "out"
    };
    struct outlet *o;
    int slow[2];
    char *bytes = xcalloc(1, 1 << 20);

    ck_assert_int_eq(pipe(slow), 0);
    options.fd = slow[1];
    o = outlet_create(writer, &options);
    kept_output_set_file(&t.kept, 0, LOG_OUT, o, xstrdup("/dev/null"));
    outlet_put(o, bytes, 1 << 20); /* a pipe takes the first block */
    kept_output_begin(&t.kept, EPOCH + 1, FIRST_RANK);
    while (kept_stream_view(&t.kept.previous.worker[0][LOG_OUT]).size == 0)
        loop_turn(t.loop, 1);
    ask("4", EPOCH, "65536:0", 0, 1);
    run_until_complete();
    ck_assert_uint_eq(t.count, 1);
    ck_assert(!t.got[0].ended);
    ck_assert_str_eq(t.got[0].text, "");
    close(slow[0]);
    outlet_close(o);
    kept_output_begin(&t.kept, EPOCH + 2, FIRST_RANK);
    log_writer_destroy(writer, clock_ms() + 60000);
    free(bytes);
}

/* -- those who follow -------------------------------------------------------------- */

static void end_all(void)
{
    for (uint32_t i = 0; i < WORKERS; i++)
        end_worker(i);
}

static void run_until_shown(void)
{
    uint64_t until = clock_ms() + 60000;

    while (!t.shown && clock_ms() < until)
        loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.shown, 1);
}

TEST(the_end_waits_for_those_who_follow)
{
    write_text(0, "one\n");
    ask("4-5", 0, "", UINT32_MAX, 1);
    write_text(0, "last\n");
    end_all();
    ck_assert(log_answers_finish(t.answers, on_shown, NULL));
    ck_assert_uint_eq(t.shown, 0);
    ask("4-5", EPOCH, "4:0 0:0", 0, LONG_MS);
    ck_assert_str_eq(got_text(), "last\n");
    loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.shown, 1);
    ck_assert(!log_answers_finish(t.answers, on_shown, NULL)); /* has all */
}

TEST(the_end_waits_for_each_of_them)
{
    for (t.follower = 1; t.follower <= 2; t.follower++)
        ask("4-5", 0, "", UINT32_MAX, 1);
    end_all();
    ck_assert(log_answers_finish(t.answers, on_shown, NULL));
    for (t.follower = 1; t.follower <= 2; t.follower++) {
        ck_assert_uint_eq(t.shown, 0);
        ask("4-5", EPOCH, "0:0 0:0", 0, LONG_MS);
        loop_turn(t.loop, 20);
    }
    ck_assert_uint_eq(t.shown, 1);
}

TEST(a_new_follower_takes_nobodys_place)
{
    t.follower = 1;
    ask("4", 0, "", UINT32_MAX, 1);
    end_all();
    ask("4", EPOCH, "0:0", 0, 1);
    kept_output_begin(&t.kept, EPOCH + 1, FIRST_RANK);
    log_answers_begin(t.answers);
    end_all();
    t.follower = 2; /* has all */
    ask("4", 0, "", UINT32_MAX, 1);
    ask("4", EPOCH + 1, "0:0", 0, 1);
    ck_assert(log_answers_finish(t.answers, on_shown, NULL));
    t.follower = 1;
    ask("4", 0, "", UINT32_MAX, 1);
    loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.shown, 1);
}

TEST(the_end_waits_for_each_part_of_a_question)
{
    t.follower = 1;
    ask("4", 0, "", UINT32_MAX, 1);
    ask("5", 0, "", UINT32_MAX, 1);
    end_all();
    ask("4", EPOCH, "0:0", 0, 1);
    ck_assert(log_answers_finish(t.answers, on_shown, NULL));
    ask("5", EPOCH, "0:0", 0, 1);
    loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.shown, 1);
}

TEST(the_end_does_not_wait_for_one_that_is_gone)
{
    t.follower = 1;
    ask("4", 0, "", UINT32_MAX, 1);
    ask("5", EPOCH, "0:0", 0, LONG_MS);
    write_text(0, "last\n");
    ck_assert(log_answers_finish(t.answers, on_shown, NULL));
    log_answers_ask(t.answers, &(struct msg_ask_logs){ .follower = 1 });
    loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.shown, 1);
}

TEST(the_end_does_not_wait_for_a_single_question)
{
    write_text(0, "one\n");
    ask("4-5", 0, "", UINT32_MAX, 0);
    end_all();
    ck_assert(!log_answers_finish(t.answers, on_shown, NULL));
}

TEST(the_end_waits_for_a_follower_of_the_attempt_before)
{
    end_all();
    ask("4", EPOCH, "0:0", 0, LONG_MS);
    kept_output_begin(&t.kept, EPOCH + 1, FIRST_RANK);
    log_answers_begin(t.answers);
    write_text(0, "short\n");
    end_all();
    ck_assert(log_answers_finish(t.answers, on_shown, NULL));
    ask("4-5", 0, "", UINT32_MAX, 1);
    ck_assert_str_eq(got_text(), "short\n");
    loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.shown, 1);
}

TEST(a_question_about_other_nodes_is_not_that_of_a_follower_here)
{
    end_all();
    ask("4", EPOCH, "0:0", 0, LONG_MS);
    kept_output_begin(&t.kept, EPOCH + 1, FIRST_RANK);
    log_answers_begin(t.answers);
    end_all();
    ask("100-199", EPOCH + 1, "", UINT32_MAX, 1);
    ck_assert(log_answers_finish(t.answers, on_shown, NULL));
}

TEST(the_end_does_not_wait_for_long)
{
    uint64_t begun = clock_ms();

    ask("4-5", 0, "", UINT32_MAX, 1);
    end_all();
    ck_assert(log_answers_finish(t.answers, on_shown, NULL));
    run_until_shown();
    ck_assert_uint_ge(clock_ms() - begun, LOG_FOLLOWER_MS);
}

TEST(a_new_attempt_begins_before_they_have_all)
{
    ask("4-5", 0, "", UINT32_MAX, 1);
    end_all();
    ck_assert(log_answers_finish(t.answers, on_shown, NULL));
    kept_output_begin(&t.kept, EPOCH + 1, FIRST_RANK);
    log_answers_begin(t.answers);
    ask("4-5", EPOCH, "0:0 0:0", 0, LONG_MS);
    loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.shown, 0);
}
