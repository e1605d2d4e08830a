/* SPDX-License-Identifier: MIT */
/*
 * From the list of hosts to a job that runs: which connection is made when, and whether
 * the job starts once all have answered.
 */
#include "launcher/remote/remote_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
