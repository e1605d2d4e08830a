/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/top_look.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/wire/protocol/proto.h"

#define SLOW_PERCENT 120 /* as the page has it */

void top_node_forget_output(struct top_node *n)
{
    for (size_t i = 0; i < n->outputs; i++)
        free(n->output[i].text);
    free(n->output);
    n->output = NULL;
    n->outputs = 0;
}

void top_node_free(struct top_node *n)
{
    if (!n)
        return;
    stack_groups_fini(&n->stacks);
    top_node_forget_output(n);
    free(n);
}

void top_look_free(struct top_look *l)
{
    if (!l)
        return;
    job_views_clear(&l->jobs);
    top_node_free(l->node);
    free(l->more);
    free(l);
}

char *top_job_name(const struct job_view *job, char *buf, size_t size)
{
    char instance[ID128_HEX_SIZE];

    snprintf(buf, size, "%s:%s:%" PRIu32, job->status.run_id,
             id128_format(&job->status.instance, instance), job->pid);
    return buf;
}

char *top_node_name(const struct job_view *job, const struct msg_node_status *n,
                    char *buf, size_t size)
{
    size_t used = strlen(top_job_name(job, buf, size));

    snprintf(buf + used, size - used, "/%s", n->host);
    return buf;
}

/* -- what is wrong ---------------------------------------------------------------- */

unsigned top_node_fault(const struct msg_node_status *n, const struct top_job *more,
                        char *word, size_t size)
{
    const struct msg_heartbeat *h = &n->progress;
    bool has_ended = n->state == NODE_DONE || n->state == NODE_FINISHED;

    snprintf(word, size, "%s", proto_node_state_name(n->state));
    if (has_ended)
        return 0;
    if (!n->connected) {
        snprintf(word, size, "lost");
        return 7;
    }
    if (n->state == NODE_QUARANTINED)
        return 6;
    if (n->group_rank >= 0 && more->culprit.first <= more->culprit.last &&
        more->culprit.first < n->first_rank + n->workers &&
        more->culprit.last >= n->first_rank) {
        snprintf(word, size, "awaited");
        return 5;
    }
    if (h->xid) {
        snprintf(word, size, "Xid %" PRIu32, h->xid);
        return 4;
    }
    if (n->state == NODE_RUNNING && n->slowness >= SLOW_PERCENT) {
        snprintf(word, size, "slow %.1fx", n->slowness / 100.0);
        return 3;
    }
    /* How much of its time a node waits for the others is no fault of it. */
    if (*h->note && strncmp(h->note, "waits ", 6) != 0)
        return 2;
    return n->state == NODE_STATE_UNKNOWN || n->state == NODE_LEAVING;
}

unsigned top_job_fault(const struct job_view *job, const struct top_job *more)
{
    enum job_state state = job->status.state;
    unsigned worst = 0;
    char word[32];

    if (state == JOB_DONE)
        return 0;
    if (job->odd_state || *more->awaited)
        return 9;
    if (state != JOB_RUNNING)
        return 8;
    for (size_t i = 0; i < job->nodes; i++) {
        unsigned fault = top_node_fault(&job->node[i], more, word, sizeof(word));

        worst = fault > worst ? fault : worst;
    }
    /* a program without steps may well have nothing to do */
    return worst ? worst : more->still_ms > 0 && job_view_step(job) > 0;
}

const struct job_view *top_look_find(const struct top_look *look, const char *name,
                                     const struct msg_node_status **node,
                                     const struct top_job **more)
{
    char own[TOP_NAME_BYTES];

    for (size_t i = 0; i < look->jobs.count; i++) {
        const struct job_view *job = &look->jobs.job[i];

        *more = &look->more[i];
        *node = NULL;
        if (strcmp(name, look->more[i].name) == 0)
            return job;
        for (size_t n = 0; n < job->nodes; n++) {
            *node = &job->node[n];
            if (strcmp(top_node_name(job, *node, own, sizeof(own)), name) == 0)
                return job;
        }
    }
    return NULL;
}
