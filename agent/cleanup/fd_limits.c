/* SPDX-License-Identifier: MIT */
#include "agent/cleanup/fd_limits.h"

#include <stdbool.h>
#include <sys/resource.h>

#include "agent/config.h"
#include "rendezvous/common/base/text.h"

/* An agent with its guard's socket, its loop, the socket for checkpoints in memory, and
 * a few crunctls that look at it; in addition if it talks to other nodes. */
#define FDS_BASE 32
#define FDS_OTHER_NODES 9
#define FDS_PER_WORKER 2 /* the ends of its two streams */
#define FDS_PER_WORKER_WITH_FILES 4
#define FDS_PER_WORKER_WITH_STACKS 1
#define FDS_PER_WORKER_WITH_MAX_SIZE 2 /* the folder of each of its files */

static struct rlimit started_with;
static bool is_raised;

void fd_limits_raise(void)
{
    struct rlimit limit;

    if (is_raised || getrlimit(RLIMIT_NOFILE, &started_with) < 0)
        return;
    limit = started_with;
    limit.rlim_cur = limit.rlim_max;
    is_raised = setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void fd_limits_restore(void)
{
    if (is_raised && setrlimit(RLIMIT_NOFILE, &started_with) == 0)
        is_raised = false;
}

static bool any_worker_has_files(const struct config *c)
{
    const struct config_streams *s = &c->streams;

    for (uint32_t i = 0; i < c->workers; i++)
        if ((s->redirect && s->redirect[i]) || (s->tee && s->tee[i]))
            return true;
    return false;
}

unsigned fd_limits_need(const struct config *c)
{
    unsigned each = any_worker_has_files(c) ? FDS_PER_WORKER_WITH_FILES
                                            : FDS_PER_WORKER;

    if (c->log_max_size)
        each += FDS_PER_WORKER_WITH_MAX_SIZE;
    if (c->bootstrap)
        each += FDS_PER_WORKER_WITH_STACKS;
    return FDS_BASE + (c->rendezvous == CONFIG_LOCAL ? 0 : FDS_OTHER_NODES) +
           c->workers * each;
}

int fd_limits_suffice(const struct config *c, struct err *e)
{
    rlim_t need = fd_limits_need(c);
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_max >= need)
        return 0;
    return err_set(e,
                   "%u worker%s need%s %llu descriptors, the limit is %llu; raise it "
                   "with ulimit -n",
                   c->workers, text_plural(c->workers), c->workers == 1 ? "s" : "",
                   (unsigned long long)need, (unsigned long long)limit.rlim_max);
}
