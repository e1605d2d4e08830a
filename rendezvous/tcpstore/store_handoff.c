/* SPDX-License-Identifier: MIT */
#include "rendezvous/tcpstore/store_handoff.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"

struct store_handoff {
    int wake;
    pthread_mutex_t lock; /* what follows */
    int *fd;
    size_t count, cap;
};

struct store_handoff *store_handoff_create(void)
{
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct store_handoff *i;

    if (wake < 0)
        return NULL;
    i = xcalloc(1, sizeof(*i));
    i->wake = wake;
    pthread_mutex_init(&i->lock, NULL);
    return i;
}

void store_handoff_destroy(struct store_handoff *i)
{
    if (!i)
        return;
    for (size_t k = 0; k < i->count; k++)
        close(i->fd[k]);
    free(i->fd);
    close(i->wake);
    pthread_mutex_destroy(&i->lock);
    free(i);
}

int store_handoff_fd(const struct store_handoff *i)
{
    return i->wake;
}

void store_handoff_wake(struct store_handoff *i)
{
    uint64_t one = 1;

    while (write(i->wake, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

void store_handoff_put(struct store_handoff *i, int fd)
{
    pthread_mutex_lock(&i->lock);
    if (i->count == i->cap) {
        i->cap = i->cap ? 2 * i->cap : 16;
        i->fd = xrealloc(i->fd, i->cap * sizeof(*i->fd));
    }
    i->fd[i->count++] = fd;
    pthread_mutex_unlock(&i->lock);
    store_handoff_wake(i);
}

void store_handoff_take(struct store_handoff *i, void (*fn)(void *arg, int fd),
                        void *arg)
{
    uint64_t ignored;
    size_t count;
    int *fd;

    while (read(i->wake, &ignored, sizeof(ignored)) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&i->lock);
    fd = i->fd;
    count = i->count;
    i->fd = NULL;
    i->count = i->cap = 0;
    pthread_mutex_unlock(&i->lock);
    for (size_t k = 0; k < count; k++)
        fn(arg, fd[k]);
    free(fd);
}
