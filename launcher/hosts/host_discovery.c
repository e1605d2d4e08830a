/* SPDX-License-Identifier: MIT */
#include "launcher/hosts/host_discovery.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"

#define DISCOVERY_TEXT_MAX (4u << 20)
#define DISCOVERY_ALL_MS 60000 /* for the first list */
#define DISCOVERY_END_MS 20    /* between its last output and its end */

int host_discovery_start(struct host_discovery *d, const char *command, struct err *e)
{
    char *argv[] = { "sh", "-c", (char *)command, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t all, none;
    int out[2], errnum;

    *d = (struct host_discovery){ .fd = -1 };
    if (pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_set_errno(e, errno, "--host-discovery: pipe");
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    errnum = posix_spawn(&d->pid, "/bin/sh", &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    d->fd = out[0];
    if (errnum == 0)
        return 0;
    d->pid = 0;
    host_discovery_stop(d);
    return err_set_errno(e, errnum, "--host-discovery: /bin/sh");
}

void host_discovery_stop(struct host_discovery *d)
{
    if (d->pid) {
        kill(-d->pid, SIGKILL);
        waitpid(d->pid, NULL, 0);
    }
    if (d->fd >= 0)
        close(d->fd);
    free(d->text);
    *d = (struct host_discovery){ .fd = -1 };
}

/* 1: its output has ended. */
static int read_discovery(struct host_discovery *d, struct err *e)
{
    ssize_t n = 1;

    while (n > 0) {
        if (d->size - d->used < 2) {
            d->size = d->size ? 2 * d->size : 1024;
            d->text = xrealloc(d->text, d->size);
        }
        n = read(d->fd, d->text + d->used, d->size - d->used - 1);
        d->used += n > 0 ? (size_t)n : 0;
        d->text[d->used] = '\0';
        if (d->used > DISCOVERY_TEXT_MAX)
            return err_set(e, "prints more than %u bytes", DISCOVERY_TEXT_MAX);
    }
    return n == 0 || (errno != EAGAIN && errno != EINTR);
}

int host_discovery_read(struct host_discovery *d, char **text, struct err *e)
{
    int rc = read_discovery(d, e), status;

    if (rc == 1 && waitpid(d->pid, &status, WNOHANG) == d->pid) {
        d->pid = 0;
        if (!WIFEXITED(status) || WEXITSTATUS(status))
            rc = err_set(e, WIFEXITED(status) ? "exit code %d" : "killed by signal %d",
                         WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    } else if (rc == 1) {
        rc = 0;
    }
    if (rc == 0)
        return 0;
    if (rc > 0) {
        *text = d->text;
        d->text = NULL;
    }
    host_discovery_stop(d);
    return rc;
}

int host_discovery_run(const char *command, char **text, struct err *e)
{
    uint64_t end = clock_ms() + DISCOVERY_ALL_MS;
    struct host_discovery d;
    int rc = host_discovery_start(&d, command, e);

    while (rc == 0 && (rc = host_discovery_read(&d, text, e)) == 0) {
        struct pollfd p = { .fd = d.fd, .events = POLLIN };

        if (clock_ms() >= end) {
            host_discovery_stop(&d);
            rc = err_set(e, "has not ended after %d s", DISCOVERY_ALL_MS / 1000);
        } else if (poll(&p, 1, 100) > 0 && (p.revents & POLLHUP)) {
            poll(NULL, 0, DISCOVERY_END_MS);
        }
    }
    return rc < 0 ? err_wrap(e, "--host-discovery %s", command) : 0;
}
