/* SPDX-License-Identifier: MIT */
#include "agent/cleanup/child_procs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The parent of the process whose folder in /proc this is, or -1. */
static pid_t parent_of(int proc, const char *pid)
{
    char path[64], stat[512], *after_name;
    int fd, parent = -1;
    ssize_t n;

    snprintf(path, sizeof(path), "%.32s/stat", pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    n = read(fd, stat, sizeof(stat) - 1);
    close(fd);
    if (n <= 0)
        return -1;
    stat[n] = '\0';
    after_name = strrchr(stat, ')'); /* a name may hold anything */
    if (!after_name || sscanf(after_name, ") %*c %d", &parent) != 1)
        return -1;
    return parent;
}

size_t child_procs_children_by_scan(pid_t *pids, size_t max)
{
    DIR *dir = opendir("/proc");
    pid_t self = getpid();
    struct dirent *entry;
    size_t count = 0;

    if (!dir)
        return 0;
    while (count < max && (entry = readdir(dir)))
        if (isdigit((unsigned char)entry->d_name[0]) &&
            parent_of(dirfd(dir), entry->d_name) == self)
            pids[count++] = (pid_t)atoi(entry->d_name);
    closedir(dir);
    return count;
}

/* The main thread is who adopts, and here the only one that forks. */
static int open_list(void)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    return open(path, O_RDONLY | O_CLOEXEC);
}

size_t child_procs_children(pid_t *pids, size_t max)
{
    int fd = open_list();
    size_t count = 0;
    char text[4096], *end;
    ssize_t n;

    if (fd < 0)
        return child_procs_children_by_scan(pids, max);
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    end = strrchr(text, ' '); /* a number that does not end here may be cut off */
    if (end)
        *end = '\0';
    for (char *at = text; end && count < max && *at;)
        pids[count++] = (pid_t)strtol(at, &at, 10);
    return count;
}

bool child_procs_any(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}
