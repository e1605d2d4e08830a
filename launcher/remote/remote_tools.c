/* SPDX-License-Identifier: MIT */
#include "launcher/remote/remote_internal.h"

#include <signal.h>

#include "agent/interface/local_job.h"
#include "agent/interface/socket_relay.h"
#include "launcher/remote/channel.h"
#include "launcher/remote/tool_lines.h"
#include "rendezvous/wire/protocol/job_name.h"

static void put_tool_frame(struct remote *r, enum channel_type type, uint32_t number,
                           const void *body, size_t size)
{
    struct evbuffer *out = r->first && r->first->link.is_open
                               ? host_link_output(&r->first->link)
                               : NULL;

    if (out)
        channel_put(out, type, number, body, size);
}

static void on_tool_open(void *arg, uint32_t number)
{
    put_tool_frame(arg, CHANNEL_TOOL_OPEN, number, NULL, 0);
}

static void on_tool_sent(void *arg, uint32_t number, const void *data, size_t size)
{
    put_tool_frame(arg, CHANNEL_TOOL_IN, number, data, size);
}

static void on_tool_connected(void *arg, int fd, uid_t uid)
{
    const struct relay_target nowhere = { .why = "waits for its hosts to answer" };
    struct remote *r = arg;

    if (r->has_started && r->first && r->first->state == HOST_RUNNING)
        tool_lines_add(r->tools, fd);
    else
        socket_relays_add(r->refusals, fd, &nowhere);
}

void remote_fill_facts(void *arg, struct job_facts *facts)
{
    struct remote *r = arg;
    const char *program = r->job->program ? r->job->program : "";

    facts->run_id = r->run_id;
    facts->name = job_name(r->run_id, program, r->name, sizeof(r->name));
    facts->program = program;
    facts->rendezvous = r->endpoints;
    facts->is_launcher = true;
    r->place = (struct job_reach){ .host = r->first ? r->first->target->name : NULL,
                                   .rsh = r->job->rsh,
                                   .ssh_args = r->job->ssh_args };
    facts->reach = r->place.host ? &r->place : NULL;
    facts->nodes = r->has_started ? r->nodes : (uint32_t)r->count;
}

void remote_open_tools(struct remote *r)
{
    const struct local_job_calls local = { .connected = on_tool_connected,
                                           .facts = remote_fill_facts,
                                           .arg = r };
    const struct tool_lines_calls lines = { on_tool_open, on_tool_sent, NULL, r };

    r->tools = tool_lines_create(r->loop, &lines);
    r->refusals = socket_relays_create(r->loop);
    r->local = local_job_create(r->loop, &local);
}

void remote_close_tools(struct remote *r)
{
    const struct job_result result = {
        .state = r->has_started ? "done" : "not-formed",
        .reason = r->code == 0                                          ? "success"
                  : r->code == 128 + SIGTERM || r->code == 128 + SIGINT ? "user"
                                                                        : "failure",
        .text = "",
        .exit_code = r->code,
    };

    local_job_end(r->local, r->goes_on ? NULL : &result);
    local_job_destroy(r->local);
    tool_lines_destroy(r->tools);
    socket_relays_destroy(r->refusals);
}
