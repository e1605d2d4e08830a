/* SPDX-License-Identifier: MIT */
#include "rendezvous/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/base/xalloc.h"
#include "tests/worlds/check_main.h"

#define MORE_THAN_A_PIPE_HOLDS (4u << 20)

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static bool is_dev_null(int fd)
{
    struct stat null, st;

    return stat("/dev/null", &null) == 0 && fstat(fd, &st) == 0 &&
           st.st_rdev == null.st_rdev;
}

/* In a child: the descriptors of the test itself stay. */
START_TEST(standard_descriptors_that_are_closed_become_dev_null)
{
    int status, next = dup(STDERR_FILENO);
    pid_t pid;

    close(next);
    pid = fork();
    if (pid == 0) {
        close(STDIN_FILENO);
        close(STDERR_FILENO);
        fd_keep_std();
        _exit(is_dev_null(STDIN_FILENO) && is_dev_null(STDERR_FILENO) && !is_open(next)
                  ? 0
                  : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(all_descriptors_from_one_on_are_closed)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        bool closed = dup2(STDERR_FILENO, 20) == 20 && dup2(STDERR_FILENO, 21) == 21 &&
                      dup2(STDERR_FILENO, 300) == 300;

        fd_close_from(21);
        _exit(closed && is_open(20) && !is_open(21) && !is_open(300) ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* A reader that counts. Its exit status is 0 if so many bytes came. */
static pid_t start_reader(int fd, int writing_end, size_t expected)
{
    char buf[65536];
    ssize_t n;
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    close(writing_end);
    while ((n = read(fd, buf, sizeof(buf))) > 0)
        expected -= (size_t)n;
    _exit(expected == 0 ? 0 : 1);
}

START_TEST(all_is_written_to_a_pipe_that_does_not_block_too)
{
    size_t size = MORE_THAN_A_PIPE_HOLDS;
    char *data = xcalloc(1, size);
    int pipe_fd[2], status;
    pid_t pid;

    ck_assert_int_eq(pipe2(pipe_fd, _i ? O_NONBLOCK : 0), 0);
    fcntl(pipe_fd[0], F_SETFL, 0);
    pid = start_reader(pipe_fd[0], pipe_fd[1], size);
    ck_assert_int_eq(fd_write_all(pipe_fd[1], data, &size), 0);
    ck_assert_uint_eq(size, 0);
    close(pipe_fd[1]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    close(pipe_fd[0]);
    free(data);
}
END_TEST

START_TEST(what_could_not_be_written_is_told)
{
    struct rlimit limit = { .rlim_cur = 10, .rlim_max = RLIM_INFINITY };
    int fd = memfd_create("full", MFD_CLOEXEC);
    size_t size = 16;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(fd_write_all(fd, "0123456789abcdef", &size), EFBIG);
    ck_assert_uint_eq(size, 6);
    ck_assert_int_eq(fd_write_all(-1, "x", &size), EBADF);
    close(fd);
}
END_TEST

/* As from a pipe: in two pieces. */
START_TEST(all_is_read_up_to_the_end)
{
    int pipe_fd[2], status;
    char text[32];
    pid_t pid;

    ck_assert_int_eq(pipe(pipe_fd), 0);
    pid = fork();
    if (pid == 0) {
        ck_assert_int_eq(write(pipe_fd[1], "one ", 4), 4);
        ck_assert_int_eq(write(pipe_fd[1], "two", 3), 3);
        _exit(0);
    }
    close(pipe_fd[1]);
    ck_assert_int_eq(fd_read_all(pipe_fd[0], text, sizeof(text)), 7);
    ck_assert_str_eq(text, "one two");
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    close(pipe_fd[0]);
}
END_TEST

START_TEST(a_file_is_read_by_its_name_and_cut_where_the_room_ends)
{
    char dir[] = "/tmp/test-fd-XXXXXX", text[5] = "full";
    int at, fd;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fd = openat(at, "name", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, "123456", 6), 6);
    close(fd);
    ck_assert_int_eq(fd_read_file(at, "name", text, sizeof(text)), 4);
    ck_assert_str_eq(text, "1234");
    ck_assert_int_eq(fd_read_file(at, "other", text, sizeof(text)), -1);
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_str_eq(text, "");
    ck_assert_int_eq(fd_read_file(AT_FDCWD, dir, text, sizeof(text)), -1);
    ck_assert_int_eq(errno, EISDIR);
    unlinkat(at, "name", 0);
    close(at);
    rmdir(dir);
}
END_TEST

static int create_and_close(const char *path)
{
    int fd = fd_create_file(path, O_TRUNC, 0600);

    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : 0;
}

START_TEST(a_link_of_another_user_is_not_written_through)
{
    char dir[] = "/tmp/test-fd-XXXXXX", file[64], link[64];

    if (geteuid() != 0)
        return;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/file", dir);
    snprintf(link, sizeof(link), "%s/link", dir);
    ck_assert_int_eq(create_and_close(file), 0);
    ck_assert_int_eq(symlink(file, link), 0);
    ck_assert_int_eq(create_and_close(link), 0); /* it is ours */
    ck_assert_int_eq(lchown(link, 65534, 65534), 0);
    ck_assert_int_eq(create_and_close(link), -1);
    ck_assert_int_eq(errno, ELOOP);
    ck_assert_int_eq(create_and_close("/dev/stderr"), 0); /* root's */
    unlink(file);
    unlink(link);
    rmdir(dir);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fd");
    TCase *tc = tcase_create("fd");

    tcase_add_test(tc, standard_descriptors_that_are_closed_become_dev_null);
    tcase_add_test(tc, all_descriptors_from_one_on_are_closed);
    tcase_add_loop_test(tc, all_is_written_to_a_pipe_that_does_not_block_too, 0, 2);
    tcase_add_test(tc, what_could_not_be_written_is_told);
    tcase_add_test(tc, all_is_read_up_to_the_end);
    tcase_add_test(tc, a_file_is_read_by_its_name_and_cut_where_the_room_ends);
    tcase_add_test(tc, a_link_of_another_user_is_not_written_through);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
