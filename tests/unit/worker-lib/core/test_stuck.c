/* SPDX-License-Identifier: MIT */
/* takes: 10 s */
/* A process that hangs in a foreign library ends by itself. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"
#include "worker-lib/core/stuck.h"
#include "worker-lib/crun/worker.h"

#define OWN_EXIT 3

/* The exit code of a stuck process, whose program would end it after own_ms. */
static int exit_of_stuck(const char *variable, unsigned own_ms)
{
    int status = 0;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (variable)
            setenv("CRUN_STUCK_EXIT", variable, 1);
        else
            unsetenv("CRUN_STUCK_EXIT");
        if (crun_exit_code() != 0)
            _exit(1);
        stuck_set();
        stuck_set();
        if (crun_exit_code() != CRUN_EXIT_STUCK)
            _exit(2);
        usleep(own_ms * 1000);
        _exit(OWN_EXIT);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(a_stuck_process_ends_in_time)
{
    ck_assert_int_eq(exit_of_stuck("0.05", 60000), CRUN_EXIT_STUCK);
    ck_assert_int_eq(exit_of_stuck(NULL, 60000), CRUN_EXIT_STUCK);
    ck_assert_int_eq(exit_of_stuck("soon", 60000), CRUN_EXIT_STUCK);
}

TEST(the_program_has_time_to_end_by_itself)
{
    ck_assert_int_eq(exit_of_stuck("0", 300), OWN_EXIT);
    ck_assert_int_eq(exit_of_stuck("60", 300), OWN_EXIT);
    ck_assert_int_eq(exit_of_stuck(NULL, 300), OWN_EXIT);
}

static void *open_library(void *path)
{
    return dlopen(path, RTLD_NOW);
}

/* The loader's lock is held meanwhile, and starting a thread waits for it. */
TEST(a_library_whose_loading_hangs_keeps_no_process)
{
    char folder[] = "/tmp/test-stuck-XXXXXX", path[64];
    pthread_t thread;
    int status = 0;
    pid_t pid;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/library", folder);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        setenv("CRUN_STUCK_EXIT", "0.05", 1);
        stuck_prepare();
        if (pthread_create(&thread, NULL, open_library, path) != 0)
            _exit(1);
        usleep(300000); /* if it is not in dlopen by then, the process ends as well */
        stuck_set();
        usleep(20000000);
        _exit(OWN_EXIT);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    unlink(path);
    rmdir(folder);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), CRUN_EXIT_STUCK);
}
