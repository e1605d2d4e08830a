/* SPDX-License-Identifier: MIT */
/*
 * The trainer: a small net that learns to read digits, on any number of ranks.
 * It uses all of crun/worker.h, on CPUs and GPUs, and measures it.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
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

    for (int i = 0; of_others && i < PAUSES && !trainer_signal(); i++)
        usleep(LAUNCHER_MS * 1000 / PAUSES);
    if (of_others && trainer_signal())
        return 128 + trainer_signal();
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
    const char *timeout = getenv("CRUN_TIMEOUT"), *gpu = NULL;
    long long ms = timeout ? clock_parse_duration(timeout) : 0,
              most = CLOSING_MAX * 1000;
    int rank = t->world ? crun_rank(t->world) : 0;

    if (t->world && t->compute)
        gpu = t->compute->gpu;
    if (gpu) {
        snprintf(closing_text, sizeof(closing_text),
                 "train: rank %d: the memory of %s could not be freed\n", rank, gpu);
        signal(SIGALRM, on_closing_limit);
        alarm(CLOSING_FACTOR *
              (unsigned)((ms > 0 && ms < most ? ms + 999 : most) / 1000));
    }
    trainer_close(t);
    alarm(0);
    if (crun_exit_code())
        fprintf(stderr, "train: rank %d: NCCL could not be closed: %s hangs\n", rank,
                gpu ? gpu : "the GPU");
}

int main(int argc, char **argv)
{
    static struct trainer t;
    struct train_flags f;
    struct err e;
    int rc;

    if (train_flags_parse(&f, argc, argv, &e) < 0)
        return report_refusal(&e, EXIT_USAGE);
    if (f.help || f.version) {
        f.help ? train_flags_print_help(stdout)
               : (void)printf("train %s\n", crun_version());
        return EXIT_SUCCESS;
    }
    signal(SIGPIPE, SIG_IGN);
    rc = trainer_open(&t, &f, &e);
    if (rc == 0)
        rc = trainer_run(&t, &e);
    rc = rc == 0    ? EXIT_SUCCESS
         : rc > 0   ? 128 + rc
         : !t.world ? report_refusal(&e, EXIT_FAILED)
                    : report_failure(&t, &e);
    exit_if_stuck();
    close_in_time(&t);
    exit_if_stuck();
    return rc;
}
