/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/cleanup/cgroup.h"
#include "agent/cleanup/run_tmpdir.h"
#include "agent/guard/guard.h"
#include "agent/guard/guard_main.h"
#include "agent/guard/guard_wire.h"
#include "agent/guard/orphan_reaper.h"
#include "agent/guard/status_pages.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/proc.h"

#define LAUNCH_LOCK_FD (STDERR_FILENO + 1) /* the reaper's, which only holds it */

/* The limits and signals of the first guard. Later guards get the same, even if the
 * agent has changed its own since. */
static struct {
    bool known;
    sigset_t ignored;
    struct rlimit files;
} origin;

static uint64_t ignored_too; /* a bit for each signal, from 1 */

void guard_process_remember_origin(void)
{
    struct sigaction action;

    if (origin.known)
        return;
    origin.known = true;
    sigemptyset(&origin.ignored);
    for (int signo = 1; signo < NSIG; signo++)
        if (sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigaddset(&origin.ignored, signo);
    getrlimit(RLIMIT_NOFILE, &origin.files);
}

void guard_ignore_signal(int signo)
{
    ignored_too |= 1ull << (signo - 1);
}

/* Duplicates fd above the fixed numbers. */
static int move_descriptor_up(const struct status_pages *pages, int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD, status_pages_end(pages));
}

/* Runs in the child, with all signals blocked. Closes `started` when all descriptors
 * have their numbers. */
static _Noreturn void become_guard(const struct guard_process *p, int socket,
                                   int started)
{
    int from[GUARD_FD_COUNT - GUARD_FD_SOCKET], null;
    struct rlimit files = origin.files;

    /* The descriptors of the status pages may be above the limit that crun was started
     * with. */
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    (void)move_descriptor_up(p->pages, started);
    from[0] = move_descriptor_up(p->pages, socket);
    from[1] = move_descriptor_up(p->pages, p->cgroup->dir);
    from[2] = move_descriptor_up(p->pages, p->cgroup->parent);
    from[3] = move_descriptor_up(p->pages, p->launch_lock);
    null = move_descriptor_up(p->pages, open("/dev/null", O_RDWR));
    for (int i = 0; i < GUARD_FD_COUNT - GUARD_FD_SOCKET; i++)
        if (from[i] >= 0)
            dup2(from[i], GUARD_FD_SOCKET + i);
        else
            close(GUARD_FD_SOCKET + i);
    status_pages_place(p->pages);
    /* standard error stays open: its reader sees the end when all processes have
     * ended */
    for (int fd = 0; fd < 3; fd++)
        if (fd < 2 || fcntl(fd, F_GETFD) < 0)
            dup2(null, fd);
    fd_close_from(status_pages_end(p->pages));
    for (int signo = 1; signo < NSIG; signo++)
        signal(signo,
               sigismember(&origin.ignored, signo) || ignored_too >> (signo - 1) & 1
                   ? SIG_IGN
                   : SIG_DFL);
    setrlimit(RLIMIT_NOFILE, &origin.files);
    guard_main(p->cgroup->name, p->tmpdir_tag);
}

/* Writes the pid of the guard to `started`. */
static _Noreturn void become_reaper(struct guard_process *p, int socket, int started)
{
    pid_t guard;
    int null;

    orphan_reaper_prepare();
    guard = fork();
    if (guard == 0)
        become_guard(p, socket, started);
    if (guard < 0 || write(started, &guard, sizeof(guard)) < 0)
        _exit(127);
    null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    if (p->launch_lock >= 0)
        dup2(p->launch_lock, LAUNCH_LOCK_FD);
    fcntl(LAUNCH_LOCK_FD, F_SETFD, p->launch_lock >= 0 ? 0 : FD_CLOEXEC);
    fd_close_from(LAUNCH_LOCK_FD + 1);
    orphan_reaper_become(guard, p->agent, p->tmpdir_tag);
}

/* A guard below a reaper may have been reaped, and its pid be another process's. */
static void open_guard_pidfd(struct guard_process *p)
{
    struct proc_stat stat;

    p->guard_pidfd = (int)syscall(SYS_pidfd_open, p->guard, 0u);
    if (p->guard_pidfd >= 0 && p->guard != p->child &&
        !(proc_read_stat(p->guard, &stat) && stat.parent == p->child)) {
        close(p->guard_pidfd);
        p->guard_pidfd = -1;
    }
}

int guard_process_start(struct guard_process *p, int socket)
{
    sigset_t all, before;
    int started[2];
    pid_t pid;

    p->agent = getpid();
    p->tmpdir_tag = run_tmpdir_tag();
    if (pipe2(started, O_CLOEXEC) < 0)
        return -1;
    /* a signal handler of the agent must not run in the child */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    p->child = fork();
    if (p->child == 0 && p->cgroup->dir < 0)
        become_reaper(p, socket, started[1]);
    if (p->child == 0)
        become_guard(p, socket, started[1]);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(started[1]);
    if (p->child > 0) {
        /* Until the guard has its descriptors, and no others. */
        p->guard = p->cgroup->dir < 0 ? -1 : p->child;
        while (TEMP_FAILURE_RETRY(read(started[0], &pid, sizeof(pid))) == sizeof(pid))
            p->guard = pid;
        open_guard_pidfd(p);
    }
    close(started[0]);
    return p->child < 0 ? -1 : 0;
}
