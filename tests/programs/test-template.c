/* SPDX-License-Identifier: MIT */
/*
 * A template that imports nothing, for the tests of the guard: its forks execute their
 * worker's program. Its words say what it does wrong:
 *
 *   late MS       is ready after this time, with a message each 10 ms
 *   dies          ends before it is ready
 *   hangs         is never ready
 *   leaves        ends at its first request
 *   deaf          never answers a request
 *   wrong         its forks answer with a pid that does not exist
 *   other         ... with the pid of their template
 *   itself        answers each request itself, with its own pid
 *   renews        imports again at its first request, until it is continued
 *   twice         its forks answer twice
 *   unborn        its forks end without an answer
 *   stillborn     its forks end after their answer
 *   grandchild    its forks stay children of a child of the template
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "agent/guard/guard_template.h"

#define SOCKET 3
#define BATCH_MAX 64

struct job {
    struct template_request request;
    int fd[TEMPLATE_REQUEST_FDS]; /* 0, 1, 2, the payload, the channel */
};

static const char *fault = "";
static pid_t guard, template_pid;

static bool is_fault(const char *word)
{
    return strcmp(fault, word) == 0;
}

static bool receive_job(struct job *j, int flags)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(j->fd))];
    } control;
    struct iovec iov = { &j->request, sizeof(j->request) };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control) };
    ssize_t n = recvmsg(SOCKET, &msg, flags | MSG_CMSG_CLOEXEC);

    if (n == 0 || (n < 0 && errno != EAGAIN))
        exit(0); /* the guard has closed it */
    if (n != sizeof(j->request))
        return false;
    memcpy(j->fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(j->fd));
    return true;
}

static void close_job(const struct job *j)
{
    for (int i = 0; i < TEMPLATE_REQUEST_FDS; i++)
        close(j->fd[i]);
}

/* The payload as guard_payload_pack has made it. */
static void execute_program(const struct job *j)
{
    struct stat st;
    uint64_t *offsets;

    fstat(j->fd[3], &st);
    offsets = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE,
                   j->fd[3], 0);
    for (uint32_t i = 0; i < j->request.argc + 1 + j->request.envc; i++)
        if (i != j->request.argc)
            offsets[i] += (uint64_t)(uintptr_t)offsets;
    execve((char *)offsets[0], (char **)offsets,
           (char **)(offsets + j->request.argc + 1));
    _exit(127);
}

static void answer_with(int channel, pid_t pid)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", (int)pid);
    (void)!write(channel, text, strlen(text));
}

static void become_worker(const struct job *j)
{
    int channel = j->fd[4];
    char go[4];

    while (!is_fault("grandchild") && getppid() != guard)
        usleep(100);
    if (is_fault("unborn"))
        _exit(0);
    answer_with(channel, is_fault("wrong")   ? 1 << 22
                         : is_fault("other") ? template_pid
                                             : getpid());
    if (is_fault("twice"))
        answer_with(channel, getpid());
    if (is_fault("stillborn"))
        _exit(0);
    if (read(channel, go, sizeof(go)) != 2)
        _exit(0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard)
        _exit(127);
    setsid();
    for (int i = 0; i < 3; i++)
        dup2(j->fd[i], i);
    if (j->request.is_tty)
        ioctl(isatty(1) ? 1 : 2, TIOCSCTTY, 0);
    close(SOCKET);
    execute_program(j);
}

/* One child forks them all and ends, so that the guard adopts them. */
static void fork_workers(const struct job *jobs, unsigned count)
{
    pid_t child = fork();

    if (child == 0) {
        for (unsigned i = 0; i < count; i++)
            if (fork() == 0) {
                for (unsigned k = 0; k < count; k++)
                    if (k != i)
                        close_job(&jobs[k]);
                become_worker(&jobs[i]);
            }
        while (is_fault("grandchild"))
            pause();
        _exit(0);
    }
    if (!is_fault("grandchild"))
        waitpid(child, NULL, 0);
}

static void serve_requests(void)
{
    static struct job jobs[BATCH_MAX];
    unsigned count = 0;

    if (receive_job(&jobs[0], 0))
        for (count = 1; count < BATCH_MAX && receive_job(&jobs[count], MSG_DONTWAIT);
             count++)
            ;
    if (is_fault("leaves"))
        exit(3);
    if (is_fault("renews")) {
        fault = "";
        (void)!write(SOCKET, "again", 5);
        raise(SIGSTOP);
        (void)!write(SOCKET, "ready", 5);
    }
    if (is_fault("itself"))
        answer_with(jobs[0].fd[4], getpid());
    if (is_fault("itself") || is_fault("deaf"))
        return; /* and keeps the channels */
    fork_workers(jobs, count);
    for (unsigned i = 0; i < count; i++)
        close_job(&jobs[i]);
}

static void wait_late(const char *ms)
{
    for (int left = ms ? atoi(ms) : 0; left > 0; left -= 10) {
        (void)!write(SOCKET, "module", 6);
        usleep(10000);
    }
}

int main(int argc, char **argv)
{
    guard = getppid();
    template_pid = getpid();
    fault = argc > 1 ? argv[1] : "";
    if (is_fault("late"))
        wait_late(argv[2]);
    if (is_fault("dies"))
        return 1;
    while (is_fault("hangs"))
        pause();
    printf("template %d\n", (int)getpid());
    fflush(stdout);
    (void)!write(SOCKET, "ready", 5);
    for (;;)
        serve_requests();
}
