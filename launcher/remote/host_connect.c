/* SPDX-License-Identifier: MIT */
/*
 * The way of a host from the first connection to its start, and the table of the acts.
 */
#include "launcher/remote/remote_internal.h"

#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/rsh_command.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/version.h"
#include "rendezvous/common/base/xalloc.h"

void remote_host_send(struct remote_host *h, enum channel_type type, const void *body,
                      size_t size)
{
    struct evbuffer *out = h->link.is_open ? host_link_output(&h->link) : NULL;

    if (out)
        channel_put(out, type, 0, body, size);
}

void remote_send_to_all(struct remote *r, enum channel_type type, const void *body,
                        size_t size)
{
    for (size_t i = 0; i < r->count; i++)
        if (!host_state_is_over(r->host[i].state) && r->host[i].link.is_greeted)
            remote_host_send(&r->host[i], type, body, size);
}

void remote_host_close(struct remote_host *h)
{
    loop_timer_cancel(&h->timer);
    host_link_shut(&h->link);
    host_link_end(&h->link, REMOTE_CLOSE_MS);
}

/* Nothing may be expected of it any more. */
void remote_host_drop(struct remote_host *h)
{
    loop_timer_cancel(&h->timer);
    host_link_close(&h->link);
    for (int i = 0; i < REMOTE_STREAMS; i++) {
        if (h->source[i])
            remote_output_remove(h->remote->output, h->source[i]);
        h->source[i] = NULL;
    }
}

static void arm_host_timer(struct remote_host *h, uint64_t ms)
{
    loop_timer_arm(&h->timer, clock_ms() + ms);
}

static void send_command(struct remote_host *h, char *command)
{
    struct evbuffer *out = host_link_output(&h->link);

    if (command && out)
        evbuffer_add(out, command, strlen(command));
    free(command);
}

void remote_host_note_failure(struct remote_host *h, uint8_t refusal, const char *what,
                              const char *said)
{
    free(h->said);
    h->said = xstrdup(said);
    h->failure = (struct remote_failure){
        .host = h->target->name, .what = what, .said = h->said, .refusal = refusal
    };
}

/* -- acts -------------------------------------------------------------------------- */

static void connect_host(struct remote_host *h)
{
    struct remote *r = h->remote;
    struct host_link_calls calls = remote_host_calls(h);
    char **argv = rsh_command(r->job->rsh, r->job->ssh_args, h->target->name);
    struct err e;
    int rc = host_link_open(&h->link, r->loop, argv, &calls, &e);

    rsh_free(argv);
    h->attempts++;
    h->failure.what = NULL;
    if (rc < 0) {
        remote_host_note_failure(h, REMOTE_BAD_FLAGS, "cannot be reached", e.text);
        remote_host_handle_event(h, HOST_EV_CLOSED);
        return;
    }
    arm_host_timer(h, REMOTE_ANSWER_MS);
    if (h->past_path)
        remote_host_handle_event(h, HOST_EV_ABSENT);
    else
        send_command(h, push_first_command(&r->push));
}

static void search_copy(struct remote_host *h)
{
    struct err e;
    char *command = push_second_command(&h->remote->push, &e);

    if (command) {
        arm_host_timer(h, REMOTE_ANSWER_MS);
        send_command(h, command);
        return;
    }
    remote_host_note_failure(h, 0, "could not get a copy of crun", e.text);
    remote_host_handle_event(h, HOST_EV_CLOSED);
}

static void push_copy(struct remote_host *h)
{
    struct err e;

    log_debug("%s has no crun " CRUN_VERSION ": it gets a copy", h->target->name);
    arm_host_timer(h, REMOTE_PUSH_MS);
    if (push_add_files(&h->remote->push, host_link_output(&h->link), &e) == 0)
        return;
    remote_host_note_failure(h, 0, "could not get a copy of crun", e.text);
    remote_host_handle_event(h, HOST_EV_CLOSED);
}

static void send_order(struct remote_host *h)
{
    struct remote *r = h->remote;
    struct remote_order o = { .argv = (char **)r->job->argv,
                              .environment = (char **)r->job->environment,
                              .folder = (char *)r->job->folder,
                              .run_id = r->run_id,
                              .key = r->key,
                              .workers = h->target->slots,
                              .detach = r->job->detach,
                              .live = remote_output_is_live(r->output),
                              .one_stream = remote_output_is_one(r->output) };
    struct evbuffer *out = host_link_output(&h->link);

    arm_host_timer(h, REMOTE_READY_MS);
    if (out)
        channel_put_secret(out, CHANNEL_ORDER, remote_order_format(&o));
}

static void reconnect_host(struct remote_host *h)
{
    host_link_close(&h->link);
    loop_timer_cancel(&h->timer);
    h->past_path = true;
    loop_timer_arm(&h->remote->connect, clock_ms());
}

/* The second attempts are spread over as much time again. */
static void retry_host(struct remote_host *h)
{
    struct id128 random = id128_random();
    uint64_t wait = REMOTE_RETRY_MS + random.byte[0] * REMOTE_RETRY_MS / 255;

    loop_timer_cancel(&h->timer);
    h->not_before_ms = clock_ms() + wait;
    loop_timer_arm(&h->remote->connect, h->not_before_ms);
}

void remote_host_start(struct remote_host *h, int32_t node_rank)
{
    const struct remote *r = h->remote;
    bool elastic = r->is_elastic && r->job->min_nodes < r->nodes;
    struct remote_start s = { .node_rank = node_rank,
                              .nodes = r->nodes,
                              .min_nodes = elastic ? r->job->min_nodes : r->nodes,
                              .max_nodes = r->max_nodes,
                              .host = h == r->first && *r->endpoints,
                              .endpoints = r->endpoints };
    char *text = remote_start_format(&s);

    remote_host_send(h, CHANNEL_START, text, strlen(text));
    free(text);
    remote_host_handle_event(h, HOST_EV_START);
    if (r->job->detach)
        remote_host_send(h, CHANNEL_DETACH, NULL, 0);
}

static void ready_host(struct remote_host *h)
{
    loop_timer_cancel(&h->timer);
    if (h->remote->has_started)
        remote_host_start(h, -1);
}

void remote_host_handle_event(struct remote_host *h, enum host_event event)
{
    static void (*const acts[HOST_ACT_COUNT])(struct remote_host *) = {
        [HOST_ACT_CONNECT] = connect_host,     [HOST_ACT_SEARCH] = search_copy,
        [HOST_ACT_PUSH] = push_copy,           [HOST_ACT_ORDER] = send_order,
        [HOST_ACT_RECONNECT] = reconnect_host, [HOST_ACT_RETRY] = retry_host,
        [HOST_ACT_READY] = ready_host,         [HOST_ACT_FAIL] = remote_fail_host,
        [HOST_ACT_END] = remote_end_host,      [HOST_ACT_LOSE] = remote_lose_host,
    };
    struct host_edge edge = host_state_edge(h->state, event);

    log_debug("%s: %s -> %s", h->target->name, host_state_name(h->state),
              host_state_name(edge.to));
    h->state = edge.to;
    if (acts[edge.act])
        acts[edge.act](h);
    loop_timer_arm(&h->remote->connect, clock_ms());
}
