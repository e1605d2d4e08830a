/* SPDX-License-Identifier: MIT */
#include "tests/fakes/nccl/area.h"

#include <cuda_runtime.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* -- waiting ----------------------------------------------------------------------- */

#define LOOK_NS 5000000 /* for aborts and failed devices, which wake no thread */

void word_await(const void *word, uint32_t seen, long ns)
{
    const struct timespec most = { 0, ns };

    syscall(SYS_futex, word, FUTEX_WAIT, seen, &most, NULL, 0);
}

void word_wake(const void *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void tell_change(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    word_wake(word);
}

uint32_t link_news(const struct link *l)
{
    return atomic_load(&l->area->news[l->rank]);
}

void link_await_news(struct link *l, uint32_t seen)
{
    word_await(&l->area->news[l->rank], seen, LOOK_NS);
}

void link_tell(struct link *l, int peer)
{
    tell_change(&l->area->news[peer]);
}

/* -- areas ------------------------------------------------------------------------- */

bool area_create(char path[PATH_BYTES])
{
    int fd = memfd_create("nccl-standin", MFD_CLOEXEC);

    if (fd < 0)
        return false;
    if (ftruncate(fd, sizeof(struct area)) < 0) {
        close(fd);
        return false;
    }
    memset(path, 0, PATH_BYTES);
    snprintf(path, PATH_BYTES, "/proc/%d/fd/%d", (int)getpid(), fd);
    return true;
}

void area_close(const char *path)
{
    int pid, fd;

    if (sscanf(path, "/proc/%d/fd/%d", &pid, &fd) == 2 && pid == (int)getpid())
        close(fd);
}

bool area_open(struct link *l, const char *path, int rank, int size)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    l->rank = rank;
    l->size = size;
    if (fd < 0)
        return false;
    l->area = mmap(NULL, sizeof(struct area), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                   0);
    close(fd);
    if (l->area == MAP_FAILED)
        l->area = NULL;
    return l->area != NULL;
}

void area_leave(struct link *l)
{
    if (l->area)
        munmap(l->area, sizeof(struct area));
    l->area = NULL;
}

bool link_is_aborted(const struct link *l)
{
    return atomic_load(&l->aborted) || (l->aborter && link_is_aborted(l->aborter));
}

enum waiter { HOST, KERNEL, DEAF_KERNEL };

static bool is_to_stop(const struct link *l, enum waiter who)
{
    return (who != DEAF_KERNEL && link_is_aborted(l)) ||
           (who != HOST && cuda_emulated_stopped());
}

static bool is_complete(struct barrier *b, int size, uint64_t phase)
{
    for (int p = 0; p < size; p++)
        if (atomic_load(&b->phase[p]) < phase)
            return false;
    return true;
}

/* The last rank wakes the others. */
static bool pass_barrier(struct link *l, struct barrier *b, uint64_t phase,
                         enum waiter who)
{
    atomic_store(&b->phase[l->rank], phase);
    if (is_complete(b, l->size, phase)) {
        tell_change(&b->passed);
        return true;
    }
    for (;;) {
        uint32_t seen = atomic_load(&b->passed);

        if (is_complete(b, l->size, phase))
            return true;
        if (is_to_stop(l, who)) {
            tell_change(&b->passed); /* a rank that is aborted has passed, too */
            return false;
        }
        word_await(&b->passed, seen, LOOK_NS);
    }
}

bool link_host_barrier(struct link *l)
{
    return pass_barrier(l, &l->area->hosts, ++l->host_phase, HOST);
}

bool link_kernel_barrier(struct link *l, bool deaf)
{
    return pass_barrier(l, &l->area->kernels, ++l->phase, deaf ? DEAF_KERNEL : KERNEL);
}

bool link_gather(struct link *l, const void *mine, size_t bytes, void *all)
{
    memcpy(l->area->note[l->rank], mine, bytes);
    if (!link_host_barrier(l))
        return false;
    for (int p = 0; p < l->size; p++)
        memcpy((char *)all + (size_t)p * bytes, l->area->note[p], bytes);
    return link_host_barrier(l); /* the notes may be written again */
}

static struct pair *pair_of(const struct link *l, int peer, bool sends)
{
    return sends ? &l->area->pair[l->rank][peer] : &l->area->pair[peer][l->rank];
}

void link_offer(struct link *l, int peer, bool sends)
{
    if (!atomic_exchange(&pair_of(l, peer, sends)->connects[sends ? 0 : 1], true))
        link_tell(l, peer);
}

bool link_connect(struct link *l, int peer, bool sends)
{
    struct pair *pair = pair_of(l, peer, sends);

    link_offer(l, peer, sends);
    for (;;) {
        uint32_t seen = link_news(l);

        if (atomic_load(&pair->connects[sends ? 1 : 0]))
            return true;
        if (link_is_aborted(l))
            return false;
        link_await_news(l, seen);
    }
}
