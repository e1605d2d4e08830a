/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ctl_reach.h"

#include <errno.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/remote/far/far_reach.h"
#include "launcher/remote/rsh.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define RECORD_BYTES_MAX (256u << 10)
#define LATE_MS 2000 /* for what has arrived while another host was waited for */

/* In a group of its own: Ctrl-C is for crunctl, and ssh ends with its streams. */
static int spawn_reach(char *const *argv, int stream, int said)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t pid;
    int errnum;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, stream, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, stream, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, said, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    errnum = posix_spawnp(&pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return errnum;
}

void ctl_reach_start(struct ctl_reach *r, const char *rsh, const char *ssh_args,
                     const char *host, const char *command)
{
    char **argv = rsh_command(rsh, ssh_args, host);
    size_t size = strlen(command);
    int pair[2], errnum;

    *r = (struct ctl_reach){ .fd = -1, .said = memfd_create("said", MFD_CLOEXEC) };
    if (r->said >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
        errnum = spawn_reach(argv, pair[1], r->said);
        close(pair[1]);
        r->fd = pair[0];
        if (errnum)
            dprintf(r->said, "%s: %s\n", argv[0], strerror(errnum));
        else
            (void)fd_write_all(r->fd, command, &size);
    }
    rsh_free(argv);
}

/* Hosts are asked side by side, and their answers read one after the other: what has
 * arrived in time is read late, too. */
static bool await_reach(int fd, uint64_t until_ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    uint64_t now = clock_ms();

    return now < until_ms + LATE_MS &&
           poll(&p, 1, now < until_ms ? (int)(until_ms - now) : 0) > 0;
}

/* A line without its end; false: there is none until then. */
static bool read_reach_line(int fd, uint64_t until_ms, char *line, size_t size)
{
    size_t used = 0;
    char c;

    for (;;) {
        if (!await_reach(fd, until_ms) || read(fd, &c, 1) != 1)
            return false;
        if (c == '\n')
            break;
        if (used + 1 < size)
            line[used++] = c;
    }
    line[used] = '\0';
    return true;
}

static char *read_reach_rest(int fd, uint64_t until_ms)
{
    char *text = xmalloc(RECORD_BYTES_MAX + 1);
    size_t used = 0;
    ssize_t n = 1;

    while (n > 0 && used < RECORD_BYTES_MAX && await_reach(fd, until_ms)) {
        n = read(fd, text + used, RECORD_BYTES_MAX - used);
        used += n > 0 ? (size_t)n : 0;
    }
    text[used] = '\0';
    return text;
}

/* The last line of what ssh has said. */
static void set_why(const struct ctl_reach *r, bool is_late, struct err *e)
{
    char said[512], line[1024];
    ssize_t n = r->said < 0 ? -1 : pread(r->said, said, sizeof(said) - 1, 0);
    char *last;

    said[n > 0 ? n : 0] = '\0';
    while (n > 0 && strchr("\r\n", said[n - 1]))
        said[--n] = '\0';
    last = strrchr(said, '\n');
    last = last ? last + 1 : said;
    err_set(e, "%s",
            *last     ? text_printable(last, line, sizeof(line))
            : is_late ? "no answer in time"
                      : "the connection has ended");
}

enum ctl_reach_answer ctl_reach_await(struct ctl_reach *r, uint64_t until_ms,
                                      char **record, struct err *e)
{
    enum ctl_reach_answer answer = CTL_REACH_UNKNOWN;
    char line[128];

    while (answer == CTL_REACH_UNKNOWN && r->fd >= 0 &&
           read_reach_line(r->fd, until_ms, line, sizeof(line))) {
        if (strcmp(line, FAR_REACH_RUNS) == 0)
            answer = CTL_REACH_RUNS;
        else if (strcmp(line, FAR_REACH_GONE) == 0)
            answer = CTL_REACH_GONE;
        else if (strcmp(line, FAR_REACH_ENDED) == 0)
            answer = CTL_REACH_ENDED;
    }
    if (answer == CTL_REACH_UNKNOWN)
        set_why(r, clock_ms() >= until_ms, e);
    if (answer == CTL_REACH_ENDED)
        *record = read_reach_rest(r->fd, until_ms);
    if (answer != CTL_REACH_RUNS && r->fd >= 0) {
        close(r->fd);
        r->fd = -1;
    }
    if (r->said >= 0)
        close(r->said);
    return answer;
}
