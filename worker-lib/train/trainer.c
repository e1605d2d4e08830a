/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/security/sha256.h"

/* Those that are done, by whatever number of ranks, and what is left for this one. */
static uint64_t count_all_steps(const struct trainer *t)
{
    uint64_t batch = (uint64_t)t->flags->batch, size = (uint64_t)crun_size(t->world);
    uint64_t share = (t->train.count + size - 1) / size;

    return t->step + (crun_sampler_left(t->sampler) + batch - 1) / batch +
           (share + batch - 1) / batch * ((uint64_t)t->flags->passes - t->pass - 1);
}

/* -- the sums over all ranks ------------------------------------------------------- */

static void score_add(struct score *to, const struct score *from)
{
    to->loss += from->loss;
    to->right += from->right;
    to->samples += from->samples;
}

static int exchange_begin(struct trainer *t, const struct score *own, struct err *e)
{
    t->own = (struct sums){
        .score = *own,
        .save = t->checkpoints && crun_checkpoint_wanted(t->world, NULL),
        .stop = trainer_signal() != 0,
    };
    return trainer_check(t,
                         crun_all_reduce(t->world, &t->own, &t->all,
                                         sizeof(t->own) / sizeof(double), CRUN_F64,
                                         CRUN_SUM, &t->exchange),
                         e);
}

static int exchange_end(struct trainer *t, struct err *e)
{
    crun_work *work = t->exchange;

    t->exchange = NULL;
    return trainer_check(t, crun_wait(work), e);
}

/* --metrics-every: a line about the steps since the one before. */
static int append_recent(struct trainer *t, struct err *e)
{
    uint64_t every = (uint64_t)t->flags->metrics_every, after = t->recent.after;
    double loss = t->recent.score.loss / t->recent.score.samples;

    if (!every || t->recent.asked / every == after / every)
        return 0;
    t->recent.after = t->recent.asked;
    t->recent.score = (struct score){ 0 };
    return report_metrics(
        t, e,
        "{\"after\":%" PRIu64 ",\"step\":%" PRIu64
        ",\"train_loss\":%.6f,\"restarts\":%d,\"time_ms\":%" PRIu64 "}\n",
        after, t->recent.after, loss, crun_restarts(t->world), clock_wall_ms());
}

/* Adds the sums of the last step, if they are not added yet, to the pass. */
static int add_last_step(struct trainer *t, struct err *e)
{
    if (!t->exchange)
        return 0;
    if (exchange_end(t, e) < 0)
        return -1;
    score_add(&t->score, &t->all.score);
    score_add(&t->recent.score, &t->all.score);
    t->samples_here += t->all.score.samples;
    t->save |= t->all.save > 0;
    t->stop |= t->all.stop > 0;
    if (!isfinite(t->score.loss))
        return err_set(e,
                       "the loss is not a number after step %" PRIu64
                       "; a smaller --lr may help (it is %g)",
                       t->step, (double)t->flags->lr);
    return append_recent(t, e);
}

/* -- passes ------------------------------------------------------------------------ */

/* After a step: writes the checkpoints that are agreed or due. */
static int write_due_checkpoint(struct trainer *t, struct err *e)
{
    uint64_t remember_every = (uint64_t)t->flags->memory_every;
    uint64_t write_every = (uint64_t)t->flags->checkpoint_every;
    bool remember = remember_every && t->step % remember_every == 0, now;
    bool write = write_every && t->step % write_every == 0;

    /* the saved score includes all steps */
    if ((remember || write || t->save || t->stop) && add_last_step(t, e) < 0)
        return -1;
    if (remember && checkpoints_write(t, true, false, e) < 0)
        return -1;
    now = t->save || t->stop;
    t->save = false;
    if (!t->checkpoints || !(write || now))
        return 0;
    if (checkpoints_write(t, false, now, e) < 0)
        return -1;
    if (now) {
        crun_checkpoint_done(t->world);
        report_line(t, "train: checkpoint of step %" PRIu64 " is written", t->step);
    }
    return 0;
}

/* The remaining steps of a pass, unless t->stop. */
static int trainer_run_pass(struct trainer *t, struct err *e)
{
    size_t most = (size_t)t->flags->batch, count;
    uint64_t steps = count_all_steps(t);

    t->pass_began_ms = clock_ms();
    crun_ddp_get_stats(t->ddp, &t->stats_before);
    t->samples_here = 0;
    while (!t->stop && (count = crun_sampler_next(t->sampler, t->sample, most)) > 0) {
        struct score own = { 0 };

        if (step_run(t, count, &own, e) < 0)
            return -1;
        t->step++;
        crun_progress(t->world, CRUN_PHASE_TRAINING, t->step, steps, t->samples_own,
                      own.loss / own.samples);
        if (add_last_step(t, e) < 0)
            return -1;
        t->recent.asked = t->step;
        if (exchange_begin(t, &own, e) < 0 || write_due_checkpoint(t, e) < 0)
            return -1;
        report_progress(t);
    }
    return t->stop ? 0 : add_last_step(t, e);
}

/* Each rank evaluates its part of the test set. */
static int trainer_finish_pass(struct trainer *t, struct err *e)
{
    double samples_per_s = report_samples_per_s(t), seconds;
    const struct score *pass = &t->score, *test = &t->all.score;
    crun_ddp_stats now, before = t->stats_before;
    struct score own = { 0 };

    crun_progress(t->world, CRUN_PHASE_EVALUATING, t->step, 0, t->samples_own, NAN);
    if (step_evaluate(t, &own, e) < 0 || exchange_begin(t, &own, e) < 0 ||
        exchange_end(t, e) < 0)
        return -1;
    seconds = (double)(clock_ms() - t->pass_began_ms + 1) / 1000;
    report_line(t, "pass %-3" PRIu64 " loss %.4f   test accuracy %.2f%%   %.1f s",
                t->pass + 1, pass->loss / pass->samples,
                100 * test->right / test->samples, seconds);
    crun_ddp_get_stats(t->ddp, &now);
    if (report_metrics(
            t, e,
            "{\"pass\":%" PRIu64 ",\"step\":%" PRIu64 ",\"train_loss\":%.6f,"
            "\"train_accuracy\":%.6f,\"test_loss\":%.6f,\"test_accuracy\":%.6f,"
            "\"samples_per_s\":%.1f,\"seconds\":%.3f,\"communication_s\":%.6f,"
            "\"exposed_s\":%.6f,\"skew_s\":%.6f,\"ranks\":%d,\"restarts\":%d,"
            "\"backend\":\"%s\"}\n",
            t->pass + 1, t->step, pass->loss / pass->samples,
            pass->right / pass->samples, test->loss / test->samples,
            test->right / test->samples, samples_per_s, seconds,
            now.communication_s - before.communication_s,
            now.exposed_s - before.exposed_s, now.skew_s - before.skew_s,
            crun_size(t->world), crun_restarts(t->world), crun_backend(t->world)) < 0)
        return -1;
    t->pass++;
    t->score = (struct score){ 0 };
    crun_sampler_set_pass(t->sampler, t->pass);
    return t->checkpoints ? checkpoints_write(t, false, false, e) : 0;
}

/* Reports the SHA-256 of all parameters in their order. */
static int trainer_finish(struct trainer *t, struct err *e)
{
    uint8_t digest[SHA256_BYTES];
    char text[2 * SHA256_BYTES + 1];
    struct sha256 h;

    if (t->checkpoints && trainer_check(t, crun_checkpoint_wait(t->checkpoints), e) < 0)
        return -1;
    sha256_init(&h);
    for (unsigned i = 0; i < t->net.parameters; i++) {
        size_t bytes = t->net.parameter[i].count * sizeof(float);

        if (t->compute->copy(t->values, crun_ddp_value(t->ddp, (int)i), bytes, e) < 0)
            return -1;
        sha256_add(&h, t->values, bytes);
    }
    sha256_finish(&h, digest);
    for (unsigned i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    report_line(t, "parameters sha256 %s", text);
    crun_progress(t->world, CRUN_PHASE_DONE, t->step, t->step, t->samples_own, NAN);
    return report_metrics(t, e, "{\"step\":%" PRIu64 ",\"parameters_sha256\":\"%s\"}\n",
                          t->step, text);
}

int trainer_run(struct trainer *t, struct err *e)
{
    int rc = 0;

    while (rc == 0 && !t->stop && t->pass < (uint64_t)t->flags->passes) {
        rc = trainer_run_pass(t, e);
        if (rc == 0 && !t->stop)
            rc = trainer_finish_pass(t, e);
    }
    if (rc == 0 && t->stop) /* perhaps another rank received the signal */
        return trainer_signal() ? trainer_signal() : SIGTERM;
    if (rc == 0)
        rc = trainer_finish(t, e);
    if (rc < 0 && crun_exit_code()) /* the library knows why the GPU hangs */
        (void)!trainer_check(t, crun_barrier(t->world, NULL), e);
    return rc;
}
