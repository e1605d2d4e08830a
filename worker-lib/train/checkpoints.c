/* SPDX-License-Identifier: MIT */
/*
 * A training that resumes from a checkpoint computes the same bits as an uninterrupted
 * training. The scores of the pass and of the steps since the last line of metrics are
 * saved too, so that their lines are correct.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "worker-lib/train/trainer.h"

enum { SCORES, EXTRAS };

static void print_extras(const struct trainer *t, crun_extra extra[EXTRAS])
{
    const struct score *pass = &t->score, *recent = &t->recent.score;

    extra[SCORES].key = "scores";
    /* exactly */
    snprintf(extra[SCORES].value, sizeof(extra[SCORES].value),
             "%a %a %a %a %a %" PRIu64, pass->loss, pass->right, pass->samples,
             recent->loss, recent->samples, t->recent.after);
}

int checkpoints_remember(struct trainer *t, struct err *e)
{
    crun_extra extra[EXTRAS];

    print_extras(t, extra);
    return trainer_check(t,
                         crun_checkpoint_step(t->checkpoints, t->step, t->ddp, t->optim,
                                              t->sampler, extra, EXTRAS),
                         e);
}

int checkpoints_write(struct trainer *t, bool safe, struct err *e)
{
    crun_extra extra[EXTRAS];

    print_extras(t, extra);
    crun_progress(t->world, CRUN_PHASE_CHECKPOINTING, t->step, 0, t->samples_own, NAN);
    if (trainer_check(t,
                      crun_checkpoint_save(t->checkpoints, t->step, t->ddp, t->optim,
                                           t->sampler, extra, EXTRAS),
                      e) < 0)
        return -1;
    return safe ? trainer_check(t, crun_checkpoint_wait(t->checkpoints), e) : 0;
}

static void apply_extras(struct trainer *t, const crun_extra extra[EXTRAS],
                         const char *from)
{
    struct score *pass = &t->score, *recent = &t->recent.score;
    crun_sampler_state s;

    if (sscanf(extra[SCORES].value, "%la %la %la %la %la %" SCNu64, &pass->loss,
               &pass->right, &pass->samples, &recent->loss, &recent->samples,
               &t->recent.after) != 6)
        t->recent.after = t->step; /* an older checkpoint has none */
    crun_sampler_save(t->sampler, &s);
    t->pass = s.pass;
    if (t->pass >= (uint64_t)t->flags->passes)
        progress_bar_print_line("train: all passes are done already, according to %s",
                                from);
    else
        progress_bar_print_line("train: resumed after step %" PRIu64
                                ", %.0f%% of pass %" PRIu64 "/%lld, from %s",
                                t->step, 100 * (double)s.dealt / (double)s.samples,
                                t->pass + 1, t->flags->passes, from);
}

static int resume_training(struct trainer *t, struct err *e)
{
    const char *from = t->flags->checkpoints;
    crun_extra extra[EXTRAS] = { [SCORES] = { .key = "scores" } };
    crun_status status;

    status = crun_checkpoint_load(t->checkpoints, "", &t->step, t->ddp, t->optim,
                                  t->sampler, extra, EXTRAS);
    if (status == CRUN_NOT_FOUND) {
        if (t->warned || crun_restarts(t->world) > 0)
            progress_bar_print_line(
                "train: begins at step 0: there is no whole checkpoint in %s", from);
        return 0;
    }
    if (trainer_check(t, status, e) < 0)
        return err_wrap(e, "cannot resume from %s", from);
    apply_extras(t, extra, crun_checkpoint_in_memory(t->checkpoints) ? "memory" : from);
    return 0;
}

static void print_warning(void *arg, const char *text)
{
    struct trainer *t = arg;

    t->warned = true;
    progress_bar_print_line("train: %s", text);
}

int checkpoints_open(struct trainer *t, struct err *e)
{
    const struct train_flags *f = t->flags;
    crun_checkpoint_options options = { .directory = f->checkpoints,
                                        .memory_every = (int)f->memory_every,
                                        .warn = print_warning,
                                        .arg = t };

    if (!f->checkpoints)
        return 0;
    if (trainer_check(t, crun_checkpoints_open(&t->checkpoints, t->world, &options),
                      e) < 0)
        return -1;
    return resume_training(t, e);
}
