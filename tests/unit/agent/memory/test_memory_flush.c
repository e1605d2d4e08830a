/* SPDX-License-Identifier: MIT */
/* The end of a job: what only memory has is written by the program's own command. */
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
static void save_with(const char *line)
{
    struct memory_ask hello = { .kind = MEMORY_ASK_HELLO, .epoch = 1 };
    struct memory_answer answer;

    snprintf(hello.command, sizeof(hello.command), "sh%c-c%c%s%csh%c%s%c", 0, 0, line,
             0, 0, out, 0);
    for (uint32_t i = 0; i < 2; i++) {
        worker[i].rank = hello.local_rank = i;
        worker[i].fd = memory_dial(&agent);
        ck_assert(memory_ask(&worker[i], &hello, &answer, worker[i].slot));
        memory_worker_save(&worker[i], 0, &s5, 5000, i ? 0 : 700);
        memory_worker_save(&worker[i], 1, &s6, 5000, i ? 0 : 700);
        memory_worker_close(&worker[i]);
    }
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

/* The job's end does not wait for a flush when the agent has to go. */
TEST(a_keeper_that_ends_ends_its_command)
{
    uint64_t began_ms = clock_ms();

    save_with("sleep 1000");
    memory_keeper_flush(agent.keeper, &s6, 1000000);
    memory_agent_close(&agent);
    ck_assert_uint_lt(clock_ms() - began_ms, MEMORY_PATIENCE_MS);
}
