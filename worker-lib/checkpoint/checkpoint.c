/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/text.h"
#include "rendezvous/base/thread.h"
#include "worker-lib/checkpoint/checkpoint_file.h"
#include "worker-lib/core/status.h"
#include "worker-lib/world/world.h"

/*
 * Saving: each rank with separate state copies it and hands the copy to a writer
 * thread. No rank waits for the others: a checkpoint is complete when all its parts
 * exist. Loading: rank 0 reads and validates the files and broadcasts their content, so
 * that all ranks get the same state or the same error.
 */
#define KEEP_DEFAULT 3
#define EXTRA_KEY_MAX 128
#define CHUNK_BYTES ((size_t)4 << 20)

struct crun_checkpoints {
    crun_world *world;
    char directory[PATH_MAX]; /* "": none */
    unsigned keep;
    bool blocking;
    void (*warn)(void *arg, const char *text);
    void *arg;
    uint64_t generation;
    int sharded; /* whether ranks have different state; -1: not known yet */

    pthread_t writer;
    bool has_writer, ending;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct checkpoint_copy *copy;    /* to be written, or being written */
    struct checkpoint_memory memory; /* of the copy */
    struct checkpoint_set set;
    crun_status status; /* of the last write */
    struct err error;
};

/* All parts of a checkpoint: the model's, then the optimizer's. */
struct all_parts {
    struct state_part *part;
    unsigned count;
};

static bool gather_parts(crun_ddp *ddp, crun_optim *optim, struct all_parts *all)
{
    const struct state_part *model, *state = NULL;
    unsigned models = ddp_state(ddp, &model), states = 0;

    if (optim)
        states = optim_state(optim, &state);
    all->count = models + states;
    all->part = calloc(all->count + 1, sizeof(*all->part));
    if (!all->part)
        return false;
    memcpy(all->part, model, models * sizeof(*model));
    if (states)
        memcpy(all->part + models, state, states * sizeof(*state));
    return true;
}

/* -- opening --------------------------------------------------------------- */

struct directory_claim {
    int32_t status;
    uint64_t generation;
    struct err error;
};

/* All ranks get rank 0's bytes. */
static crun_status broadcast_bytes(crun_world *world, void *what, size_t size)
{
    return crun_broadcast(world, what, size, CRUN_U8, 0, NULL);
}

static struct crun_checkpoints *checkpoints_make(crun_world *world,
                                                 const crun_checkpoint_options *o)
{
    struct crun_checkpoints *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->world = world;
    snprintf(c->directory, sizeof(c->directory), "%s",
             o->directory ? o->directory : "");
    c->keep = o->keep > 0 ? (unsigned)o->keep : KEEP_DEFAULT;
    c->blocking = o->blocking;
    c->warn = o->warn;
    c->arg = o->arg;
    c->sharded = -1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    return c;
}

/* Rank 0 claims the directory's next generation for this world. */
static crun_status claim_directory(crun_world *world, const char *directory,
                                   uint64_t *generation)
{
    struct directory_claim claim = { .status = CRUN_OK };
    crun_status status;

    if (!*directory || strlen(directory) + CHECKPOINT_NAME_MAX >= PATH_MAX)
        return status_fail(CRUN_BAD_ARGUMENT, "checkpoints need a directory");
    if (crun_rank(world) == 0)
        claim.status = (int32_t)checkpoint_dir_claim(directory, &claim.generation,
                                                     &claim.error);
    status = broadcast_bytes(world, &claim, sizeof(claim));
    if (status != CRUN_OK)
        return status;
    *generation = claim.generation;
    return claim.status == CRUN_OK
               ? CRUN_OK
               : status_fail_with((crun_status)claim.status, &claim.error);
}

crun_status crun_checkpoints_open(crun_checkpoints **checkpoints, crun_world *world,
                                  const crun_checkpoint_options *options)
{
    uint64_t generation = 0;
    crun_status status = world_refuse_in_group(world, "crun_checkpoints_open");

    *checkpoints = NULL;
    if (status == CRUN_OK && options->directory)
        status = claim_directory(world, options->directory, &generation);
    if (status != CRUN_OK)
        return status;
    *checkpoints = checkpoints_make(world, options);
    if (!*checkpoints)
        return status_fail(CRUN_NO_MEMORY, "no memory for checkpoints");
    (*checkpoints)->generation = generation;
    return CRUN_OK;
}

static crun_status need_directory(const struct crun_checkpoints *c, const char *call)
{
    return *c->directory ? CRUN_OK
                         : status_fail(CRUN_BAD_ARGUMENT,
                                       "%s: these checkpoints have no directory", call);
}

/* -- saving ---------------------------------------------------------------- */

static crun_status write_own_part(struct crun_checkpoints *c, struct err *e)
{
    unsigned part = (unsigned)crun_rank(c->world) + 1;
    crun_status status = c->memory.ops->set_device(crun_device(c->world));

    if (status != CRUN_OK) {
        err_set(e, "%s", crun_error_text());
        return status;
    }
    status = checkpoint_copy_write(c->copy, c->world, c->directory, &c->set,
                                   c->set.parts == 1 ? 1 : part, e);

    if (status == CRUN_OK && crun_rank(c->world) == 0)
        checkpoint_dir_prune(c->directory, c->generation, c->keep);
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
        c->status = status;
        c->error = e;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static crun_status wait_until_idle(struct crun_checkpoints *c)
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

/* Whether any rank has state that others do not: all ranks find out once. */
static crun_status find_sharded(struct crun_checkpoints *c, const struct all_parts *all)
{
    int32_t sharded = checkpoint_is_sharded(all->part, all->count);
    crun_status status = CRUN_OK;

    if (c->sharded < 0) {
        status = crun_all_reduce(c->world, &sharded, &sharded, 1, CRUN_I32, CRUN_MAX,
                                 NULL);
        if (status == CRUN_OK)
            c->sharded = sharded;
    }
    return status;
}

static crun_status hand_to_writer(struct crun_checkpoints *c,
                                  struct checkpoint_copy *copy, uint64_t step)
{
    if (!ensure_writer(c)) {
        checkpoint_copy_free(copy);
        return status_fail(CRUN_SYSTEM,
                           "cannot start the thread that writes checkpoints");
    }
    pthread_mutex_lock(&c->lock);
    c->set = (struct checkpoint_set){
        .generation = c->generation,
        .step = step,
        .parts = c->sharded ? (unsigned)crun_size(c->world) : 1,
    };
    c->copy = copy;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return CRUN_OK;
}

/* Extras are written to the file's header, which is JSON. */
static crun_status check_extras(const crun_extra *extra, size_t extras)
{
    for (size_t i = 0; i < extras; i++) {
        const char *key = extra[i].key;

        if (!key || !*key || strlen(key) >= EXTRA_KEY_MAX ||
            !text_is_utf8(key, strlen(key)))
            return status_fail(
                CRUN_BAD_ARGUMENT,
                "crun_checkpoint_save: the key of an extra is text of 1 to %d "
                "bytes in UTF-8",
                EXTRA_KEY_MAX - 1);
        if (!text_is_utf8(extra[i].value,
                          strnlen(extra[i].value, sizeof(extra[i].value))))
            return status_fail(CRUN_BAD_ARGUMENT,
                               "crun_checkpoint_save: extra \"%s\" is not in UTF-8",
                               key);
        for (size_t k = 0; k < i; k++)
            if (strcmp(extra[k].key, key) == 0)
                return status_fail(CRUN_BAD_ARGUMENT,
                                   "crun_checkpoint_save: two extras are called \"%s\"",
                                   key);
    }
    return CRUN_OK;
}

/* The part of a save that all ranks do together, before any of them copies. */
static crun_status prepare_save(struct crun_checkpoints *c, const struct all_parts *all,
                                crun_ddp *ddp, crun_optim *optim,
                                const crun_extra *extra, size_t extras)
{
    crun_status status = find_sharded(c, all);

    if (status == CRUN_OK)
        status = check_extras(extra, extras);
    if (status == CRUN_OK)
        status = crun_ddp_gather(ddp);
    if (status == CRUN_OK && optim)
        status = optim_state_fetch(optim);
    return status;
}

static crun_status copy_own_part(struct crun_checkpoints *c,
                                 const struct checkpoint_content *content,
                                 crun_ddp *ddp, struct checkpoint_copy **copy)
{
    struct state_queues queues;
    crun_status status = ddp_copy_begin(ddp, &queues);

    if (status == CRUN_OK)
        status = checkpoint_copy_take(copy, content, &queues, &c->memory);
    /* without an optimizer it is not known when the program changes parameters */
    if (status == CRUN_OK && !content->optim)
        status = ddp_await_copies(ddp);
    return status;
}

/* Copies this rank's part when the writer is idle. Returns the status of a finished
 * write: of this one if blocking, else of the previous one. */
static crun_status save_own_part(struct crun_checkpoints *c,
                                 const struct checkpoint_content *content,
                                 crun_ddp *ddp)
{
    crun_status last = wait_until_idle(c), status;
    struct checkpoint_copy *copy = NULL;

    if (last == CRUN_STALE)
        return last;
    status = copy_own_part(c, content, ddp, &copy);
    if (status == CRUN_OK)
        status = hand_to_writer(c, copy, content->step);
    if (status != CRUN_OK)
        return status;
    return c->blocking ? wait_until_idle(c) : last;
}

crun_status crun_checkpoint_save(crun_checkpoints *c, uint64_t step, crun_ddp *ddp,
                                 crun_optim *optim, const crun_sampler *sampler,
                                 const crun_extra *extra, size_t extras)
{
    struct checkpoint_content content = { .step = step,
                                          .extra = extra,
                                          .extras = extras,
                                          .whole = crun_rank(c->world) == 0 };
    struct all_parts all;
    crun_status status = world_refuse_in_group(c->world, "crun_checkpoint_save");

    if (status == CRUN_OK)
        status = need_directory(c, "crun_checkpoint_save");
    if (status != CRUN_OK)
        return status;
    if (!gather_parts(ddp, optim, &all))
        return status_fail(CRUN_NO_MEMORY, "no memory for a checkpoint");
    content.part = all.part;
    content.parts = all.count;
    if (optim)
        content.optim = optim_scalars_in_place(optim);
    if (sampler)
        crun_sampler_save(sampler, &content.sampler);
    status = prepare_save(c, &all, ddp, optim, extra, extras);
    if (status == CRUN_OK && (crun_rank(c->world) == 0 || c->sharded))
        status = save_own_part(c, &content, ddp);
    free(all.part);
    return status;
}

crun_status crun_checkpoint_wait(crun_checkpoints *c)
{
    return wait_until_idle(c);
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
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* -- loading --------------------------------------------------------------- */

/* Broadcast by rank 0 before the state. */
struct load_verdict {
    int32_t status;
    struct checkpoint_facts facts;
    struct err error;
};

/* The newest complete checkpoint. Damaged ones are skipped with a warning. */
static crun_status open_newest(struct crun_checkpoints *c, struct checkpoint_source **s,
                               struct err *e)
{
    char name[CHECKPOINT_NAME_MAX], path[PATH_MAX];
    struct checkpoint_set *sets;
    crun_status status;
    size_t count;

    status = checkpoint_dir_list(c->directory, &sets, &count, e);
    if (status == CRUN_OK) {
        err_set(e, "there is no checkpoint in %s", c->directory);
        status = CRUN_NOT_FOUND;
    }
    for (size_t i = 0; *s == NULL && i < count; i++) {
        struct err why;

        snprintf(path, sizeof(path), "%.*s/%s", PATH_MAX - CHECKPOINT_NAME_MAX - 2,
                 c->directory, checkpoint_name(&sets[i], 1, name));
        if (checkpoint_source_open(s, path, &why) == CRUN_OK)
            status = CRUN_OK;
        else if (c->warn)
            c->warn(c->arg, why.text);
    }
    free(sets);
    return status;
}

static crun_status open_matching_source(struct crun_checkpoints *c, const char *file,
                                        const struct all_parts *all,
                                        struct checkpoint_source **s, struct err *e)
{
    crun_status status = file && *file ? checkpoint_source_open(s, file, e)
                                       : open_newest(c, s, e);

    if (status == CRUN_OK)
        status = checkpoint_source_fits(*s, all->part, all->count, e);
    return status;
}

/* Copies the elements of [begin, begin + count) that this rank has. */
static crun_status put_owned_elements(crun_ddp *ddp, const struct state_part *p,
                                      size_t begin, size_t count, const char *chunk)
{
    size_t size = crun_dtype_size(p->type), end = begin + count;
    crun_status status = CRUN_OK;

    for (unsigned i = 0; status == CRUN_OK && i < p->ranges; i++) {
        const struct state_range *r = &p->range[i];
        size_t from = r->begin > begin ? r->begin : begin;
        size_t to = r->begin + r->count < end ? r->begin + r->count : end;

        if (from < to)
            status = ddp_put(ddp, (char *)r->data + (from - r->begin) * size,
                             chunk + (from - begin) * size, (to - from) * size);
    }
    return status;
}

static crun_status broadcast_part(crun_ddp *ddp, const struct state_part *p,
                                  const struct checkpoint_source *s, char *chunk)
{
    size_t most = CHUNK_BYTES / crun_dtype_size(p->type);
    crun_status status = CRUN_OK;

    for (size_t at = 0; status == CRUN_OK && at < p->total; at += most) {
        size_t n = p->total - at < most ? p->total - at : most;

        if (s)
            checkpoint_source_read(s, p, at, n, chunk);
        status = crun_broadcast(ddp_world(ddp), chunk, n, p->type, 0, NULL);
        if (status == CRUN_OK)
            status = put_owned_elements(ddp, p, at, n, chunk);
    }
    return status;
}

static crun_status broadcast_parts(crun_ddp *ddp, const struct all_parts *all,
                                   const struct checkpoint_source *s)
{
    const struct device_ops *ops = ddp_device(ddp);
    void *chunk;
    crun_status status = ops->host_alloc(CHUNK_BYTES, &chunk);

    if (status != CRUN_OK)
        return status;
    status = ddp_await_copies(ddp);
    for (unsigned i = 0; status == CRUN_OK && i < all->count; i++)
        status = broadcast_part(ddp, &all->part[i], s, chunk);
    ops->host_free(chunk);
    return status;
}

static crun_status apply_facts(const struct checkpoint_facts *f, crun_optim *optim,
                               crun_sampler *sampler)
{
    crun_status s = optim ? optim_set_scalars(optim, &f->optim) : CRUN_OK;

    if (s != CRUN_OK)
        return s;
    return sampler && f->sampler.samples ? crun_sampler_restore(sampler, &f->sampler)
                                         : CRUN_OK;
}

/* The arguments of crun_checkpoint_load, and what rank 0 broadcasts first. */
struct load_request {
    const char *file; /* "": the newest in the directory */
    crun_ddp *ddp;
    crun_optim *optim;
    crun_sampler *sampler;
    crun_extra *extra;
    size_t extras;
    struct load_verdict verdict;
};

static crun_status load_and_broadcast(struct crun_checkpoints *c,
                                      const struct all_parts *all,
                                      struct load_request *l)
{
    struct load_verdict *v = &l->verdict;
    struct checkpoint_source *s = NULL;
    crun_status status;

    if (crun_rank(c->world) == 0) {
        v->status = (int32_t)open_matching_source(c, l->file, all, &s, &v->error);
        if (v->status == CRUN_OK)
            checkpoint_source_facts(s, &v->facts, l->extra, l->extras);
    }
    status = broadcast_bytes(c->world, v, sizeof(*v));
    if (status == CRUN_OK)
        status = status_fail_with((crun_status)v->status, &v->error);
    for (size_t i = 0; status == CRUN_OK && i < l->extras; i++)
        status = broadcast_bytes(c->world, l->extra[i].value,
                                 sizeof(l->extra[i].value));
    if (status == CRUN_OK)
        status = apply_facts(&v->facts, l->optim, l->sampler);
    if (status == CRUN_OK)
        status = broadcast_parts(l->ddp, all, s);
    checkpoint_source_close(s);
    return status;
}

crun_status crun_checkpoint_load(crun_checkpoints *c, const char *file, uint64_t *step,
                                 crun_ddp *ddp, crun_optim *optim,
                                 crun_sampler *sampler, crun_extra *extra,
                                 size_t extras)
{
    struct load_request l = { file ? file : "",     ddp, optim, sampler, extra, extras,
                              { .status = CRUN_OK } };
    struct all_parts all;
    crun_status status = world_refuse_in_group(c->world, "crun_checkpoint_load");

    if (status == CRUN_OK && !*l.file)
        status = need_directory(c, "crun_checkpoint_load");
    if (status != CRUN_OK)
        return status;
    if (!gather_parts(ddp, optim, &all))
        return status_fail(CRUN_NO_MEMORY, "no memory to load a checkpoint");
    status = load_and_broadcast(c, &all, &l);
    if (status == CRUN_OK)
        status = ddp_state_put(ddp);
    if (status == CRUN_OK && optim)
        status = optim_state_put(optim);
    free(all.part);
    if (status == CRUN_OK && step)
        *step = l.verdict.facts.step;
    return status;
}
