/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_writer.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "agent/logs/limits.h"
#include "agent/logs/log_rotation.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"

/*
 * One mutex guards a writer and all its outlets; it is never held across a system call
 * that may block. The thread is made when the first byte is queued, so a silent job has
 * none. Only the loop's thread frees outlets.
 *
 * A thread that hangs in write() cannot be stopped. At the end it is left behind; then
 * it owns the writer, and frees it if it ever returns.
 */
#define MARK_MAX 256

struct log_block {
    TAILQ_ENTRY(log_block) link;
    size_t used;
    char data[WRITER_BLOCK_BYTES];
};

TAILQ_HEAD(blocks, log_block);

struct outlet {
    struct log_writer *writer;
    struct outlet_options options;
    struct blocks blocks;
    size_t queued; /* bytes in blocks, and those being written */
    bool ready;    /* in the list of outlets with data to write */
    bool waited_for;
    bool closing, released;
    bool dead; /* permanently broken: a closed pipe, a hung-up terminal */
    bool has_lost;
    uint64_t retry_ms;
    struct log_rotation out; /* the thread's own, and as of the last write: */
    struct log_parts parts;
    uint64_t unmarked_in_queue; /* lost without room in the queue, and */
    uint64_t unmarked_in_file;  /* refused by the file, since the last mark */
    int lost_errno;             /* 0: too slow */
    TAILQ_ENTRY(outlet) ready_link;
    TAILQ_ENTRY(outlet) link;
};

/* Of all outlets together: they share a file system that is full. */
struct losses {
    uint64_t bytes;
    unsigned outlets; /* of which the first has this name */
    char *name;
    const char *then;
    int errnum; /* of the last; 0: too slow */
    bool warned;
};

struct log_writer {
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    pthread_t thread;
    bool running, ending, orphan, slow;
    struct losses losses;
    TAILQ_HEAD(, outlet) outlets, ready;
    size_t queued;
    uint64_t taken, taken_before, since_ms;
    uint64_t written; /* atomic: it grows without the lock */
    bool waited_for;
    int news_fd;
    bool news;

    struct log_writer_calls calls;
    struct loop *loop;
    struct event *event;
};

/* -- the thread ----------------------------------------------------------------- */

/* Under the lock. */
static void send_news(struct log_writer *w)
{
    static const uint64_t one = 1;

    if (w->news)
        return;
    w->news = true;
    while (write(w->news_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

/* The text that marks a loss in the file. Returns its size. */
static size_t format_loss_mark(char *text, size_t size, uint64_t bytes, int errnum)
{
    return (size_t)snprintf(text, size,
                            "\n[crun: %" PRIu64 " bytes of output lost: %s]\n", bytes,
                            errnum ? strerror(errnum) : "too slow");
}

static void count_loss(struct outlet *o, size_t bytes, int errnum)
{
    struct losses *l = &o->writer->losses;

    if (!o->has_lost && l->outlets++ == 0) {
        l->name = xstrdup(o->options.name);
        l->then = o->options.then;
    }
    o->has_lost = true;
    o->lost_errno = l->errnum = errnum;
    l->bytes += bytes;
    send_news(o->writer);
}

static bool is_permanent(int errnum)
{
    return errnum == EPIPE || errnum == EBADF || errnum == ECONNRESET;
}

/* Called under the lock, which it releases while it writes. Earlier losses in this
 * place are marked first. */
static int write_unlocked(struct log_writer *w, struct outlet *o, const char *data,
                          size_t *size)
{
    uint64_t unmarked = o->options.mark ? o->unmarked_in_file : 0;
    int errnum = o->lost_errno;
    char mark[MARK_MAX];
    size_t mark_size = unmarked ? format_loss_mark(mark, sizeof(mark), unmarked, errnum)
                                : 0;

    pthread_mutex_unlock(&w->lock);
    errnum = log_rotation_mark(&o->out, mark, &mark_size);
    if (!errnum)
        errnum = log_rotation_write(&o->out, data, size, &w->written);
    pthread_mutex_lock(&w->lock);
    o->parts = o->out.at;
    if (mark_size == 0)
        o->unmarked_in_file -= unmarked;
    return errnum;
}

static void write_block(struct log_writer *w, struct outlet *o, struct log_block *b)
{
    bool skip = o->dead || (o->retry_ms && clock_ms() < o->retry_ms);
    int errnum = o->lost_errno;
    size_t left = b->used;

    if (!skip) {
        errnum = write_unlocked(w, o, b->data, &left);
        o->retry_ms = errnum ? clock_ms() + WRITER_RETRY_MS : 0;
        o->dead = is_permanent(errnum);
    }
    if (left > 0) {
        count_loss(o, left, errnum);
        o->unmarked_in_file += left;
    }
    o->queued -= b->used;
    w->queued -= b->used;
    w->taken += b->used;
}

/* Called under the lock: reports the room just made, if a stream waits for it. */
static void finish_write(struct log_writer *w, struct outlet *o, size_t written)
{
    const size_t half = WRITER_QUEUE_MAX / 2;
    bool crossed = w->queued <= half && w->queued + written > half;

    if (w->queued == 0) {
        w->slow = false;
        pthread_cond_broadcast(&w->idle);
    }
    if (w->waited_for && (crossed || w->queued == 0 ||
                          (o->waited_for && o->queued <= o->options.queue_max / 2)))
        send_news(w);
    if (o->closing && o->queued == 0)
        send_news(w);
}

static void write_next(struct log_writer *w)
{
    struct outlet *o = TAILQ_FIRST(&w->ready);
    struct log_block *b = TAILQ_FIRST(&o->blocks);
    size_t size = b->used;

    TAILQ_REMOVE(&w->ready, o, ready_link);
    TAILQ_REMOVE(&o->blocks, b, link);
    o->ready = false;
    write_block(w, o, b);
    free(b);
    if (!o->ready && !TAILQ_EMPTY(&o->blocks)) {
        o->ready = true;
        TAILQ_INSERT_TAIL(&w->ready, o, ready_link);
    }
    finish_write(w, o, size);
}

static void close_outlet_files(struct outlet *o)
{
    if (o->options.owned && o->options.fd >= 0)
        close(o->options.fd);
    if (o->options.max_size && o->options.fd >= 0)
        close(o->options.folder);
    o->options.fd = -1;
}

static void free_outlet(struct outlet *o)
{
    struct log_block *b;

    while ((b = TAILQ_FIRST(&o->blocks))) {
        TAILQ_REMOVE(&o->blocks, b, link);
        free(b);
    }
    close_outlet_files(o);
    TAILQ_REMOVE(&o->writer->outlets, o, link);
    free((char *)o->options.name);
    free(o);
}

static void free_writer(struct log_writer *w)
{
    struct outlet *o;

    while ((o = TAILQ_FIRST(&w->outlets)))
        free_outlet(o);
    free(w->losses.name);
    if (w->news_fd >= 0)
        close(w->news_fd);
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->idle);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static void *run_writer_thread(void *arg)
{
    struct log_writer *w = arg;
    bool orphan;

    pthread_mutex_lock(&w->lock);
    while (!w->orphan) {
        if (!TAILQ_EMPTY(&w->ready))
            write_next(w);
        else if (w->ending)
            break;
        else
            pthread_cond_wait(&w->work, &w->lock);
    }
    orphan = w->orphan;
    pthread_mutex_unlock(&w->lock);
    if (orphan)
        free_writer(w);
    return NULL;
}

/* -- the loop's side ------------------------------------------------------------ */

/* Closed outlets that have nothing left to write. */
static void end_closed_outlets(struct log_writer *w)
{
    struct outlet *o, *next;

    pthread_mutex_lock(&w->lock);
    for (o = TAILQ_FIRST(&w->outlets); o; o = next) {
        next = TAILQ_NEXT(o, link);
        if (!o->closing || o->queued > 0)
            continue;
        close_outlet_files(o);
        if (o->released)
            free_outlet(o);
    }
    pthread_mutex_unlock(&w->lock);
}

static void on_news_fd(evutil_socket_t fd, short what, void *arg)
{
    struct log_writer *w = arg;
    uint64_t count;

    pthread_mutex_lock(&w->lock);
    if (read(fd, &count, sizeof(count)) > 0)
        w->news = false;
    w->waited_for = false;
    for (struct outlet *o = TAILQ_FIRST(&w->outlets); o; o = TAILQ_NEXT(o, link))
        o->waited_for = false;
    pthread_mutex_unlock(&w->lock);
    end_closed_outlets(w);
    w->calls.news(w->calls.arg);
}

struct log_writer *log_writer_create(struct loop *loop,
                                     const struct log_writer_calls *calls)
{
    struct log_writer *w = xcalloc(1, sizeof(*w));

    w->loop = loop;
    w->calls = *calls;
    w->news_fd = -1;
    TAILQ_INIT(&w->outlets);
    TAILQ_INIT(&w->ready);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    thread_cond_init(&w->idle);
    /* made here, before any thread can use it */
    w->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->event = event_new(loop_base(loop), w->news_fd, EV_READ | EV_PERSIST, on_news_fd,
                         w);
    if (w->event)
        event_add(w->event, NULL);
    return w;
}

/* Waits as long as something is written every LOG_FLUSH_MS, but not after until_ms. */
static void wait_idle(struct log_writer *w, uint64_t until_ms)
{
    uint64_t before, next;

    do {
        before = __atomic_load_n(&w->written, __ATOMIC_RELAXED);
        next = clock_ms() + LOG_FLUSH_MS;
        next = next < until_ms ? next : until_ms;
        while (w->queued > 0 && w->running &&
               thread_wait_until(&w->idle, &w->lock, next))
            ;
    } while (w->queued > 0 && w->running && next < until_ms &&
             __atomic_load_n(&w->written, __ATOMIC_RELAXED) != before);
}

bool log_writer_destroy(struct log_writer *w, uint64_t until_ms)
{
    bool orphan, has_lost;

    if (!w)
        return true;
    if (w->event)
        event_free(w->event);
    pthread_mutex_lock(&w->lock);
    wait_idle(w, until_ms);
    for (struct outlet *o = TAILQ_FIRST(&w->outlets); o; o = TAILQ_NEXT(o, link))
        if (o->queued > 0) /* will not be written */
            count_loss(o, o->queued, 0);
    has_lost = w->losses.bytes > 0;
    orphan = w->running && w->queued > 0;
    w->ending = true;
    pthread_mutex_unlock(&w->lock);
    log_writer_report_losses(w);

    pthread_mutex_lock(&w->lock);
    w->orphan = orphan;
    if (orphan)
        pthread_detach(w->thread);
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    if (!orphan) { /* else the thread owns it now */
        if (w->running)
            pthread_join(w->thread, NULL);
        free_writer(w);
    }
    return !has_lost;
}

struct outlet *outlet_create(struct log_writer *w, const struct outlet_options *options)
{
    struct outlet *o = xcalloc(1, sizeof(*o));

    o->writer = w;
    o->options = *options;
    o->options.name = xstrdup(options->name);
    o->out = (struct log_rotation){ .fd = options->fd,
                                    .is_file = options->mark,
                                    .max_size = options->max_size,
                                    .folder = options->folder,
                                    .file = options->file };
    if (options->mark)
        o->out.at.part[0] = log_part_of(options->fd, 0);
    o->parts = o->out.at;
    TAILQ_INIT(&o->blocks);
    pthread_mutex_lock(&w->lock);
    TAILQ_INSERT_TAIL(&w->outlets, o, link);
    pthread_mutex_unlock(&w->lock);
    return o;
}

/* Under the lock. */
static bool has_room(const struct outlet *o)
{
    return o->queued < o->options.queue_max && o->writer->queued < WRITER_QUEUE_MAX;
}

bool outlet_ready(struct outlet *o)
{
    struct log_writer *w = o->writer;
    bool ready;

    pthread_mutex_lock(&w->lock);
    ready = o->dead || w->slow || has_room(o);
    if (!ready) {
        if (!w->waited_for) {
            w->since_ms = clock_ms();
            w->taken_before = w->taken;
        }
        w->waited_for = o->waited_for = true;
    }
    pthread_mutex_unlock(&w->lock);
    return ready;
}

static void append_data(struct outlet *o, const char *data, size_t size)
{
    struct log_writer *w = o->writer;

    o->queued += size;
    w->queued += size;
    while (size > 0) {
        struct log_block *b = TAILQ_LAST(&o->blocks, blocks);
        size_t n;

        if (!b || b->used == sizeof(b->data)) {
            b = xmalloc(sizeof(*b));
            b->used = 0;
            TAILQ_INSERT_TAIL(&o->blocks, b, link);
        }
        n = sizeof(b->data) - b->used < size ? sizeof(b->data) - b->used : size;
        memcpy(b->data + b->used, data, n);
        b->used += n;
        data += n;
        size -= n;
    }
    if (!o->ready) {
        o->ready = true;
        TAILQ_INSERT_TAIL(&w->ready, o, ready_link);
        pthread_cond_signal(&w->work);
    }
}

/* Called under the lock: marks what was lost here without room in the queue. */
static void append_mark(struct outlet *o)
{
    char mark[MARK_MAX];

    if (o->options.mark && o->unmarked_in_queue && o->writer->running)
        append_data(
            o, mark,
            format_loss_mark(mark, sizeof(mark), o->unmarked_in_queue, o->lost_errno));
    o->unmarked_in_queue = 0;
}

void outlet_put(struct outlet *o, const char *data, size_t size)
{
    struct log_writer *w = o->writer;

    if (size == 0)
        return;
    pthread_mutex_lock(&w->lock);
    if (!w->running) /* without a thread nothing is written: that counts as a loss */
        w->running = thread_start(&w->thread, run_writer_thread, w) == 0;
    if (o->dead || !has_room(o)) {
        count_loss(o, size, o->dead ? EPIPE : 0);
        o->unmarked_in_queue += size;
    } else {
        append_mark(o);
        append_data(o, data, size);
    }
    while (!w->running && !TAILQ_EMPTY(&w->ready)) /* no thread: ulimit -u */
        write_next(w);
    pthread_mutex_unlock(&w->lock);
}

void outlet_close(struct outlet *o)
{
    if (!o)
        return;
    pthread_mutex_lock(&o->writer->lock);
    append_mark(o);
    o->closing = true;
    pthread_mutex_unlock(&o->writer->lock);
    end_closed_outlets(o->writer);
}

void outlet_release(struct outlet *o)
{
    if (!o)
        return;
    o->released = true; /* only the loop's thread reads it */
    end_closed_outlets(o->writer);
}

bool outlet_find_parts(struct outlet *o, struct log_parts *parts)
{
    bool is_written;

    pthread_mutex_lock(&o->writer->lock);
    *parts = o->parts;
    parts->lost = o->unmarked_in_file + o->unmarked_in_queue;
    parts->lost_errno = o->lost_errno;
    is_written = o->queued == 0;
    pthread_mutex_unlock(&o->writer->lock);
    return is_written;
}

bool log_writer_check(struct log_writer *w, uint64_t now_ms)
{
    bool again;

    pthread_mutex_lock(&w->lock);
    if ((w->waited_for || w->slow) && now_ms - w->since_ms >= WRITER_SLOW_MS) {
        w->slow = w->taken - w->taken_before < WRITER_SLOW_BYTES && w->queued > 0;
        w->since_ms = now_ms;
        w->taken_before = w->taken;
    }
    again = w->waited_for || w->slow;
    pthread_mutex_unlock(&w->lock);
    return again;
}

bool outlet_is_dead(struct outlet *o)
{
    bool dead;

    pthread_mutex_lock(&o->writer->lock);
    dead = o->dead;
    pthread_mutex_unlock(&o->writer->lock);
    return dead;
}

bool log_writer_has_losses(struct log_writer *w)
{
    bool any;

    pthread_mutex_lock(&w->lock);
    any = w->losses.bytes > 0 && !w->losses.warned;
    pthread_mutex_unlock(&w->lock);
    return any;
}

static void format_losses(const struct losses *l, bool is_final, char *text,
                          size_t size)
{
    char others[32] = "";

    if (l->outlets > 1)
        snprintf(others, sizeof(others), " and %u other file%s", l->outlets - 1,
                 l->outlets > 2 ? "s" : "");
    if (is_permanent(l->errnum) && !is_final) /* how much it is, is told at the end */
        snprintf(text, size, "%s%s: %s; %s", l->name, others, strerror(l->errnum),
                 l->then ? l->then : "the job continues, this output is lost");
    else
        snprintf(text, size, "%s%s: %" PRIu64 " bytes of output lost%s: %s", l->name,
                 others, l->bytes, is_final ? "" : " so far",
                 l->errnum ? strerror(l->errnum) : "it was too slow");
}

void log_writer_report_losses(struct log_writer *w)
{
    char text[1024] = "";

    pthread_mutex_lock(&w->lock);
    if (w->losses.bytes > 0 && (w->ending || !w->losses.warned)) {
        w->losses.warned = true;
        format_losses(&w->losses, w->ending, text, sizeof(text));
    }
    pthread_mutex_unlock(&w->lock);
    if (*text) /* without the lock: the log may write through one of these outlets */
        log_warn("%s", text);
}
