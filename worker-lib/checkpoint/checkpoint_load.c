/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/checkpoints.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/hash.h"

#define CHUNK_BYTES ((size_t)4 << 20)

/* Broadcast by rank 0 before the state. */
struct load_verdict {
    int32_t status;
    bool recalled; /* from memory */
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
        if (!checkpoint_set_is_complete(&set[i])) {
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
        while (checkpoint_set_is_complete(&set[first]))
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

/* Whether a step after this one is in files: memory was given up then. */
static bool files_are_newer(const struct crun_checkpoints *c, uint64_t step)
{
    struct checkpoint_set *set;
    size_t count, first = 0;
    struct err e;
    bool newer;

    if (checkpoint_dir_list(c->directory, &set, &count, &e) != CRUN_OK)
        return false;
    while (first < count && !checkpoint_set_is_complete(&set[first]))
        first++;
    newer = first < count && set[first].step > step;
    free(set);
    return newer;
}

/* What is in memory and cannot be restored is passed over with a warning: *s is NULL.
 */
static void recall_source(struct crun_checkpoints *c,
                          const struct checkpoint_parts *all,
                          struct checkpoint_source **s)
{
    const struct memory_set *set = crun_memory_restores(c->steps.memory);
    struct err e = { .text = "" };

    if (!set->world || files_are_newer(c, set->step))
        return;
    if (checkpoint_source_recall(s, c->steps.memory, &e) == CRUN_OK &&
        checkpoint_source_fits(*s, all->part, all->count, &e) == CRUN_OK)
        return;
    checkpoint_source_close(*s);
    *s = NULL;
    warn_of(c, &e);
}

static crun_status open_matching_source(struct crun_checkpoints *c, const char *file,
                                        const struct checkpoint_parts *all,
                                        struct checkpoint_source **s, bool *recalled,
                                        struct err *e)
{
    crun_status status;

    if (!*file && c->steps.memory)
        recall_source(c, all, s);
    *recalled = *s != NULL;
    if (*recalled)
        return CRUN_OK;
    status = *file ? checkpoint_source_open(s, file, e) : open_newest(c, s, e);
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

static crun_status broadcast_parts(crun_ddp *ddp, const struct checkpoint_parts *all,
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
                                     const struct checkpoint_parts *all,
                                     struct load_request *l,
                                     struct checkpoint_source **s)
{
    struct load_verdict *v = &l->verdict;
    crun_status status;

    if (crun_rank(c->world) == 0) {
        v->status = (int32_t)open_matching_source(c, l->file, all, s, &v->recalled,
                                                  &v->error);
        if (v->status == CRUN_OK)
            checkpoint_source_facts(*s, &v->facts);
        v->keys = digest_keys(l);
    }
    status = checkpoint_broadcast(c->world, v, sizeof(*v), 0);
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
                                    const struct checkpoint_parts *all,
                                    struct load_request *l,
                                    const struct checkpoint_source *s, char *chunk)
{
    const struct checkpoint_facts *f = &l->verdict.facts;
    crun_status status = CRUN_OK;

    if (s)
        checkpoint_source_extras(s, l->extra, l->extras);
    for (size_t i = 0; status == CRUN_OK && i < l->extras; i++)
        status = checkpoint_broadcast(c->world, l->extra[i].value,
                                      sizeof(l->extra[i].value), 0);
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
                                 const struct checkpoint_parts *all,
                                 struct load_request *l, char *chunk)
{
    struct checkpoint_source *s = NULL;
    crun_status status = broadcast_verdict(c, all, l, &s);

    if (status == CRUN_OK)
        status = checkpoint_share(c->world, check_request(l));
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
    struct checkpoint_parts all;
    void *chunk = NULL;

    if (status != CRUN_OK)
        return status;
    (void)!checkpoint_writer_wait(c); /* what is being written counts, too */
    status = checkpoint_gather_parts(ddp, optim, false, &all)
                 ? ddp_device(ddp)->host_alloc(CHUNK_BYTES, &chunk)
                 : status_fail(CRUN_NO_MEMORY, "no memory to load a checkpoint");
    if (status == CRUN_OK && !*l.file)
        status = checkpoint_need_directory(c, "crun_checkpoint_load");
    status = checkpoint_agree(c->world, "crun_checkpoint_load: the ranks load",
                              "numbers of extras", extras, &all, status, n);
    if (status == CRUN_OK)
        status = load_together(c, &all, &l, chunk);
    ddp_device(ddp)->host_free(chunk);
    free(all.part);
    c->steps.recalled = status == CRUN_OK && l.verdict.recalled;
    if (c->steps.memory)
        crun_memory_restored(c->steps.memory,
                             c->steps.recalled ? l.verdict.facts.step : 0);
    if (status == CRUN_OK && step)
        *step = l.verdict.facts.step;
    return status;
}
