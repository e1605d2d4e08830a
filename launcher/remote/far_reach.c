/* SPDX-License-Identifier: MIT */
#include "launcher/remote/far_reach.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/push.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/run_folder.h"
#include "rendezvous/common/base/xalloc.h"

bool far_side_end_file(const char *log, char path[PATH_MAX + 8])
{
    char real[PATH_MAX];
    size_t length;

    if (!realpath(log, real))
        return false;
    length = strlen(real);
    if (length < 4 || strcmp(real + length - 4, ".log") != 0)
        return false;
    snprintf(path, PATH_MAX + 8, "%.*s.json", (int)length - 4, real);
    return true;
}

char *far_reach_command(pid_t pid, const char *log)
{
    const char *libraries = getenv("LD_LIBRARY_PATH");
    char self[PATH_MAX], end[PATH_MAX + 8], *command, *words[3];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (length <= 0 || !far_side_end_file(log, end))
        return NULL;
    self[length] = '\0';
    words[0] = push_quote(self);
    words[1] = push_quote(end);
    words[2] = push_quote(libraries ? libraries : "");
    /* The record of the end comes first, as another crun may have the pid since. The
     * socket is there a moment after the start, and until the record is. */
    command = xasprintf(
        "end() { if test -e %s; then echo; echo " FAR_REACH_ENDED
        "; cat %s; exit; fi; }; "
        "for i in 1 2 3 4 5 6 7 8; do end; LD_LIBRARY_PATH=%s " FAR_SOCKET_VARIABLE
        "=%d " FAR_SOCKET_SAYS "=1 %s " CHANNEL_SOCKET_FLAG " 2>/dev/null && exit; "
        "kill -0 %d 2>/dev/null || break; sleep 0.3; done; end; "
        "kill -0 %d 2>/dev/null || { echo; echo " FAR_REACH_GONE "; }; exit\n",
        words[1], words[1], words[2], (int)pid, words[0], (int)pid, (int)pid);
    for (unsigned i = 0; i < 3; i++)
        free(words[i]);
    return command;
}

int far_socket_connect(pid_t pid)
{
    char paths[RUN_FOLDERS_MAX][PATH_MAX], name[64];
    unsigned count = run_folder_list(paths);
    struct run_folder f;
    int fd = -1;

    snprintf(name, sizeof(name), "%d.sock", (int)pid);
    for (unsigned i = 0; i < count && fd < 0; i++) {
        if (run_folder_open(&f, paths[i], geteuid()) < 0)
            continue;
        fd = run_folder_connect(&f, name);
        run_folder_close(&f);
    }
    return fd;
}

/* Copies what is there. False: there will be no more. */
static bool copy_some(int from, int to)
{
    char data[65536];
    ssize_t n = read(from, data, sizeof(data));
    size_t size = n > 0 ? (size_t)n : 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    return n > 0 && fd_write_all(to, data, &size) == 0;
}

int far_socket_run(void)
{
    const char *pid = getenv(FAR_SOCKET_VARIABLE);
    int fd = pid ? far_socket_connect((pid_t)strtol(pid, NULL, 10)) : -1;
    struct pollfd p[] = { { .fd = STDIN_FILENO, .events = POLLIN },
                          { .fd = fd, .events = POLLIN } };

    if (fd < 0)
        return EX_UNAVAILABLE;
    if (getenv(FAR_SOCKET_SAYS))
        dprintf(STDOUT_FILENO, "\n" FAR_REACH_RUNS "\n");
    while (poll(p, 2, -1) >= 0 || errno == EINTR) {
        if (p[0].revents && !copy_some(STDIN_FILENO, fd)) {
            p[0].fd = -1;
            shutdown(fd, SHUT_WR);
        }
        if (p[1].revents && !copy_some(fd, STDOUT_FILENO))
            break;
    }
    return EXIT_SUCCESS;
}
