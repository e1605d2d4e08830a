/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_file_reads.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/logs/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"

#define SEARCH_BYTES 65536

enum read_state { READ_RUNS, READ_DONE, READ_ABANDONED };

/* Belongs to the thread while it runs, and if it is abandoned. */
struct read_job {
    struct log_file_read *list;
    size_t count;
    int done_fd;
    int state;
};

struct log_file_reads {
    void (*done)(void *arg, struct log_file_read *list, size_t count);
    void *arg;
    int done_fd;
    struct event *event;
    pthread_t thread;
    struct read_job *job; /* NULL: none */
};

static void free_read_list(struct log_file_read *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(list[i].path);
        free(list[i].data);
    }
    free(list);
}

static void free_read_job(struct read_job *job)
{
    free_read_list(job->list, job->count);
    close(job->done_fd);
    free(job);
}

/* -- the thread ------------------------------------------------------------------- */

static size_t read_fully(int fd, char *data, size_t size, uint64_t offset)
{
    size_t used = 0;
    ssize_t n;

    while (used < size &&
           ((n = pread(fd, data + used, size - used, (off_t)(offset + used))) > 0 ||
            (n < 0 && errno == EINTR)))
        used += n > 0 ? (size_t)n : 0;
    return used;
}

struct log_place log_place_of(int fd)
{
    struct stat st = { 0 };

    (void)!fstat(fd, &st);
    return (struct log_place){ .inode = st.st_ino, .shift = -(uint64_t)st.st_size };
}

/* -1 and an errno, 0 for a file that is not of the stream, or not any more. */
static int open_log_file(const struct log_file_read *r, int *errnum)
{
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    *errnum = fd < 0 ? errno : 0;
    if (fd >= 0 && log_place_of(fd).inode != r->place.inode) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Where the last lines begin: whole ones, as far as it is searched. */
static uint64_t find_last_lines(int fd, const struct log_place *p, uint32_t lines)
{
    uint64_t end = p->written, at = end, low = p->start;
    char *block = xmalloc(SEARCH_BYTES);

    if (end > low + LOG_TAIL_SEARCH_BYTES)
        low = end - LOG_TAIL_SEARCH_BYTES;
    while (at > low) {
        size_t n = at - low < SEARCH_BYTES ? (size_t)(at - low) : SEARCH_BYTES;

        for (size_t i = read_fully(fd, block, n, at - n - p->shift); i > 0; i--)
            if (block[i - 1] == '\n' && at - n + i < end && --lines == 0) {
                free(block);
                return at - n + i;
            }
        at -= n;
    }
    if (low > p->start) {
        size_t n = read_fully(fd, block, SEARCH_BYTES, low - p->shift);
        const char *newline = memchr(block, '\n', n);

        low += newline ? (size_t)(newline + 1 - block) : 0;
    }
    free(block);
    return low;
}

/* Skips what the user has removed from the file. */
static void read_log_file(struct log_file_read *r)
{
    uint64_t end = r->place.written;
    int fd = open_log_file(r, &r->errnum);

    if (fd >= 0 && r->lines)
        r->offset = find_last_lines(fd, &r->place, r->lines);
    if (fd >= 0 && r->offset < r->place.start)
        r->offset = r->place.start;
    if (fd < 0 || r->offset > end)
        r->offset = end;
    if (end - r->offset < r->size)
        r->size = (size_t)(end - r->offset);
    r->data = xmalloc(r->size + 1);
    if (fd < 0)
        return;
    errno = 0;
    r->size = read_fully(fd, r->data, r->size, r->offset - r->place.shift);
    if (r->size == 0 && r->offset < end) {
        r->errnum = errno;
        r->offset = end;
    }
    close(fd);
}

static void *run_reads(void *arg)
{
    struct read_job *job = arg;
    uint64_t one = 1;
    int runs = READ_RUNS;

    for (size_t i = 0; i < job->count; i++)
        read_log_file(&job->list[i]);
    if (__atomic_compare_exchange_n(&job->state, &runs, READ_DONE, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        while (write(job->done_fd, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
    else
        free_read_job(job);
    return NULL;
}

/* -- the loop's side -------------------------------------------------------------- */

static void on_reads_done(evutil_socket_t fd, short what, void *arg)
{
    struct log_file_reads *r = arg;
    struct read_job *job = r->job;
    uint64_t count;

    if (read(fd, &count, sizeof(count)) < 0 || !job)
        return;
    pthread_join(r->thread, NULL);
    r->job = NULL;
    r->done(r->arg, job->list, job->count);
    free_read_job(job);
}

struct log_file_reads *
log_file_reads_create(struct loop *loop,
                      void (*done)(void *arg, struct log_file_read *list, size_t count),
                      void *arg)
{
    struct log_file_reads *r = xcalloc(1, sizeof(*r));

    r->done = done;
    r->arg = arg;
    r->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->event = event_new(loop_base(loop), r->done_fd, EV_READ | EV_PERSIST,
                         on_reads_done, r);
    if (r->event)
        event_add(r->event, NULL);
    return r;
}

void log_file_reads_destroy(struct log_file_reads *r)
{
    int runs = READ_RUNS;

    if (!r)
        return;
    if (r->job &&
        __atomic_compare_exchange_n(&r->job->state, &runs, READ_ABANDONED, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        pthread_detach(r->thread);
    } else if (r->job) {
        pthread_join(r->thread, NULL);
        free_read_job(r->job);
    }
    if (r->event)
        event_free(r->event);
    if (r->done_fd >= 0)
        close(r->done_fd);
    free(r);
}

bool log_file_reads_start(struct log_file_reads *r, struct log_file_read *list,
                          size_t count)
{
    struct read_job *job = xcalloc(1, sizeof(*job));

    job->list = list;
    job->count = count;
    job->done_fd = fcntl(r->done_fd, F_DUPFD_CLOEXEC, 3);
    if (job->done_fd >= 0 && thread_start(&r->thread, run_reads, job) == 0) {
        r->job = job;
        return true;
    }
    free_read_list(list, count);
    if (job->done_fd >= 0)
        close(job->done_fd);
    free(job);
    return false;
}
