/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/cleanup/cgroup.h"
#include "agent/cleanup/run_tmpdir.h"
#include "agent/guard/guard.h"
#include "agent/guard/guard_reaper.h"
#include "agent/guard/guard_wire.h"
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

static void restore_origin(void)
{
    for (int signo = 1; signo < NSIG; signo++)
        signal(signo,
               sigismember(&origin.ignored, signo) || ignored_too >> (signo - 1) & 1
                   ? SIG_IGN
                   : SIG_DFL);
    setrlimit(RLIMIT_NOFILE, &origin.files);
}

/* The descriptors of the status pages may be above the limit that crun was started
 * with. */
static void raise_nofile_for_pages(void)
{
    struct rlimit files = origin.files;

    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

/* Duplicates fd above the fixed numbers. */
static int move_descriptor_up(const struct status_pages *pages, int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD, status_pages_end(pages));
}

/* Runs in the child, with all signals blocked. Returns only if the execution failed. */
static void become_guard(const struct guard_process *p, int socket)
{
    char *argv[] = { (char *)GUARD_ARGV0, (char *)p->cgroup->name,
                     (char *)p->tmpdir_tag, NULL };
    int from[GUARD_FD_COUNT - GUARD_FD_SOCKET], null;

    raise_nofile_for_pages();
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
    restore_origin();
    execv("/proc/self/exe", argv);
    execv((const char *)getauxval(AT_EXECFN), argv);
}

struct guard_start_info {
    const struct guard_process *p;
    int socket;
};

static int become_guard_in_clone(void *arg)
{
    const struct guard_start_info *info = arg;

    become_guard(info->p, info->socket);
    return 127;
}

/* Like vfork, which a child of vfork cannot call under a sanitizer. */
static pid_t clone_guard(const struct guard_process *p, int socket)
{
    static _Alignas(16) char stack[256 * 1024];
    struct guard_start_info info = { p, socket };

    return clone(become_guard_in_clone, stack + sizeof(stack),
                 CLONE_VM | CLONE_VFORK | SIGCHLD, &info);
}

/* Forks the guard from the child of vfork: it shares our memory, so both pids are known
 * when it returns. */
static void become_reaper(struct guard_process *p, int socket)
{
    pid_t guard;
    int null;

    guard_reaper_prepare();
    guard = clone_guard(p, socket);
    p->guard = guard;
    if (guard < 0)
        _exit(127);
    null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    if (p->launch_lock >= 0)
        dup2(p->launch_lock, LAUNCH_LOCK_FD);
    fcntl(LAUNCH_LOCK_FD, F_SETFD, p->launch_lock >= 0 ? 0 : FD_CLOEXEC);
    fd_close_from(LAUNCH_LOCK_FD + 1);
    guard_reaper_become(guard, p->agent, p->tmpdir_tag);
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
    pid_t child;

    p->agent = getpid();
    p->tmpdir_tag = run_tmpdir_tag();
    /* a signal handler of the agent must not run in the child, which shares our
     * memory */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    child = vfork();
    if (child == 0 && p->cgroup->dir < 0)
        become_reaper(p, socket);
    if (child == 0) {
        become_guard(p, socket);
        _exit(127);
    }
    p->child = child;
    if (p->cgroup->dir >= 0)
        p->guard = child;
    if (child > 0)
        open_guard_pidfd(p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return child < 0 ? -1 : 0;
}
