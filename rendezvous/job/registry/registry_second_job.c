/* SPDX-License-Identifier: MIT */
/* A job that waits or runs here, and runs at another rendezvous already: its nodes go
 * there, or it ends. */
#include "rendezvous/job/registry/registry_internal.h"

#include <string.h>
#include <sysexits.h>

/* Of the same job, as far as a name that was given tells, or else the arguments. */
static bool is_second(const struct job *job, const struct msg *m)
{
    return !id128_equal(&job->membership.instance, &m->instance) &&
           (strcmp(job->run_id, RUN_ID_DEFAULT) != 0 ||
            strcmp(job->membership.config.arguments_hash,
                   m->elsewhere.arguments_hash) == 0);
}

/* It has formed while the network kept both apart. What it has trained would take the
 * place of what the first one has, so it saves nothing more. */
static void end_second(struct registry *g, struct job *job, const struct msg *m)
{
    struct membership_event ev = { .type = MEMBERSHIP_EV_END,
                                   .node = MEMBERSHIP_NONE,
                                   .exit_code = EX_TEMPFAIL,
                                   .now = true };

    job_set_ended_by(job, "ended: it runs already at %.*s",
                     (int)strcspn(m->elsewhere.endpoints, ","), m->elsewhere.endpoints);
    registry_report(g, job, "ending", "", "the job is %s", job->ended_by);
    registry_step(g, job, &ev, NULL, NULL, NULL);
}

/* Its nodes go there, too. */
static void refer_nodes(struct job *job, const struct msg *m)
{
    struct msg k = { .type = MSG_KEEPERS, .keepers = { .anew = true } };

    memcpy(k.keepers.endpoints, m->elsewhere.endpoints, sizeof(k.keepers.endpoints));
    MEMBERSHIP_EACH(i, &job->membership)
        if (job->node[i]->peer && job->node[i]->peer->keepers)
            registry_send(job->node[i]->peer, &k);
}

void registry_on_elsewhere(struct registry *g, struct registry_peer *p,
                           const struct msg *m)
{
    struct job *job = registry_find(g, p, m->elsewhere.run_id);

    if (!job || !g->config.elsewhere || job->membership.state == JOB_DONE ||
        !is_second(job, m)) {
        registry_refuse(p, m, REFUSED_UNKNOWN, false, "no such job waits here");
        return;
    }
    registry_acknowledge(p, m);
    if (job->membership.epoch > 0) {
        end_second(g, job, m);
        return;
    }
    refer_nodes(job, m);
    g->config.elsewhere(g->config.arg, m->elsewhere.endpoints);
}
