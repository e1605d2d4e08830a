/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_file_reads.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/logs/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"

#define SEARCH_BYTES 65536
#define HEADER_MAX 256

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

/* A file, and where in its stream it begins. */
struct log_part {
    int fd;
    uint64_t start;
    size_t header; /* bytes before that */
};

static struct log_part open_part(const struct log_file_read *r, const char *path)
{
    struct log_part p = { .fd = open(path,
                                     O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) };
    char line[HEADER_MAX], *end;

    if (p.fd < 0 || !r->follows)
        return p;
    line[read_fully(p.fd, line, sizeof(line) - 1, 0)] = '\0';
    end = strchr(line, '\n');
    if (end && sscanf(line, "[crun: %" SCNu64 " bytes came before:", &p.start) == 1)
        p.header = (size_t)(end + 1 - line);
    return p;
}

/* The part with the offset, or with the byte before the end if lines are wanted; else
 * the first part that there is. */
static struct log_part find_part(const struct log_file_read *r)
{
    struct log_part p = open_part(r, r->path), older;
    char *path;

    if (!r->follows ||
        (p.fd >= 0 && (r->lines ? r->end > p.start : r->offset >= p.start)))
        return p;
    path = xasprintf("%s.1", r->path);
    older = open_part(r, path);
    free(path);
    if (older.fd < 0)
        return p;
    if (p.fd >= 0) /* else it is being renamed now */
        close(p.fd);
    return older;
}

static size_t read_part(const struct log_part *p, char *data, size_t size,
                        uint64_t offset)
{
    return read_fully(p->fd, data, size, offset - p->start + p->header);
}

/* Where the last lines before the end begin, as far as it is searched. */
static uint64_t find_lines(const struct log_part *p, const struct log_file_read *r)
{
    uint64_t low = r->end > LOG_TAIL_SEARCH_BYTES ? r->end - LOG_TAIL_SEARCH_BYTES : 0;
    uint64_t at = r->end;
    uint32_t left = r->lines;
    char *block = xmalloc(SEARCH_BYTES);

    low = low < r->offset ? r->offset : low;
    while (at > low) {
        size_t n = at - low < SEARCH_BYTES ? (size_t)(at - low) : SEARCH_BYTES;
        size_t got = read_part(p, block, n, at - n);

        for (size_t i = got; i > 0; i--)
            if (block[i - 1] == '\n' && --left == 0) {
                free(block);
                return at - n + i;
            }
        at -= n;
    }
    free(block);
    return low;
}

static void read_log_file(struct log_file_read *r)
{
    struct log_part p = find_part(r);
    size_t most = r->size;

    r->size = 0;
    if (p.fd < 0) {
        r->errnum = errno;
        return;
    }
    if (r->offset < p.start)
        r->offset = p.start;
    if (r->end < r->offset)
        r->end = r->offset;
    if (r->lines)
        r->offset = find_lines(&p, r);
    if (r->end - r->offset < most)
        most = (size_t)(r->end - r->offset);
    r->data = xmalloc(most + 1);
    errno = 0;
    r->size = read_part(&p, r->data, most, r->offset);
    r->errnum = r->size > 0 ? 0 : errno;
    close(p.fd);
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

bool log_file_reads_busy(const struct log_file_reads *r)
{
    return r->job != NULL;
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
