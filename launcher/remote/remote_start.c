/* SPDX-License-Identifier: MIT */
/*
 * From the list of hosts to a job that runs: which connection is made when and by which
 * host, and whether the job starts once all have answered.
 */
#include "launcher/remote/remote_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/remote/own_stdin.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/net.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/xalloc.h"

static size_t count_hosts(const struct remote *r, bool (*is)(enum remote_host_state))
{
    size_t n = 0;

    for (size_t i = 0; i < r->count; i++)
        n += is(r->host[i].state);
    return n;
}

/* How many connections each path makes now: we, and the hosts that make some for us. */
struct remote_paths {
    unsigned direct, busy[REMOTE_BRANCHES_MAX], behind[REMOTE_BRANCHES_MAX];
    bool is_undecided; /* one of those hosts has not answered yet */
};

static void count_paths(const struct remote *r, struct remote_paths *p)
{
    *p = (struct remote_paths){ .direct = 0 };
    for (size_t i = 0; i < r->count; i++) {
        const struct remote_host *h = &r->host[i];
        bool busy = remote_host_is_connecting(h->state);

        if (!h->via)
            p->direct += busy;
        else {
            p->busy[h->via->index] += busy;
            p->behind[h->via->index]++;
        }
        if (i < r->branches)
            p->is_undecided |= h->state < HOST_CHECKING;
    }
}

/* Finds the path with the fewest hosts behind it. False: none has room now. */
static bool find_path(struct remote *r, struct remote_host *h, struct remote_paths *p)
{
    size_t share = (r->count - 1) / r->branches; /* without itself, rounded up */
    struct remote_host *best = NULL;
    bool is_full = false;

    h->via = NULL;
    if (h->index < r->branches || h->is_direct)
        return p->direct++ < REMOTE_CONNECTING_MAX;
    for (size_t i = 0; i < r->branches; i++) {
        struct remote_host *b = &r->host[i];

        if (!b->link.is_open || !b->link.is_greeted || remote_host_is_over(b->state))
            continue;
        /* its share only, while others may still come */
        if (p->busy[i] >= REMOTE_CONNECTING_MAX ||
            (p->is_undecided && p->behind[i] >= share))
            is_full = true;
        else if (!best || p->behind[i] < p->behind[best->index])
            best = b;
    }
    if (best) {
        p->busy[best->index]++;
        p->behind[best->index]++;
        h->via = best;
        return true;
    }
    if (is_full || p->is_undecided)
        return false;
    return p->direct++ < REMOTE_CONNECTING_MAX;
}

static void connect_hosts(struct remote *r)
{
    uint64_t now = clock_ms(), next = UINT64_MAX;
    struct remote_paths paths;

    count_paths(r, &paths);
    for (size_t i = 0; i < r->count && !r->is_ending; i++) {
        struct remote_host *h = &r->host[i];

        if (h->state != HOST_IDLE)
            continue;
        if (h->not_before_ms > now) {
            next = h->not_before_ms < next ? h->not_before_ms : next;
            continue;
        }
        if (find_path(r, h, &paths))
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
        count_hosts(r, remote_host_has_answered) == r->count)
        decide_start(r);
    for (size_t i = 0; i < r->count; i++)
        all_closed &= remote_host_is_over(r->host[i].state) && !r->host[i].link.is_open;
    if (all_closed)
        loop_stop(r->loop);
}

void remote_on_connect_due(void *arg)
{
    struct remote *r = arg;

    connect_hosts(r);
    remote_check_progress(r);
}
