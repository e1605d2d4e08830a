/* SPDX-License-Identifier: MIT */
/*
 * A host that takes no part, ends or is lost, and what that does to the job: it goes on
 * without it, on another first host, or ends.
 */
#include "launcher/remote/remote_internal.h"
#include "launcher/remote/tool_lines.h"

#include <signal.h>

#include "launcher/remote/channel.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"

#define END_WITHIN_MS 60000 /* for hosts that were told that the launcher ends */

void remote_fail_host(struct remote_host *h)
{
    char line[256];

    remote_report_last_line(h->failure.said, line, sizeof(line));
    if (h->remote->has_started && !h->remote->is_ending)
        log_warn("%s %s%s%s: the job goes on without it", h->target->name,
                 h->failure.what, *line ? ": " : "", line);
    else
        log_debug("%s %s: %s", h->target->name, h->failure.what, h->failure.said);
    remote_host_close(h);
}

void remote_lead(struct remote_host *h)
{
    struct remote *r = h->remote;

    if (h != r->first)
        tool_lines_end_all(r->tools);
    r->first = h;
}

/* The first host is gone: with fewer nodes the job goes on on another one. */
static bool lead_elsewhere(struct remote *r)
{
    for (size_t i = 0; i < r->count && r->is_elastic; i++)
        if (r->host[i].state == HOST_RUNNING) {
            remote_lead(&r->host[i]);
            return true;
        }
    return false;
}

void remote_end_host(struct remote_host *h)
{
    struct remote *r = h->remote;

    remote_host_close(h);
    if (h == r->first && h->state == HOST_EXITED &&
        (h->code == 0 || !lead_elsewhere(r))) {
        /* They would come to a job that has ended. */
        for (size_t i = 0; i < r->count; i++)
            if (r->host[i].state < HOST_RUNNING) {
                remote_host_drop(&r->host[i]);
                r->host[i].state = HOST_FAILED;
            }
        loop_timer_arm(&r->others, clock_ms() + REMOTE_OTHERS_END_MS);
    }
}

void remote_lose_host(struct remote_host *h)
{
    struct remote *r = h->remote;
    uint8_t signo = SIGTERM;
    char line[256];

    remote_report_last_line(h->link.said, line, sizeof(line));
    remote_host_close(h);
    if (r->is_ending)
        return;
    if (r->is_elastic && (h != r->first || lead_elsewhere(r))) {
        log_warn("the connection to %s is lost%s%s: the job goes on without it",
                 h->target->name, *line ? ": " : "", line);
        return;
    }
    log_error("the connection to %s is lost%s%s: the job ends", h->target->name,
              *line ? ": " : "", line);
    r->has_lost = true;
    if (h == r->first)
        remote_end_hosts(r);
    else
        remote_host_send(r->first, CHANNEL_SIGNAL, &signo, 1);
    loop_timer_arm(&r->others, clock_ms() + REMOTE_OTHERS_END_MS);
}

/* Each host reads that this process is gone, and ends its node. */
void remote_end_hosts(struct remote *r)
{
    r->is_ending = true;
    loop_timer_cancel(&r->waiting);
    for (size_t i = 0; i < r->count; i++) {
        struct remote_host *h = &r->host[i];

        if (host_state_is_over(h->state))
            continue;
        if (h->state == HOST_RUNNING) {
            host_link_shut(&h->link);
            host_link_end(&h->link, END_WITHIN_MS);
        } else {
            remote_host_drop(h);
            h->state = HOST_FAILED;
        }
    }
    loop_timer_arm(&r->connect, clock_ms());
}
