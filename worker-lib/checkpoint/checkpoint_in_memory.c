/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/memory_slot.h"
#include "worker-lib/checkpoint/checkpoints.h"

/*
 * A checkpoint in memory overwrites the one before the last, which is what the job goes
 * back to if some rank does not have the last. So the ranks agree after each that all
 * have it and that its copies are safe, while the training continues. If a rank is dead
 * the agreement fails, and nothing is overwritten.
 */
enum step_answer { GIVEN_UP, NOT_YET, KEPT };

static int64_t number_of(const char *variable)
{
    const char *value = getenv(variable);

    return value && *value ? strtoll(value, NULL, 10) : -1;
}

/* The slots are those of a rank of the job: a group has none. */
static crun_memory *steps_connect(const struct crun_checkpoints *c, struct err *e)
{
    crun_world *w = c->world;
    char command[MEMORY_COMMAND_BYTES] = "";
    const struct crun_memory_config config = {
        .path = getenv(MEMORY_ENV),
        .epoch = (uint64_t)number_of("CRUN_EPOCH"),
        .rank = (uint32_t)crun_rank(w),
        .local_rank = (uint32_t)number_of("LOCAL_RANK"),
        .local_world = (uint32_t)number_of("LOCAL_WORLD_SIZE"),
        .world = (uint32_t)crun_size(w),
        .kind = CHECKPOINT_KIND,
        .command = command,
    };

    if (!config.path || number_of("RANK") != crun_rank(w) ||
        number_of("WORLD_SIZE") != crun_size(w))
        return NULL;
    /* checkpoint_flush.h; without a folder, or with one of a very long name, none */
    if (*c->directory &&
        snprintf(command, sizeof(command) - 1,
                 "crun-preflight%c--write-checkpoint%c%s%c%" PRIu64 "%c%s%c%u", 0, 0,
                 c->directory, 0, c->claim.generation, 0, c->claim.id, 0,
                 c->keep) >= (int)sizeof(command) - 1)
        memset(command, 0, sizeof(command));
    return crun_memory_open(&config, e);
}

/* Without memory the training continues with files. */
static void steps_warn(const struct crun_checkpoints *c, const struct err *e)
{
    struct err line = *e;

    err_wrap(&line, "files only: rank %d", crun_rank(c->world));
    if (c->warn)
        c->warn(c->arg, line.text);
}

crun_status checkpoint_steps_open(struct crun_checkpoints *c)
{
    struct checkpoint_steps *s = &c->steps;
    struct err e = { .text = "" };
    int64_t all;
    crun_status status;

    if (!s->every)
        return CRUN_OK;
    s->memory = steps_connect(c, &e);
    if (*e.text)
        steps_warn(c, &e);
    all = s->memory != NULL;
    status = crun_all_reduce(c->world, &all, &all, 1, CRUN_I64, CRUN_MIN, NULL);
    if (status == CRUN_OK && !all) {
        crun_memory_close(s->memory);
        s->memory = NULL;
    }
    s->own = s->least = KEPT;
    return status;
}

void checkpoint_steps_close(struct crun_checkpoints *c)
{
    struct checkpoint_steps *s = &c->steps;

    if (s->work)
        (void)!crun_wait(s->work);
    crun_memory_close(s->memory);
    checkpoint_memory_free(&s->room[0]);
    checkpoint_memory_free(&s->room[1]);
}

/* -- saving ------------------------------------------------------------------------ */

/* The state of a rank as sections: own, then shared. */
struct step_sections {
    struct checkpoint_copy *copy[2];
    struct checkpoint_section section[2];
};

static crun_status sections_take(struct crun_checkpoints *c,
                                 struct checkpoint_content *content, crun_ddp *ddp,
                                 struct step_sections *s, struct err *e)
{
    bool divided = ddp_is_divided(ddp), has[2];
    /* as a file: after what has been saved, and before what will be */
    struct checkpoint_target to = checkpoint_target_of(c, c->saves + 1, content->step,
                                                       divided);
    struct state_queues queues;
    crun_status status = ddp_copy_begin(ddp, &queues);

    has[false] = divided || crun_rank(c->world) == 0;
    has[true] = number_of("LOCAL_RANK") == 0;
    content->divided = divided;
    for (unsigned i = 0; status == CRUN_OK && i < 2; i++) {
        content->use = i ? FOR_SHARED : FOR_OWN;
        if (has[i])
            status = checkpoint_copy_take(&s->copy[i], content, &queues,
                                          &c->steps.room[i]);
    }
    if (status == CRUN_OK)
        status = ddp_await_copies(ddp);
    if (status != CRUN_OK)
        err_set(e, "%s", crun_error_text());
    for (unsigned i = 0; status == CRUN_OK && i < 2; i++)
        if (has[i])
            status = checkpoint_copy_section(s->copy[i], &to, &s->section[i], e);
    return status;
}

static int sections_write(crun_memory *m, uint64_t step, const struct step_sections *s,
                          struct err *e)
{
    const struct crun_memory_save save = { .step = step,
                                           .own_bytes = s->section[false].bytes,
                                           .shared_bytes = s->section[true].bytes,
                                           .has_shared = true };

    if (crun_memory_begin(m, &save, e) < 0)
        return -1;
    for (unsigned i = 0; i < 2; i++)
        if (s->section[i].bytes &&
            crun_memory_write(m, i, s->section[i].piece, s->section[i].pieces, e) < 0)
            return -1;
    crun_memory_commit(m);
    return 0;
}

static int steps_save_own(struct crun_checkpoints *c,
                          struct checkpoint_content *content, crun_ddp *ddp,
                          struct err *e)
{
    struct step_sections s = { .copy = { NULL, NULL } };
    int rc = -1;

    if (sections_take(c, content, ddp, &s, e) == CRUN_OK)
        rc = sections_write(c->steps.memory, content->step, &s, e);
    for (unsigned i = 0; i < 2; i++) {
        checkpoint_copy_free(s.copy[i]);
        checkpoint_section_free(&s.section[i]);
    }
    return rc;
}

/* A rank that cannot save has not committed, so the other ranks overwrite nothing: they
 * learn of it by the agreement. */
static crun_status steps_save(struct crun_checkpoints *c,
                              struct checkpoint_content *content, crun_ddp *ddp,
                              crun_optim *optim)
{
    crun_status status = crun_ddp_gather(ddp);
    struct checkpoint_parts all = { .part = NULL };
    struct err e = { .text = "" };

    if (status != CRUN_OK)
        return status;
    if (checkpoint_check_extras("crun_checkpoint_step", content->extra,
                                content->extras) != CRUN_OK)
        err_set(&e, "%s", crun_error_text());
    else if (!checkpoint_gather_parts(ddp, optim, true, &all))
        err_set(&e, "no memory for a checkpoint");
    content->part = all.part;
    content->parts = all.count;
    if (*e.text || steps_save_own(c, content, ddp, &e) < 0) {
        steps_warn(c, &e);
        c->steps.own = GIVEN_UP;
    }
    free(all.part);
    return CRUN_OK;
}

static crun_status steps_begin_agreement(struct crun_checkpoints *c)
{
    struct checkpoint_steps *s = &c->steps;

    if (s->own != GIVEN_UP)
        s->own = crun_memory_is_kept(s->memory) ? KEPT : NOT_YET;
    return crun_all_reduce(c->world, &s->own, &s->least, 1, CRUN_I64, CRUN_MIN,
                           &s->work);
}

static crun_status steps_end_agreement(struct checkpoint_steps *s)
{
    crun_work *work = s->work;

    s->work = NULL;
    return work ? crun_wait(work) : CRUN_OK;
}

/* Whether the next checkpoint may be written: KEPT. Copies that were not safe have had
 * the time of a step since. */
static crun_status steps_await_agreement(struct crun_checkpoints *c)
{
    struct checkpoint_steps *s = &c->steps;
    crun_status status = steps_end_agreement(s);

    if (status == CRUN_OK && s->least == NOT_YET)
        status = steps_begin_agreement(c);
    if (status == CRUN_OK)
        status = steps_end_agreement(s);
    if (status == CRUN_OK && s->least == GIVEN_UP) {
        crun_memory_close(s->memory);
        s->memory = NULL;
    }
    return status;
}

crun_status crun_checkpoint_step(crun_checkpoints *c, uint64_t step, crun_ddp *ddp,
                                 crun_optim *optim, const crun_sampler *sampler,
                                 const crun_extra *extra, size_t extras)
{
    struct checkpoint_content content = { .step = step,
                                          .extra = extra,
                                          .extras = extras };
    crun_status status = world_refuse_in_group(c->world, "crun_checkpoint_step");
    struct checkpoint_steps *s = &c->steps;

    if (status != CRUN_OK || !s->memory || step % s->every != 0)
        return status;
    status = steps_await_agreement(c);
    if (status != CRUN_OK || !s->memory)
        return status;
    if (optim)
        content.optim = optim_scalars_in_place(optim);
    if (sampler)
        crun_sampler_save(sampler, &content.sampler);
    if (s->least == KEPT)
        status = steps_save(c, &content, ddp, optim);
    return status == CRUN_OK ? steps_begin_agreement(c) : status;
}

bool crun_checkpoint_in_memory(const crun_checkpoints *c)
{
    return c->steps.recalled;
}
