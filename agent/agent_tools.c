/* SPDX-License-Identifier: MIT */
#include "agent/agent_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/interface/event_file.h"
#include "agent/interface/local_job.h"
#include "agent/interface/socket_relay.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/notify.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/server/server.h"
#include "rendezvous/show/views/job_json.h"

/* What tools of this machine see of this crun (local_job.h). */

/* Only then its other nodes, and so its number of nodes, are known. */
bool agent_has_formed(const struct agent *a)
{
    return a->start.world_size > 0;
}

void agent_keep_facts(struct agent *a)
{
    const struct session *session = a->client ? client_session(a->client) : NULL;
    const char *made = a->workers.logs ? logs_made_directory(a->workers.logs) : NULL;

    if (agent_has_formed(a) && session)
        id128_format(session_instance(session), a->instance);
    if (made) {
        free(a->log_folder);
        a->log_folder = xstrdup(made);
    }
    if (a->workers.progress)
        a->last_step = progress_monitor_last_steps(a->workers.progress).step;
}

void agent_keep_past(struct agent *a)
{
    struct registry *g = a->rendezvous.server ? server_registry(a->rendezvous.server)
                                              : NULL;
    const struct job *job = g ? registry_jobs(g) : NULL;
    struct msg m;

    if (!job || a->past || !a->local ||
        !local_job_leaves_record(a->local, a->exit_code))
        return;
    registry_set_time(g, clock_ms(), clock_wall_ms());
    registry_show_job(g, job, ACCESS_AGENT, &m);
    a->past = cJSON_CreateObject();
    job_json_add_phases(a->past, "time", &m.job_status.time);
    job_json_add_phases(a->past, "last_restart", &m.job_status.last_restart);
    cJSON_AddItemToObject(a->past, "history",
                          registry_show_history(g, job, ACCESS_AGENT));
}

static void fill_local_facts(void *arg, struct job_facts *facts)
{
    struct agent *a = arg;
    const struct config *c = a->config;

    agent_keep_facts(a);
    if (a->log_folder && access(a->log_folder, F_OK) < 0) { /* it was empty */
        free(a->log_folder);
        a->log_folder = NULL;
    }
    facts->run_id = c->run_id;
    facts->name = job_name(c->run_id, c->job.program, a->name, sizeof(a->name));
    facts->program = c->job.program;
    facts->log_dir = a->log_folder;
    facts->keeps_events = c->log_dir != NULL;
    facts->log_mode = (mode_t)c->log_mode;
    facts->rendezvous = c->endpoints;
    facts->is_host = a->has_hosted;
    facts->end_file = c->end_file;
    facts->instance = a->instance;
    facts->nodes = agent_has_formed(a) ? a->start.group_size : c->job.min_nodes;
    facts->workers = agent_has_formed(a) ? a->start.world_size : c->workers;
}

static void relay_local_connection(struct agent *a, int fd)
{
    struct relay_target target = { .address = a->client ? client_peer(a->client) : NULL,
                                   .keys = a->keys,
                                   .rendezvous_user = a->config->rendezvous_user };
    char why[ERROR_TEXT_MAX_BYTES + 1];

    if (!a->has_joined)
        snprintf(why, sizeof(why), "waits for its rendezvous (%.200s)",
                 a->config->endpoints ? a->config->endpoints : "in this process");
    else
        snprintf(why, sizeof(why), "its rendezvous (%.200s) is out of reach",
                 a->config->endpoints);
    target.why = why;
    if (!a->has_joined)
        target.address = NULL;
    if (!a->relays)
        a->relays = socket_relays_create(a->loop);
    socket_relays_add(a->relays, fd, &target);
}

static void on_local_connected(void *arg, int fd, uid_t uid)
{
    struct agent *a = arg;

    if (a->rendezvous.server)
        server_adopt(a->rendezvous.server, fd);
    else
        relay_local_connection(a, fd);
}

static void on_event_written(void *arg, const struct msg_event *event)
{
    struct agent *a = arg;

    if (a->local && !a->has_hosted)
        local_job_add_event(a->local, event);
}

void agent_open_local(struct agent *a)
{
    struct local_job_calls calls = { .connected = on_local_connected,
                                     .facts = fill_local_facts,
                                     .arg = a };

    a->local = local_job_create(a->loop, &calls);
    event_file_listen(a->events, on_event_written, a);
}

void agent_update_local(struct agent *a)
{
    if (a->local)
        local_job_update(a->local);
}

void agent_note_host_event(void *arg, const struct msg_event *event)
{
    struct agent *a = arg;

    notify_event(a->notify, event);
    if (a->local)
        local_job_add_event(a->local, event);
}

static char *print_report(const struct failure_report *report)
{
    struct failure_report plain = *report;
    size_t size = 0;
    char *text = NULL;
    FILE *out;

    if (report->done->failure.kind == FAILURE_NONE)
        return NULL;
    plain.colour = false;
    out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    failure_print_report(&plain, out);
    fclose(out);
    return text;
}

void agent_end_local(struct agent *a, const struct failure_report *report)
{
    char *text = print_report(report);
    struct job_result result = {
        .state = agent_end_state(a),
        .reason = proto_reason_name(a->result.reason),
        .text = a->result.text,
        .report = text,
        .exit_code = a->exit_code,
        .restarts = a->result.restarts,
        .max_restarts = a->result.max_restarts,
        .epoch = a->epoch,
        .step = a->last_step,
        .past = a->past,
    };

    if (a->local)
        local_job_end(a->local, &result);
    local_job_destroy(a->local);
    socket_relays_destroy(a->relays);
    a->local = NULL;
    free(a->log_folder);
    free(text);
    cJSON_Delete(a->past);
    a->past = NULL;
}
