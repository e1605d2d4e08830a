/* SPDX-License-Identifier: MIT */
#include "rendezvous/tcpstore/thread_queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"

struct thread_queue {
    int wake;
    size_t item_size;
    pthread_mutex_t lock; /* what follows */
    char *item;
    size_t first, count, room; /* the taken ones are before the first */
};

struct thread_queue *thread_queue_create(size_t item_size)
{
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct thread_queue *q;

    if (wake < 0)
        return NULL;
    q = xcalloc(1, sizeof(*q));
    q->wake = wake;
    q->item_size = item_size;
    pthread_mutex_init(&q->lock, NULL);
    return q;
}

void thread_queue_destroy(struct thread_queue *q)
{
    if (!q)
        return;
    free(q->item);
    close(q->wake);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

int thread_queue_fd(const struct thread_queue *q)
{
    return q->wake;
}

void thread_queue_wake(struct thread_queue *q)
{
    uint64_t one = 1;

    while (write(q->wake, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

void thread_queue_put(struct thread_queue *q, const void *item)
{
    pthread_mutex_lock(&q->lock);
    if (q->count == q->room) {
        q->room = q->room ? 2 * q->room : 16;
        q->item = xrealloc(q->item, q->room * q->item_size);
    }
    memcpy(q->item + q->count++ * q->item_size, item, q->item_size);
    pthread_mutex_unlock(&q->lock);
    thread_queue_wake(q);
}

size_t thread_queue_take(struct thread_queue *q, void *items, size_t max)
{
    uint64_t ignored;
    size_t count;

    while (read(q->wake, &ignored, sizeof(ignored)) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&q->lock);
    count = q->count - q->first < max ? q->count - q->first : max;
    if (count > 0)
        memcpy(items, q->item + q->first * q->item_size, count * q->item_size);
    q->first += count;
    if (q->first == q->count)
        q->first = q->count = 0;
    pthread_mutex_unlock(&q->lock);
    return count;
}
