/* SPDX-License-Identifier: MIT */
/*
 * The trainer: a small net that learns to read digits, on any number of ranks.
 * It uses all of crun/worker.h, on CPUs and GPUs, and measures it.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/thread.h"
#include "worker-lib/train/stop_signals.h"
#include "worker-lib/train/trainer.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define CLOSING_SECONDS 4 /* times CRUN_TIMEOUT, at most CLOSING_MAX */
#define CLOSING_MAX 10
#define LAUNCHER_MS                                                                    \
    1000 /* time for the launcher to end this rank after another one failed */

/* This rank's number on its node, before there is a world; 0 if it is unknown. */
static int local_rank_of_environment(void)
{
    static const char *const names[] = { "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "MPI_LOCALRANKID", "SLURM_LOCALID" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return 0;
}

/* All ranks find the same mistake and one line is enough: the others wait for the
 * launcher to end them. */
static int report_refusal(const struct err *e, int code)
{
    if (local_rank_of_environment() > 0)
        usleep(LAUNCHER_MS * 1000);
    fprintf(stderr, "train: %s\n", e->text);
    return code;
}

/* The sender of SIGTERM expects a checkpoint. */
static void print_missing_checkpoint(const struct trainer *t, const struct err *e)
{
    fprintf(stderr, "train: rank %d: told to end, ", crun_rank(t->world));
    if (t->checkpoints)
        fprintf(stderr, "and there is no checkpoint of step %" PRIu64 ": ", t->step);
    fprintf(stderr, "%s\n", e->text);
}

/* If another rank is lost, the launcher knows the reason best, and ends this rank
 * too. */
static int report_failure(const struct trainer *t, const struct err *e)
{
    bool of_others = t->status == CRUN_PEER_LOST || t->status == CRUN_ABORTED;
    int number = of_others ? stop_signals_wait(LAUNCHER_MS) : stop_signals_received();

    if (number && of_others) {
        if (stop_signals_gave_up())
            print_missing_checkpoint(t, e);
        return 128 + number;
    }
    fprintf(stderr, "train: rank %d: %s\n", crun_rank(t->world), e->text);
    return EXIT_FAILED;
}

/* exit(), and the calls that free memory of the GPU, would wait for it. */
static void exit_if_stuck(void)
{
    if (!crun_exit_code())
        return;
    fflush(stdout);
    _exit(crun_exit_code());
}

/* More than the longest time that crun_finalize takes. */
static unsigned closing_seconds(void)
{
    const char *text = getenv("CRUN_TIMEOUT");
    double timeout = text ? (double)clock_parse_duration(text) / 1000 : 0;

    return CLOSING_SECONDS *
           (unsigned)(timeout > 0 && timeout < CLOSING_MAX ? timeout + 1 : CLOSING_MAX);
}

static void *end_hanging_close(void *arg)
{
    unsigned seconds = closing_seconds();

    for (unsigned left = seconds; left > 0;)
        left = sleep(left);
    fprintf(stderr, "train: rank %d: the memory of %s could not be freed in %u s\n",
            *(const int *)arg, gpu_trainer_device_name(), seconds);
    _exit(CRUN_EXIT_STUCK);
    return NULL;
}

/* At the end of crun_finalize the library stops watching for calls that hang, and the
 * launcher would wait for this rank. */
static void close_in_time(struct trainer *t)
{
    static int rank;
    pthread_t thread;

    if (t->world)
        rank = crun_rank(t->world);
    if (t->world && t->gpu && thread_start(&thread, end_hanging_close, &rank) == 0)
        pthread_detach(thread);
    trainer_close(t);
    if (crun_exit_code())
        fprintf(stderr, "train: rank %d: NCCL could not be closed: %s hangs\n", rank,
                gpu_trainer_device_name());
}

static int train_with_flags(const struct train_flags *f)
{
    struct trainer t = { 0 };
    struct err e;
    int rc = trainer_open(&t, f, &e), code;

    if (rc < 0 && !t.world) {
        code = report_refusal(&e, EXIT_FAILED);
    } else {
        if (rc == 0)
            rc = trainer_run(&t, &e);
        code = rc < 0 ? report_failure(&t, &e) : rc > 0 ? 128 + rc : EXIT_SUCCESS;
    }
    exit_if_stuck();
    close_in_time(&t);
    exit_if_stuck();
    return code;
}

int main(int argc, char **argv)
{
    struct train_flags f;
    struct err e;

    if (train_flags_parse(&f, argc, argv, &e) < 0)
        return report_refusal(&e, EXIT_USAGE);
    if (f.help) {
        train_flags_print_help(stdout);
        return EXIT_SUCCESS;
    }
    if (f.version) {
        printf("train %s\n", crun_version());
        return EXIT_SUCCESS;
    }
    signal(SIGPIPE, SIG_IGN);
    return train_with_flags(&f);
}
