/* SPDX-License-Identifier: MIT */
/*
 * A family of worlds: the world of crun_init and the groups that were split off from
 * it. They share the abort word, so the first failure ends all of them on this rank.
 * Other ranks may wait in a group that has no rank of the failed world, so each rank of
 * a family with groups has a thread that waits for the failure notice in the store.
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/thread.h"
#include "worker-lib/engine/failure_notice.h"
#include "worker-lib/world/world_internal.h"

struct family *family_create(void)
{
    struct family *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    pthread_mutex_init(&f->lock, NULL);
    f->handle = -1;
    return f;
}

void family_add(crun_world *w)
{
    struct family *f = w->family;

    pthread_mutex_lock(&f->lock);
    w->next_of_family = f->first;
    f->first = w;
    if (w->parent)
        w->parent->groups++;
    pthread_mutex_unlock(&f->lock);
    /* a failure before this has not aborted this backend */
    if (abort_get(&f->aborted))
        w->backend->calls->abort(w->backend);
}

void family_remove(crun_world *w)
{
    struct family *f = w->family;

    pthread_mutex_lock(&f->lock);
    for (crun_world **at = &f->first; *at; at = &(*at)->next_of_family)
        if (*at == w) {
            *at = w->next_of_family;
            break;
        }
    pthread_mutex_unlock(&f->lock);
}

bool family_leave(crun_world *w)
{
    bool last;

    pthread_mutex_lock(&w->family->lock);
    last = --w->parent->groups == 0 && w->parent->finalized;
    pthread_mutex_unlock(&w->family->lock);
    return last;
}

bool family_outlives(crun_world *w)
{
    bool outlives;

    pthread_mutex_lock(&w->family->lock);
    outlives = w->groups > 0;
    w->finalized |= outlives;
    pthread_mutex_unlock(&w->family->lock);
    return outlives;
}

/* -- the failure ------------------------------------------------------------------- */

void family_failed(struct family *f, crun_world *root, const crun_world *notified)
{
    const char *directory = getenv("CRUN_FLIGHT_DIR");
    struct abort_notice n;

    /* a backend whose thread calls this, too, aborts when the others are notified */
    pthread_mutex_lock(&f->lock);
    if (f->notified) {
        pthread_mutex_unlock(&f->lock);
        return;
    }
    f->notified = true;
    for (crun_world *w = f->first; w; w = w->next_of_family) {
        if (directory && *directory)
            flight_recorder_dump(w->flight, directory, f->aborted.reason);
        if (w != notified)
            w->backend->calls->abort(w->backend);
    }
    n = abort_notice(&f->aborted, root->env.rank);
    if (root->board.store)
        failure_notice_write(&root->board, &n);
    pthread_mutex_unlock(&f->lock);
}

static void *await_notice(void *arg)
{
    crun_world *root = arg;
    struct family *f = root->family;
    struct notice_board board = root->board;
    struct abort_notice n;
    bool found;

    board.store = f->notices;
    found = failure_notice_await(&board, &n);

    if (found)
        abort_set_notice(&f->aborted, &n);
    else if (atomic_load(&f->stopping) || root->env.agent_store ||
             !abort_set(&f->aborted, CRUN_PEER_LOST,
                        "rank 0 is gone: its store has closed the connection"))
        return NULL;
    family_failed(f, root, NULL);
    return NULL;
}

crun_status family_listen(crun_world *root, uint64_t deadline_ms, struct err *e)
{
    struct family *f = root->family;
    crun_status s;

    if (f->listens || !root->store)
        return CRUN_OK;
    s = store_client_open_another(&f->notices, root->store, deadline_ms, e);
    if (s != CRUN_OK)
        return s;
    f->handle = store_client_handle(f->notices);
    f->listens = f->handle >= 0 && thread_start(&f->thread, await_notice, root) == 0;
    if (f->listens)
        return CRUN_OK;
    err_set(e, "no thread to wait for failures of groups");
    return CRUN_SYSTEM;
}

void family_stop_listening(struct family *f)
{
    if (!f)
        return;
    atomic_store(&f->stopping, true);
    if (f->handle >= 0)
        shutdown(f->handle, SHUT_RDWR);
    if (f->listens)
        pthread_join(f->thread, NULL);
    if (f->handle >= 0)
        close(f->handle);
    store_client_close(f->notices);
    f->notices = NULL;
    f->handle = -1;
    f->listens = false;
}

void family_free(struct family *f)
{
    if (f)
        pthread_mutex_destroy(&f->lock);
    free(f);
}
