/* SPDX-License-Identifier: MIT */
/*
 * The trainer: a small net that learns to read digits, on any number of ranks.
 * It uses all of crun/worker.h, on CPUs and GPUs, and measures it.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker-lib/train/stop_signals.h"
#include "worker-lib/train/trainer.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define LAUNCHER_MS 1000 /* for a launcher to end us after another rank failed */

/* Which of this node's ranks we are, before there is a world; as far as one can tell.
 */
static int local_rank(void)
{
    static const char *const names[] = { "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "MPI_LOCALRANKID", "SLURM_LOCALID" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return 0;
}

/* All ranks make the same mistake, and one line is enough: the others give the launcher
 * time to end them. */
static int refuse(const struct err *e, int code)
{
    if (local_rank() > 0)
        usleep(LAUNCHER_MS * 1000);
    fprintf(stderr, "train: %s\n", e->text);
    return code;
}

/* Whoever told us to end counts on a checkpoint, and would look for it. */
static void say_why_not_saved(const struct trainer *t, const struct err *e)
{
    fprintf(stderr, "train: rank %d: told to end, ", crun_rank(t->world));
    if (t->checkpoints)
        fprintf(stderr, "and there is no checkpoint of step %" PRIu64 ": ", t->step);
    fprintf(stderr, "%s\n", e->text);
}

/* Another rank's end is known best to the launcher, which then ends this one too. */
static int fail(const struct trainer *t, const struct err *e)
{
    bool of_others = t->status == CRUN_PEER_LOST || t->status == CRUN_ABORTED;
    int number = of_others ? stop_signals_signal_within(LAUNCHER_MS)
                           : stop_signals_signal();

    if (number && of_others) {
        if (stop_signals_gave_up())
            say_why_not_saved(t, e);
        return 128 + number;
    }
    fprintf(stderr, "train: rank %d: %s\n", crun_rank(t->world), e->text);
    return EXIT_FAILED;
}

static int run(const struct flags *f)
{
    struct trainer t = { 0 };
    struct err e;
    int rc = trainer_open(&t, f, &e), code;

    if (rc < 0 && !t.world) {
        code = refuse(&e, EXIT_FAILED);
    } else {
        if (rc == 0)
            rc = trainer_run(&t, &e);
        code = rc < 0 ? fail(&t, &e) : rc > 0 ? 128 + rc : EXIT_SUCCESS;
    }
    trainer_close(&t);
    if (crun_exit_code()) { /* the GPU hangs, and exit() would wait for it */
        fflush(stdout);
        _exit(crun_exit_code());
    }
    return code;
}

int main(int argc, char **argv)
{
    struct flags f;
    struct err e;

    if (flags_parse(&f, argc, argv, &e) < 0)
        return refuse(&e, EXIT_USAGE);
    if (f.help) {
        flags_print_help(stdout);
        return EXIT_SUCCESS;
    }
    if (f.version) {
        printf("train %s\n", crun_version());
        return EXIT_SUCCESS;
    }
    signal(SIGPIPE, SIG_IGN);
    return run(&f);
}
