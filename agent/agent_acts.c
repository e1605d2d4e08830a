/* SPDX-License-Identifier: MIT */
/* The acts of agent_state.c's table, a function for each. */
#include "agent/agent_internal.h"

#include <string.h>

#include "agent/guard/guard.h"
#include "agent/interface/event_file.h"
#include "agent/interface/job_messages.h"
#include "agent/workers/macros.h"
#include "rendezvous/common/base/log.h"

void agent_send_report(struct agent *a, struct msg *m)
{
    m->epoch = a->epoch;
    if (a->client)
        client_report(a->client, m);
}

static void report_own_failure(struct agent *a, const char *why, bool final)
{
    struct msg m = { .type = MSG_FAILED };

    failure_set_of_agent(&m.failed, a->start.first_rank, why, final);
    agent_send_report(a, &m);
}

static void act_start(struct agent *a)
{
    struct msg ready = { .type = MSG_STORE_READY };
    char lacking[sizeof("${free_port:}") + FREE_PORT_NAME_MAX];
    struct progress_store page;
    struct err e;

    failure_list_clear(&a->failures);
    agent_drop_held_failures(a);
    a->stop_waits = false;
    a->store.token = (struct store_epoch){ .keys = a->keys,
                                           .instance = *session_instance(
                                               client_session(a->client)),
                                           .epoch = a->epoch };
    if (a->start.host_store) {
        if (epoch_store_open(&a->store, a->client, &ready.store_ready, &e) < 0) {
            err_wrap(&e, "the store of rank 0");
            report_own_failure(a, e.text, true);
            return;
        }
        memcpy(a->start.address, ready.store_ready.address, sizeof(a->start.address));
        a->start.port = ready.store_ready.port;
        memcpy(a->start.free_ports, ready.store_ready.free_ports,
               sizeof(a->start.free_ports));
        agent_send_report(a, &ready);
    } else {
        epoch_store_move_away(&a->store);
    }
    if (a->workers.guard)
        guard_set_store(a->workers.guard,
                        epoch_store_page(&a->store, &a->start, &page) ? &page : NULL);
    explicit_bzero(&page, sizeof(page));
    if (!*a->start.host)
        memcpy(a->start.host, a->start.address, sizeof(a->start.host));
    if (epoch_store_tunnel(&a->store, &a->start, &e) < 0) {
        report_own_failure(a, e.text, true);
        return;
    }
    if (macros_lacking_port(a->config, &a->start, lacking, sizeof(lacking))) {
        err_set(&e,
                "rank 0's node has sent no port for %s: it needs the same arguments, "
                "and the same version of crun",
                lacking);
        report_own_failure(a, e.text, true);
        return;
    }
    rendezvous_host_found(&a->rendezvous);
    job_messages_formed(a->messages, &a->start, a->epoch);
    event_file_add_formed(a->events, a->epoch, &a->start);
    agent_begin_memory(a);
    if (local_workers_start(&a->workers, &a->start, a->epoch,
                            session_instance(client_session(a->client)), &e) < 0)
        report_own_failure(a, e.text, true);
    agent_update_local(a);
}

static void act_report_stopped(struct agent *a)
{
    job_messages_stopped(a->messages);
    epoch_store_close(&a->store);
    agent_end_memory(a);
}

static void act_report_failed(struct agent *a)
{
    struct msg m = { .type = MSG_FAILED,
                     .failed = a->failures.item[a->failures.count - 1] };

    agent_send_report(a, &m);
}

static void act_report_finished(struct agent *a)
{
    struct msg m = { .type = MSG_FINISHED };

    progress_monitor_end(a->workers.progress);
    agent_send_report(a, &m);
}

static void act_report_guard_died(struct agent *a)
{
    report_own_failure(a, a->guard_died_why, false);
}

void agent_leave(struct agent *a)
{
    epoch_store_release(&a->store);
    if (a->client)
        client_bye(a->client);
    /* the job goes on without a node that was released */
    host_linger_begin(&a->linger,
                      a->result.reason == JOB_REASON_RELEASED ? NULL : a->relays);
}

static void act_leave(struct agent *a)
{
    local_workers_release(&a->workers);
    agent_flush_memory(a);
}

static void (*const acts[AGENT_ACT_COUNT])(struct agent *) = {
    [AGENT_ACT_START] = act_start,
    [AGENT_ACT_STOP] = agent_act_stop,
    [AGENT_ACT_REPORT_STOPPED] = act_report_stopped,
    [AGENT_ACT_REPORT_FAILED] = act_report_failed,
    [AGENT_ACT_REPORT_FINISHED] = act_report_finished,
    [AGENT_ACT_REPORT_GUARD_DIED] = act_report_guard_died,
    [AGENT_ACT_END] = agent_act_end,
    [AGENT_ACT_LEAVE] = act_leave,
};

void agent_handle_event(struct agent *a, enum agent_event event)
{
    struct agent_edge edge = agent_edge(a->state, event);

    log_debug("%s --%s--> %s", agent_state_name(a->state), agent_event_name(event),
              agent_state_name(edge.to));
    a->state = edge.to;
    if (edge.act != AGENT_ACT_NONE)
        acts[edge.act](a);
}
