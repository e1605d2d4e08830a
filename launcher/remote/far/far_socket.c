/* SPDX-License-Identifier: MIT */
#include "launcher/remote/far/far_socket.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include "launcher/remote/far/far_reach.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/run_folder.h"

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
