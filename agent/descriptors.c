/* SPDX-License-Identifier: MIT */
#include "agent/descriptors.h"

#include <stdbool.h>
#include <sys/resource.h>

static struct rlimit started_with;
static bool is_raised;

void descriptors_raise(void)
{
    struct rlimit limit;

    if (is_raised || getrlimit(RLIMIT_NOFILE, &started_with) < 0)
        return;
    limit = started_with;
    limit.rlim_cur = limit.rlim_max;
    is_raised = setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void descriptors_restore(void)
{
    if (is_raised && setrlimit(RLIMIT_NOFILE, &started_with) == 0)
        is_raised = false;
}
