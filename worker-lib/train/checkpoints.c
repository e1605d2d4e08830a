/* SPDX-License-Identifier: MIT */
/*
 * A training that resumes from a checkpoint computes the same bits as an uninterrupted
 * training. The scores of the pass and of the steps since the last line of metrics are
 * saved too, so that their lines are correct.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "worker-lib/train/trainer.h"

enum { SCORES, SETTINGS, EXTRAS };

/* What changes the numbers, and may be changed in the middle. */
static void print_settings(const struct trainer *t, char *text, size_t size)
{
    const struct train_flags *f = t->flags;

    snprintf(text, size, "--optimizer=%s --lr=%g --batch=%lld --precision=%s",
             train_optimizers[f->optimizer], (double)f->lr, f->batch,
             crun_dtype_name(f->precision));
}

static void print_extras(const struct trainer *t, crun_extra extra[EXTRAS])
{
    const struct score *pass = &t->score, *recent = &t->recent.score;

    extra[SCORES].key = "scores";
    extra[SETTINGS].key = "settings";
    /* exactly */
    snprintf(extra[SCORES].value, sizeof(extra[SCORES].value),
             "%a %a %a %a %a %" PRIu64, pass->loss, pass->right, pass->samples,
             recent->loss, recent->samples, t->recent.after);
    print_settings(t, extra[SETTINGS].value, sizeof(extra[SETTINGS].value));
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
    const char *settings = extra[SETTINGS].value;
    struct score *pass = &t->score, *recent = &t->recent.score;
    char now[sizeof(extra[SETTINGS].value)];
    crun_sampler_state s;

    t->resumed = true;
    if (sscanf(extra[SCORES].value, "%la %la %la %la %la %" SCNu64, &pass->loss,
               &pass->right, &pass->samples, &recent->loss, &recent->samples,
               &t->recent.after) != 6)
        t->recent.after = t->step; /* an older checkpoint has none */
    print_settings(t, now, sizeof(now));
    if (*settings && strcmp(settings, now) != 0)
        progress_bar_print_line("train: the settings change from %s to %s", settings,
                                now);
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
    const char *file = t->flags->resume, *from = *file ? file : t->flags->checkpoints;
    crun_extra extra[EXTRAS] = {
        [SCORES] = { .key = "scores" }, [SETTINGS] = { .key = "settings" }
    };
    crun_status status;

    status = crun_checkpoint_load(t->checkpoints, file, &t->step, t->ddp, t->optim,
                                  t->sampler, extra, EXTRAS);
    if (status == CRUN_NOT_FOUND && *file == '\0') {
        if (t->warned || crun_restarts(t->world) > 0)
            progress_bar_print_line(
                "train: begins at step 0: there is no whole checkpoint in %s", from);
        return 0;
    }
    if (trainer_check(t, status, e) < 0)
        return err_wrap(e, "cannot resume from %s", from);
    if (crun_checkpoint_in_memory(t->checkpoints))
        from = "memory";
    apply_extras(t, extra, from);
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
    int rc;

    if (!f->checkpoints && !(f->resume && *f->resume))
        return 0;
    if (trainer_check(t, crun_checkpoints_open(&t->checkpoints, t->world, &options),
                      e) < 0)
        return -1;
    /* it cannot be known which checkpoints are of earlier epochs of this job */
    if (f->checkpoints && !(f->resume && !*f->resume) && crun_restarts(t->world) > 0)
        progress_bar_print_line("train: as --resume=%s says, checkpoints that this job "
                                "wrote before the restart are not used",
                                f->resume ? f->resume : "none");
    rc = f->resume ? resume_training(t, e) : 0;
    if (!f->checkpoints) { /* --resume=FILE only loads a file */
        crun_checkpoints_close(t->checkpoints);
        t->checkpoints = NULL;
    }
    return rc;
}
