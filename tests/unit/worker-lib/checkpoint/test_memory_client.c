/* SPDX-License-Identifier: MIT */
/* A worker's side of checkpoints in memory, with an agent that follows memory_slot.h.
 */
#include "worker-lib/checkpoint/memory_client.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rendezvous/common/base/memory_part.h"
#include "tests/worlds/check_main.h"

#define EPOCH 5
#define BIG (3 * 1000 * 1000 + 17) /* many leaves, and some of another */

static const char command[] = "python3\0-m\0crun\0";

/* -- the agent: slots that outlive its workers ---------------------------------------
 */

static struct {
    char path[64];
    int listener, slots[MEMORY_SLOTS];
    uint64_t most; /* bytes that a slot may have */
    unsigned resizes, commits;
    uint64_t restored;
    struct memory_answer hello;
    char command[MEMORY_COMMAND_BYTES];
    int opens; /* the slot that answers OPEN; -1: none */
    bool says_sound;
    pthread_t thread;
} agent;

static void agent_answer(int fd, const struct memory_answer *a, const int *fds)
{
    struct iovec part = { .iov_base = (void *)(uintptr_t)a, .iov_len = sizeof(*a) };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MEMORY_SLOTS * sizeof(int))];
    } control = { .bytes = "" };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };

    if (fds) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(a->slots * sizeof(int));
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN(a->slots * sizeof(int));
        memcpy(CMSG_DATA(&control.align), fds, a->slots * sizeof(int));
    }
    ck_assert_int_eq(sendmsg(fd, &m, MSG_NOSIGNAL), (ssize_t)sizeof(*a));
}

static void agent_hello(int fd, const struct memory_ask *ask)
{
    struct memory_answer refused = { .status = MEMORY_REFUSED,
                                     .text = "another epoch" };

    memcpy(agent.command, ask->command, sizeof(agent.command));
    if (ask->epoch == EPOCH)
        agent_answer(fd, &agent.hello, agent.slots);
    else
        agent_answer(fd, &refused, NULL);
}

static void agent_resize(int fd, const struct memory_ask *ask)
{
    struct memory_answer a = { .status = MEMORY_OK };

    agent.resizes++;
    if (ask->bytes > agent.most) {
        a.status = MEMORY_NO_MEMORY;
        snprintf(a.text, sizeof(a.text), "too much");
    } else {
        ck_assert_int_eq(ftruncate(agent.slots[ask->slot], (off_t)ask->bytes), 0);
    }
    agent_answer(fd, &a, NULL);
}

static void agent_open(int fd)
{
    struct memory_answer a = { .status = MEMORY_NOT_HERE, .text = "not here" };
    char path[64];
    int reader;

    if (agent.opens < 0) {
        agent_answer(fd, &a, NULL);
        return;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", agent.slots[agent.opens]);
    reader = open(path, O_RDONLY | O_CLOEXEC);
    a = (struct memory_answer){ .status = MEMORY_OK,
                                .slots = 1,
                                .is_sound = agent.says_sound };
    agent_answer(fd, &a, &reader);
    close(reader);
}

static void *agent_run(void *arg)
{
    int fd;

    while ((fd = accept(agent.listener, NULL, NULL)) >= 0) {
        struct memory_ask ask;

        while (recv(fd, &ask, sizeof(ask), 0) == (ssize_t)sizeof(ask)) {
            if (ask.kind == MEMORY_ASK_HELLO)
                agent_hello(fd, &ask);
            else if (ask.kind == MEMORY_ASK_RESIZE)
                agent_resize(fd, &ask);
            else if (ask.kind == MEMORY_ASK_OPEN)
                agent_open(fd);
            else if (ask.kind == MEMORY_ASK_COMMITTED)
                agent.commits++;
            else
                agent.restored = ask.bytes;
        }
        close(fd);
    }
    return NULL;
}

static void agent_begin(void)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int n = snprintf(agent.path, sizeof(agent.path), "@crun-test-%d", (int)getpid());

    memcpy(a.sun_path + 1, agent.path + 1, (size_t)n - 1);
    agent.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(
        bind(agent.listener, (struct sockaddr *)&a,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)),
        0);
    ck_assert_int_eq(listen(agent.listener, 4), 0);
    for (unsigned i = 0; i < MEMORY_SLOTS; i++) {
        agent.slots[i] = memfd_create("slot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_eq(fcntl(agent.slots[i], F_ADD_SEALS, F_SEAL_SHRINK), 0);
        ck_assert_int_eq(ftruncate(agent.slots[i], MEMORY_HEADER_BYTES), 0);
    }
    agent.most = UINT64_C(1) << 30;
    agent.opens = -1;
    agent.hello = (struct memory_answer){ .status = MEMORY_OK, .slots = MEMORY_SLOTS };
    ck_assert_int_eq(pthread_create(&agent.thread, NULL, agent_run, NULL), 0);
}

/* The workers that a test has opened, and not closed yet. */
static crun_memory *workers[8];

static void worker_close(crun_memory *m)
{
    for (size_t i = 0; i < sizeof(workers) / sizeof(*workers); i++)
        if (workers[i] == m)
            workers[i] = NULL;
    crun_memory_close(m);
}

static void close_workers(void)
{
    for (size_t i = 0; i < sizeof(workers) / sizeof(*workers); i++)
        crun_memory_close(workers[i]);
}

FIXTURE(agent_begin, close_workers);

static crun_memory *worker(uint64_t epoch)
{
    struct crun_memory_config c = { .path = agent.path,
                                    .epoch = epoch,
                                    .rank = 1,
                                    .local_world = 1,
                                    .world = 2,
                                    .kind = "test 1",
                                    .command = command };
    struct err e;
    size_t i = 0;

    while (workers[i])
        ck_assert_uint_lt(++i, sizeof(workers) / sizeof(*workers));
    return workers[i] = crun_memory_open(&c, &e);
}

static crun_memory *worker_opened(void)
{
    crun_memory *m = worker(EPOCH);

    ck_assert_ptr_nonnull(m);
    return m;
}

static void save(crun_memory *m, uint64_t step, const void *data, uint64_t bytes)
{
    struct crun_memory_save s = { .step = step, .own_bytes = bytes };
    struct crun_memory_piece piece = { .data = data, .bytes = bytes };
    struct err e;

    ck_assert_int_eq(crun_memory_begin(m, &s, &e), 0);
    ck_assert_int_eq(crun_memory_write(m, false, &piece, 1, &e), 0);
    crun_memory_commit(m);
}

static struct memory_header slot_header(unsigned slot)
{
    struct memory_header h;

    ck_assert_int_eq(pread(agent.slots[slot], &h, sizeof(h), 0), (ssize_t)sizeof(h));
    return h;
}

/* The step that a slot has whole; 0: none. */
static uint64_t slot_step(unsigned slot)
{
    struct memory_header h = slot_header(slot);
    off_t size = lseek(agent.slots[slot], 0, SEEK_END);
    void *map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, agent.slots[slot], 0);
    bool whole = memory_header_is_whole(&h, (uint64_t)size) &&
                 memory_sections_are_sound(&h, map);

    munmap(map, (size_t)size);
    return whole ? h.set.step : 0;
}

/* -- saving --------------------------------------------------------------------------
 */

TEST(a_save_is_what_the_agent_expects)
{
    crun_memory *m = worker_opened();
    static uint8_t data[BIG];
    uint8_t *slot;
    struct crun_memory_save s = {
        .step = 7, .own_bytes = BIG, .shared_bytes = 5, .files_step = 3, .has_shared = 1
    };
    /* pieces that end within leaves, also empty ones */
    struct crun_memory_piece own[] = { { data, 0 },
                                       { data, 20000 },
                                       { data + 20000, 1 },
                                       { data + 20001, 0 },
                                       { data + 20001, BIG - 20001 } };
    struct crun_memory_piece shared = { "hello", 5 };
    struct memory_header h;
    struct err e;

    for (size_t i = 0; i < BIG; i++)
        data[i] = (uint8_t)(i * 7 + i / 999);
    ck_assert_mem_eq(agent.command, command, sizeof(command));
    ck_assert_int_eq(crun_memory_begin(m, &s, &e), 0);
    ck_assert_int_eq(crun_memory_write(m, false, own, 5, &e), 0);
    ck_assert_int_eq(crun_memory_write(m, true, &shared, 1, &e), 0);
    ck_assert_uint_eq(slot_step(0), 0);
    crun_memory_commit(m);
    ck_assert(crun_memory_is_kept(m)); /* no copies are wanted */
    ck_assert_uint_eq(slot_step(0), 7);
    h = slot_header(0);
    ck_assert_uint_eq(h.set.epoch, EPOCH);
    ck_assert_uint_eq(h.set.world, 2);
    ck_assert_uint_eq(h.rank, 1);
    ck_assert_uint_eq(h.files_step, 3);
    ck_assert_str_eq(h.kind, "test 1");
    slot = mmap(NULL, MEMORY_HEADER_BYTES + BIG, PROT_READ, MAP_SHARED, agent.slots[0],
                0);
    ck_assert_mem_eq(slot + MEMORY_HEADER_BYTES, data, BIG);
    /* the same bytes again want no more memory */
    save(m, 8, data, BIG);
    save(m, 9, data, BIG);
    ck_assert_uint_eq(agent.resizes, 2);
    worker_close(m);
}

TEST(threads_copy_the_same_bytes)
{
    static uint8_t data[40u << 20];
    size_t bytes = sizeof(data);
    crun_memory *m = worker_opened();

    for (size_t i = 0; i < bytes; i += 8)
        memcpy(data + i, &(uint64_t){ i * UINT64_C(0x9e3779b97f4a7c15) }, 8);
    save(m, 1, data, bytes);
    ck_assert_uint_eq(slot_step(0), 1);
    ck_assert_uint_eq(slot_header(0).own_hash, memory_hash(data, bytes));
}

/* A death in the middle leaves the step before. */
TEST(the_slot_in_the_middle_is_no_part)
{
    crun_memory *m = worker_opened();
    struct crun_memory_save s = { .step = 12, .own_bytes = 4 };
    struct err e;

    save(m, 10, "aaaa", 4);
    save(m, 11, "bbbb", 4);
    ck_assert_int_eq(crun_memory_begin(m, &s, &e), 0);
    ck_assert_uint_eq(slot_step(0), 0);
    ck_assert_uint_eq(slot_step(1), 11);
    worker_close(m);
    /* and the next life writes to the slot that has nothing */
    m = worker_opened();
    save(m, 12, "cccc", 4);
    ck_assert_uint_eq(slot_step(0), 12);
    ck_assert_uint_eq(slot_step(1), 11);
}

/* Slots have steps 10 and 11 of an epoch before, and all ranks have but the first. */
TEST(what_the_job_goes_back_to_stays)
{
    crun_memory *m = worker_opened();
    struct memory_header h;

    save(m, 10, "aaaa", 4);
    save(m, 11, "bbbb", 4);
    worker_close(m);
    for (unsigned i = 0; i < MEMORY_SLOTS; i++) {
        h = slot_header(i);
        h.set.epoch = EPOCH - 1;
        h.header_hash = memory_header_hash(&h);
        ck_assert_int_eq(pwrite(agent.slots[i], &h, sizeof(h), 0), (ssize_t)sizeof(h));
    }
    agent.hello.restore = slot_header(0).set;
    m = worker_opened();
    ck_assert_uint_eq(crun_memory_restores(m)->step, 10);
    save(m, 11, "cccc", 4);
    ck_assert_uint_eq(slot_step(0), 10);
    ck_assert_uint_eq(slot_header(1).set.epoch, EPOCH);
    save(m, 12, "dddd", 4);
    ck_assert_uint_eq(slot_step(0), 12);
    ck_assert_uint_eq(slot_step(1), 11);
}

/* Who takes the name of an agent that is gone gets no state to keep, and gives none. */
TEST(an_agent_of_another_user_is_none)
{
    struct crun_memory_config c = { .path = agent.path, .epoch = EPOCH, .kind = "" };
    struct err e;

    SKIP_UNLESS_ROOT();
    ck_assert_int_eq(seteuid(12345), 0);
    ck_assert_int_eq(listen(agent.listener, 4), 0);
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert_ptr_null(crun_memory_open(&c, &e));
    ck_assert_str_eq(e.text, "memory: the agent is of another user");
}

TEST(a_refusal_is_the_agents_sentence)
{
    crun_memory *m = worker_opened();
    struct crun_memory_save s = { .step = 2, .own_bytes = 100 };
    struct err e;

    save(m, 1, "aaaa", 4);
    agent.most = 5000;
    for (int i = 0; i < 2; i++) {
        s.own_bytes = i ? UINT64_MAX : 100000;
        ck_assert_int_eq(crun_memory_begin(m, &s, &e), -1);
        ck_assert_str_eq(e.text,
                         i ? "memory: the size of a section is wrong" : "too much");
        ck_assert_int_eq(e.code, i ? 0 : MEMORY_NO_MEMORY);
    }
    crun_memory_commit(m); /* nothing */
    ck_assert_uint_eq(slot_step(0), 1);
    worker_close(m);
    ck_assert_ptr_null(worker(EPOCH - 1));
}

/* Two parts of one step would be two things with one name. */
TEST(a_step_is_saved_once)
{
    crun_memory *m = worker_opened();
    struct crun_memory_save s = { .step = 2, .own_bytes = 4 };
    struct err e;

    save(m, 2, "aaaa", 4);
    ck_assert_int_eq(crun_memory_begin(m, &s, &e), -1);
    ck_assert_str_eq(e.text, "memory: step 2 comes after step 2");
    save(m, 3, "bbbb", 4);
    ck_assert_uint_eq(slot_step(0), 2);
    ck_assert_uint_eq(slot_step(1), 3);
}

TEST(a_section_of_another_size_is_not_written)
{
    crun_memory *m = worker_opened();
    struct crun_memory_save s = { .step = 2, .own_bytes = 4 };
    struct crun_memory_piece piece = { .data = "aaaaa", .bytes = 5 };
    struct err e;

    ck_assert_int_eq(crun_memory_write(m, false, &piece, 1, &e), -1);
    ck_assert_int_eq(crun_memory_begin(m, &s, &e), 0);
    ck_assert_int_eq(crun_memory_write(m, false, &piece, 1, &e), -1);
}

TEST(a_device_has_written_a_piece)
{
    crun_memory *m = worker_opened();
    struct crun_memory_save s = { .step = 2, .own_bytes = 40000 };
    struct crun_memory_piece pieces[] = { { "head", 4 }, { NULL, 39996 } };
    struct err e;

    ck_assert_int_eq(crun_memory_begin(m, &s, &e), 0);
    memset((uint8_t *)crun_memory_section(m, false) + 4, 9, 39996);
    ck_assert_int_eq(crun_memory_write(m, false, pieces, 2, &e), 0);
    crun_memory_commit(m);
    ck_assert_uint_eq(slot_step(0), 2);
}

/* With copies, a part is kept when the agent has set so. */
TEST(the_agent_says_when_a_part_is_kept)
{
    uint32_t kept = 1;
    crun_memory *m;

    agent.hello.copies = 1;
    m = worker_opened();
    ck_assert(crun_memory_is_kept(m));
    save(m, 1, "aaaa", 4);
    ck_assert(!crun_memory_is_kept(m));
    ck_assert_int_eq(pwrite(agent.slots[0], &kept, sizeof(kept),
                            offsetof(struct memory_header, kept)),
                     sizeof(kept));
    ck_assert(crun_memory_is_kept(m));
}

/* -- restoring -----------------------------------------------------------------------
 */

/* It writes an older one to files: no rank may overwrite that. */
TEST(nothing_is_kept_while_the_agent_holds)
{
    crun_memory *m = worker_opened();

    save(m, 1, "aaaa", 4);
    for (uint32_t held = 1; held < 2; held--) {
        for (unsigned i = 0; i < MEMORY_SLOTS; i++)
            ck_assert_int_eq(
                pwrite(agent.slots[i], &held, sizeof(held), MEMORY_HOLD_AT),
                sizeof(held));
        ck_assert_int_eq(crun_memory_is_kept(m), !held);
        save(m, 3 - held, "bbbb", 4); /* it may be under way, and lets go of nothing */
        ck_assert_int_eq(crun_memory_is_kept(m), !held);
    }
}

TEST(a_part_is_read)
{
    struct crun_memory_part part;
    crun_memory *m = worker_opened();
    struct err e;

    ck_assert_int_eq(crun_memory_read(m, 1, false, &part, &e), -1);
    ck_assert_int_eq(e.code, MEMORY_NOT_HERE);
    save(m, 10, "aaaa", 4);
    worker_close(m);
    agent.hello.restore = slot_header(0).set;
    agent.opens = 0;
    m = worker_opened();
    ck_assert_int_eq(crun_memory_read(m, 1, false, &part, &e), 0);
    ck_assert_uint_eq(part.bytes, 4);
    ck_assert_mem_eq(part.data, "aaaa", 4);
    crun_memory_part_free(&part);
    /* it is no other rank's, and has no shared section */
    ck_assert_int_eq(crun_memory_read(m, 0, false, &part, &e), -1);
    ck_assert_int_eq(crun_memory_read(m, 1, true, &part, &e), -1);
    crun_memory_restored(m, 10);
    worker_close(m);
    ck_assert_int_eq(shutdown(agent.listener, SHUT_RDWR), 0);
    ck_assert_int_eq(pthread_join(agent.thread, NULL), 0);
    ck_assert_uint_eq(agent.restored, 10);
    ck_assert_uint_eq(agent.commits, 1);
}

static const struct {
    off_t at;
    const char *why;
    bool says_sound; /* the agent, which has read the bytes */
} damages[] = {
    { MEMORY_HEADER_BYTES + 2, "memory: the bytes of a part are damaged", false },
    { offsetof(struct memory_header, own_bytes), "memory: a part is damaged", true },
    { offsetof(struct memory_header, set), "memory: a part is damaged", true },
    { offsetof(struct memory_header, state), "memory: a part is damaged", true },
};

TEST_EACH(a_damaged_part_is_not_read, damages)
{
    struct crun_memory_part part;
    crun_memory *m = worker_opened();
    struct err e;
    uint8_t byte;

    save(m, 10, "aaaa", 4);
    worker_close(m);
    agent.hello.restore = slot_header(0).set;
    agent.opens = 0;
    agent.says_sound = damages[_i].says_sound;
    ck_assert_int_eq(pread(agent.slots[0], &byte, 1, damages[_i].at), 1);
    byte ^= 0x40;
    ck_assert_int_eq(pwrite(agent.slots[0], &byte, 1, damages[_i].at), 1);
    m = worker_opened();
    ck_assert_int_eq(crun_memory_read(m, 1, false, &part, &e), -1);
    ck_assert_str_eq(e.text, damages[_i].why);
    ck_assert_ptr_null(part.map);
}

TEST(a_part_of_another_step_is_not_read)
{
    struct crun_memory_part part;
    crun_memory *m = worker_opened();
    struct err e;

    save(m, 10, "aaaa", 4);
    save(m, 11, "bbbb", 4);
    worker_close(m);
    agent.hello.restore = slot_header(1).set;
    agent.opens = 0;
    m = worker_opened();
    ck_assert_int_eq(crun_memory_read(m, 1, false, &part, &e), -1);
    ck_assert_str_eq(e.text, "memory: the agent gave another part");
}
