/* SPDX-License-Identifier: MIT */
#include "tests/fakes/nccl/area.h"

#include <cuda_runtime.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TURNS_BUSY 100
#define PAUSE_US 50

void link_pause(unsigned *turn)
{
    if ((*turn)++ < TURNS_BUSY)
        sched_yield();
    else
        usleep(PAUSE_US);
}

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

static bool await_phase(struct link *l, _Atomic uint64_t *phases, uint64_t phase,
                        enum waiter who)
{
    unsigned turn = 0;

    atomic_store(&phases[l->rank], phase);
    for (int p = 0; p < l->size; p++)
        while (atomic_load(&phases[p]) < phase) {
            if (is_to_stop(l, who))
                return false;
            link_pause(&turn);
        }
    return true;
}

bool link_host_barrier(struct link *l)
{
    return await_phase(l, l->area->host_phase, ++l->host_phase, HOST);
}

bool link_kernel_barrier(struct link *l, bool deaf)
{
    return await_phase(l, l->area->phase, ++l->phase, deaf ? DEAF_KERNEL : KERNEL);
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

bool link_connect(struct link *l, int peer, bool sends)
{
    struct pair *pair = sends ? &l->area->pair[l->rank][peer]
                              : &l->area->pair[peer][l->rank];
    unsigned turn = 0;

    atomic_store(&pair->connects[sends ? 0 : 1], true);
    while (!atomic_load(&pair->connects[sends ? 1 : 0])) {
        if (link_is_aborted(l))
            return false;
        link_pause(&turn);
    }
    return true;
}
