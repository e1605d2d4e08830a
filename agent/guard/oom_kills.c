/* SPDX-License-Identifier: MIT */
#include "agent/guard/oom_kills.h"

#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>

#include "agent/cleanup/cgroup.h"

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
