/* SPDX-License-Identifier: MIT */
/*
 * The trainer: a small net that learns to read digits, on any number of ranks.
 * It uses all of crun/worker.h, on CPUs and GPUs, and measures it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "worker-lib/train/stop_signals.h"
#include "worker-lib/train/trainer.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define CLOSING_FACTOR 4 /* of CRUN_TIMEOUT: more than crun_finalize ever takes */
#define CLOSING_MAX 10
#define LAUNCHER_MS 1000 /* in which it ends this rank after another one failed */
#define PAUSES 100

/* All ranks find the same mistake and one line is enough: the others wait for the
 * launcher to end them. */
static int report_refusal(const struct err *e, int code)
{
    const char *rank = getenv("LOCAL_RANK");

    if (rank && atoi(rank) > 0)
        usleep(LAUNCHER_MS * 1000);
    fprintf(stderr, "train: %s\n", e->text);
    return code;
}

/* If another rank is lost, the launcher knows the reason best, and ends this rank
 * too. Of checkpoints that a newer start writes, one line is enough. */
static int report_failure(const struct trainer *t, const struct err *e)
{
    bool is_stale = t->status == CRUN_STALE,
         of_others = t->status == CRUN_PEER_LOST || t->status == CRUN_ABORTED ||
                     (is_stale && crun_rank(t->world) > 0);
    int number;

    for (int i = 0; of_others && i < PAUSES && !stop_signals_received(); i++)
        usleep(LAUNCHER_MS * 1000 / PAUSES);
    number = of_others ? stop_signals_received() : 0;
    if (number)
        return 128 + number;
    fprintf(stderr, "train: rank %d: %s\n", crun_rank(t->world), e->text);
    return is_stale ? CRUN_EXIT_FINAL : EXIT_FAILED;
}

/* exit(), and the calls that free memory of the GPU, would wait for it. */
static void exit_if_stuck(void)
{
    if (!crun_exit_code())
        return;
    fflush(stdout);
    _exit(crun_exit_code());
}

static char closing_text[160];

static void on_closing_limit(int number)
{
    (void)!write(STDERR_FILENO, closing_text, strlen(closing_text));
    _exit(CRUN_EXIT_STUCK);
}

/* At the end of crun_finalize the library stops watching for calls that hang, and the
 * launcher would wait for this rank. */
static void close_in_time(struct trainer *t)
{
    const char *timeout = getenv("CRUN_TIMEOUT"),
               *gpu = t->world && t->compute ? t->compute->gpu : NULL;
    double limit = timeout ? (double)clock_parse_duration(timeout) / 1000 : 0;
    int rank = t->world ? crun_rank(t->world) : 0;

    if (gpu) {
        snprintf(closing_text, sizeof(closing_text),
                 "train: rank %d: the memory of %s could not be freed\n", rank, gpu);
        signal(SIGALRM, on_closing_limit);
        alarm(CLOSING_FACTOR *
              (unsigned)(limit > 0 && limit < CLOSING_MAX ? limit + 1 : CLOSING_MAX));
    }
    trainer_close(t);
    alarm(0);
    if (crun_exit_code())
        fprintf(stderr, "train: rank %d: NCCL could not be closed: %s hangs\n", rank,
                gpu ? gpu : "the GPU");
}

static int train_with_flags(const struct train_flags *f)
{
    static struct trainer t;
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
