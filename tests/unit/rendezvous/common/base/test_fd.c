/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"
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
TEST(standard_descriptors_that_are_closed_become_dev_null)
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

TEST(all_descriptors_from_one_on_are_closed)
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

TEST_LOOP(all_is_written_to_a_pipe_that_does_not_block_too, 0, 2)
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

TEST(what_could_not_be_written_is_told)
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

/* As from a pipe: in two pieces. */
TEST(all_is_read_up_to_the_end)
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

TEST(a_file_is_read_by_its_name_and_cut_where_the_room_ends)
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

static int create_and_close(const char *path)
{
    int fd = fd_create_file(path, O_TRUNC, 0600);

    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : 0;
}

TEST(a_link_of_another_user_is_not_written_through)
{
    char dir[] = "/tmp/test-fd-XXXXXX", file[64], link[64];

    SKIP_UNLESS_ROOT();
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

/* -- output ----------------------------------------------------------------- */

#define STRANGER 65534

/* What stands under the name "out". */
enum planted {
    NOTHING,
    FILE_OF_OURS,
    LINK_OF_OURS,
    LINK_TO_NOTHING,
    LINK_TO_LINK,
    LINK_OF_STRANGER,
    OWN_LINK_TO_LINK_OF_STRANGER,
    SECOND_NAME,
    FIFO_OF_STRANGER,
    LOOP
};

static const struct {
    enum planted what;
    int flags, errnum;
    const char *victim, *out; /* afterwards; "word" is written to out */
} outputs[] = {
    { NOTHING, O_TRUNC, 0, "mine", "word" },
    { FILE_OF_OURS, O_TRUNC, 0, "mine", "word" },
    { FILE_OF_OURS, O_APPEND, 0, "mine", "longer word" },
    { LINK_OF_OURS, O_APPEND, 0, "mineword", "mineword" },
    { LINK_OF_OURS, O_TRUNC, 0, "word", "word" },
    { LINK_TO_NOTHING, O_TRUNC, 0, "mine", "word" },
    { LINK_TO_LINK, O_APPEND, 0, "mineword", "mineword" },
    { LINK_OF_STRANGER, O_TRUNC, ELOOP, "mine", NULL },
    { LINK_OF_STRANGER, O_APPEND, ELOOP, "mine", NULL },
    { OWN_LINK_TO_LINK_OF_STRANGER, O_APPEND, ELOOP, "mine", NULL },
    { SECOND_NAME, O_TRUNC, EMLINK, "mine", NULL },
    { SECOND_NAME, O_APPEND, EMLINK, "mine", NULL },
    { FIFO_OF_STRANGER, O_APPEND, EACCES, "mine", NULL },
    { LOOP, O_APPEND, ELOOP, "mine", NULL },
};

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);

    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void plant(enum planted what)
{
    bool stranger = what == LINK_OF_STRANGER || what == FIFO_OF_STRANGER ||
                    what == OWN_LINK_TO_LINK_OF_STRANGER;
    const char *planted = what == OWN_LINK_TO_LINK_OF_STRANGER ? "other" : "out";

    write_text("victim", "mine");
    switch (what) {
    case FILE_OF_OURS:
        write_text("out", "longer ");
        break;
    case LINK_TO_NOTHING:
        ck_assert_int_eq(symlink("new", "out"), 0);
        break;
    case LINK_TO_LINK:
        ck_assert_int_eq(symlink("other", "out"), 0);
        ck_assert_int_eq(symlink("victim", "other"), 0);
        break;
    case OWN_LINK_TO_LINK_OF_STRANGER:
        ck_assert_int_eq(symlink("other", "out"), 0);
        ck_assert_int_eq(symlink("victim", "other"), 0);
        break;
    case LINK_OF_OURS:
    case LINK_OF_STRANGER:
        ck_assert_int_eq(symlink("victim", "out"), 0);
        break;
    case SECOND_NAME:
        ck_assert_int_eq(link("victim", "out"), 0);
        break;
    case FIFO_OF_STRANGER:
        ck_assert_int_eq(mkfifo("out", 0666), 0);
        break;
    case LOOP:
        ck_assert_int_eq(symlink("out", "out"), 0);
        break;
    case NOTHING:
        break;
    }
    if (stranger)
        ck_assert_int_eq(lchown(planted, STRANGER, STRANGER), 0);
}

static void expect_text(const char *path, const char *text)
{
    char found[32];

    ck_assert_int_ge(fd_read_file(AT_FDCWD, path, found, sizeof(found)), 0);
    ck_assert_str_eq(found, text);
}

/* In a folder in which a stranger may write. */
TEST_EACH(output_goes_to_no_file_that_a_stranger_has_chosen, outputs)
{
    static const char *const names[] = { "out", "victim", "other", "new" };
    char dir[] = "/tmp/test-fd-XXXXXX";
    int fd;

    SKIP_UNLESS(geteuid() == 0 || !outputs[_i].errnum, "only root can be another user");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chdir(dir), 0);
    plant(outputs[_i].what);
    fd = fd_create_file("out", outputs[_i].flags, 0600);
    if (outputs[_i].errnum) {
        ck_assert_int_eq(fd, -1);
        ck_assert_int_eq(errno, outputs[_i].errnum);
    } else {
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(write(fd, "word", 4), 4);
        close(fd);
        expect_text("out", outputs[_i].out);
    }
    expect_text("victim", outputs[_i].victim);
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlink(names[i]);
    ck_assert_int_eq(chdir("/"), 0);
    rmdir(dir);
}

TEST(output_may_go_to_a_device_a_fifo_and_an_open_file)
{
    char dir[] = "/tmp/test-fd-XXXXXX", path[64], text[8] = "";
    int ends[2], fd = fd_create_file("/dev/null", O_APPEND, 0600), reader;

    ck_assert_int_ge(fd, 0);
    ck_assert(is_dev_null(fd));
    close(fd);
    ck_assert_int_eq(pipe(ends), 0);
    snprintf(path, sizeof(path), "/dev/fd/%d", ends[1]);
    fd = fd_create_file(path, O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "word", 4), 4);
    ck_assert_int_eq(read(ends[0], text, 4), 4);
    ck_assert_str_eq(text, "word");
    close(fd);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/fifo", dir);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    reader = open(path, O_RDONLY | O_NONBLOCK);
    fd = fd_create_file(path, O_APPEND, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    close(reader);
    unlink(path);
    rmdir(dir);
}
