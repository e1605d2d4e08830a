/* SPDX-License-Identifier: MIT */
/*
 * Hosts that come and go while the job runs: a change of the list of hosts that it has.
 */
#include "launcher/remote/remote_internal.h"

#include <string.h>

#include "launcher/hosts/host_watch.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

void remote_host_init(struct remote *r, size_t index, const struct host *target)
{
    struct remote_host *h = &r->host[index];

    *h = (struct remote_host){ .remote = r,
                               .target = target,
                               .index = (uint32_t)index };
    loop_timer_init(&h->timer, r->loop, remote_host_on_timer, h);
}

static struct remote_host *find_listed_host(const struct remote *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (!r->host[i].is_unlisted && strcmp(r->host[i].target->name, name) == 0)
            return &r->host[i];
    return NULL;
}

static void drain_host(struct remote_host *h)
{
    h->is_unlisted = true;
    if (host_state_is_over(h->state))
        return;
    if (h == h->remote->first) {
        log_warn("%s is gone from the list of hosts, and stays: the rendezvous of the "
                 "job is "
                 "there",
                 h->target->name);
        h->is_unlisted = false;
    } else if (h->state == HOST_RUNNING) {
        log_info("%s is gone from the list of hosts: its node leaves the job",
                 h->target->name);
        remote_host_send(h, CHANNEL_DRAIN, NULL, 0);
    } else {
        remote_host_note_failure(h, 0, "is gone from the list of hosts", "");
        remote_host_drop(h);
        h->state = HOST_FAILED;
    }
}

static void add_late_host(struct remote *r, const struct host *host)
{
    size_t active = 0;
    struct remote_host *h;

    for (size_t i = 0; i < r->count; i++)
        active += !host_state_is_over(r->host[i].state) && !r->host[i].is_unlisted;
    if (active >= r->job->max_nodes || r->count == r->room) {
        log_info(
            "%s is new in the list of hosts, and not needed: the job has %zu nodes",
            host->name, active);
        return;
    }
    log_info("%s is new in the list of hosts: its node joins the job", host->name);
    remote_host_init(r, r->count, NULL);
    h = &r->host[r->count++];
    h->later = (struct host){ .name = xstrdup(host->name),
                              .slots = r->job->ignores_slots ? 0 : host->slots };
    h->target = &h->later;
}

static void on_list_changed(void *arg, const struct hosts *list)
{
    struct remote *r = arg;

    if (r->is_ending || (r->first && host_state_is_over(r->first->state)))
        return;
    if (!r->is_elastic) {
        log_warn("the list of hosts has changed, and this job has a fixed number of "
                 "nodes; --nnodes=MIN:MAX follows it");
        return;
    }
    for (size_t i = 0; i < r->count; i++) {
        bool is_listed = false;

        for (size_t j = 0; j < list->count && !is_listed; j++)
            is_listed = strcmp(list->host[j].name, r->host[i].target->name) == 0;
        if (!is_listed && !r->host[i].is_unlisted)
            drain_host(&r->host[i]);
    }
    for (size_t j = 0; j < list->count; j++)
        if (!find_listed_host(r, list->host[j].name))
            add_late_host(r, &list->host[j]);
    loop_timer_arm(&r->connect, clock_ms());
}

static void on_list_failed(void *arg, const char *why)
{
    log_warn("the list of hosts stays as it was: %s", why);
}

void remote_follow_list(struct remote *r)
{
    const struct host_watch_calls calls = { on_list_changed, on_list_failed, r };

    if (r->job->wanted)
        r->watch = host_watch_create(r->loop, r->job->wanted, r->job->hosts, &calls);
    if (r->watch)
        r->is_elastic |= r->job->min_nodes && r->job->min_nodes < r->job->max_nodes;
}
