/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/memory_client.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/common/base/memory_part.h"
#include "worker-lib/checkpoint/memory_copy.h"
#include "worker-lib/checkpoint/memory_socket.h"

struct slot {
    int fd;
    uint8_t *map;
    uint64_t map_bytes;
};

struct crun_memory {
    int socket;
    unsigned threads[2]; /* for a section of its own, and for the shared one */
    struct crun_memory_config config;
    char kind[MEMORY_KIND_BYTES];
    struct memory_set restores;
    bool copies; /* are wanted, and the agent sets `kept` */
    struct slot slots[MEMORY_SLOTS];
    struct slot *written, *committed; /* NULL: none */
    struct memory_header header;      /* of `written` */
    uint64_t newest_step;             /* of `committed` */
    uint64_t *leaves;
    size_t leaf_room;
};

static struct memory_header *slot_header(const struct slot *s)
{
    return (struct memory_header *)(void *)s->map;
}

/* The map becomes as long as the file. */
static int slot_map(struct slot *s, struct err *e)
{
    struct stat st;
    void *map;

    if (fstat(s->fd, &st) < 0 || st.st_size < (off_t)MEMORY_HEADER_BYTES)
        return err_set(e, "memory: the agent's slot is too small");
    if ((uint64_t)st.st_size == s->map_bytes)
        return 0;
    map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (map == MAP_FAILED)
        return err_set_errno(e, errno, "memory: cannot map %lld bytes",
                             (long long)st.st_size);
    (void)madvise(map, (size_t)st.st_size, MADV_DONTDUMP);
    (void)madvise(map, (size_t)st.st_size, MADV_HUGEPAGE);
    if (s->map)
        munmap(s->map, s->map_bytes);
    s->map = map;
    s->map_bytes = (uint64_t)st.st_size;
    return 0;
}

/* -- connecting -------------------------------------------------------------------- */

static int memory_hello(crun_memory *m, struct err *e)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_HELLO,
                              .rank = m->config.rank,
                              .local_rank = m->config.local_rank,
                              .can_hold = 1,
                              .epoch = m->config.epoch };
    struct memory_answer answer;
    const char *from = m->config.command;
    int fds[MEMORY_SLOTS];

    for (size_t i = 0; from && (from[i] || from[i + 1]); i++) {
        if (i + 2 >= sizeof(ask.command))
            return err_set(e, "memory: the command that writes files is too long");
        ask.command[i] = from[i];
    }
    if (memory_socket_ask(m->socket, &ask, &answer, fds, e) < 0)
        return -1;
    for (unsigned i = 0; i < answer.slots; i++)
        m->slots[i].fd = fds[i];
    if (answer.slots != MEMORY_SLOTS)
        return err_set(e, "memory: the agent gave %u slots", answer.slots);
    m->restores = answer.restore;
    m->copies = answer.copies != 0;
    for (unsigned i = 0; i < MEMORY_SLOTS; i++)
        if (slot_map(&m->slots[i], e) < 0)
            return -1;
    return 0;
}

/* This rank's share of the cores that it may run on; all of them for the shared
 * section, for which the other ranks of the node wait. */
static void count_threads(crun_memory *m)
{
    unsigned cores = 1, ranks = m->config.local_world ? m->config.local_world : 1;
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        cores = (unsigned)CPU_COUNT(&set);
    m->threads[true] = cores;
    m->threads[false] = cores > ranks ? cores / ranks : 1;
}

crun_memory *crun_memory_open(const struct crun_memory_config *c, struct err *e)
{
    crun_memory *m = calloc(1, sizeof(*m));

    if (!m) {
        (void)err_set(e, "memory: there is none left");
        return NULL;
    }
    m->config = *c;
    count_threads(m);
    snprintf(m->kind, sizeof(m->kind), "%s", c->kind);
    for (unsigned i = 0; i < MEMORY_SLOTS; i++)
        m->slots[i].fd = -1;
    m->socket = memory_socket_open(c->path, e);
    if (m->socket >= 0 && memory_hello(m, e) == 0)
        return m;
    crun_memory_close(m);
    return NULL;
}

void crun_memory_close(crun_memory *m)
{
    if (!m)
        return;
    for (unsigned i = 0; i < MEMORY_SLOTS; i++) {
        if (m->slots[i].map)
            munmap(m->slots[i].map, m->slots[i].map_bytes);
        if (m->slots[i].fd >= 0)
            close(m->slots[i].fd);
    }
    if (m->socket >= 0)
        close(m->socket);
    free(m->leaves);
    free(m);
}

/* -- restoring --------------------------------------------------------------------- */

const struct memory_set *crun_memory_restores(const crun_memory *m)
{
    return &m->restores;
}

static int part_check(struct crun_memory_part *part, bool shared, bool is_sound,
                      struct memory_header *h, struct err *e)
{
    uint64_t at = MEMORY_HEADER_BYTES, hash;
    uint64_t *leaves;

    memcpy(h, part->map, sizeof(*h));
    if (!memory_header_is_whole(h, part->map_bytes))
        return err_set(e, "memory: a part is damaged");
    if (shared) {
        at = memory_shared_at(h->own_bytes);
        if (!h->shared_bytes)
            return err_set(e, "memory: a part has no shared section");
    }
    part->data = (const uint8_t *)part->map + at;
    part->bytes = shared ? h->shared_bytes : h->own_bytes;
    if (is_sound)
        return 0;
    leaves = calloc(memory_copy_leaves(part->bytes) + 1, sizeof(*leaves));
    if (!leaves)
        return err_set(e, "memory: there is none left");
    hash = memory_copy_hash(part->data, part->bytes, 1, leaves);
    free(leaves);
    return hash == (shared ? h->shared_hash : h->own_hash)
               ? 0
               : err_set(e, "memory: the bytes of a part are damaged");
}

static int part_read(int fd, bool shared, bool is_sound, struct crun_memory_part *part,
                     struct memory_header *h, struct err *e)
{
    struct stat st;

    *part = (struct crun_memory_part){ .data = NULL };
    if (fstat(fd, &st) < 0 || st.st_size < (off_t)MEMORY_HEADER_BYTES)
        return err_set(e, "memory: a part is too short");
    part->map_bytes = (uint64_t)st.st_size;
    /* all of it is read */
    part->map = mmap(NULL, part->map_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd,
                     0);
    if (part->map == MAP_FAILED) {
        part->map = NULL;
        return err_set_errno(e, errno, "memory: cannot map a part");
    }
    (void)madvise(part->map, part->map_bytes, MADV_DONTDUMP);
    if (part_check(part, shared, is_sound, h, e) == 0)
        return 0;
    crun_memory_part_free(part);
    return -1;
}

int crun_memory_part_read(int fd, bool shared, struct crun_memory_part *part,
                          struct memory_header *h, struct err *e)
{
    return part_read(fd, shared, false, part, h, e);
}

int crun_memory_read(crun_memory *m, uint32_t rank, bool shared,
                     struct crun_memory_part *part, struct err *e)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_OPEN,
                              .rank = rank,
                              .shared = shared,
                              .epoch = m->config.epoch };
    struct memory_answer answer;
    struct memory_header h;
    int fds[MEMORY_SLOTS], result;

    if (memory_socket_ask(m->socket, &ask, &answer, fds, e) < 0)
        return -1;
    result = answer.slots == 1
                 ? part_read(fds[0], shared, answer.is_sound != 0, part, &h, e)
                 : err_set(e, "memory: the agent gave no part");
    for (unsigned i = 0; i < answer.slots; i++)
        close(fds[i]);
    if (result < 0)
        return -1;
    if (!memory_set_equal(&h.set, &m->restores) || (!shared && h.rank != rank))
        result = err_set(e, "memory: the agent gave another part");
    else if (strcmp(h.kind, m->kind) != 0)
        result = err_set(e, "memory: the part is of another kind of program");
    if (result < 0)
        crun_memory_part_free(part);
    return result;
}

void crun_memory_part_free(struct crun_memory_part *part)
{
    if (part->map)
        munmap(part->map, part->map_bytes);
    *part = (struct crun_memory_part){ .data = NULL };
}

void crun_memory_restored(crun_memory *m, uint64_t step)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_RESTORED,
                              .epoch = m->config.epoch,
                              .bytes = step };

    memory_socket_note(m->socket, &ask);
}

/* -- saving ------------------------------------------------------------------------ */

static bool slot_is_whole(const struct slot *s)
{
    struct memory_header h = *slot_header(s);

    return memory_header_is_whole(&h, s->map_bytes);
}

/*
 * How much it costs to lose what the slot has: nothing; a step of an earlier epoch,
 * which nobody goes back to; a step of this one; what the job goes back to while this
 * rank has nothing newer.
 */
static int slot_worth(const crun_memory *m, const struct slot *s)
{
    if (!slot_is_whole(s))
        return 0;
    if (m->restores.world > 0 && memory_set_equal(&slot_header(s)->set, &m->restores))
        return m->committed ? 1 : 3;
    return slot_header(s)->set.epoch < m->config.epoch ? 1 : 2;
}

static struct slot *slot_to_write(crun_memory *m)
{
    struct slot *a = &m->slots[0], *b = &m->slots[1];
    int worth_a = slot_worth(m, a), worth_b = slot_worth(m, b);

    if (worth_a != worth_b)
        return worth_a < worth_b ? a : b;
    if (worth_a == 0)
        return a;
    return memory_set_compare(&slot_header(a)->set, &slot_header(b)->set) <= 0 ? a : b;
}

static int slot_resize(crun_memory *m, struct slot *s, uint64_t bytes, struct err *e)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_RESIZE,
                              .slot = (uint32_t)(s - m->slots),
                              .epoch = m->config.epoch,
                              .bytes = bytes };
    struct memory_answer answer;

    if (bytes <= s->map_bytes)
        return 0;
    if (bytes == UINT64_MAX)
        return err_set(e, "memory: the size of a section is wrong");
    if (memory_socket_ask(m->socket, &ask, &answer, NULL, e) < 0 || slot_map(s, e) < 0)
        return -1;
    return bytes <= s->map_bytes ? 0 : err_set(e, "memory: the slot did not grow");
}

static int leaves_reserve(crun_memory *m, uint64_t bytes, struct err *e)
{
    size_t need = memory_copy_leaves(bytes) + 1;
    uint64_t *leaves = need <= m->leaf_room
                           ? m->leaves
                           : realloc(m->leaves, need * sizeof(*leaves));

    if (!leaves)
        return err_set(e, "memory: there is none left");
    m->leaf_room = need > m->leaf_room ? need : m->leaf_room;
    m->leaves = leaves;
    return 0;
}

int crun_memory_begin(crun_memory *m, const struct crun_memory_save *save,
                      struct err *e)
{
    struct slot *s = slot_to_write(m);
    uint64_t larger = save->own_bytes > save->shared_bytes ? save->own_bytes
                                                           : save->shared_bytes;

    m->written = NULL;
    if (m->committed && save->step <= m->newest_step)
        return err_set(e, "memory: step %" PRIu64 " comes after step %" PRIu64,
                       save->step, m->newest_step);
    if (slot_resize(m, s, memory_slot_bytes(save->own_bytes, save->shared_bytes), e) <
            0 ||
        leaves_reserve(m, larger, e) < 0)
        return -1;
    /* no byte may change before the slot is seen to be no part any more */
    __atomic_store_n(&slot_header(s)->state, MEMORY_WRITING, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    m->written = s;
    m->header = (struct memory_header){
        .magic = MEMORY_MAGIC,
        .version = MEMORY_VERSION,
        .state = MEMORY_WRITING,
        .rank = m->config.rank,
        .set = { .epoch = m->config.epoch,
                 .step = save->step,
                 .world = m->config.world },
        .own_bytes = save->own_bytes,
        .shared_bytes = save->shared_bytes,
        .own_hash = memory_hash("", 0),
        .has_shared = save->has_shared,
        .files_step = save->files_step,
    };
    memcpy(m->header.kind, m->kind, sizeof(m->kind));
    return 0;
}

void *crun_memory_section(crun_memory *m, bool shared)
{
    if (!m->written)
        return NULL;
    return m->written->map +
           (shared ? memory_shared_at(m->header.own_bytes) : MEMORY_HEADER_BYTES);
}

int crun_memory_write(crun_memory *m, bool shared,
                      const struct crun_memory_piece *pieces, size_t count,
                      struct err *e)
{
    uint64_t bytes = shared ? m->header.shared_bytes : m->header.own_bytes, sum = 0;
    uint64_t *hash = shared ? &m->header.shared_hash : &m->header.own_hash;

    for (size_t i = 0; i < count; i++)
        sum += pieces[i].bytes;
    if (!m->written || sum != bytes)
        return err_set(e, "memory: a section has another size than it began with");
    *hash = memory_copy(crun_memory_section(m, shared), bytes, pieces,
                        m->threads[shared], m->leaves);
    return 0;
}

void crun_memory_commit(crun_memory *m)
{
    struct memory_ask ask = { .kind = MEMORY_ASK_COMMITTED, .epoch = m->config.epoch };
    struct memory_header *h = &m->header;
    struct timespec now;

    if (!m->written)
        return;
    clock_gettime(CLOCK_BOOTTIME, &now);
    h->saved_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    h->kept = m->copies ? 0 : 1;
    h->header_hash = memory_header_hash(h);
    memcpy(m->written->map, h, sizeof(*h));
    __atomic_store_n(&slot_header(m->written)->state, MEMORY_WHOLE, __ATOMIC_RELEASE);
    ask.slot = (uint32_t)(m->written - m->slots);
    memory_socket_note(m->socket, &ask);
    m->committed = m->written;
    m->newest_step = h->set.step;
    m->written = NULL;
}

bool crun_memory_is_kept(const crun_memory *m)
{
    return !m->committed ||
           (__atomic_load_n(&slot_header(m->committed)->kept, __ATOMIC_ACQUIRE) != 0 &&
            __atomic_load_n((uint32_t *)(void *)(m->committed->map + MEMORY_HOLD_AT),
                            __ATOMIC_ACQUIRE) == 0);
}
