/* SPDX-License-Identifier: MIT */
/*
 * A training that resumes from a checkpoint computes the same bits as an uninterrupted
 * training. The scores of the pass and of the steps since the last line of metrics are
 * saved too, so that their lines are correct.
 */
#include <inttypes.h>
#include <math.h>

#include "worker-lib/train/trainer.h"

int checkpoints_write(struct trainer *t, bool memory, bool safe, struct err *e)
{
    const struct score *pass = &t->score, *recent = &t->recent.score;
    crun_extra scores = { .key = "scores" };

    /* exactly */
    snprintf(scores.value, sizeof(scores.value), "%a %a %a %a %a %" PRIu64, pass->loss,
             pass->right, pass->samples, recent->loss, recent->samples,
             t->recent.after);
    if (!memory)
        crun_progress(t->world, CRUN_PHASE_CHECKPOINTING, t->step, 0, t->samples_own,
                      NAN);
    if (trainer_check(t,
                      (memory ? crun_checkpoint_step
                              : crun_checkpoint_save)(t->checkpoints, t->step, t->ddp,
                                                      t->optim, t->sampler, &scores, 1),
                      e) < 0)
        return -1;
    return safe ? trainer_check(t, crun_checkpoint_wait(t->checkpoints), e) : 0;
}

static int checkpoints_resume(struct trainer *t, struct err *e)
{
    const char *from = t->flags->checkpoints;
    struct score *pass = &t->score, *recent = &t->recent.score;
    crun_extra scores = { .key = "scores" };
    crun_sampler_state s;
    crun_status status = crun_checkpoint_load(t->checkpoints, "", &t->step, t->ddp,
                                              t->optim, t->sampler, &scores, 1);

    if (status == CRUN_NOT_FOUND) {
        if (t->warned || crun_restarts(t->world) > 0)
            report_line(
                t, "train: begins at step 0: there is no whole checkpoint in %s", from);
        return 0;
    }
    if (trainer_check(t, status, e) < 0)
        return err_wrap(e, "cannot resume from %s", from);
    if (sscanf(scores.value, "%la %la %la %la %la %" SCNu64, &pass->loss, &pass->right,
               &pass->samples, &recent->loss, &recent->samples, &t->recent.after) != 6)
        t->recent.after = t->step; /* an older checkpoint has none */
    if (crun_checkpoint_in_memory(t->checkpoints))
        from = "memory";
    crun_sampler_save(t->sampler, &s);
    t->pass = s.pass;
    if (t->pass >= (uint64_t)t->flags->passes)
        report_line(t, "train: all passes are done already, according to %s", from);
    else
        report_line(t,
                    "train: resumed after step %" PRIu64 ", %.0f%% of pass %" PRIu64
                    "/%lld, from %s",
                    t->step, 100 * (double)s.dealt / (double)s.samples, t->pass + 1,
                    t->flags->passes, from);
    return 0;
}

static void checkpoints_warn(void *arg, const char *text)
{
    struct trainer *t = arg;

    t->warned = true;
    report_line(t, "train: %s", text);
}

int checkpoints_open(struct trainer *t, struct err *e)
{
    crun_checkpoint_options options = { .directory = t->flags->checkpoints,
                                        .memory_every = (int)t->flags->memory_every,
                                        .warn = checkpoints_warn,
                                        .arg = t };

    if (!options.directory)
        return 0;
    if (trainer_check(t, crun_checkpoints_open(&t->checkpoints, t->world, &options),
                      e) < 0)
        return -1;
    return checkpoints_resume(t, e);
}
