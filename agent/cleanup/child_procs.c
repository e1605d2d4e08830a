/* SPDX-License-Identifier: MIT */
#include "agent/cleanup/child_procs.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/proc.h"

size_t child_procs_list_by_scan(pid_t *pids, size_t max)
{
    DIR *dir = opendir("/proc");
    pid_t self = getpid();
    struct proc_stat stat;
    struct dirent *entry;
    size_t count = 0;

    if (!dir)
        return 0;
    while (count < max && (entry = readdir(dir)))
        if (isdigit((unsigned char)entry->d_name[0]) &&
            proc_read_stat((pid_t)atoi(entry->d_name), &stat) && stat.parent == self)
            pids[count++] = (pid_t)atoi(entry->d_name);
    closedir(dir);
    return count;
}

/* The main thread adopts orphans, and is the only thread here that forks. */
static int open_list(void)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    return open(path, O_RDONLY | O_CLOEXEC);
}

size_t child_procs_list(pid_t *pids, size_t max)
{
    int fd = open_list();
    size_t count = 0;
    char text[4096], *end;
    ssize_t n;

    if (fd < 0)
        return child_procs_list_by_scan(pids, max);
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    end = strrchr(text, ' '); /* the last number may be cut off */
    if (end)
        *end = '\0';
    for (char *at = text; end && count < max && *at;)
        pids[count++] = (pid_t)strtol(at, &at, 10);
    return count;
}

bool child_procs_exist(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}
