/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/security/sha256.h"
#include "worker-lib/train/metrics.h"
#include "worker-lib/train/stop_signals.h"

/* The actions that all ranks have agreed on after this step. */
struct agreed {
    bool checkpoint, stop;
};

static double seconds_since(uint64_t ms)
{
    return (double)(clock_ms() - ms + 1) / 1000;
}

static double samples_per_second(const struct trainer *t)
{
    return t->samples_here / seconds_since(t->pass_began_ms);
}

/* Those that are done, by whatever number of ranks, and what is left for this one. */
static uint64_t count_all_steps(const struct trainer *t)
{
    uint64_t step = (uint64_t)t->flags->batch;
    uint64_t size = (uint64_t)crun_size(t->world);
    uint64_t share = (data_count(t->train) + size - 1) / size;
    uint64_t passes = (uint64_t)t->flags->passes - t->pass - 1;

    return t->step + (crun_sampler_left(t->sampler) + step - 1) / step +
           (share + step - 1) / step * passes;
}

static void show_progress(struct trainer *t)
{
    double samples = (double)data_count(t->train), seen = t->score.samples;
    double left = ((double)t->flags->passes - (double)t->pass) * samples - seen;
    struct pass_progress p = { .pass = t->pass + 1,
                               .passes = (uint64_t)t->flags->passes,
                               .part = fmin(seen / samples, 1),
                               .loss = t->score.loss / seen,
                               .accuracy = t->score.right / seen,
                               .samples_per_s = samples_per_second(t),
                               .left_s = left / samples_per_second(t) };

    if (seen > 0 && t->samples_here > 0)
        progress_bar_update(&p);
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
    if (crun_rank(t->world) != 0)
        return 0;
    return metrics_append(
        t->flags->metrics, e,
        "{\"after\":%" PRIu64 ",\"step\":%" PRIu64
        ",\"train_loss\":%.6f,\"restarts\":%d,\"time_ms\":%" PRIu64 "}\n",
        after, t->recent.after, loss, crun_restarts(t->world), clock_wall_ms());
}

static void score_add(struct score *sum, const double *of)
{
    sum->loss += of[SUM_LOSS];
    sum->right += of[SUM_RIGHT];
    sum->samples += of[SUM_SAMPLES];
}

static int consensus_begin(struct trainer *t, const struct score *own, struct err *e)
{
    struct consensus *v = &t->consensus;

    v->own[SUM_LOSS] = own->loss;
    v->own[SUM_RIGHT] = own->right;
    v->own[SUM_SAMPLES] = own->samples;
    v->own[SUM_CHECKPOINT] = t->checkpoints && crun_checkpoint_wanted(t->world, NULL);
    v->own[SUM_STOP] = stop_signals_received() != 0;
    return trainer_check(
        t,
        crun_all_reduce(t->world, v->own, v->sum, SUMS, CRUN_F64, CRUN_SUM, &v->work),
        e);
}

/* Returns 1 if there is a sum in v->sum, 0 if no exchange was begun. */
static int consensus_end(struct trainer *t, struct err *e)
{
    crun_work *work = t->consensus.work;

    t->consensus.work = NULL;
    if (!work)
        return 0;
    return trainer_check(t, crun_wait(work), e) < 0 ? -1 : 1;
}

/* Adds the result of the last exchange to the pass. */
static int add_last_step(struct trainer *t, struct agreed *agreed, struct err *e)
{
    const double *sum = t->consensus.sum;
    int rc = consensus_end(t, e);

    if (rc <= 0)
        return rc;
    score_add(&t->score, sum);
    score_add(&t->recent.score, sum);
    t->samples_here += sum[SUM_SAMPLES];
    agreed->checkpoint |= sum[SUM_CHECKPOINT] > 0;
    agreed->stop |= sum[SUM_STOP] > 0;
    if (!isfinite(t->score.loss))
        return err_set(e,
                       "the loss is not a number after step %" PRIu64
                       "; a smaller --lr may help (it is %g)",
                       t->step, (double)t->flags->lr);
    return append_recent(t, e);
}

/* Ends the exchange about the last step and begins the one about this step. */
static int exchange_step(struct trainer *t, const struct score *own,
                         struct agreed *agreed, struct err *e)
{
    if (add_last_step(t, agreed, e) < 0)
        return -1;
    t->recent.asked = t->step;
    return consensus_begin(t, own, e);
}

static bool step_is_multiple(const struct trainer *t, long long every)
{
    return every && t->step % (uint64_t)every == 0;
}

/* After a step: writes checkpoints if they are agreed or due. Returns 1 to stop. */
static int write_due_checkpoint(struct trainer *t, struct agreed *agreed, struct err *e)
{
    bool remember = step_is_multiple(t, t->flags->memory_every);
    bool write = step_is_multiple(t, t->flags->checkpoint_every);
    bool now;

    /* the saved score includes all steps */
    if ((remember || write || agreed->checkpoint || agreed->stop) &&
        add_last_step(t, agreed, e) < 0)
        return -1;
    if (remember && checkpoints_remember(t, e) < 0)
        return -1;
    if (!agreed->checkpoint && !agreed->stop && !write)
        return 0;
    now = agreed->checkpoint || agreed->stop;
    if (t->checkpoints && checkpoints_write(t, now, e) < 0)
        return -1;
    if (t->checkpoints && now) {
        crun_checkpoint_done(t->world);
        progress_bar_print_line("train: checkpoint of step %" PRIu64 " is written",
                                t->step);
    }
    return agreed->stop;
}

/* The remaining steps of a pass. Returns 1 to stop. */
static int trainer_run_pass(struct trainer *t, struct err *e)
{
    size_t most = (size_t)t->flags->batch, count;
    uint64_t steps = count_all_steps(t);
    struct agreed agreed = { 0 };
    int rc = 0;

    t->pass_began_ms = clock_ms();
    crun_ddp_get_stats(t->ddp, &t->stats_before);
    t->samples_here = 0;
    while (rc == 0 && (count = crun_sampler_next(t->sampler, t->sample, most)) > 0) {
        struct score own = { 0 };

        if (step_run(t, count, &own, e) < 0)
            return -1;
        t->step++;
        crun_progress(t->world, CRUN_PHASE_TRAINING, t->step, steps, t->samples_own,
                      own.loss / own.samples);
        if (exchange_step(t, &own, &agreed, e) < 0)
            return -1;
        rc = write_due_checkpoint(t, &agreed, e);
        agreed = (struct agreed){ 0 };
        show_progress(t);
    }
    if (rc == 0 && add_last_step(t, &agreed, e) < 0)
        return -1;
    return rc;
}

static int append_pass(struct trainer *t, const struct score *test,
                       double samples_per_s, double seconds, struct err *e)
{
    const crun_ddp_stats *before = &t->stats_before;
    crun_ddp_stats now;

    if (!t->flags->metrics || crun_rank(t->world) != 0)
        return 0;
    crun_ddp_get_stats(t->ddp, &now);
    return metrics_append(
        t->flags->metrics, e,
        "{\"pass\":%" PRIu64 ",\"step\":%" PRIu64 ",\"train_loss\":%.6f,"
        "\"train_accuracy\":%.6f,\"test_loss\":%.6f,\"test_accuracy\":%.6f,"
        "\"samples_per_s\":%.1f,\"seconds\":%.3f,\"communication_s\":%.6f,"
        "\"exposed_s\":%.6f,\"skew_s\":%.6f,\"ranks\":%d,\"restarts\":%d,"
        "\"backend\":\"%s\"}\n",
        t->pass + 1, t->step, t->score.loss / t->score.samples,
        t->score.right / t->score.samples, test->loss / test->samples,
        test->right / test->samples, samples_per_s, seconds,
        now.communication_s - before->communication_s,
        now.exposed_s - before->exposed_s, now.skew_s - before->skew_s,
        crun_size(t->world), crun_restarts(t->world), crun_backend(t->world));
}

/* Each rank evaluates its part of the test set. */
static int evaluate_test_set(struct trainer *t, struct score *all, struct err *e)
{
    struct score own = { 0 };

    crun_progress(t->world, CRUN_PHASE_EVALUATING, t->step, 0, t->samples_own, NAN);
    if (step_evaluate(t, &own, e) < 0 || consensus_begin(t, &own, e) < 0 ||
        consensus_end(t, e) < 0)
        return -1;
    *all = (struct score){ 0 };
    score_add(all, t->consensus.sum);
    return 0;
}

static int trainer_finish_pass(struct trainer *t, struct err *e)
{
    double samples_per_s = samples_per_second(t), seconds;
    struct score test;

    if (evaluate_test_set(t, &test, e) < 0)
        return -1;
    seconds = seconds_since(t->pass_began_ms);
    progress_bar_print_line(
        "pass %-3" PRIu64 " loss %.4f   test accuracy %.2f%%   %.1f s", t->pass + 1,
        t->score.loss / t->score.samples, 100 * test.right / test.samples, seconds);
    if (append_pass(t, &test, samples_per_s, seconds, e) < 0)
        return -1;
    t->pass++;
    t->score = (struct score){ 0 };
    crun_sampler_set_pass(t->sampler, t->pass);
    return t->checkpoints ? checkpoints_write(t, false, e) : 0;
}

/* SHA-256 of all parameters in their order, as hexadecimal digits. */
static void digest_parameters(const struct trainer *t, char text[2 * SHA256_BYTES + 1])
{
    uint8_t digest[SHA256_BYTES];
    struct sha256 h;

    sha256_init(&h);
    sha256_add(&h, t->values, t->net.parameter_count * sizeof(*t->values));
    sha256_finish(&h, digest);
    for (unsigned i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

static int trainer_finish(struct trainer *t, struct err *e)
{
    char digest[2 * SHA256_BYTES + 1];

    if (t->checkpoints && trainer_check(t, crun_checkpoint_wait(t->checkpoints), e) < 0)
        return -1;
    if (trainer_fetch_values(t, e) < 0)
        return -1;
    digest_parameters(t, digest);
    progress_bar_print_line("parameters sha256 %s", digest);
    if (t->flags->metrics && crun_rank(t->world) == 0 &&
        metrics_append(t->flags->metrics, e,
                       "{\"step\":%" PRIu64 ",\"parameters_sha256\":\"%s\"}\n", t->step,
                       digest) < 0)
        return -1;
    crun_progress(t->world, CRUN_PHASE_DONE, t->step, t->step, t->samples_own, NAN);
    return 0;
}

static int trainer_run_passes(struct trainer *t, struct err *e)
{
    while (t->pass < (uint64_t)t->flags->passes) {
        int rc = trainer_run_pass(t, e);

        if (rc < 0)
            return -1;
        if (rc > 0) /* perhaps another rank received the signal */
            return stop_signals_received() ? stop_signals_received() : SIGTERM;
        if (trainer_finish_pass(t, e) < 0)
            return -1;
    }
    return trainer_finish(t, e);
}

int trainer_run(struct trainer *t, struct err *e)
{
    int rc = trainer_run_passes(t, e);

    if (rc < 0 && crun_exit_code()) /* the library knows why the GPU hangs */
        (void)!trainer_check(t, crun_barrier(t->world, NULL), e);
    return rc;
}
