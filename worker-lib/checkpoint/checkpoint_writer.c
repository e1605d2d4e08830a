/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/checkpoints.h"

#include <stdlib.h>

#include "rendezvous/common/base/thread.h"

crun_status checkpoint_need_directory(const struct crun_checkpoints *c,
                                      const char *call)
{
    return *c->directory ? CRUN_OK
                         : status_fail(CRUN_BAD_ARGUMENT,
                                       "%s: these checkpoints have no directory", call);
}

static crun_status write_own_part(struct crun_checkpoints *c, struct err *e)
{
    crun_status status = c->memory.ops->set_device(crun_device(c->world));

    if (status != CRUN_OK) {
        err_set(e, "%s", crun_error_text());
        return status;
    }
    status = checkpoint_copy_write(c->copy, &c->target, e);

    if (status == CRUN_OK && crun_rank(c->world) == 0)
        checkpoint_dir_prune(c->directory, c->claim.generation, c->keep);
    return status;
}

static void *write_copies(void *arg)
{
    struct crun_checkpoints *c = arg;

    pthread_mutex_lock(&c->lock);
    for (;;) {
        struct err e = { 0 };
        crun_status status;

        while (!c->copy && !c->ending)
            pthread_cond_wait(&c->changed, &c->lock);
        if (!c->copy)
            break;
        pthread_mutex_unlock(&c->lock);
        status = write_own_part(c, &e);
        pthread_mutex_lock(&c->lock);
        checkpoint_copy_free(c->copy);
        if (!c->memory.ops->queued)
            checkpoint_memory_free(&c->memory);
        c->copy = NULL;
        world_set_saves(c->world, false);
        c->status = status;
        c->error = e;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

crun_status checkpoint_writer_wait(struct crun_checkpoints *c)
{
    crun_status status;

    pthread_mutex_lock(&c->lock);
    while (c->copy)
        pthread_cond_wait(&c->changed, &c->lock);
    status = status_fail_with(c->status, &c->error);
    pthread_mutex_unlock(&c->lock);
    return status;
}

static bool ensure_writer(struct crun_checkpoints *c)
{
    if (!c->has_writer)
        c->has_writer = thread_start(&c->writer, write_copies, c) == 0;
    return c->has_writer;
}

struct checkpoint_target checkpoint_target_of(const struct crun_checkpoints *c,
                                              uint64_t save, uint64_t step,
                                              bool sharded)
{
    return (struct checkpoint_target){
        .world = c->world,
        .dir = c->directory,
        .claim = &c->claim,
        .set = { .generation = c->claim.generation,
                 .save = save,
                 .step = step,
                 .parts = sharded ? (unsigned)crun_size(c->world) : 1 },
        .part = (unsigned)crun_rank(c->world) + 1,
    };
}

crun_status checkpoint_writer_take(struct crun_checkpoints *c,
                                   struct checkpoint_copy *copy, uint64_t step,
                                   bool sharded)
{
    if (!ensure_writer(c)) {
        checkpoint_copy_free(copy);
        return status_fail(CRUN_SYSTEM,
                           "cannot start the thread that writes checkpoints");
    }
    pthread_mutex_lock(&c->lock);
    c->target = checkpoint_target_of(c, c->saves, step, sharded);
    c->copy = copy;
    world_set_saves(c->world, true);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return CRUN_OK;
}

void crun_checkpoints_close(crun_checkpoints *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->ending = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->has_writer)
        pthread_join(c->writer, NULL);
    checkpoint_memory_free(&c->memory);
    checkpoint_steps_close(c);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
