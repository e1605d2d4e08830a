/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into crund. At SIGUSR2 it tries each way out of the confinement once, and
 * prints a line with the result on standard error. ESCAPE_PORT is a port that
 * listens, ESCAPE_STATE a file in the state directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void escape_report(const char *what, int rc, int why)
{
    dprintf(STDERR_FILENO, "escape %s: %s\n", what,
            rc < 0 ? strerrorname_np(why) : "done");
}

static int try_fork(void)
{
    pid_t child = fork();

    if (child == 0)
        _exit(0);
    return child < 0 ? -1 : waitpid(child, NULL, 0);
}

static int try_clone3(void)
{
    uint64_t arguments[8] = { 0, 0, 0, 0, SIGCHLD };
    long child = syscall(SYS_clone3, arguments, sizeof(arguments));

    if (child == 0)
        _exit(0);
    return child < 0 ? -1 : waitpid((pid_t)child, NULL, 0);
}

static int try_program(void)
{
    char *const words[] = { "/bin/no-such-program", NULL };

    execve(words[0], words, NULL);
    return errno == ENOENT ? 0 : -1; /* it was looked for */
}

static int try_file(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);

    return fd < 0 ? -1 : close(fd);
}

/* As a snapshot of the journal: a new file takes the place of another. */
static int try_replacement(const char *path)
{
    char made[512], target[512];
    int rc;

    snprintf(made, sizeof(made), "%s.made", path);
    snprintf(target, sizeof(target), "%s.target", path);
    rc = try_file(made, O_RDWR | O_CREAT | O_EXCL);
    rc = rc < 0 ? rc : try_file(target, O_RDWR | O_CREAT | O_TRUNC);
    rc = rc < 0 ? rc : rename(made, target);
    return rc < 0 ? rc : unlink(target);
}

static int try_connection(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atoi(getenv("ESCAPE_PORT"))),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&to, sizeof(to));
    int why = errno;

    if (fd >= 0)
        close(fd);
    errno = why;
    return rc;
}

static void *nothing(void *arg)
{
    return arg;
}

static int try_thread(void)
{
    pthread_t thread;

    errno = pthread_create(&thread, NULL, nothing, NULL);
    return errno ? -1 : pthread_join(thread, NULL);
}

#define TRY(what, call)                                                                \
    do {                                                                               \
        int rc = call;                                                                 \
                                                                                       \
        escape_report(what, rc, errno);                                                \
    } while (0)

static void on_usr2(int signo)
{
    int why = errno;

    TRY("program", try_program());
    TRY("fork", try_fork());
    TRY("clone3", try_clone3());
    TRY("read", try_file("/etc/hostname", O_RDONLY));
    TRY("folder", try_file("/", O_RDONLY | O_DIRECTORY));
    TRY("write", try_file("/tmp/crund-escape", O_WRONLY | O_CREAT));
    TRY("signal", kill(getppid(), 0));
    TRY("connect", try_connection());
    TRY("state", try_file(getenv("ESCAPE_STATE"), O_RDWR));
    TRY("replacement", try_replacement(getenv("ESCAPE_STATE")));
    TRY("thread", try_thread());
    escape_report("end", 0, 0);
    errno = why;
}

__attribute__((constructor)) static void watch_usr2(void)
{
    signal(SIGUSR2, on_usr2);
}
