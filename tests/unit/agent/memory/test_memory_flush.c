/* SPDX-License-Identifier: MIT */
/* What only memory has is written by the program's own command: at the end of a job, or
 * while its workers go on. */
#include "agent/memory/keeper.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/memory_part.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/memory_world.h"

static struct memory_agent agent;
static struct memory_worker worker[2];
static const struct memory_set s5 = { 1, 5, 2, 0 }, s6 = { 1, 6, 2, 0 };
static char out[] = "/tmp/crun-test-flush-XXXXXX";

static void setup(void)
{
    close(mkstemp(out));
    memory_agent_open(&agent, 2, 0);
    memory_agent_begin(&agent, 1, 0, 2, NULL, NULL);
}

static void teardown(void)
{
    memory_agent_close(&agent);
    memory_world_end();
    unlink(out);
    memcpy(out + sizeof(out) - 7, "XXXXXX", 6);
}

FIXTURE(setup, teardown);

/* Workers whose command is a line of the shell, with OUT as $1. */
static void train_with(const char *line, bool can_hold)
{
    struct memory_ask hello = { .kind = MEMORY_ASK_HELLO,
                                .epoch = 1,
                                .can_hold = can_hold };
    struct memory_answer answer;

    snprintf(hello.command, sizeof(hello.command), "sh%c-c%c%s%csh%c%s%c", 0, 0, line,
             0, 0, out, 0);
    for (uint32_t i = 0; i < 2; i++) {
        worker[i].rank = hello.local_rank = i;
        worker[i].fd = memory_dial(&agent);
        ck_assert(memory_ask(&worker[i], &hello, &answer, worker[i].slot));
        memory_worker_save(&worker[i], 0, &s5, 5000, i ? 0 : 700);
        memory_worker_save(&worker[i], 1, &s6, 5000, i ? 0 : 700);
    }
}

/* The same, and they have ended. */
static void save_with(const char *line)
{
    train_with(line, false);
    for (uint32_t i = 0; i < 2; i++)
        memory_worker_close(&worker[i]);
    ck_assert_str_eq(memory_agent_end(&agent), "1.6.2:0-1+ 1.5.2:0-1+");
}

static void flush(const struct memory_set *set, uint32_t grace_ms)
{
    memory_keeper_flush(agent.keeper, set, grace_ms);
    memory_until(&agent.flushed_count, 1);
}

#define NO_NUMBERS "sed s,/proc/self/fd/[0-9]*,FD,g"

static const char *written(void)
{
    static char text[4096];

    text[0] = '\0';
    (void)!fd_read_file(AT_FDCWD, out, text, sizeof(text));
    return text;
}

TEST(the_command_gets_each_part_of_the_set)
{
    save_with("echo $CRUN_MEMORY_STEP $CRUN_MEMORY_EPOCH $CRUN_MEMORY_WORLD "
              "$CRUN_MEMORY_JOB $CRUN_MEMORY_PARTS | " NO_NUMBERS
              " > $1; for p in $CRUN_MEMORY_PARTS; do "
              "f=${p#*:}; wc -c < ${f%:shared} >> $1; done");
    flush(&s6, 60000);
    ck_assert_int_eq(agent.code, 0);
    ck_assert_str_eq(written(), "6 1 2 746865206a6f62000000000000000000 "
                                "0:FD:shared 1:FD\n"
                                "12988\n12288\n");
    ck_assert_ptr_nonnull(strstr(agent.flushed, "step 6, which was in memory, was "
                                                "written to files in "));
}

/* The part of rank 0 is elsewhere, and with it the shared section: each is written
 * once. */
TEST(what_another_node_writes_is_named_apart)
{
    memory_agent_begin(&agent, 1, 2, 4, NULL, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        static const struct memory_set s = { 1, 6, 4, 0 };
        struct memory_ask hello = { .kind = MEMORY_ASK_HELLO,
                                    .epoch = 1,
                                    .local_rank = i };
        struct memory_answer answer;

        snprintf(hello.command, sizeof(hello.command),
                 "sh%c-c%cecho $CRUN_MEMORY_PARTS, $CRUN_MEMORY_COPIES | " NO_NUMBERS
                 " > $1%csh%c%s%c",
                 0, 0, 0, 0, out, 0);
        worker[i].rank = 2 + i;
        worker[i].fd = memory_dial(&agent);
        ck_assert(memory_ask(&worker[i], &hello, &answer, worker[i].slot));
        memory_worker_save(&worker[i], 0, &s, 5000, i ? 0 : 700);
    }
    flush(&(struct memory_set){ 1, 6, 4, 0 }, 60000);
    ck_assert_int_eq(agent.code, 0);
    ck_assert_str_eq(written(), "2:FD 3:FD, 2:FD:shared\n");
    ck_assert_ptr_nonnull(strstr(agent.flushed, "this node's part of step 6"));
}

TEST(the_command_cannot_write_to_parts)
{
    save_with(
        "for p in $CRUN_MEMORY_PARTS; do f=${p#*:}; f=${f%:shared}; "
        "sed -n 's/^flags:.*\\(.\\)$/\\1/p' /proc/self/fdinfo/${f##*/}; done > $1");
    flush(&s6, 60000);
    ck_assert_str_eq(written(), "0\n0\n"); /* O_RDONLY */
}

TEST(what_files_have_is_not_written_again)
{
    save_with("echo again > $1");
    for (uint32_t i = 0; i < 2; i++) {
        struct memory_ask hello = { .kind = MEMORY_ASK_HELLO,
                                    .epoch = 2,
                                    .local_rank = i };
        struct memory_answer answer;
        struct memory_header h;

        memory_agent_begin(&agent, 2, 0, 2, &s6, NULL);
        worker[i].fd = memory_dial(&agent);
        ck_assert(memory_ask(&worker[i], &hello, &answer, worker[i].slot));
        ck_assert_int_eq(pread(worker[i].slot[1], &h, sizeof(h), 0), sizeof(h));
        h.files_step = 6;
        h.header_hash = memory_header_hash(&h);
        ck_assert_int_eq(pwrite(worker[i].slot[1], &h, sizeof(h), 0), sizeof(h));
    }
    flush(&s6, 60000);
    ck_assert_int_eq(agent.code, -1);
    ck_assert_str_eq(written(), "");
}

TEST(a_set_that_is_not_here_writes_nothing)
{
    static const struct memory_set other = { 1, 6, 3, 0 };

    save_with("echo wrong > $1");
    flush(&other, 10000);
    ck_assert_int_eq(agent.code, -1);
    ck_assert_str_eq(written(), "");
}

static const struct {
    const char *line, *why;
    uint32_t grace_ms;
} failures[] = {
    { "exit 3", "exit code 3", 60000 },
    { "kill -9 $$", "signal 9", 60000 },
    { "sleep 1000 & sleep 1000", "it took longer than ", 200 },
};

TEST_EACH(a_command_that_fails_is_told_of, failures)
{
    save_with(failures[_i].line);
    flush(&s6, failures[_i].grace_ms);
    ck_assert_int_eq(agent.code, 1);
    ck_assert_msg(strstr(agent.flushed, failures[_i].why) != NULL, "%s", agent.flushed);
}

TEST(a_step_that_files_have_is_not_told_of)
{
    save_with("exit 114"); /* MEMORY_EXIT_IN_FILES */
    flush(&s6, 60000);
    ck_assert_int_eq(agent.code, -1);
    ck_assert_str_eq(agent.flushed, "");
}

TEST(without_a_command_the_loss_is_told)
{
    for (uint32_t i = 0; i < 2; i++) {
        memory_worker_open(&worker[i], &agent, 1, i, i);
        memory_worker_save(&worker[i], 0, &s5, 100, 0);
    }
    flush(&s5, 1000);
    ck_assert_int_eq(agent.code, 1);
    ck_assert_ptr_nonnull(strstr(agent.flushed, "the program names no command for it"));
}

/* -- while the workers go on ------------------------------------------------------ */

/* Whether all slots say so. */
static bool are_held(bool held)
{
    for (uint32_t i = 0; i < 2 * MEMORY_SLOTS; i++) {
        uint32_t word = 2;

        ck_assert_int_eq(
            pread(worker[i / 2].slot[i % 2], &word, sizeof(word), MEMORY_HOLD_AT),
            sizeof(word));
        if (word != (uint32_t)held)
            return false;
    }
    return true;
}

static const char *hold(void)
{
    static char text[MEMORY_HELD_SIZE];
    struct err e = { .text = "" };

    if (memory_keeper_hold(agent.keeper, text, sizeof(text), &e) < 0)
        snprintf(text, sizeof(text), "%s", e.text);
    return text;
}

static void flush_held(uint64_t number, const struct memory_set *set, unsigned count)
{
    memory_keeper_flush_held(agent.keeper, number, set);
    memory_until(&agent.flushed_count, count);
    ck_assert_uint_eq(agent.flush, number);
}

TEST(a_held_set_is_written_while_workers_live)
{
    static const char line[] = "/bin/echo $CRUN_MEMORY_STEP $CRUN_MEMORY_FLUSH > $1";

    train_with(line, true);
    ck_assert_str_eq(hold(), "1.6.2:0-1+ 1.5.2:0-1+");
    ck_assert(are_held(true));
    flush_held(26, &s5, 1);
    ck_assert_int_eq(agent.code, 0);
    ck_assert_str_eq(agent.flushed, line); /* the word of the folder */
    ck_assert_str_eq(written(), "5 1a\n");
    ck_assert(are_held(false));
}

TEST(the_folder_of_files_that_have_it_is_named)
{
    static const char line[] = "/bin/echo > $1; exit 114"; /* MEMORY_EXIT_IN_FILES */

    train_with(line, true);
    hold();
    flush_held(1, &s6, 1);
    ck_assert_int_eq(agent.code, -1);
    ck_assert_str_eq(agent.flushed, line);
}

TEST(what_is_not_held_or_not_there_is_not_written)
{
    train_with("echo wrong > $1", true);
    flush_held(1, &s6, 1);
    ck_assert_int_eq(agent.code, 1);
    ck_assert_str_eq(agent.flushed, "it is not held any more");
    hold();
    flush_held(2, &(struct memory_set){ 1, 4, 2, 0 }, 2);
    ck_assert_int_eq(agent.code, 1);
    ck_assert_str_eq(agent.flushed, "its parts are not in memory any more");
    ck_assert(are_held(false));
    ck_assert_str_eq(written(), "");
}

/* Its last line is the reason. */
TEST(a_command_that_fails_says_why)
{
    train_with("echo first; echo No space left >&2; exit 3", true);
    hold();
    flush_held(1, &s6, 1);
    ck_assert_str_eq(agent.flushed, "exit code 3: No space left");
}

static void begin_epoch(void)
{
    memory_agent_begin(&agent, 2, 0, 2, &s6, NULL);
}

static void let_go(void)
{
    memory_keeper_let_go(agent.keeper);
}

static void end_epoch(void)
{
    memory_agent_end(&agent);
}

static void (*const ends[])(void) = { begin_epoch, end_epoch, let_go };

/* The parts of its command may be overwritten from then on. */
TEST_EACH(a_flush_ends_when_it_is_let_go, ends)
{
    train_with("echo begun > $1; sleep 1000", true);
    hold();
    memory_keeper_flush_held(agent.keeper, 1, &s6);
    while (!*written())
        loop_turn(memory_world(), 10);
    ck_assert_str_eq(hold(), "an earlier checkpoint is still being written");
    ends[_i]();
    ck_assert(are_held(false));
    memory_until(&agent.flushed_count, 1);
    ck_assert_int_eq(agent.code, 1);
    ck_assert_str_eq(agent.flushed, "the workers were stopped meanwhile");
}

/* The job fails in the middle of a flush: the set is still to be written. */
TEST(the_flush_of_the_end_follows_one_that_was_ended)
{
    train_with(
        "echo $CRUN_MEMORY_FLUSH >> $1; [ $CRUN_MEMORY_FLUSH = 0 ] || sleep 1000",
        true);
    hold();
    memory_keeper_flush_held(agent.keeper, 7, &s6);
    while (!*written())
        loop_turn(memory_world(), 10);
    memory_agent_end(&agent);
    memory_keeper_flush(agent.keeper, &s6, 60000);
    memory_until(&agent.flushed_count, 2);
    ck_assert_str_eq(written(), "7\n0\n");
}

/* It would overwrite what is being read. */
TEST(a_worker_with_an_older_library_holds_nothing)
{
    train_with("echo wrong > $1", false);
    ck_assert_str_eq(hold(), "the program's worker library is older than this crun");
    ck_assert(are_held(false));
}

/* The job's end does not wait for a flush when the agent has to go. */
TEST(a_keeper_that_ends_ends_its_command)
{
    uint64_t began_ms = clock_ms();

    save_with("sleep 1000");
    memory_keeper_flush(agent.keeper, &s6, 1000000);
    memory_agent_close(&agent);
    ck_assert_uint_lt(clock_ms() - began_ms, MEMORY_PATIENCE_MS);
}
