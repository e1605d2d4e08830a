/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/hash.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/thread.h"
#include "worker-lib/checkpoint/checkpoint_file.h"
#include "worker-lib/core/status.h"
#include "worker-lib/world/world.h"

/*
 * Saving: the ranks compare what they are about to save, in one all-reduce. Each rank
 * with separate state copies it and hands the copy to a writer thread. A checkpoint is
 * complete when all its parts exist. Loading: rank 0 reads and validates the files and
 * broadcasts their content, so that all ranks get the same state or the same error.
 */
#define KEEP_DEFAULT 3
#define EXTRA_KEY_MAX 128
#define CHUNK_BYTES ((size_t)4 << 20)

struct crun_checkpoints {
    crun_world *world;
    char directory[PATH_MAX]; /* "": none */
    unsigned keep;
    bool blocking; /* rank 0's option */
    void (*warn)(void *arg, const char *text);
    void *arg;
    struct checkpoint_claim claim;
    uint64_t saves; /* so far; the same on all ranks */

    pthread_t writer;
    bool has_writer, ending;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct checkpoint_copy *copy;    /* to be written, or being written */
    struct checkpoint_memory memory; /* of the copy */
    struct checkpoint_target target;
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
    all->count = 0;
    all->part = calloc(models + states + 1, sizeof(*all->part));
    if (!all->part)
        return false;
    all->count = models + states;
    memcpy(all->part, model, models * sizeof(*model));
    if (states)
        memcpy(all->part + models, state, states * sizeof(*state));
    return true;
}

/* -- agreeing -------------------------------------------------------------- */

static crun_status broadcast_bytes(crun_world *world, void *what, size_t size, int root)
{
    return crun_broadcast(world, what, size, CRUN_U8, root, NULL);
}

/* Each number becomes the least one of all ranks. */
static crun_status find_least(crun_world *world, int64_t *number, size_t count)
{
    return crun_all_reduce(world, number, number, count, CRUN_I64, CRUN_MIN, NULL);
}

/* Less than 0 for a failure. The ranks then know the least of them. */
static int64_t failure_number(const crun_world *world, crun_status own)
{
    return own == CRUN_OK ? 0 : -((int64_t)own << 32 | crun_rank(world));
}

/* All ranks get the status and the text of the rank with the least number, whose last
 * failure it is. */
static crun_status fail_together(crun_world *world, int64_t least)
{
    crun_status status, failed = (crun_status)(-least >> 32);
    int rank = (int)(-least & INT32_MAX);
    struct err e = { 0 };

    err_set(&e, "%s", crun_error_text());
    if (rank == crun_rank(world) && crun_size(world) > 1)
        err_wrap(&e, "rank %u", world_own_number(world));
    status = broadcast_bytes(world, e.text, sizeof(e.text), rank);
    return status == CRUN_OK ? status_fail_with(failed, &e) : status;
}

/* CRUN_OK if no rank has failed. */
static crun_status share_status(crun_world *world, crun_status own)
{
    int64_t least = failure_number(world, own);
    crun_status status = find_least(world, &least, 1);

    return status == CRUN_OK && least ? fail_together(world, least) : status;
}

/* Of the names and sizes of all parts. */
static uint64_t digest_parts(const struct all_parts *all)
{
    uint64_t h = HASH_FNV1A_BASIS;

    for (unsigned i = 0; i < all->count; i++) {
        const struct state_part *p = &all->part[i];

        h = hash_fnv1a(h, p->name, strlen(p->name) + 1);
        h = hash_fnv1a(h, &p->total, sizeof(p->total));
    }
    return h;
}

/* The numbers of which the ranks find the least ones. NOT_COUNT is ~COUNT, which is
 * least where the count is greatest. */
enum { FAILED, LAST, SHARDED, COUNT, NOT_COUNT, STATE, NOT_STATE, NUMBERS };

/* `own`: whether this rank is ready. Fails together with the others if one is not, or
 * if the counts or the parts differ. Of the other numbers n gets the least ones. */
static crun_status agree(crun_world *world, const char *what, const char *counts,
                         uint64_t count, const struct all_parts *all, crun_status own,
                         int64_t n[NUMBERS])
{
    uint64_t digest = digest_parts(all);
    crun_status status;

    n[FAILED] = failure_number(world, own);
    n[COUNT] = (int64_t)count;
    n[NOT_COUNT] = (int64_t)~count;
    n[STATE] = (int64_t)digest;
    n[NOT_STATE] = (int64_t)~digest;
    status = find_least(world, n, NUMBERS);
    if (status != CRUN_OK)
        return status;
    if (n[FAILED])
        return fail_together(world, n[FAILED]);
    if (n[COUNT] != ~n[NOT_COUNT])
        return status_fail(CRUN_MISMATCH,
                           "%s different %s, from %" PRIu64 " to %" PRIu64, what,
                           counts, (uint64_t)n[COUNT], (uint64_t)~n[NOT_COUNT]);
    return n[STATE] == ~n[NOT_STATE]
               ? CRUN_OK
               : status_fail(CRUN_MISMATCH,
                             "%s the state of different models or optimizers", what);
}

/* -- opening --------------------------------------------------------------- */

/* What rank 0 tells the others. */
struct directory_claim {
    int32_t status;
    bool blocking;
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
    c->keep = o->keep > 0 ? (unsigned)o->keep : KEEP_DEFAULT;
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
    status = share_status(c->world, status);
    return status == CRUN_OK ? failed : status;
}

/* Rank 0 claims the directory's next generation for this world. The other ranks look
 * whether it is their directory, too. */
static crun_status claim_directory(struct crun_checkpoints *c,
                                   const crun_checkpoint_options *o)
{
    bool good = *o->directory && strlen(o->directory) + CHECKPOINT_NAME_MAX < PATH_MAX;
    struct directory_claim d = { .status = CRUN_BAD_ARGUMENT, .blocking = o->blocking };
    /* what they had open is closed: a claim refuses what is still written there */
    crun_status status = share_status(c->world, CRUN_OK);

    if (status != CRUN_OK)
        return status;
    err_set(&d.error, "checkpoints need a directory");
    if (crun_rank(c->world) == 0 && good)
        d.status = (int32_t)checkpoint_dir_claim(o->directory, &d.claim, &d.error);
    status = broadcast_bytes(c->world, &d, sizeof(d), 0);
    if (status == CRUN_OK)
        status = status_fail_with((crun_status)d.status, &d.error);
    if (status != CRUN_OK)
        return status;
    c->blocking = d.blocking;
    c->claim = d.claim;
    /* the program may change its working directory */
    if (!good || !checkpoint_dir_is_claimed(o->directory, &d.claim) ||
        !realpath(o->directory, c->directory) ||
        strlen(c->directory) + CHECKPOINT_NAME_MAX >= PATH_MAX)
        status = status_fail(CRUN_BAD_ARGUMENT,
                             "the checkpoint directory %s is not the one of rank 0: "
                             "all ranks need one that they share",
                             o->directory);
    status = share_status(c->world, status);
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
        *checkpoints = c;
    else
        crun_checkpoints_close(c);
    return status;
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

static crun_status hand_to_writer(struct crun_checkpoints *c,
                                  struct checkpoint_copy *copy, uint64_t step,
                                  bool sharded)
{
    if (!ensure_writer(c)) {
        checkpoint_copy_free(copy);
        return status_fail(CRUN_SYSTEM,
                           "cannot start the thread that writes checkpoints");
    }
    pthread_mutex_lock(&c->lock);
    c->target = (struct checkpoint_target){
        .world = c->world,
        .dir = c->directory,
        .claim = &c->claim,
        .set = { .generation = c->claim.generation,
                 .save = c->saves,
                 .step = step,
                 .parts = sharded ? (unsigned)crun_size(c->world) : 1 },
        .part = (unsigned)crun_rank(c->world) + 1,
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
        if (!memchr(extra[i].value, '\0', sizeof(extra[i].value)) ||
            !text_is_utf8(extra[i].value, strlen(extra[i].value)))
            return status_fail(CRUN_BAD_ARGUMENT,
                               "crun_checkpoint_save: extra \"%s\" is not text of up "
                               "to %zu bytes in UTF-8",
                               key, sizeof(extra[i].value) - 1);
        for (size_t k = 0; k < i; k++)
            if (strcmp(extra[k].key, key) == 0)
                return status_fail(CRUN_BAD_ARGUMENT,
                                   "crun_checkpoint_save: two extras are called \"%s\"",
                                   key);
    }
    return CRUN_OK;
}

/* What the ranks agree on before any of them copies. `own`: whether this rank can
 * save; *last: the status of the previous write, of all ranks. */
static crun_status agree_on_save(struct crun_checkpoints *c, uint64_t step,
                                 const struct all_parts *all, crun_status own,
                                 bool *sharded, crun_status *last)
{
    int64_t n[NUMBERS] = { [LAST] = failure_number(c->world, *last),
                           [SHARDED] = -checkpoint_is_sharded(all->part, all->count) };
    crun_status status = agree(c->world, "crun_checkpoint_save: the ranks save",
                               "steps", step, all, own, n);

    if (status != CRUN_OK)
        return status;
    *sharded = n[SHARDED] != 0;
    *last = n[LAST] ? fail_together(c->world, n[LAST]) : CRUN_OK;
    c->saves++;
    return *last == CRUN_STALE ? *last : CRUN_OK;
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

/* The writer is idle. A failure is this rank's until it is shared by the next save or
 * wait. */
static crun_status save_own_part(struct crun_checkpoints *c,
                                 const struct checkpoint_content *content,
                                 crun_ddp *ddp, bool sharded)
{
    struct checkpoint_copy *copy = NULL;
    crun_status status = copy_own_part(c, content, ddp, &copy);

    if (status == CRUN_OK)
        status = hand_to_writer(c, copy, content->step, sharded);
    if (status != CRUN_OK) {
        c->status = status;
        err_set(&c->error, "%s", crun_error_text());
    }
    return status;
}

/* All ranks have agreed on it. */
static crun_status perform_save(struct crun_checkpoints *c,
                                const struct checkpoint_content *content, crun_ddp *ddp,
                                crun_optim *optim, bool sharded)
{
    crun_status status = crun_ddp_gather(ddp), copied = CRUN_OK;

    if (status == CRUN_OK && optim)
        status = optim_state_fetch(optim);
    if (status == CRUN_OK && !content->whole && !sharded)
        c->status = CRUN_OK; /* this rank has no part in it */
    else if (status == CRUN_OK)
        copied = save_own_part(c, content, ddp, sharded);
    if (status == CRUN_OK && c->blocking)
        return crun_checkpoint_wait(c);
    return status == CRUN_OK ? copied : status;
}

crun_status crun_checkpoint_save(crun_checkpoints *c, uint64_t step, crun_ddp *ddp,
                                 crun_optim *optim, const crun_sampler *sampler,
                                 const crun_extra *extra, size_t extras)
{
    struct checkpoint_content content = { .step = step,
                                          .extra = extra,
                                          .extras = extras,
                                          .whole = crun_rank(c->world) == 0 };
    crun_status status = world_refuse_in_group(c->world, "crun_checkpoint_save"), last;
    struct all_parts all;
    bool sharded = false;

    if (status == CRUN_OK)
        status = need_directory(c, "crun_checkpoint_save");
    if (status != CRUN_OK)
        return status;
    last = wait_until_idle(c);
    status = gather_parts(ddp, optim, &all)
                 ? check_extras(extra, extras)
                 : status_fail(CRUN_NO_MEMORY, "no memory for a checkpoint");
    status = agree_on_save(c, step, &all, status, &sharded, &last);
    content.part = all.part;
    content.parts = all.count;
    if (optim)
        content.optim = optim_scalars_in_place(optim);
    if (sampler)
        crun_sampler_save(sampler, &content.sampler);
    if (status == CRUN_OK)
        status = perform_save(c, &content, ddp, optim, sharded);
    free(all.part);
    return status == CRUN_OK && !c->blocking ? last : status;
}

crun_status crun_checkpoint_wait(crun_checkpoints *c)
{
    crun_status status = world_refuse_in_group(c->world, "crun_checkpoint_wait");

    return status == CRUN_OK ? share_status(c->world, wait_until_idle(c)) : status;
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
    uint64_t keys; /* the digest of its extras' */
    struct err error;
};

static void warn_of(const struct crun_checkpoints *c, const struct err *e)
{
    if (c->warn)
        c->warn(c->arg, e->text);
}

/* The newest one that can be read. Damaged ones are passed over with a warning; if all
 * are damaged, the status is that of the last. *partial: how many newer ones are not
 * complete. */
static crun_status open_newest_of(struct crun_checkpoints *c,
                                  const struct checkpoint_set *set, size_t count,
                                  struct checkpoint_source **s, size_t *partial,
                                  struct err *e)
{
    char name[CHECKPOINT_NAME_MAX], path[PATH_MAX];
    crun_status status = CRUN_NOT_FOUND;

    err_set(e, "there is no checkpoint in %s", c->directory);
    for (size_t i = 0; *s == NULL && i < count; i++) {
        if (set[i].present < set[i].parts) {
            ++*partial;
            continue;
        }
        snprintf(path, sizeof(path), "%.*s/%s", PATH_MAX - CHECKPOINT_NAME_MAX - 2,
                 c->directory, checkpoint_name(&set[i], 1, name));
        status = checkpoint_source_open(s, path, e);
        if (status != CRUN_OK)
            warn_of(c, e);
    }
    return status;
}

static crun_status open_newest(struct crun_checkpoints *c, struct checkpoint_source **s,
                               struct err *e)
{
    struct checkpoint_set *set;
    size_t count, partial = 0, first = 0;
    crun_status status = checkpoint_dir_list(c->directory, &set, &count, e);
    struct err parts;

    if (status == CRUN_OK)
        status = open_newest_of(c, set, count, s, &partial, e);
    if (partial) {
        while (set[first].present == set[first].parts)
            first++;
        err_set(&parts,
                "%s has parts of checkpoints that were never completed (%zu), the "
                "newest of generation %" PRIu64 ", step %" PRIu64 ": %u of %u parts",
                c->directory, partial, set[first].generation, set[first].step,
                set[first].present, set[first].parts);
        warn_of(c, &parts);
        if (status == CRUN_NOT_FOUND)
            *e = parts;
    }
    free(set);
    return status;
}

static crun_status open_matching_source(struct crun_checkpoints *c, const char *file,
                                        const struct all_parts *all,
                                        struct checkpoint_source **s, struct err *e)
{
    crun_status status = *file ? checkpoint_source_open(s, file, e)
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
                                   const struct checkpoint_source *s, char *chunk)
{
    crun_status status = ddp_await_copies(ddp);

    for (unsigned i = 0; status == CRUN_OK && i < all->count; i++)
        status = broadcast_part(ddp, &all->part[i], s, chunk);
    return status;
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

static uint64_t digest_keys(const struct load_request *l)
{
    uint64_t h = HASH_FNV1A_BASIS;

    for (size_t i = 0; i < l->extras; i++)
        h = hash_fnv1a(h, l->extra[i].key, strlen(l->extra[i].key) + 1);
    return h;
}

/* Rank 0's answer, after it has opened and compared the checkpoint. */
static crun_status broadcast_verdict(struct crun_checkpoints *c,
                                     const struct all_parts *all,
                                     struct load_request *l,
                                     struct checkpoint_source **s)
{
    struct load_verdict *v = &l->verdict;
    crun_status status;

    if (crun_rank(c->world) == 0) {
        v->status = (int32_t)open_matching_source(c, l->file, all, s, &v->error);
        if (v->status == CRUN_OK)
            checkpoint_source_facts(*s, &v->facts);
        v->keys = digest_keys(l);
    }
    status = broadcast_bytes(c->world, v, sizeof(*v), 0);
    return status == CRUN_OK ? status_fail_with((crun_status)v->status, &v->error)
                             : status;
}

/* After this no rank refuses the checkpoint. */
static crun_status check_request(const struct load_request *l)
{
    const crun_sampler_state *state = &l->verdict.facts.sampler;

    if (digest_keys(l) != l->verdict.keys)
        return status_fail(CRUN_MISMATCH, "its extras are not those of rank 0");
    if (!l->sampler)
        return CRUN_OK;
    return state->samples ? sampler_fits(l->sampler, state)
                          : status_fail(CRUN_MISMATCH,
                                        "the checkpoint was saved without a sampler");
}

static crun_status apply_checkpoint(struct crun_checkpoints *c,
                                    const struct all_parts *all, struct load_request *l,
                                    const struct checkpoint_source *s, char *chunk)
{
    const struct checkpoint_facts *f = &l->verdict.facts;
    crun_status status = CRUN_OK;

    if (s)
        checkpoint_source_extras(s, l->extra, l->extras);
    for (size_t i = 0; status == CRUN_OK && i < l->extras; i++)
        status = broadcast_bytes(c->world, l->extra[i].value, sizeof(l->extra[i].value),
                                 0);
    if (status == CRUN_OK)
        status = broadcast_parts(l->ddp, all, s, chunk);
    if (status == CRUN_OK && l->optim)
        status = optim_set_scalars(l->optim, &f->optim);
    if (status == CRUN_OK && l->sampler)
        status = crun_sampler_restore(l->sampler, &f->sampler);
    if (status == CRUN_OK)
        status = ddp_state_put(l->ddp);
    return status == CRUN_OK && l->optim ? optim_state_put(l->optim) : status;
}

static crun_status load_together(struct crun_checkpoints *c,
                                 const struct all_parts *all, struct load_request *l,
                                 char *chunk)
{
    struct checkpoint_source *s = NULL;
    crun_status status = broadcast_verdict(c, all, l, &s);

    if (status == CRUN_OK)
        status = share_status(c->world, check_request(l));
    if (status == CRUN_OK)
        status = apply_checkpoint(c, all, l, s, chunk);
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
    crun_status status = world_refuse_in_group(c->world, "crun_checkpoint_load");
    int64_t n[NUMBERS] = { 0 };
    struct all_parts all;
    void *chunk = NULL;

    if (status != CRUN_OK)
        return status;
    (void)!wait_until_idle(c); /* what is being written counts, too */
    status = gather_parts(ddp, optim, &all)
                 ? ddp_device(ddp)->host_alloc(CHUNK_BYTES, &chunk)
                 : status_fail(CRUN_NO_MEMORY, "no memory to load a checkpoint");
    if (status == CRUN_OK && !*l.file)
        status = need_directory(c, "crun_checkpoint_load");
    status = agree(c->world, "crun_checkpoint_load: the ranks load",
                   "numbers of extras", extras, &all, status, n);
    if (status == CRUN_OK)
        status = load_together(c, &all, &l, chunk);
    ddp_device(ddp)->host_free(chunk);
    free(all.part);
    if (status == CRUN_OK && step)
        *step = l.verdict.facts.step;
    return status;
}
