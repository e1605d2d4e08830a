/* SPDX-License-Identifier: MIT */
/*
 * The smallest agent there can be: a guard and N workers, started anew whenever one of
 * them ends. For tests that kill it.
 *
 *   guard-driver N program [arg...]
 *
 * Its first line is "guard PID CONTAINMENT", then "started RANK PID", "exited RANK PID
 * STATUS", "empty", "died WHY".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/guard/guard.h"
#include "agent/guard/orphan_reaper.h"
#include "rendezvous/common/base/loop.h"

static struct {
    struct loop *loop;
    struct guard *guard;
    struct guard_spawn spawn;
    uint32_t workers;
    bool stopping;
} driver;

static void start_group(void)
{
    struct err e;

    driver.stopping = false;
    for (uint32_t i = 0; i < driver.workers; i++) {
        driver.spawn.local_rank = i;
        if (guard_spawn(driver.guard, &driver.spawn, &e) < 0) {
            fprintf(stderr, "guard-driver: %s\n", e.text);
            exit(EXIT_FAILURE);
        }
    }
}

static void on_started(void *arg, uint32_t local_rank, pid_t pid)
{
    printf("started %u %d\n", local_rank, (int)pid);
}

static void on_exec_failed(void *arg, uint32_t local_rank, int errnum, const char *what)
{
    printf("failed %u %s: %s\n", local_rank, what, strerror(errnum));
}

static void on_exited(void *arg, const struct guard_exit *worker)
{
    printf("exited %u %d %d\n", worker->local_rank, (int)worker->pid, worker->status);
    if (!driver.stopping) {
        driver.stopping = true;
        guard_kill(driver.guard);
    }
}

static void on_leftover(void *arg, pid_t session, const char *name)
{
    printf("leftover %d %s\n", (int)session, name);
}

static void on_empty(void *arg)
{
    printf("empty\n");
    start_group();
}

static void on_died(void *arg, const char *why)
{
    printf("died %s\n", why);
    exit(3);
}

int main(int argc, char **argv)
{
    const struct guard_calls calls = {
        .workers = { .started = on_started,
                     .exec_failed = on_exec_failed,
                     .exited = on_exited,
                     .leftover = on_leftover,
                     .empty = on_empty },
        .died = on_died,
    };
    struct err e;

    orphan_reaper_main_if_asked(argc, argv);
    if (argc < 3)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    driver.workers = (uint32_t)atoi(argv[1]);
    driver.spawn = (struct guard_spawn){ .argv = (const char *const *)argv + 2,
                                         .env = (const char *const *)environ,
                                         .fd = { 0, 1, 2 },
                                         .numa_node = -1 };
    driver.loop = loop_create();
    driver.guard = guard_start(driver.loop, &calls, driver.workers, &e);
    if (!driver.guard) {
        fprintf(stderr, "guard-driver: %s\n", e.text);
        return EXIT_FAILURE;
    }
    printf("guard %d %s\n", (int)guard_pid(driver.guard),
           guard_containment(driver.guard));
    start_group();
    loop_run(driver.loop);
    guard_stop(driver.guard);
    loop_destroy(driver.loop);
    return EXIT_SUCCESS;
}
