/* SPDX-License-Identifier: MIT */
#include "agent/guard/status_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/progress_page.h"
#include "rendezvous/common/base/xalloc.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* A worker may write anything, but it cannot shrink the memory under the agent. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int make_memfd(void)
{
    static const char name[] = "crun-progress";
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) /* Linux before 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, PROGRESS_PAGE_BYTES) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Makes the page at index count, with a descriptor above all those of the guard. */
static int make_page(struct status_pages *p, int above)
{
    int fd = make_memfd(), moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, above);
    void *page = moved < 0 ? MAP_FAILED
                           : mmap(NULL, PROGRESS_PAGE_BYTES, PROT_READ | PROT_WRITE,
                                  MAP_SHARED, moved, 0);
    int why = errno;

    if (fd >= 0)
        close(fd);
    if (page == MAP_FAILED) {
        if (moved >= 0)
            close(moved);
        errno = why;
        return -1;
    }
    (void)madvise(page, PROGRESS_PAGE_BYTES, MADV_DONTDUMP); /* it may have a secret */
    p->fd[p->count] = moved;
    p->page[p->count] = page;
    status_pages_clear(p, p->count++);
    return 0;
}

void status_pages_make(struct status_pages *p, uint32_t count, int first)
{
    *p = (struct status_pages){ .first = first,
                                .fd = xcalloc(count + 1, sizeof(*p->fd)),
                                .page = xcalloc(count + 1, sizeof(*p->page)) };
    while (p->count < count) {
        if (make_page(p, first + (int)count) < 0) {
            log_debug("no status pages: %s", strerror(errno));
            status_pages_fini(p);
            p->first = first;
            return;
        }
    }
}

static void close_page_descriptors(struct status_pages *p)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (p->fd[i] >= 0)
            close(p->fd[i]);
    free(p->fd);
    p->fd = NULL;
}

void status_pages_fini(struct status_pages *p)
{
    if (p->fd)
        close_page_descriptors(p);
    for (uint32_t i = 0; i < p->count; i++)
        munmap(p->page[i], PROGRESS_PAGE_BYTES);
    free(p->page);
    status_pages_set_store(p, NULL);
    *p = (struct status_pages){ .count = 0 };
}

int status_pages_end(const struct status_pages *p)
{
    return p->first + (int)p->count;
}

void status_pages_place(const struct status_pages *p)
{
    for (uint32_t i = 0; i < p->count; i++)
        dup2(p->fd[i], p->first + (int)i);
}

void status_pages_hand_over(struct status_pages *p, pid_t guard)
{
    char path[64];
    int fd;

    if (p->count == 0)
        return;
    close_page_descriptors(p);
    /* if the last one can be opened through /proc, as a worker does it, all can */
    status_pages_path(p, guard, p->count - 1, path, sizeof(path));
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        log_debug("no status pages: %s: %s", path, strerror(errno));
        status_pages_fini(p);
        return;
    }
    close(fd);
}

/* In no core. NULL: there is no memory. */
static void *map_secret(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    (void)madvise(memory, size, MADV_DONTDUMP);
    return memory;
}

void status_pages_set_store(struct status_pages *p, const struct progress_store *store)
{
    if (p->store) {
        explicit_bzero(p->store, sizeof(*p->store));
        munmap(p->store, sizeof(*p->store));
    }
    p->store = store ? map_secret(sizeof(*store)) : NULL;
    if (p->store)
        *p->store = *store;
}

void status_pages_clear(const struct status_pages *p, uint32_t index)
{
    memset(p->page[index], 0, sizeof(*p->page[index]));
    p->page[index]->magic = PROGRESS_MAGIC;
    p->page[index]->version = PROGRESS_VERSION;
    if (p->store)
        p->page[index]->store = *p->store;
}

bool status_pages_saves(const struct status_pages *p, uint32_t index)
{
    const struct progress_page *page = index < p->count ? p->page[index] : NULL;

    return page &&
           (__atomic_load_n(&page->phase, __ATOMIC_RELAXED) == PROGRESS_CHECKPOINTING ||
            __atomic_load_n(&page->flags, __ATOMIC_RELAXED) & PROGRESS_SAVES);
}

bool status_pages_saves_together(const struct status_pages *p, uint32_t index)
{
    return index < p->count && !status_pages_saves(p, index) &&
           __atomic_load_n(&p->page[index]->flags, __ATOMIC_RELAXED) &
               PROGRESS_SAVES_TOGETHER;
}

char *status_pages_path(const struct status_pages *p, pid_t guard, uint32_t index,
                        char *buf, size_t size)
{
    if (index < p->count)
        snprintf(buf, size, "/proc/%d/fd/%d", (int)guard, p->first + (int)index);
    else
        snprintf(buf, size, "%s", "");
    return buf;
}
