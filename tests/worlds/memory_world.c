/* SPDX-License-Identifier: MIT */
#include "tests/worlds/memory_world.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/memory_part.h"
#include "rendezvous/common/base/xalloc.h"

static struct loop *loop;

struct loop *memory_world(void)
{
    if (!loop)
        loop = loop_create();
    return loop;
}

void memory_world_end(void)
{
    loop_destroy(loop);
    loop = NULL;
}

void memory_until(const unsigned *count, unsigned wanted)
{
    uint64_t until_ms = clock_ms() + MEMORY_PATIENCE_MS;

    while (*count < wanted) {
        ck_assert_msg(clock_ms() < until_ms, "%u of %u came", *count, wanted);
        loop_turn(loop, 5);
    }
}

/* -- agents ------------------------------------------------------------------------ */

static void on_held(void *arg, const char *text)
{
    struct memory_agent *a = arg;

    snprintf(a->held, sizeof(a->held), "%s", text);
    a->held_count++;
}

static void on_restored(void *arg, uint64_t step)
{
    struct memory_agent *a = arg;

    a->step = step;
    a->restored_count++;
}

static void on_said(void *arg, const char *line)
{
    struct memory_agent *a = arg;

    snprintf(a->said, sizeof(a->said), "%s", line);
    a->said_count++;
}

static void on_flushed(void *arg, uint64_t flush, int code, const char *text)
{
    struct memory_agent *a = arg;

    a->code = code;
    a->flush = flush;
    snprintf(a->flushed, sizeof(a->flushed), "%s", text);
    a->flushed_count++;
}

void memory_agent_open(struct memory_agent *a, uint32_t workers, uint32_t copies)
{
    struct memory_keeper_callbacks calls = { .held = on_held,
                                             .restored = on_restored,
                                             .said = on_said,
                                             .flushed = on_flushed,
                                             .arg = a };
    struct err e;

    a->config.loop = memory_world();
    a->config.workers = workers;
    a->config.copies = copies;
    a->keeper = memory_keeper_open(&a->config, &calls, &e);
    ck_assert_msg(a->keeper != NULL, "%s", e.text);
    a->job = (struct id128){ .byte = "the job" };
}

void memory_agent_close(struct memory_agent *a)
{
    if (a->keeper)
        memory_keeper_close(a->keeper);
    *a = (struct memory_agent){ .keeper = NULL };
}

void memory_agent_begin(struct memory_agent *a, uint64_t epoch, uint32_t first_rank,
                        uint32_t world, const struct memory_set *restore,
                        const struct memory_agent *neighbour)
{
    struct memory_epoch now = { .job = a->job,
                                .epoch = epoch,
                                .first_rank = first_rank,
                                .world = world,
                                .holders = a->holders };

    if (restore)
        now.restore = *restore;
    if (neighbour)
        snprintf(now.neighbour, sizeof(now.neighbour), "127.0.0.1:%u",
                 memory_keeper_port(neighbour->keeper));
    memory_keeper_begin(a->keeper, &now);
    *a->holders = '\0';
}

const char *memory_agent_end(struct memory_agent *a)
{
    unsigned before = a->held_count;

    memory_keeper_end(a->keeper);
    memory_until(&a->held_count, before + 1);
    return a->held;
}

/* -- workers ----------------------------------------------------------------------- */

int memory_dial(const struct memory_agent *a)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    const char *path = memory_keeper_path(a->keeper);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(*path, '@');
    memcpy(to.sun_path + 1, path + 1, strlen(path) - 1);
    ck_assert_int_eq(
        connect(fd, (struct sockaddr *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path))),
        0);
    return fd;
}

static bool wait_readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    uint64_t until_ms = clock_ms() + MEMORY_PATIENCE_MS;

    while (poll(&p, 1, 0) == 0) {
        if (clock_ms() > until_ms)
            return false;
        loop_turn(loop, 2);
    }
    return true;
}

bool memory_ask(struct memory_worker *w, const struct memory_ask *ask,
                struct memory_answer *answer, int *fds)
{
    struct iovec part = { .iov_base = answer, .iov_len = sizeof(*answer) };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MEMORY_SLOTS * sizeof(int))];
    } control;
    struct msghdr m = { .msg_iov = &part,
                        .msg_iovlen = 1,
                        .msg_control = control.bytes,
                        .msg_controllen = sizeof(control) };
    struct cmsghdr *h;

    if (send(w->fd, ask, sizeof(*ask), MSG_NOSIGNAL) < 0)
        return false;
    ck_assert_msg(wait_readable(w->fd), "no answer");
    if (recvmsg(w->fd, &m, MSG_CMSG_CLOEXEC) != sizeof(*answer))
        return false;
    h = CMSG_FIRSTHDR(&m);
    ck_assert_int_eq(h != NULL, answer->slots > 0);
    if (h)
        memcpy(fds, CMSG_DATA(h), answer->slots * sizeof(int));
    return true;
}

void memory_worker_open(struct memory_worker *w, const struct memory_agent *a,
                        uint64_t epoch, uint32_t local_rank, uint32_t rank)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_HELLO,
                              .local_rank = local_rank,
                              .can_hold = 1,
                              .epoch = epoch };

    w->rank = rank;
    w->fd = memory_dial(a);
    ck_assert(memory_ask(w, &ask, &w->hello, w->slot));
    ck_assert_msg(w->hello.status == MEMORY_OK, "%s", w->hello.text);
    ck_assert_uint_eq(w->hello.slots, MEMORY_SLOTS);
}

void memory_worker_close(struct memory_worker *w)
{
    close(w->fd);
    for (unsigned i = 0; i < MEMORY_SLOTS; i++)
        close(w->slot[i]);
}

static void fill_section(uint8_t *to, size_t size, const struct memory_set *set,
                         uint32_t of)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)(i * 31 + (i >> 8) + set->step * 7 + set->epoch + of * 101);
}

static struct memory_header make_header(const struct memory_set *set, uint32_t rank,
                                        uint8_t *own, size_t own_size, uint8_t *shared,
                                        size_t shared_size)
{
    struct memory_header h = { .magic = MEMORY_MAGIC,
                               .version = MEMORY_VERSION,
                               .state = MEMORY_WHOLE,
                               .rank = rank,
                               .set = *set,
                               .own_bytes = own_size,
                               .shared_bytes = shared_size,
                               .has_shared = shared_size > 0,
                               .kind = "test 1" };

    fill_section(own, own_size, set, rank);
    fill_section(shared, shared_size, set, 1000);
    h.own_hash = memory_hash(own, own_size);
    h.shared_hash = shared_size ? memory_hash(shared, shared_size) : 0;
    h.header_hash = memory_header_hash(&h);
    return h;
}

void memory_worker_save(struct memory_worker *w, uint32_t slot,
                        const struct memory_set *set, size_t own, size_t shared)
{
    struct memory_ask resize = { .kind = MEMORY_ASK_RESIZE,
                                 .slot = slot,
                                 .bytes = memory_slot_bytes(own, shared) };
    struct memory_ask commit = { .kind = MEMORY_ASK_COMMITTED, .slot = slot };
    uint8_t *a = xmalloc(own + 1), *b = xmalloc(shared + 1);
    struct memory_header h = make_header(set, w->rank, a, own, b, shared);
    struct memory_answer answer;

    ck_assert(memory_ask(w, &resize, &answer, NULL));
    ck_assert_msg(answer.status == MEMORY_OK, "%s", answer.text);
    ck_assert_int_eq(pwrite(w->slot[slot], a, own, MEMORY_HEADER_BYTES), own);
    ck_assert_int_eq(pwrite(w->slot[slot], b, shared, (off_t)memory_shared_at(own)),
                     shared);
    ck_assert_int_eq(pwrite(w->slot[slot], &h, sizeof(h), 0), sizeof(h));
    ck_assert_int_eq(send(w->fd, &commit, sizeof(commit), 0), sizeof(commit));
    free(a);
    free(b);
}

bool memory_is_part(int fd, const struct memory_set *set, uint32_t rank, size_t own,
                    size_t shared)
{
    uint8_t *a = xmalloc(own + shared + 2), *got = xmalloc(own + shared + 1);
    struct memory_header h, want = make_header(set, rank, a, own, a + own, shared);
    bool same;

    want.has_shared = 0;
    same = fd >= 0 && pread(fd, &h, sizeof(h), 0) == sizeof(h) &&
           memory_header_is_whole(&h, UINT64_MAX >> 1) && h.own_bytes == own &&
           h.shared_bytes == shared && h.rank == rank &&
           memory_set_equal(&h.set, set) && h.own_hash == want.own_hash &&
           (!shared || h.shared_hash == want.shared_hash) &&
           pread(fd, got, own, MEMORY_HEADER_BYTES) == (ssize_t)own &&
           pread(fd, got + own, shared, (off_t)memory_shared_at(own)) ==
               (ssize_t)shared &&
           memcmp(a, got, own + shared) == 0;
    free(a);
    free(got);
    return same;
}

int memory_worker_open_part(struct memory_worker *w, uint32_t rank, bool shared)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_OPEN, .rank = rank, .shared = shared };
    struct memory_answer answer;
    int fd = -1;

    ck_assert(memory_ask(w, &ask, &answer, &fd));
    ck_assert_int_eq(fd >= 0, answer.status == MEMORY_OK);
    return fd;
}

bool memory_worker_is_kept(const struct memory_worker *w, uint32_t slot)
{
    uint32_t kept = 0;

    ck_assert_int_eq(
        pread(w->slot[slot], &kept, sizeof(kept), offsetof(struct memory_header, kept)),
        sizeof(kept));
    return kept == 1;
}
