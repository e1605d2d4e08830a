/* SPDX-License-Identifier: MIT */
#include "worker-lib/core/progress.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/common/base/progress_page.h"

struct progress {
    pthread_mutex_t lock;
    struct progress_page *page;
    unsigned saves;
    uint32_t wanted; /* the last `save` that was reported to the program */
};

static struct progress_page *map_page(const char *path)
{
    struct progress_page *page = MAP_FAILED;
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);

    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_size >= (off_t)sizeof(*page))
        page = mmap(NULL, PROGRESS_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                    0);
    close(fd);
    if (page == MAP_FAILED)
        return NULL;
    (void)madvise(page, PROGRESS_PAGE_BYTES, MADV_DONTDUMP); /* it may have a secret */
    if (page->magic == PROGRESS_MAGIC && page->version == PROGRESS_VERSION)
        return page;
    munmap(page, PROGRESS_PAGE_BYTES);
    return NULL;
}

struct progress *progress_open(void)
{
    const char *path = getenv(PROGRESS_ENV);
    struct progress_page *page = path && *path ? map_page(path) : NULL;
    struct progress *p = page ? calloc(1, sizeof(*p)) : NULL;

    if (p) {
        pthread_mutex_init(&p->lock, NULL);
        p->page = page;
        p->wanted = page->saved;
    } else if (page) {
        munmap(page, PROGRESS_PAGE_BYTES);
    }
    return p;
}

void progress_close(struct progress *p)
{
    if (!p)
        return;
    munmap(p->page, PROGRESS_PAGE_BYTES);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The agent reads in another process: no store of a field may become visible before
 * `writing` is odd, so all stores are releases. It becomes odd even if an earlier
 * writer of this page was killed between the two increments. */
static void begin_writing(struct progress_page *page)
{
    uint32_t n = __atomic_load_n(&page->writing, __ATOMIC_RELAXED);

    __atomic_store_n(&page->writing, n | 1, __ATOMIC_RELAXED);
}

static void end_writing(struct progress_page *page)
{
    uint32_t n = __atomic_load_n(&page->writing, __ATOMIC_RELAXED);

    __atomic_store_n(&page->writing, n + 1, __ATOMIC_RELEASE);
}

void progress_write(struct progress *p, crun_phase phase, uint64_t step, uint64_t steps,
                    uint64_t samples, double loss)
{
    struct progress_page *page;

    if (!p)
        return;
    page = p->page;
    pthread_mutex_lock(&p->lock);
    begin_writing(page);
    if (page->phase == PROGRESS_CHECKPOINTING &&
        (uint32_t)phase != PROGRESS_CHECKPOINTING)
        __atomic_store_n(&page->checkpoints, page->checkpoints + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&page->phase, (uint32_t)phase, __ATOMIC_RELEASE);
    __atomic_store_n(&page->step, step, __ATOMIC_RELEASE);
    if (!page->first_step && phase == CRUN_PHASE_TRAINING)
        __atomic_store_n(&page->first_step, step, __ATOMIC_RELEASE);
    __atomic_store_n(&page->steps, steps, __ATOMIC_RELEASE);
    __atomic_store_n(&page->samples, samples, __ATOMIC_RELEASE);
    __atomic_store(&page->loss, &loss, __ATOMIC_RELEASE);
    __atomic_store_n(&page->changed_ns, now_ns(), __ATOMIC_RELEASE);
    end_writing(page);
    pthread_mutex_unlock(&p->lock);
}

bool progress_save_wanted(struct progress *p, uint32_t *within_ms)
{
    bool wanted;

    if (!p)
        return false;
    pthread_mutex_lock(&p->lock);
    p->wanted = __atomic_load_n(&p->page->save, __ATOMIC_ACQUIRE);
    wanted = p->wanted != p->page->saved;
    if (within_ms)
        *within_ms = __atomic_load_n(&p->page->save_within_ms, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&p->lock);
    return wanted;
}

void progress_saved(struct progress *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    begin_writing(p->page);
    __atomic_store_n(&p->page->saved, p->wanted, __ATOMIC_RELEASE);
    end_writing(p->page);
    pthread_mutex_unlock(&p->lock);
}

/* Without `writing`: this is no progress of the program. */
void progress_set_saves(struct progress *p, bool saves)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->saves += saves ? 1 : -1u;
    if (p->saves)
        __atomic_fetch_or(&p->page->flags, PROGRESS_SAVES, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(&p->page->flags, ~(uint32_t)PROGRESS_SAVES,
                           __ATOMIC_RELAXED);
    pthread_mutex_unlock(&p->lock);
}

char *progress_where(struct progress *p)
{
    return p ? p->page->where : NULL;
}
