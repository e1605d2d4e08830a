/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/checkpoints.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/text.h"

#define EXTRA_KEY_MAX 128

/* Extras are written to the file's header, which is JSON. */
crun_status checkpoint_check_extras(const char *call, const crun_extra *extra,
                                    size_t extras)
{
    for (size_t i = 0; i < extras; i++) {
        const char *key = extra[i].key;

        if (!key || !*key || strlen(key) >= EXTRA_KEY_MAX ||
            !text_is_utf8(key, strlen(key)))
            return status_fail(
                CRUN_BAD_ARGUMENT,
                "%s: the key of an extra is text of 1 to %d bytes in UTF-8", call,
                EXTRA_KEY_MAX - 1);
        if (!memchr(extra[i].value, '\0', sizeof(extra[i].value)) ||
            !text_is_utf8(extra[i].value, strlen(extra[i].value)))
            return status_fail(CRUN_BAD_ARGUMENT,
                               "%s: extra \"%s\" is not text of up to %zu bytes in "
                               "UTF-8",
                               call, key, sizeof(extra[i].value) - 1);
        for (size_t k = 0; k < i; k++)
            if (strcmp(extra[k].key, key) == 0)
                return status_fail(CRUN_BAD_ARGUMENT,
                                   "%s: two extras are called \"%s\"", call, key);
    }
    return CRUN_OK;
}

/* What the ranks checkpoint_agree on before any of them copies. `own`: whether this
 * rank can save; *last: the status of the previous write, of all ranks. */
static crun_status agree_on_save(struct crun_checkpoints *c, uint64_t step,
                                 const struct checkpoint_parts *all, crun_status own,
                                 bool *sharded, crun_status *last)
{
    int64_t n[NUMBERS] = { [LAST] = checkpoint_failure(c->world, *last),
                           [SHARDED] = -checkpoint_is_sharded(all->part, all->count) };
    crun_status status = checkpoint_agree(
        c->world, "crun_checkpoint_save: the ranks save", "steps", step, all, own, n);

    if (status != CRUN_OK)
        return status;
    *sharded = n[SHARDED] != 0;
    *last = n[LAST] ? checkpoint_fail(c->world, n[LAST]) : CRUN_OK;
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
        status = checkpoint_writer_take(c, copy, content->step, sharded);
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
    struct checkpoint_parts all;
    bool sharded = false;

    if (status == CRUN_OK)
        status = checkpoint_need_directory(c, "crun_checkpoint_save");
    if (status != CRUN_OK)
        return status;
    last = checkpoint_writer_wait(c);
    status = checkpoint_gather_parts(ddp, optim, false, &all)
                 ? checkpoint_check_extras("crun_checkpoint_save", extra, extras)
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

    return status == CRUN_OK ? checkpoint_share(c->world, checkpoint_writer_wait(c))
                             : status;
}
