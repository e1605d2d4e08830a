/* SPDX-License-Identifier: MIT */
#include "agent/cleanup/launch_lock.h"

#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cleanup/run_tmpdir.h"
#include "tests/worlds/check_main.h"

static char tag[RUN_TMPDIR_TAG_LEN + 1], path[64];

/* Of a launch that is not this process's. */
static void other_launch(void)
{
    /* lest a crun of another test does what is looked at here; root can have it */
    if (unshare(CLONE_NEWNS) == 0 &&
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        (void)mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL);
    run_tmpdir_random(tag, RUN_TMPDIR_TAG_LEN);
    snprintf(path, sizeof(path), "/dev/shm/crun-%u-%s", (unsigned)geteuid(), tag);
}

static void remove_it(void)
{
    unlink(path);
}

static bool is_there(void)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* Locked, until it is closed. */
static int make_file(void)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
    return fd;
}

/* One that waits to be killed, and carries the tag. */
static pid_t start_carrier(void)
{
    char entry[64];
    char *argv[] = { (char *)"sleep", (char *)"1000", NULL };
    char *env[] = { entry, NULL };
    int begun[2];
    char byte;
    pid_t pid;

    snprintf(entry, sizeof(entry), LAUNCH_LOCK_VARIABLE "=%s", tag);
    ck_assert_int_eq(pipe2(begun, O_CLOEXEC), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        execve("/bin/sleep", argv, env);
        _exit(127);
    }
    close(begun[1]);
    ck_assert_int_eq(read(begun[0], &byte, 1), 0); /* it is executed */
    close(begun[0]);
    return pid;
}

static bool was_killed(pid_t pid)
{
    int status = 0;

    if (waitpid(pid, &status, WNOHANG) == 0) {
        kill(pid, SIGTERM);
        waitpid(pid, &status, 0);
    }
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

START_TEST(it_is_there_locked_and_made_once)
{
    const char *own = run_tmpdir_tag();
    int fd = launch_lock_make(own), other;

    memcpy(tag, own, sizeof(tag));
    snprintf(path, sizeof(path), "/dev/shm/crun-%u-%s", (unsigned)geteuid(), tag);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(launch_lock_make(own), fd);
    other = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(other, 0);
    ck_assert_int_eq(flock(other, LOCK_EX | LOCK_NB), -1);
    close(fd);
    ck_assert_int_eq(flock(other, LOCK_EX | LOCK_NB), 0);
    close(other);
    launch_lock_remove("no tag/at all");
    ck_assert(is_there());
    launch_lock_remove(tag);
    ck_assert(!is_there());
}
END_TEST

START_TEST(a_process_of_a_dead_launch_is_ended)
{
    int fd = make_file();
    pid_t pid = start_carrier();

    close(fd);
    ck_assert_int_ge(launch_lock_make(run_tmpdir_tag()), 0);
    ck_assert(was_killed(pid));
    ck_assert(!is_there());
    launch_lock_remove(run_tmpdir_tag());
}
END_TEST

START_TEST(a_process_of_a_live_launch_is_not)
{
    int fd = make_file();
    pid_t pid = start_carrier();

    ck_assert_int_ge(launch_lock_make(run_tmpdir_tag()), 0);
    ck_assert(!was_killed(pid));
    ck_assert(is_there());
    close(fd);
    launch_lock_remove(run_tmpdir_tag());
}
END_TEST

START_TEST(a_name_without_a_file_of_ours_says_nothing)
{
    pid_t pid = start_carrier();

    ck_assert_int_eq(symlink("/dev/null", path), 0);
    ck_assert_int_ge(launch_lock_make(run_tmpdir_tag()), 0);
    ck_assert(!was_killed(pid));
    ck_assert(is_there());
    launch_lock_remove(run_tmpdir_tag());
}
END_TEST

START_TEST(no_agent_ends_the_processes_around_it)
{
    int fd = make_file();
    pid_t pid = start_carrier();

    close(fd);
    setenv(LAUNCH_LOCK_VARIABLE, tag, 1);
    ck_assert_int_ge(launch_lock_make(run_tmpdir_tag()), 0);
    ck_assert(!was_killed(pid));
    ck_assert(is_there());
    launch_lock_remove(run_tmpdir_tag());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("claim");
    TCase *t = tcase_create("claim");

    tcase_set_timeout(t, 30);
    tcase_add_checked_fixture(t, other_launch, remove_it);
    tcase_add_test(t, it_is_there_locked_and_made_once);
    tcase_add_test(t, a_process_of_a_dead_launch_is_ended);
    tcase_add_test(t, a_process_of_a_live_launch_is_not);
    tcase_add_test(t, a_name_without_a_file_of_ours_says_nothing);
    tcase_add_test(t, no_agent_ends_the_processes_around_it);
    suite_add_tcase(suite, t);
    return check_main(suite);
}
