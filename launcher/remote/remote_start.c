/* SPDX-License-Identifier: MIT */
/*
 * From the list of hosts to a job that runs: which connection is made when, whether the
 * job starts once all have answered, and hosts that come and go while it runs.
 */
#include "launcher/remote/remote_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/hosts/host_watch.h"
#include "launcher/remote/own_stdin.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

static size_t count_hosts(const struct remote *r, bool (*is)(enum host_state))
{
    size_t n = 0;

    for (size_t i = 0; i < r->count; i++)
        n += is(r->host[i].state);
    return n;
}

static void connect_hosts(struct remote *r)
{
    uint64_t now = clock_ms(), next = UINT64_MAX;
    size_t connecting = count_hosts(r, host_state_is_connecting);

    for (size_t i = 0; i < r->count && !r->is_ending; i++) {
        struct remote_host *h = &r->host[i];

        if (h->state != HOST_IDLE)
            continue;
        if (h->not_before_ms > now) {
            next = h->not_before_ms < next ? h->not_before_ms : next;
            continue;
        }
        if (connecting++ < REMOTE_CONNECTING_MAX)
            remote_host_handle_event(h, HOST_EV_CONNECT);
    }
    if (next != UINT64_MAX)
        loop_timer_arm(&r->connect, next);
}

/* "10.0.0.1:4711,[fd00::1]:4711" */
static char *format_endpoints(const struct remote_host *h)
{
    char *list = xstrdup("");

    for (char **a = h->hello.addresses; *a; a++) {
        struct net_addr number;
        struct err e;
        const char *form = strchr(*a, ':') ? "%s%s[%s]:%u" : "%s%s%s:%u";
        char *more = xasprintf(form, list, *list ? "," : "", *a, h->port);

        if (net_parse_host(*a, h->port, &number, &e) < 0) { /* it is from the network */
            free(more);
            continue;
        }
        free(list);
        list = more;
    }
    return list;
}

static void start_hosts(struct remote *r, uint32_t nodes)
{
    const struct remote_job *job = r->job;
    int32_t node_rank = 0;

    r->nodes = r->max_nodes = nodes;
    if (r->is_elastic && r->watch && job->max_nodes > nodes)
        r->max_nodes = job->max_nodes;
    for (size_t i = 0; i < r->count; i++) {
        struct remote_host *h = &r->host[i];

        if (h->state != HOST_READY)
            continue;
        if (!r->first) {
            r->first = h;
            r->endpoints = r->max_nodes > 1 || job->detach ? format_endpoints(h)
                                                           : xstrdup("");
        }
        remote_host_start(h, node_rank++);
    }
    r->has_started = true;
    loop_timer_cancel(&r->waiting);
    if (job->reads_stdin && !job->detach)
        own_stdin_start(r->input);
}

static struct remote_failure *list_failures(const struct remote *r, size_t *count)
{
    struct remote_failure *list = xcalloc(r->count + 1, sizeof(*list));

    *count = 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->host[i].state == HOST_FAILED)
            list[(*count)++] = r->host[i].failure;
    return list;
}

/* All hosts have answered, or failed. */
static void decide_start(struct remote *r)
{
    size_t failed, ready;
    struct remote_failure *failures = list_failures(r, &failed);
    uint32_t wanted = r->job->min_nodes ? r->job->min_nodes : (uint32_t)r->count;

    ready = r->count - failed;
    if (failed)
        remote_report_failures(failures, failed, r->count);
    if (ready >= wanted) {
        if (failed)
            log_warn("the job starts with %zu of %zu hosts", ready, r->count);
        start_hosts(r, (uint32_t)ready);
    } else {
        if (ready > 0)
            log_error("the job needs %" PRIu32 " host%s; --nnodes=MIN:MAX starts with "
                      "fewer",
                      wanted, text_plural(wanted));
        r->code = remote_report_code(failures, failed);
        remote_end_hosts(r);
    }
    free(failures);
}

void remote_check_progress(struct remote *r)
{
    bool all_closed = true;

    if (!r->has_started && !r->is_ending &&
        count_hosts(r, host_state_has_answered) == r->count)
        decide_start(r);
    for (size_t i = 0; i < r->count; i++)
        all_closed &= host_state_is_over(r->host[i].state) && !r->host[i].link.is_open;
    if (all_closed)
        loop_stop(r->loop);
}

void remote_on_connect_due(void *arg)
{
    struct remote *r = arg;

    connect_hosts(r);
    remote_check_progress(r);
}

/* -- hosts that come and go -------------------------------------------------------- */

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
