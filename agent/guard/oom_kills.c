/* SPDX-License-Identifier: MIT */
#include "agent/guard/oom_kills.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cleanup/cgroup.h"

#define OOM_SCORE_ADJ "-500" /* the kernel should kill the guard last */

static struct {
    bool is_watching;
    int counter; /* of the job's cgroup; -1: none */
    uint64_t claimed;
} kills = { .counter = -1 };

void oom_kills_watch(const struct cgroup *cgroup)
{
    if (kills.is_watching)
        return;
    kills.is_watching = true;
    kills.counter = cgroup_open_oom_kills(cgroup);
    kills.claimed = cgroup_read_oom_kills(kills.counter);
}

bool oom_kills_claim(int status)
{
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL ||
        cgroup_read_oom_kills(kills.counter) <= kills.claimed)
        return false;
    kills.claimed++;
    return true;
}

bool oom_kills_spare_guard(char *before, size_t size)
{
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, before, size - 1);
    bool lower = n > 0 && atoi(before) > atoi(OOM_SCORE_ADJ) &&
                 pwrite(fd, OOM_SCORE_ADJ, strlen(OOM_SCORE_ADJ), 0) > 0;

    if (fd >= 0)
        close(fd);
    return lower;
}
