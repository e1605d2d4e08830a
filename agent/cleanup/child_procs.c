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

#include "rendezvous/common/base/fd.h"
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

size_t child_procs_list(pid_t *pids, size_t max)
{
    size_t count = 0;
    char path[64], text[4096], *end;

    /* the main thread adopts orphans, and is the only thread here that forks */
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    if (fd_read_file(AT_FDCWD, path, text, sizeof(text)) < 0)
        return child_procs_list_by_scan(pids, max);
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
