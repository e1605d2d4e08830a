/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/job_identity.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"

/* " of user alice"; " of uid 1000" if its machine has no name for it; or "". */
static char *format_user(const struct job_config *c, char *buf, size_t size)
{
    if (*c->user)
        snprintf(buf, size, " of user %s", c->user);
    else if (*c->uid)
        snprintf(buf, size, " of uid %s", c->uid);
    else
        *buf = '\0';
    return buf;
}

/* One user may have two numbers on two machines, or no name in a container. */
static bool is_other_user(const struct job_config *ours,
                          const struct job_config *theirs)
{
    return *ours->uid && *theirs->uid && strcmp(ours->uid, theirs->uid) != 0 &&
           (!*ours->user || strcmp(ours->user, theirs->user) != 0);
}

static bool is_other_batch_job(const struct job_config *ours,
                               const struct job_config *theirs)
{
    return *ours->batch_job && *theirs->batch_job &&
           strcmp(ours->batch_job, theirs->batch_job) != 0;
}

/*
 * A run id that the nodes were given says that they belong together, whichever batch
 * jobs they run in and whatever their arguments are. Nodes that were given none are
 * told apart by these two as well: to refuse a node is better than to train two
 * programs as one.
 */
bool job_identity_admits(const struct job *job, const struct job_config *theirs,
                         bool same_key, char *why, size_t size)
{
    const struct job_config *ours = &job->membership.config;
    bool named = strcmp(job->run_id, RUN_ID_DEFAULT) != 0;
    char user[USER_MAX_BYTES + 16];

    if (!same_key && is_other_user(ours, theirs))
        snprintf(why, size, "this node is%s", format_user(theirs, user, sizeof(user)));
    else if (!named && is_other_batch_job(ours, theirs))
        snprintf(why, size, "this node is of %s", theirs->batch_job);
    else if (!named && strcmp(ours->program, theirs->program) != 0)
        snprintf(why, size, "this node runs %s", theirs->program);
    else if (!named && *ours->arguments_hash && *theirs->arguments_hash &&
             !job_has_same_arguments(ours, theirs))
        snprintf(why, size,
                 "this node has other arguments for %s; if both are one job, give all "
                 "its nodes the same --rdzv-id",
                 theirs->program);
    else
        return true;
    return false;
}

char *job_identity_describe(const struct job *job, char *buf, size_t size)
{
    const struct job_config *c = &job->membership.config;
    char user[USER_MAX_BYTES + 16], started[32];

    bool named = !job_name_is_generated(job->run_id) && *c->program;

    snprintf(buf, size, "job \"%s\"%s%s%s%s%s%s, started %.8s", job->name,
             named ? " (" : "", named ? c->program : "", named ? ")" : "",
             format_user(c, user, sizeof(user)), *c->batch_job ? ", " : "",
             c->batch_job,
             clock_format_time(job->created_wall_ms, started, sizeof(started)));
    return buf;
}
