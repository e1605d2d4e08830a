/* SPDX-License-Identifier: MIT */
/* One agent and its workers; the checkpoints of one node. */
#include "agent/memory/keeper.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "rendezvous/common/base/memory_part.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/memory_world.h"

static struct memory_agent agent;
static struct memory_worker worker[2];
static const struct memory_set s5 = { 1, 5, 2, 0 }, s6 = { 1, 6, 2, 0 },
                               s7 = { 2, 7, 2, 0 };

static void setup(void)
{
    memory_agent_open(&agent, 2, 0);
    memory_agent_begin(&agent, 1, 0, 2, NULL, NULL);
}

static void teardown(void)
{
    memory_agent_close(&agent);
    memory_world_end();
}

static void open_workers(uint64_t epoch)
{
    for (uint32_t i = 0; i < 2; i++)
        memory_worker_open(&worker[i], &agent, epoch, i, i);
}

static void save_all(uint32_t slot, const struct memory_set *set)
{
    memory_worker_save(&worker[0], slot, set, 5000, 300000);
    memory_worker_save(&worker[1], slot, set, 5000, 0);
}

/* As after a kill -9. */
static const char *end_workers(void)
{
    for (uint32_t i = 0; i < 2; i++)
        memory_worker_close(&worker[i]);
    return memory_agent_end(&agent);
}

static unsigned count_entries(const char *folder)
{
    DIR *d = opendir(folder);
    unsigned n = 0;

    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

FIXTURE(setup, teardown);

TEST(a_keeper_that_no_worker_uses_has_no_thread)
{
    unsigned threads = count_entries("/proc/self/task");

    loop_turn(memory_world(), 1);
    ck_assert_uint_eq(count_entries("/proc/self/task"), threads);
    ck_assert_str_eq(memory_agent_end(&agent), "");
    memory_keeper_flush(agent.keeper, &s5, 1000);
    ck_assert_uint_eq(agent.flushed_count, 1);
    ck_assert_int_eq(agent.code, -1);
}

TEST(what_workers_have_committed_outlives_them)
{
    open_workers(1);
    ck_assert_uint_eq(worker[0].hello.restore.world, 0);
    ck_assert_uint_eq(worker[0].hello.copies, 0);
    save_all(0, &s5);
    save_all(1, &s6);
    ck_assert_str_eq(end_workers(), "1.6.2:0-1+ 1.5.2:0-1+");
    ck_assert_uint_eq(agent.said_count, 0);
}

TEST(the_next_workers_restore_what_the_job_chose)
{
    struct memory_ask restored = { .kind = MEMORY_ASK_RESTORED, .bytes = 6 };
    int fd;

    open_workers(1);
    save_all(0, &s5);
    save_all(1, &s6);
    (void)end_workers();
    memory_agent_begin(&agent, 2, 0, 2, &s6, NULL);
    open_workers(2);
    ck_assert_uint_eq(worker[1].hello.restore.step, 6);
    fd = memory_worker_open_part(&worker[1], 1, false);
    ck_assert(memory_is_part(fd, &s6, 1, 5000, 0));
    ck_assert_int_eq(ftruncate(fd, 0), -1);
    ck_assert_ptr_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    close(fd);
    fd = memory_worker_open_part(&worker[1], 1, true);
    ck_assert(memory_is_part(fd, &s6, 0, 5000, 300000));
    close(fd);
    ck_assert_int_eq(memory_worker_open_part(&worker[1], 2, false), -1);
    ck_assert_int_eq(send(worker[0].fd, &restored, sizeof(restored), 0),
                     sizeof(restored));
    memory_until(&agent.restored_count, 1);
    ck_assert_uint_eq(agent.step, 6);
    /* the slots are those of before: the older one is written now */
    save_all(0, &s7);
    ck_assert_str_eq(end_workers(), "2.7.2:0-1+ 1.6.2:0-1+");
}

TEST(without_a_set_to_restore_nothing_is_opened)
{
    open_workers(1);
    save_all(0, &s5);
    ck_assert_int_eq(memory_worker_open_part(&worker[0], 0, false), -1);
}

TEST(a_save_that_was_cut_off_leaves_the_one_before)
{
    uint32_t writing = MEMORY_WRITING;

    open_workers(1);
    save_all(0, &s5);
    save_all(1, &s6);
    ck_assert_int_eq(pwrite(worker[1].slot[1], &writing, 4, 8), 4);
    ck_assert_str_eq(end_workers(), "1.6.2:0+ 1.5.2:0-1+");
    ck_assert_uint_eq(agent.said_count, 0);
}

TEST(a_flipped_bit_is_found_and_told)
{
    open_workers(1);
    save_all(0, &s5);
    save_all(1, &s6);
    ck_assert_int_eq(pwrite(worker[1].slot[1], "!", 1, MEMORY_HEADER_BYTES + 4999), 1);
    ck_assert_str_eq(end_workers(), "1.6.2:0+ 1.5.2:0-1+");
    memory_until(&agent.said_count, 1);
    ck_assert_str_eq(agent.said, "the checkpoint in memory of rank 1, step 6, is "
                                 "damaged: an older one is used");
    /* once */
    ck_assert_str_eq(memory_agent_end(&agent), "1.6.2:0+ 1.5.2:0-1+");
    ck_assert_uint_eq(agent.said_count, 1);
}

/* A worker that opens a part reads it twice otherwise. What the agent has not read
 * itself, the worker verifies. */
TEST(what_was_verified_is_said_to_be_sound)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_OPEN, .rank = 1, .epoch = 2 };
    struct memory_answer answer;
    int fd;

    open_workers(1);
    save_all(0, &s5);
    save_all(1, &s6);
    ck_assert_str_eq(end_workers(), "1.6.2:0-1+ 1.5.2:0-1+");
    for (unsigned i = 0; i < 2; i++) {
        ask.epoch = 2 + i;
        memory_agent_begin(&agent, ask.epoch, 0, 2, i ? &s5 : &s6, NULL);
        open_workers(ask.epoch);
        ck_assert(memory_ask(&worker[1], &ask, &answer, &fd));
        ck_assert_uint_eq(answer.is_sound, i == 0);
        close(fd);
        (void)end_workers();
    }
}

/* Also right after another end, whose thread has yet to end. */
TEST(each_end_verifies)
{
    static const struct memory_set before = { 1, 4, 2, 0 };

    open_workers(1);
    for (unsigned i = 1; i <= 100; i++) {
        save_all(0, &before);
        save_all(1, &s6);
        ck_assert_str_eq(memory_agent_end(&agent), "1.6.2:0-1+ 1.4.2:0-1+");
        ck_assert_int_eq(pwrite(worker[1].slot[1], "!", 1, MEMORY_HEADER_BYTES + 4999),
                         1);
        ck_assert_str_eq(memory_agent_end(&agent), "1.6.2:0+ 1.4.2:0-1+");
        memory_until(&agent.said_count, i);
    }
}

TEST(both_slots_may_be_damaged)
{
    open_workers(1);
    save_all(0, &s5);
    save_all(1, &s6);
    ck_assert_int_eq(pwrite(worker[1].slot[0], "!", 1, MEMORY_HEADER_BYTES + 7), 1);
    ck_assert_int_eq(pwrite(worker[1].slot[1], "!", 1, MEMORY_HEADER_BYTES + 7), 1);
    ck_assert_str_eq(end_workers(), "1.6.2:0+ 1.5.2:0+");
    memory_until(&agent.said_count, 2);
}

/* A program that is wrong, or hostile. */
TEST(both_slots_may_have_the_same_step)
{
    open_workers(1);
    save_all(0, &s5);
    save_all(1, &s5);
    ck_assert_str_eq(end_workers(), "1.5.2:0-1+");
}

/* The sizes in a header are those of a program that may have gone mad. */
TEST(sizes_beyond_the_slot_are_no_part)
{
    static const uint64_t sizes[] = { 5001 + MEMORY_ALIGN, UINT64_C(1) << 40,
                                      UINT64_MAX, UINT64_MAX - MEMORY_HEADER_BYTES };

    open_workers(1);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct memory_header h;

        memory_worker_save(&worker[1], 0, &s5, 5000, 0);
        ck_assert_int_eq(pread(worker[1].slot[0], &h, sizeof(h), 0), sizeof(h));
        h.own_bytes = sizes[i];
        h.header_hash = memory_header_hash(&h);
        ck_assert_int_eq(pwrite(worker[1].slot[0], &h, sizeof(h), 0), sizeof(h));
        ck_assert_str_eq(memory_agent_end(&agent), "");
        memory_agent_begin(&agent, 1, 0, 2, NULL, NULL);
    }
}

TEST(a_worker_cannot_shorten_its_slot)
{
    open_workers(1);
    save_all(0, &s5);
    ck_assert_int_eq(ftruncate(worker[0].slot[0], 100), -1);
    ck_assert_int_eq(fcntl(worker[0].slot[0], F_ADD_SEALS, F_SEAL_WRITE), -1);
    ck_assert_str_eq(end_workers(), "1.5.2:0-1+");
}

/* A descriptor that can only be read is no way to one that can be written to. */
TEST(a_part_that_is_read_cannot_be_opened_for_writing)
{
    char path[64];
    int part, writer;

    SKIP_UNLESS_ROOT(); /* to be a user without the rights of one */
    open_workers(1);
    save_all(0, &s5);
    (void)end_workers();
    memory_agent_begin(&agent, 2, 0, 2, &s5, NULL);
    open_workers(2);
    part = memory_worker_open_part(&worker[0], 0, false);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", part);
    (void)setfsuid(12345);
    writer = open(path, O_RDWR | O_CLOEXEC);
    (void)setfsuid(0);
    ck_assert_int_eq(writer, -1);
    close(part);
}

static const struct {
    uint64_t epoch;
    uint32_t local_rank;
} strangers[] = { { 0, 0 }, { 2, 0 }, { 1, 2 }, { 1, UINT32_MAX } };

TEST_EACH(a_worker_of_no_rank_or_another_epoch_is_refused, strangers)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_HELLO,
                              .epoch = strangers[_i].epoch,
                              .local_rank = strangers[_i].local_rank };
    struct memory_worker w = { .fd = memory_dial(&agent) };
    struct memory_answer answer;

    ck_assert(memory_ask(&w, &ask, &answer, NULL));
    ck_assert_uint_eq(answer.status, MEMORY_REFUSED);
    close(w.fd);
}

TEST(two_processes_never_have_the_same_slots)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_HELLO, .epoch = 1, .local_rank = 1 };
    struct memory_worker second;
    struct memory_answer answer;

    open_workers(1);
    second.fd = memory_dial(&agent);
    ck_assert(memory_ask(&second, &ask, &answer, NULL));
    ck_assert_uint_eq(answer.status, MEMORY_REFUSED);
    close(second.fd);
    memory_worker_close(&worker[1]);
    memory_worker_open(&worker[1], &agent, 1, 1, 1); /* an exec, or the like */
}

TEST(a_worker_of_the_epoch_before_is_not_served)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_RESIZE, .bytes = 10000 };
    struct memory_answer answer;

    open_workers(1);
    (void)memory_agent_end(&agent);
    memory_agent_begin(&agent, 2, 0, 2, NULL, NULL);
    ck_assert(!memory_ask(&worker[0], &ask, &answer, NULL));
    memory_worker_open(&worker[0], &agent, 2, 0, 0);
}

static const char *const noise[] = { "", "x", "too short for a question" };

TEST_EACH(what_is_no_question_ends_the_connection, noise)
{
    struct memory_worker w = { .fd = memory_dial(&agent) };
    struct memory_ask ask = { .kind = 99 };
    struct memory_answer answer;

    ck_assert_int_ge(send(w.fd, noise[_i], strlen(noise[_i]) + 1, 0), 1);
    ck_assert(!memory_ask(&w, &ask, &answer, NULL));
    close(w.fd);
    open_workers(1); /* others are served */
}

TEST(questions_before_the_first_end_the_connection)
{
    for (uint32_t kind = MEMORY_ASK_RESIZE; kind <= MEMORY_ASK_RESTORED; kind++) {
        struct memory_worker w = { .fd = memory_dial(&agent) };
        struct memory_ask ask = { .kind = kind, .epoch = 1 };
        struct memory_answer answer;

        ck_assert(!memory_ask(&w, &ask, &answer, NULL));
        close(w.fd);
    }
}

TEST(another_user_gets_nothing)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_HELLO, .epoch = 1 };
    struct memory_answer answer;
    struct memory_worker w;
    int status;
    pid_t child;

    SKIP_UNLESS_ROOT();
    w.fd = memory_dial(&agent);
    close(w.fd);
    child = fork();
    if (child == 0) {
        if (setuid(12345) < 0)
            _exit(2);
        w.fd = memory_dial(&agent);
        (void)!send(w.fd, &ask, sizeof(ask), MSG_NOSIGNAL);
        _exit(recv(w.fd, &answer, sizeof(answer), 0) > 0);
    }
    for (int i = 0; i < 1000 && waitpid(child, &status, WNOHANG) == 0; i++)
        loop_turn(memory_world(), 10);
    ck_assert_int_eq(status, 0);
    open_workers(1);
}

TEST(memory_that_is_not_there_is_refused_with_numbers)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_RESIZE, .bytes = UINT64_C(1) << 50 };
    struct memory_answer answer;

    open_workers(1);
    ck_assert(memory_ask(&worker[0], &ask, &answer, NULL));
    ck_assert_uint_eq(answer.status, MEMORY_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(answer.text, "1048576.00 GiB more are needed"));
    ask.bytes = UINT64_MAX;
    ck_assert(memory_ask(&worker[0], &ask, &answer, NULL));
    ck_assert_uint_eq(answer.status, MEMORY_NO_MEMORY);
    ask.slot = 2;
    ask.bytes = 1;
    ck_assert(memory_ask(&worker[0], &ask, &answer, NULL));
    ck_assert_uint_eq(answer.status, MEMORY_REFUSED);
    save_all(0, &s5); /* goes on */
}

TEST(the_limit_is_for_all_slots_together)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_RESIZE, .bytes = 1 << 20 };
    struct memory_answer answer;

    memory_agent_close(&agent);
    agent.config.limit = (3 << 20) + 4 * MEMORY_HEADER_BYTES;
    memory_agent_open(&agent, 2, 0);
    memory_agent_begin(&agent, 1, 0, 2, NULL, NULL);
    open_workers(1);
    for (unsigned i = 0; i < 4; i++) {
        ask.slot = i / 2;
        ck_assert(memory_ask(&worker[i % 2], &ask, &answer, NULL));
        ck_assert_uint_eq(answer.status, i < 2    ? MEMORY_OK
                                         : i == 2 ? MEMORY_OK
                                                  : MEMORY_NO_MEMORY);
    }
    ck_assert_ptr_nonnull(strstr(answer.text, "--memory-limit is"));
}
