/* SPDX-License-Identifier: MIT */
#include "tests/worlds/procs.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"

#define ENVIRON_MAX (1u << 18)

static bool has(int proc, const char *pid, const char *cookie)
{
    static char text[ENVIRON_MAX];
    char path[64];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "%.32s/environ", pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text));
    close(fd);
    return n > 0 && memmem(text, (size_t)n, cookie, strlen(cookie));
}

unsigned procs_with(const char *cookie)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    unsigned count = 0;

    while (dir && (entry = readdir(dir)))
        if (isdigit((unsigned char)entry->d_name[0]) &&
            has(dirfd(dir), entry->d_name, cookie))
            count++;
    if (dir)
        closedir(dir);
    return count;
}

uint64_t procs_wait_none(const char *cookie, uint64_t limit_ms)
{
    uint64_t start_ms = clock_ms(), now_ms;

    do {
        /* when the look began: it takes a while itself */
        now_ms = clock_ms();
        if (procs_with(cookie) == 0)
            return now_ms - start_ms;
        usleep(1000);
    } while (now_ms - start_ms < limit_ms);
    return UINT64_MAX;
}

const char *procs_program(const char *name)
{
    static char path[PATH_MAX];
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n < 0)
        abort();
    self[n] = '\0';
    for (int i = 0; i < 2; i++)
        *strrchr(self, '/') = '\0';
    snprintf(path, sizeof(path), "%.3800s/bin/%.200s", self, name);
    return path;
}

uint64_t procs_patience(uint64_t ms)
{
    const char *text = getenv("CK_TIMEOUT_MULTIPLIER");

    return text ? ms * (uint64_t)atoi(text) : ms;
}

unsigned procs_crowd(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double load = 0;

    if (getloadavg(&load, 1) < 1 || load <= (double)cores)
        return 1;
    return (unsigned)(load / (double)cores) + 1;
}
