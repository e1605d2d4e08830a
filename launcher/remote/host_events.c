/* SPDX-License-Identifier: MIT */
/*
 * What the connections report about the hosts, as events.
 */
#include "launcher/remote/remote_internal.h"
#include "launcher/remote/ssh_failure.h"

#include <stdlib.h>
#include <string.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/own_stdin.h"
#include "launcher/remote/tool_lines.h"
#include "rendezvous/common/base/bytes.h"
#include "rendezvous/common/base/version.h"
#include "rendezvous/common/base/xalloc.h"

static void on_mark(void *arg, enum host_link_mark mark)
{
    if (mark == LINK_ABSENT)
        remote_host_handle_event(arg, HOST_EV_ABSENT);
    else if (mark == LINK_WANTED)
        remote_host_handle_event(arg, HOST_EV_WANTED);
}

static void receive_hello(struct remote_host *h, const struct channel_frame *frame)
{
    struct err e;

    remote_hello_clear(&h->hello);
    if (remote_hello_parse(frame->body, frame->size, &h->hello, &e) < 0) {
        remote_host_note_failure(h, 0, "is not a crun of this version", e.text);
        remote_host_handle_event(h, HOST_EV_OTHER);
    } else if (h->hello.channel != CHANNEL_VERSION ||
               strcmp(h->hello.version, CRUN_VERSION) != 0) {
        remote_host_note_failure(h, 0, "has another version of crun", h->hello.version);
        remote_host_handle_event(h, HOST_EV_OTHER);
    } else {
        remote_host_handle_event(h, HOST_EV_HELLO);
    }
}

static void receive_refused(struct remote_host *h, const struct channel_frame *frame)
{
    char text[sizeof(((struct err *)0)->text)];
    uint8_t code = frame->size ? frame->body[0] : REMOTE_BAD_ORDER;

    snprintf(text, sizeof(text), "%.*s", frame->size ? (int)frame->size - 1 : 0,
             (const char *)frame->body + 1);
    remote_host_note_failure(h, code, remote_report_refusal(code), text);
    remote_host_handle_event(h, HOST_EV_REFUSED);
}

static void receive_listening(struct remote_host *h, const struct channel_frame *frame)
{
    if (frame->size == 2)
        h->port = (uint16_t)(frame->body[0] | frame->body[1] << 8);
    remote_host_handle_event(h, HOST_EV_LISTENING);
}

static void receive_exited(struct remote_host *h, const struct channel_frame *frame)
{
    h->code = frame->size ? frame->body[0] : EXIT_FAILURE;
    if (h->state < HOST_RUNNING)
        remote_host_note_failure(h, 0, "ended before the job began", "");
    remote_host_handle_event(h, HOST_EV_EXITED);
}

static void receive_taken(struct remote_host *h, const struct channel_frame *frame)
{
    if (frame->size == 4 && h->remote->input && h == h->remote->first)
        own_stdin_taken(h->remote->input, bytes_load32(frame->body));
}

static void receive_detached(struct remote_host *h, const struct channel_frame *frame)
{
    char *body = xasprintf("%.*s", (int)frame->size, (const char *)frame->body);
    size_t log = strlen(body);

    free(h->log);
    free(h->reach);
    h->log = body;
    h->reach = log < frame->size ? xasprintf("%.*s", (int)(frame->size - log - 1),
                                             (const char *)frame->body + log + 1)
                                 : NULL;
    remote_host_handle_event(h, HOST_EV_DETACHED);
}

/* Before the start each host would say the same. */
static bool put_output(struct remote_host *h, int stream,
                       const struct channel_frame *frame)
{
    struct remote *r = h->remote;
    char *prefix;

    if (!r->has_started && h->index > 0)
        return true;
    if (!h->source[stream]) {
        prefix = r->job->host_prefix ? xasprintf("%s: ", h->target->name) : NULL;
        h->source[stream] = remote_output_add(r->output, stream, prefix);
        free(prefix);
    }
    return remote_output_put(r->output, stream, h->source[stream],
                             (const char *)frame->body, frame->size);
}

/* Of node rank 0, to which the connections of tools go. */
static void handle_tool_frame(struct remote_host *h, const struct channel_frame *frame)
{
    if (h == h->remote->first)
        tool_lines_write(h->remote->tools, frame->number, frame->body, frame->size);
}

static void receive_claim(struct remote_host *h, const struct channel_frame *frame)
{
    struct pair_claim c;
    bool is_new;

    if (frame->size != sizeof(c) || h->state != HOST_RUNNING)
        return;
    memcpy(&c, frame->body, sizeof(c));
    if (!witness_claims_take(&h->remote->claims, &c, &is_new))
        return;
    remote_host_send(h, CHANNEL_CLAIMED, &c, sizeof(c));
    if (is_new)
        remote_lead(h);
}

static void on_malformed(void *arg, const char *why)
{
    struct remote_host *h = arg;

    remote_host_note_failure(h, 0, "does not speak as crun does", why);
    remote_host_handle_event(h, HOST_EV_CLOSED);
}

static bool on_frame(void *arg, const struct channel_frame *frame)
{
    static const struct {
        void (*receive)(struct remote_host *, const struct channel_frame *);
        enum host_event event; /* 0: at any time */
    } messages[] = {
        [CHANNEL_HELLO] = { receive_hello, HOST_EV_HELLO },
        [CHANNEL_REFUSED] = { receive_refused, HOST_EV_REFUSED },
        [CHANNEL_LISTENING] = { receive_listening, HOST_EV_LISTENING },
        [CHANNEL_EXITED] = { receive_exited, HOST_EV_EXITED },
        [CHANNEL_STDIN_TAKEN] = { receive_taken, 0 },
        [CHANNEL_DETACHED] = { receive_detached, HOST_EV_DETACHED },
        [CHANNEL_TOOL_OUT] = { handle_tool_frame, 0 },
        [CHANNEL_CLAIM] = { receive_claim, 0 },
    };
    struct remote_host *h = arg;
    uint8_t type = frame->type;

    if (type == CHANNEL_OUT || type == CHANNEL_ERR)
        return put_output(h, type == CHANNEL_ERR ? REMOTE_ERR : REMOTE_OUT, frame);
    if (type >= sizeof(messages) / sizeof(*messages) || !messages[type].receive)
        return true;
    if (!messages[type].event || host_state_expects(h->state, messages[type].event))
        messages[type].receive(h, frame);
    else if (!host_state_is_over(h->state))
        on_malformed(h, "a message out of order");
    return true;
}

/* Only in its first phase a connection says by its end what is wrong. */
static enum host_event event_of_end(struct remote_host *h)
{
    bool busy;

    (void)ssh_failure_explain(h->link.said, &busy);
    if (h->state == HOST_CONNECTING && h->link.has_shell && !h->past_path)
        return HOST_EV_OTHER;
    return h->state == HOST_CONNECTING && busy && h->attempts < REMOTE_ATTEMPTS_MAX
               ? HOST_EV_BUSY
               : HOST_EV_CLOSED;
}

static void on_link_closed(void *arg)
{
    struct remote_host *h = arg;
    bool busy;

    if (!h->failure.what)
        remote_host_note_failure(h, 0, ssh_failure_explain(h->link.said, &busy),
                                 h->link.said);
    remote_host_handle_event(h, event_of_end(h));
    remote_check_progress(h->remote);
}

struct host_link_calls remote_host_calls(struct remote_host *h)
{
    return (struct host_link_calls){ .mark = on_mark,
                                     .frame = on_frame,
                                     .malformed = on_malformed,
                                     .closed = on_link_closed,
                                     .arg = h };
}

void remote_host_on_timer(void *arg)
{
    struct remote_host *h = arg;

    remote_host_note_failure(h, 0, "did not answer in time", h->link.said);
    remote_host_handle_event(h, HOST_EV_TIMEOUT);
}
