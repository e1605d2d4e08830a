/* SPDX-License-Identifier: MIT */
#include "agent/agent_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/hosting/owner_lookup.h"
#include "agent/interface/event_file.h"
#include "agent/interface/job_messages.h"
#include "agent/join_request.h"
#include "agent/memory/keeper.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/server/server.h"

static void on_start(struct agent *a, const struct msg *m)
{
    a->epoch = m->epoch;
    a->start = m->start;
    agent_handle_event(a, AGENT_EV_START);
}

/* After a Ctrl-C, the person at this terminal knows it. */
static void print_ended_by(struct agent *a, const char *text)
{
    if (!a->signals.typed)
        job_messages_ended_by(a->messages, text);
}

static void on_done(struct agent *a, const struct msg *m)
{
    a->result = m->done;
    if (m->done.reason == JOB_REASON_USER)
        print_ended_by(a, m->done.text);
    agent_take_exit_code(a, &m->done);
    a->linger.has_left = m->done.reason == JOB_REASON_RELEASED;
    if (!a->linger.has_left)
        rendezvous_host_stop_keeping(&a->rendezvous);
    agent_handle_event(a, AGENT_EV_DONE);
}

static void on_refused(struct agent *a, const struct msg *m)
{
    log_error("%s", m->refused.text);
    a->linger.until_job_ends = m->refused.why == REFUSED_UNFIT &&
                               job_can_spare(&a->config->job) &&
                               rendezvous_host_must_stay(&a->rendezvous, a->config);
    a->exit_code = agent_code_of_refusal(m->refused.why);
    agent_handle_event(a, AGENT_EV_REFUSED);
}

static void on_stop(struct agent *a, const struct msg *m)
{
    a->epoch = m->epoch; /* the epoch may have ended before it began here */
    a->stop = m->stop;
    a->obeys_until_ms = clock_ms() + m->stop.grace_ms + STOP_MARGIN_MS;
    job_messages_cause(a->messages, &m->stop, m->epoch);
    if (m->stop.cause == JOB_CAUSE_USER)
        print_ended_by(a, m->stop.text);
    agent_handle_event(a, AGENT_EV_STOP);
}

static void on_members(struct agent *a, const struct msg *m)
{
    epoch_store_allow(&a->store, a->client, &m->members);
}

static void on_beat(struct agent *a, const struct msg *m)
{
    job_messages_waiting(a->messages, &m->beat);
}

/* Once. */
static void warn_of_daemon(struct agent *a)
{
    const struct config *c = a->config;
    const char *flag = c->http           ? "--http"
                       : c->on_event     ? "--on-event"
                       : c->metrics_file ? "--metrics-file"
                                         : NULL;

    if (flag && !a->warned_of_daemon &&
        session_is_with_daemon(client_session(a->client)))
        log_warn("%s has no effect here: the rendezvous of this job is a crund, which "
                 "has such flags of its own",
                 flag);
    a->warned_of_daemon = true;
}

static void on_joined(struct agent *a, const struct msg *m)
{
    warn_of_daemon(a);
    if (*m->joined.host)
        memcpy(a->host, m->joined.host, sizeof(a->host));
    event_file_set_instance(a->events, session_instance(client_session(a->client)));
    job_messages_joined(a->messages, &m->joined);
}

static void on_notice(struct agent *a, const struct msg *m)
{
    if (!job_messages_are_first_nodes(a->messages))
        log_info("%s", m->notice.text);
    event_file_add(a->events, *m->notice.kind ? m->notice.kind : "notice", a->epoch,
                   "%s", m->notice.text);
}

static void on_checkpoint_asked(struct agent *a, const struct msg *m)
{
    if (m->epoch != a->epoch)
        return;
    a->obeys_until_ms = clock_ms() + m->ask_checkpoint.within_ms;
    progress_monitor_request_checkpoint(a->workers.progress,
                                        m->ask_checkpoint.within_ms);
    client_hurry(a->client); /* a node that stays silent is not waited for */
}

static void on_stacks_asked(struct agent *a, const struct msg *m)
{
    progress_monitor_ask_stacks(a->workers.progress, &m->ask_stacks);
}

static void on_logs_asked(struct agent *a, const struct msg *m)
{
    logs_ask(a->workers.logs, &m->ask_logs);
}

static void on_find_owners(struct agent *a, const struct msg *m)
{
    struct msg answer = { .type = MSG_OWNERS };

    owner_lookup_answer(&m->ask_owners, &answer.owners);
    agent_send_report(a, &answer);
}

static void on_owners_found(struct agent *a, const struct msg *m)
{
    epoch_store_owners_found(&a->store, &m->owners);
}

static void on_keep(struct agent *a, const struct msg *m)
{
    struct msg answer = { .type = MSG_KEEPING, .keeping = { .id = m->keep.id } };
    struct server_standby standby = { .id = m->keep.id,
                                      .election_ms = m->keep.election_ms,
                                      .instance = m->instance,
                                      .node = client_node(a->client),
                                      .host = a->host,
                                      .witness = m->keep.witness,
                                      .witness_id = m->keep.witness_id,
                                      .alone = m->keep.alone };
    char address[NET_TEXT_SIZE];
    struct err e;

    if (a->config->local_addr)
        snprintf(address, sizeof(address), "%s", a->config->local_addr);
    else if (!client_local_address(a->client, address, sizeof(address)))
        return;
    answer.keeping.port = rendezvous_host_keep(&a->rendezvous, &standby, address, &e);
    if (!answer.keeping.port)
        log_at(*m->keep.witness ? LOG_WARN : LOG_DEBUG,
               "this node keeps no records of the rendezvous: %s", e.text);
    agent_send_report(a, &answer);
}

/* Where the rendezvous is, and which nodes could take it over. */
static void on_keepers(struct agent *a, const struct msg *m)
{
    const struct msg_keepers *k = &m->keepers;
    char host[HOST_NAME_MAX_BYTES + 1];

    if (k->anew) {
        if (a->epoch == 0)
            agent_join_elsewhere(a, k->endpoints);
        return;
    }
    snprintf(host, sizeof(host), "%.*s", (int)strcspn(k->hosts, ","), k->hosts);
    if (*a->keeper && strcmp(a->keeper, host) != 0) {
        char text[2 * HOST_NAME_MAX_BYTES + 64];

        proto_keepers_moved(k, host, text, sizeof(text));
        if (job_messages_cover_rendezvous(a->messages))
            log_info("%s", text);
        event_file_add(a->events, "moved", a->epoch, "%s", text);
    }
    log_debug("the records of the rendezvous are on %s%s", k->hosts,
              k->safe ? ": it outlives the loss of one" : "");
    memcpy(a->keeper, host, sizeof(a->keeper));
    a->has_keepers = strchr(k->hosts, ',') != NULL;
    agent_note_host(a);
    a->is_of_pair = k->safe && !proto_keepers_are_several(k->endpoints);
    client_set_keepers(a->client, k->endpoints, k->safe, a->config->witness != NULL);
}

static void on_order(void *arg, const struct msg *m)
{
    static void (*const handlers[MSG_TYPE_MAX])(struct agent *, const struct msg *) = {
        [MSG_JOINED] = on_joined,
        [MSG_MEMBERS] = on_members,
        [MSG_MEMORY_AT] = agent_note_holders,
        [MSG_START] = on_start,
        [MSG_STOP] = on_stop,
        [MSG_ASK_CHECKPOINT] = on_checkpoint_asked,
        [MSG_BEAT] = on_beat,
        [MSG_NOTICE] = on_notice,
        [MSG_ASK_STACKS] = on_stacks_asked,
        [MSG_ASK_LOGS] = on_logs_asked,
        [MSG_FIND_OWNERS] = on_find_owners,
        [MSG_OWNERS_FOUND] = on_owners_found,
        [MSG_FLUSH] = agent_on_flush,
        [MSG_KEEP] = on_keep,
        [MSG_KEEPERS] = on_keepers,
        [MSG_DONE] = on_done,
        [MSG_REFUSED] = on_refused,
    };
    struct agent *a = arg;

    a->has_joined = true;
    if (m->type < MSG_TYPE_MAX && handlers[m->type])
        handlers[m->type](a, m);
}

static void on_progress_asked(void *arg, struct msg_heartbeat *progress)
{
    struct agent *a = arg;
    char buf[sizeof(progress->containment)];
    const char *now = a->workers.guard
                          ? local_workers_containment(&a->workers, buf, sizeof(buf))
                          : a->containment;

    progress_monitor_fill_heartbeat(a->workers.progress, progress);
    gpu_monitor_fill_heartbeat(a->workers.gpus, progress);
    progress_monitor_note_gpus(a->workers.progress, progress);
    agent_fill_memory(a, &progress->memory);
    if (strcmp(now, a->containment) != 0)
        snprintf(progress->containment, sizeof(progress->containment), "%s", now);
}

/* Until this node has joined, each answer may say that the rendezvous is to be here. */
static void on_resolved(void *arg, const struct net_addr *list, size_t count,
                        const char *why)
{
    struct agent *a = arg;
    struct err e;

    if (a->has_joined || a->rendezvous.server)
        return;
    if (rendezvous_host_consider(&a->rendezvous, list, count, why, &e) < 0) {
        log_error("%s", e.text);
        a->exit_code = EXIT_USAGE;
        loop_stop(a->loop);
        return;
    }
    agent_note_host(a);
    if (a->rendezvous.server)
        client_use_server(a->client, a->rendezvous.server);
}

int agent_join_job(struct agent *a, const char *unfit, struct err *e)
{
    struct client_calls calls = { .order = on_order,
                                  .outage = agent_on_outage,
                                  .abandoned = agent_on_abandoned,
                                  .fence = agent_on_fence,
                                  .progress = on_progress_asked,
                                  .resolved = on_resolved,
                                  .arg = a };
    struct client_config cc;

    a->containment = guard_containment(a->workers.guard);
    join_request_fill(&cc, a->config, a->rendezvous.server, a->host, a->containment);
    if (a->elsewhere)
        cc.endpoints = a->elsewhere;
    cc.of_one |= a->elsewhere != NULL;
    cc.keys = a->keys;
    if (a->memory)
        cc.session.join.memory_port = memory_keeper_port(a->memory);
    snprintf(cc.session.join.unfit, sizeof(cc.session.join.unfit), "%s", unfit);
    a->client = client_create(a->loop, &cc, &calls, e);
    return a->client ? 0 : -1;
}
