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

struct log_part log_part_of(int fd, uint64_t start)
{
    struct stat st = { 0 };

    (void)!fstat(fd, &st);
    return (struct log_part){ .inode = st.st_ino,
                              .start = start,
                              .shift = start - (uint64_t)st.st_size };
}

/* fd: of the files of both parts, newest first; -1: it is gone. */
struct log_reader {
    const struct log_parts *parts;
    int fd[2];
};

/* Closes a file that is not of the stream, or not any more. Returns an errno. */
static int log_reader_add(struct log_reader *l, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    uint64_t inode;

    if (fd < 0)
        return errno;
    inode = log_part_of(fd, 0).inode;
    for (int i = 0; i < 2; i++)
        if (inode == l->parts->part[i].inode && l->fd[i] < 0) {
            l->fd[i] = fd;
            return 0;
        }
    close(fd);
    return 0;
}

static uint64_t log_reader_start(const struct log_reader *l)
{
    return l->fd[1] >= 0   ? l->parts->part[1].start
           : l->fd[0] >= 0 ? l->parts->part[0].start
                           : l->parts->written;
}

static size_t log_reader_read(const struct log_reader *l, char *data, size_t size,
                              uint64_t offset)
{
    const struct log_part *part = l->parts->part;
    size_t used = 0;

    if (l->fd[1] >= 0 && offset < part[0].start) {
        uint64_t left = part[0].start - offset;

        used = read_fully(l->fd[1], data, left < size ? (size_t)left : size,
                          offset - part[1].shift);
        if (used < left)
            return used;
    }
    if (l->fd[0] < 0)
        return used;
    return used + read_fully(l->fd[0], data + used, size - used,
                             offset + used - part[0].shift);
}

/* Where the last lines begin: whole ones, as far as it is searched. */
static uint64_t log_reader_find_lines(const struct log_reader *l, uint32_t lines)
{
    uint64_t end = l->parts->written, at = end, low = log_reader_start(l);
    char *block = xmalloc(SEARCH_BYTES);

    if (end > low + LOG_TAIL_SEARCH_BYTES)
        low = end - LOG_TAIL_SEARCH_BYTES;
    while (at > low) {
        size_t n = at - low < SEARCH_BYTES ? (size_t)(at - low) : SEARCH_BYTES;

        for (size_t i = log_reader_read(l, block, n, at - n); i > 0; i--)
            if (block[i - 1] == '\n' && at - n + i < end && --lines == 0) {
                free(block);
                return at - n + i;
            }
        at -= n;
    }
    if (low > log_reader_start(l)) {
        size_t n = log_reader_read(l, block, SEARCH_BYTES, low);
        const char *newline = memchr(block, '\n', n);

        low += newline ? (size_t)(newline + 1 - block) : 0;
    }
    free(block);
    return low;
}

/* Skips what the user has removed from the files. */
static void read_log_file(struct log_file_read *r)
{
    struct log_reader l = { .parts = &r->parts, .fd = { -1, -1 } };
    char *older = xasprintf("%s.1", r->path);
    uint64_t end = r->parts.written, start;

    r->errnum = log_reader_add(&l, r->path);
    if (log_reader_add(&l, older) ==
        0) /* the file itself, if it was renamed just now */
        r->errnum = 0;
    free(older);
    start = log_reader_start(&l);
    if (r->lines)
        r->offset = log_reader_find_lines(&l, r->lines);
    if (r->offset < start)
        r->offset = start;
    if (r->offset > end)
        r->offset = end;
    if (end - r->offset < r->size)
        r->size = (size_t)(end - r->offset);
    r->data = xmalloc(r->size + 1);
    errno = 0;
    r->size = log_reader_read(&l, r->data, r->size, r->offset);
    if (r->size == 0 && r->offset < end) {
        r->errnum = r->errnum ? r->errnum : errno;
        r->offset = end;
    }
    for (int i = 0; i < 2; i++)
        if (l.fd[i] >= 0)
            close(l.fd[i]);
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
