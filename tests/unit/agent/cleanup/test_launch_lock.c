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
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/cleanup/run_tmpdir.h"
#include "tests/worlds/check_main.h"

static char tag[RUN_TMPDIR_TAG_LEN + 1], folder[32], path[64];

static bool alone; /* no other process sees our /dev/shm */

/* Of a launch that is not this process's. */
static void other_launch(void)
{
    /* lest a crun of another test does what is looked at here; root can have it */
    if (unshare(CLONE_NEWNS) == 0 &&
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        alone = mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL) == 0;
    run_tmpdir_random(tag, RUN_TMPDIR_TAG_LEN);
    snprintf(folder, sizeof(folder), "/dev/shm/crun-%u", (unsigned)geteuid());
    snprintf(path, sizeof(path), "%s/%s", folder, tag);
    (void)mkdir(folder, 0700);
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

FIXTURE(other_launch, remove_it);

TEST(it_is_there_locked_and_made_once)
{
    const char *own = run_tmpdir_tag();
    int fd = launch_lock_make(own), other;

    memcpy(tag, own, sizeof(tag));
    snprintf(path, sizeof(path), "%s/%s", folder, tag);
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

TEST(a_process_of_a_dead_launch_is_ended)
{
    int fd = make_file();
    pid_t pid = start_carrier();

    close(fd);
    ck_assert_int_ge(launch_lock_make(run_tmpdir_tag()), 0);
    ck_assert(was_killed(pid));
    ck_assert(!is_there());
    launch_lock_remove(run_tmpdir_tag());
}

TEST(a_process_of_a_live_launch_is_not)
{
    int fd = make_file();
    pid_t pid = start_carrier();

    ck_assert_int_ge(launch_lock_make(run_tmpdir_tag()), 0);
    ck_assert(!was_killed(pid));
    ck_assert(is_there());
    close(fd);
    launch_lock_remove(run_tmpdir_tag());
}

TEST(a_name_without_a_file_of_ours_says_nothing)
{
    pid_t pid = start_carrier();

    ck_assert_int_eq(symlink("/dev/null", path), 0);
    ck_assert_int_ge(launch_lock_make(run_tmpdir_tag()), 0);
    ck_assert(!was_killed(pid));
    ck_assert(is_there());
    launch_lock_remove(run_tmpdir_tag());
}

TEST(no_agent_ends_the_processes_around_it)
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

/* The path of its folder below `tmp`, which becomes the TMPDIR. */
static void format_tmpdir(char text[96], char tmp[32], const char *its_tag)
{
    snprintf(tmp, 32, "/tmp/test_launch_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(tmp));
    setenv("TMPDIR", tmp, 1);
    snprintf(text, 96, "%s/crun_%s", tmp, its_tag);
}

/* A launch in a child that is killed when it has made its lock and its folder: there
 * are no other processes of it. */
static void launch_and_die(void)
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        launch_lock_make_with_tmpdir();
        raise(SIGKILL);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(WTERMSIG(status), SIGKILL);
}

TEST_LOOP(the_folder_of_a_killed_launch_is_removed, 0, 2)
{
    char logs[96], tmp[32];

    memcpy(tag, run_tmpdir_tag(), sizeof(tag)); /* the child has the same one */
    snprintf(path, sizeof(path), "%s/%s", folder, tag);
    format_tmpdir(logs, tmp, tag);
    launch_and_die();
    if (alone) { /* otherwise a crun of another test may have removed them */
        ck_assert(is_there());
        ck_assert_int_eq(access(logs, F_OK), 0);
    }
    if (_i == 1)
        setenv("TMPDIR", "/", 1);
    ck_assert_int_ge(launch_lock_make("sweeping"), 0);
    ck_assert_int_ne(access(logs, F_OK), 0);
    ck_assert(!is_there());
    launch_lock_remove("sweeping");
    ck_assert_int_eq(rmdir(tmp), 0);
}

TEST(the_folder_of_a_live_launch_is_not)
{
    char logs[96], tmp[32];
    int fd = make_file();

    format_tmpdir(logs, tmp, tag);
    ck_assert_int_eq(write(fd, tmp, strlen(tmp)), (ssize_t)strlen(tmp));
    ck_assert_int_eq(mkdir(logs, 0700), 0);
    ck_assert_int_ge(launch_lock_make(run_tmpdir_tag()), 0);
    ck_assert_int_eq(access(logs, F_OK), 0);
    launch_lock_remove(run_tmpdir_tag());
    close(fd);
    ck_assert_int_eq(rmdir(logs), 0);
    ck_assert_int_eq(rmdir(tmp), 0);
}

/* Anything that a launch of ours cannot have made there. */
static bool make_foreign_folder(int kind)
{
    rmdir(folder);
    if (kind == 0)
        return symlink("/tmp", folder) == 0;
    if (kind == 1)
        return mkdir(folder, 0700) == 0 && chmod(folder, 0777) == 0;
    return mkdir(folder, 0700) == 0 && chown(folder, 65534, 65534) == 0;
}

/* Killed in between, it would leave a folder that no other launch finds. But where the
 * folder of the locks is another user's, names are shown to all users. */
TEST_LOOP(the_lock_is_there_before_the_folder, 0, 2)
{
    _Alignas(struct inotify_event) char events[8192];
    char logs[96], tmp[32];
    int notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), locks, wd[2], count = 0;
    ssize_t n;

    SKIP_UNLESS(_i != 1 || (alone && make_foreign_folder(2)),
                "only root can mount a file system");
    memcpy(tag, run_tmpdir_tag(), sizeof(tag));
    format_tmpdir(logs, tmp, tag);
    locks = inotify_add_watch(notify, _i == 1 ? "/dev/shm" : folder, IN_CREATE);
    ck_assert_int_ge(locks, 0);
    ck_assert_int_ge(inotify_add_watch(notify, tmp, IN_CREATE), 0);
    launch_lock_make_with_tmpdir();
    n = read(notify, events, sizeof(events));
    for (ssize_t at = 0; at < n && count < 2;) {
        const struct inotify_event *e = (const void *)(events + at);

        if (strstr(e->name, tag)) /* other launches of this user have other tags */
            wd[count++] = e->wd;
        at += (ssize_t)(sizeof(*e) + e->len);
    }
    ck_assert_int_eq(count, 2);
    ck_assert((wd[0] == locks) == (_i == 0));
    ck_assert((wd[1] == locks) == (_i == 1));
    close(notify);
    launch_lock_remove(tag);
    ck_assert_int_eq(rmdir(logs), 0);
    ck_assert_int_eq(rmdir(tmp), 0);
}

TEST_LOOP(a_folder_of_another_user_is_not_used, 0, 3)
{
    int fd;

    SKIP_UNLESS(alone && make_foreign_folder(_i), "only root can mount a file system");
    snprintf(path, sizeof(path), "%s-%s", folder, tag);
    fd = make_file();
    close(fd);
    ck_assert_int_ge(launch_lock_make(run_tmpdir_tag()), 0);
    ck_assert(!is_there()); /* of a dead launch that had the same difficulty */
    snprintf(path, sizeof(path), "%s-%s", folder, run_tmpdir_tag());
    ck_assert(is_there());
    launch_lock_remove(run_tmpdir_tag());
    ck_assert(!is_there());
    (void)(unlink(folder) == 0 || rmdir(folder));
}

static uint64_t cpu_time_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Another user can make as many files as there is memory for. */
TEST_LOOP(names_of_other_users_do_not_slow_a_launch, 0, 2)
{
    enum { FILES = 50000, OTHER_USER = 65534 };
    char name[96];
    uint64_t began;

    SKIP_UNLESS(alone, "only root can mount a file system");
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "%s-%08x", folder, (unsigned)i);
        ck_assert_int_eq(mknod(name, S_IFREG | 0644, 0), 0);
        ck_assert_int_eq(chown(name, OTHER_USER, OTHER_USER), 0);
    }
    if (_i == 1)
        ck_assert(make_foreign_folder(2));
    began = cpu_time_us();
    ck_assert_int_ge(launch_lock_make(run_tmpdir_tag()), 0);
    ck_assert_uint_lt(cpu_time_us() - began, 30000);
    launch_lock_remove(run_tmpdir_tag());
}
