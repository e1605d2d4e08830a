/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/checkpoints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rank 0 broadcasts it. */
struct directory_claim {
    int32_t status;
    bool blocking;
    uint64_t memory_every;
    struct checkpoint_claim claim;
    struct err error;
};

static struct crun_checkpoints *checkpoints_make(crun_world *world,
                                                 const crun_checkpoint_options *o)
{
    struct crun_checkpoints *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->world = world;
    snprintf(c->directory, sizeof(c->directory), "%s",
             o->directory ? o->directory : "");
    c->keep = o->keep > 0 ? (unsigned)o->keep : CHECKPOINTS_KEPT_DEFAULT;
    c->warn = o->warn;
    c->arg = o->arg;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    return c;
}

/* Some rank has not found the claim. Rank 0 knows whether a newer one has removed it:
 * other ranks may have looked in another directory. */
static crun_status find_newer_claim(struct crun_checkpoints *c, const char *dir,
                                    crun_status failed)
{
    crun_status status = CRUN_OK;
    struct err e;

    if (crun_rank(c->world) == 0 && checkpoint_dir_is_stale(dir, &c->claim, &e))
        status = status_fail_with(CRUN_STALE, &e);
    status = checkpoint_share(c->world, status);
    return status == CRUN_OK ? failed : status;
}

/* Rank 0 claims the directory's next generation for this world. The other ranks look
 * whether it is their directory, too. */
static crun_status claim_directory(struct crun_checkpoints *c,
                                   const crun_checkpoint_options *o)
{
    bool good = *o->directory && strlen(o->directory) + CHECKPOINT_NAME_MAX < PATH_MAX;
    struct directory_claim d = { .status = CRUN_BAD_ARGUMENT,
                                 .blocking = o->blocking,
                                 .memory_every = o->memory_every > 0
                                                     ? (uint64_t)o->memory_every
                                                     : 0 };
    /* what they had open is closed: a claim refuses what is still written there */
    crun_status status = checkpoint_share(c->world, CRUN_OK);

    if (status != CRUN_OK)
        return status;
    err_set(&d.error, "checkpoints need a directory");
    if (crun_rank(c->world) == 0 && good)
        d.status = (int32_t)checkpoint_dir_claim(o->directory, &d.claim, &d.error);
    status = checkpoint_broadcast(c->world, &d, sizeof(d), 0);
    if (status == CRUN_OK)
        status = status_fail_with((crun_status)d.status, &d.error);
    if (status != CRUN_OK)
        return status;
    c->blocking = d.blocking;
    c->steps.every = d.memory_every;
    c->claim = d.claim;
    /* the program may change its working directory */
    if (!good || !checkpoint_dir_is_claimed(o->directory, &d.claim) ||
        !realpath(o->directory, c->directory) ||
        strlen(c->directory) + CHECKPOINT_NAME_MAX >= PATH_MAX)
        status = status_fail(CRUN_BAD_ARGUMENT,
                             "the checkpoint directory %s is not the one of rank 0: "
                             "all ranks need one that they share",
                             o->directory);
    status = checkpoint_share(c->world, status);
    return status == CRUN_BAD_ARGUMENT ? find_newer_claim(c, o->directory, status)
                                       : status;
}

crun_status crun_checkpoints_open(crun_checkpoints **checkpoints, crun_world *world,
                                  const crun_checkpoint_options *options)
{
    crun_status status = world_refuse_in_group(world, "crun_checkpoints_open");
    struct crun_checkpoints *c;

    *checkpoints = NULL;
    if (status != CRUN_OK)
        return status;
    c = checkpoints_make(world, options);
    if (!c)
        return status_fail(CRUN_NO_MEMORY, "no memory for checkpoints");
    if (options->directory)
        status = claim_directory(c, options);
    if (status == CRUN_OK)
        status = checkpoint_steps_open(c);
    if (status == CRUN_OK)
        *checkpoints = c;
    else
        crun_checkpoints_close(c);
    return status;
}
