/* SPDX-License-Identifier: MIT */
#include "agent/agent_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cleanup/fd_limits.h"
#include "agent/guard/guard.h"
#include "agent/interface/event_file.h"
#include "agent/interface/job_messages.h"
#include "agent/interface/status_line.h"
#include "agent/join_request.h"
#include "agent/logs/logs.h"
#include "agent/memory/keeper.h"
#include "agent/workers/macros.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/job/events/notify.h"

/*
 * Connects the parts of the agent: each occurrence becomes an event, the table in
 * agent_state.c gives its act, and one function for each act performs it.
 */

/* -- reports to the rendezvous -------------------------------------------------- */

void agent_send_report(struct agent *a, struct msg *m)
{
    m->epoch = a->epoch;
    if (a->client)
        client_report(a->client, m);
}

static void send_plain_report(struct agent *a, enum msg_type type)
{
    struct msg m = { .type = type };

    agent_send_report(a, &m);
}

static void on_store_client(void *arg, int fd)
{
    epoch_store_adopt(&((struct agent *)arg)->store, fd);
}

static void on_store_report(void *arg, struct msg *m)
{
    agent_send_report(arg, m);
}

/* -- acts ----------------------------------------------------------------------- */

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
    if (local_workers_start(&a->workers, &a->start, a->epoch, &e) < 0)
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
    progress_monitor_end(a->workers.progress);
    send_plain_report(a, MSG_FINISHED);
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

/* -- the workers ---------------------------------------------------------------- */

/* The guard ends the workers by itself: this process was asleep, or busy for too
 * long. */
static void on_fenced(void *arg)
{
    struct agent *a = arg;

    if (a->state == AGENT_ENDING || a->state == AGENT_OVER)
        return;
    log_error("no answer from the rendezvous in time: ending this node's workers");
    a->exit_code = EXIT_EVICTED;
    agent_handle_event(a, AGENT_EV_ABANDONED);
}

static void report_note(struct agent *a, enum note_kind kind, const char *text)
{
    struct msg m = { .type = MSG_NOTE, .note = { .kind = kind } };

    snprintf(m.note.text, sizeof(m.note.text), "%s", text);
    agent_send_report(a, &m);
}

static void on_remark(void *arg, enum note_kind kind, const char *text)
{
    struct agent *a = arg;

    log_warn("%s", text);
    event_file_add(a->events, proto_note_name(kind), a->epoch, "%s", text);
    report_note(a, kind, text);
}

/* It may have closed the connections whose end the failed worker saw. */
static void on_group_succeeded_late(void *arg, uint32_t rank)
{
    struct agent *a = arg;
    struct failure *f = a->failures.item;
    struct msg m = { .type = MSG_FAILED };

    if (a->state != AGENT_RUNNING || !a->failures.count ||
        f->origin == FAILURE_ORIGIN_OWN)
        return;
    if (f->succeeded++ == 0)
        f->succeeded_rank = rank;
    f->again = true;
    m.failed = *f;
    agent_send_report(a, &m);
}

static void on_group_left(void *arg, const char *text)
{
    on_remark(arg, NOTE_LEFTOVER, text);
}

/* An unfit node leaves, at the cost of no restart: no worker has results to save
 * yet. */
static void on_group_unfit(void *arg, const struct failure *f)
{
    struct agent *a = arg;
    struct failure own = *f;
    struct msg m;

    if (a->leave_code)
        return;
    gpu_monitor_explain(a->workers.gpus, &own);
    a->exit_code = a->leave_code = EX_UNAVAILABLE;
    report_note(a, NOTE_PREFLIGHT, own.what); /* reaches all nodes, this one too */
    a->linger.until_job_ends = rendezvous_host_must_stay(&a->rendezvous, a->config);
    if (signals_report(SIGNAL_LEAVE_FAST, EX_UNAVAILABLE, "unfit", &m))
        agent_send_report(a, &m);
}

static void send_answer(void *arg, const struct msg *m)
{
    struct msg answer = *m;

    agent_send_report(arg, &answer);
}

static void on_stepped(void *arg)
{
    struct agent *a = arg;

    client_hurry(a->client);
}

static void on_checkpointed(void *arg)
{
    send_plain_report(arg, MSG_CHECKPOINTED);
}

/* The state of the job, as seen from this node. */
static void on_status_asked(void *arg, char *text, size_t size)
{
    struct agent *a = arg;
    struct msg_heartbeat progress = { 0 };

    progress_monitor_fill_heartbeat(a->workers.progress, &progress);
    job_messages_status(a->messages, &progress, text, size);
}

static void on_output_shown(void *arg)
{
    struct agent *a = arg;

    agent_handle_event(a, a->workers_end);
}

/* The rendezvous may end with the job, and then no tool can ask for output any more. */
static void on_group_finished(void *arg)
{
    struct agent *a = arg;

    a->workers_end = AGENT_EV_ALL_EXITED;
    if (a->state != AGENT_RUNNING || !logs_finish(a->workers.logs, on_output_shown, a))
        agent_handle_event(a, AGENT_EV_ALL_EXITED);
}

/* Before a restart there is no wait: the output of the attempt before can be read. */
static void on_group_stopped(void *arg)
{
    struct agent *a = arg;

    a->workers_end = AGENT_EV_ALL_STOPPED;
    if (a->state != AGENT_STOPPING || !a->stop.last ||
        !logs_finish(a->workers.logs, on_output_shown, a))
        agent_handle_event(a, AGENT_EV_ALL_STOPPED);
}

static void on_guard_died(void *arg, const char *why, const struct err *e)
{
    struct agent *a = arg;

    snprintf(a->guard_died_why, sizeof(a->guard_died_why),
             "the guard of the workers died (%s), and the workers with it", why);
    if (*e->text) {
        log_error("%s", e->text);
        a->exit_code = EXIT_FAILURE;
    }
    agent_handle_event(a, *e->text ? AGENT_EV_GUARD_LOST : AGENT_EV_GUARD_DIED);
}

/* -- start and end -------------------------------------------------------------- */

static void on_fatal(void *arg, const char *why)
{
    struct agent *a = arg;

    log_error("%s", why);
    a->exit_code = EX_SOFTWARE;
    loop_stop(a->loop);
}

/* The node that hosts the rendezvous cannot leave before the others, if none of them
 * could go on with it. */
void agent_note_host(struct agent *a)
{
    a->has_hosted |= a->rendezvous.server != NULL;
    a->signals.cannot_leave = a->rendezvous.server && !a->has_keepers;
    a->signals.all_are_preempted = a->rendezvous.server && a->config->under_slurm;
    a->suspension.hosts_rendezvous = a->rendezvous.server != NULL;
}

static void on_checked(void *arg, const char *unfit)
{
    struct err e;

    if (agent_join_job(arg, unfit, &e) < 0)
        on_fatal(arg, e.text);
}

static void on_resumed(void *arg)
{
    struct agent *a = arg;

    if (a->client)
        client_resumed(a->client);
}

/* The rendezvous of the job is in this process from now on, or (false) elsewhere. */
static void on_moved(void *arg, bool here)
{
    struct agent *a = arg;

    rendezvous_host_move(&a->rendezvous, here);
    agent_note_host(a);
    if (!here)
        client_leave_server(a->client, a->config->endpoints);
}

static void on_given_up(void *arg, bool claimed)
{
    struct agent *a = arg;

    a->is_left_behind = claimed;
    client_give_up_keepers(a->client);
}

void agent_join_elsewhere(void *arg, const char *endpoints)
{
    struct agent *a = arg;

    free(a->elsewhere);
    a->elsewhere = xstrdup(endpoints);
    loop_timer_arm(&a->leave_timer, clock_ms());
}

static void on_leave_timer(void *arg)
{
    struct agent *a = arg;
    struct err e;

    log_info("job \"%s\" runs already: this node joins it at %.*s", a->config->run_id,
             (int)strcspn(a->elsewhere, ","), a->elsewhere);
    client_destroy(a->client);
    rendezvous_host_end(&a->rendezvous);
    agent_note_host(a);
    if (agent_join_job(a, "", &e) < 0)
        on_fatal(a, e.text);
}

static int start_parts(struct agent *a, struct err *e)
{
    struct status_line_calls status_calls = { .status = on_status_asked, .arg = a };
    struct rendezvous_host_calls host_calls = { .store_client = on_store_client,
                                                .event = agent_note_host_event,
                                                .fatal = on_fatal,
                                                .elsewhere = agent_join_elsewhere,
                                                .moved = on_moved,
                                                .given_up = on_given_up,
                                                .arg = a };
    struct local_workers_calls calls = {
        .group = { .failed = agent_on_group_failed,
                   .succeeded_late = on_group_succeeded_late,
                   .unfit = on_group_unfit,
                   .left = on_group_left,
                   .finished = on_group_finished,
                   .stopped = on_group_stopped,
                   .arg = a },
        .progress = { .remark = on_remark,
                      .stacks = send_answer,
                      .stacks_taken = agent_on_stacks_taken,
                      .checkpointed = on_checkpointed,
                      .stepped = on_stepped,
                      .arg = a },
        .gpu = { .remark = on_remark, .arg = a },
        .fenced = on_fenced,
        .guard_died = on_guard_died,
        .arg = a,
    };

    agent_init_ends(a);
    if (local_workers_init(&a->workers, a->loop, a->config, &calls, e) < 0)
        return -1;
    agent_open_memory(a);
    logs_on_answer(a->workers.logs, send_answer, a);
    a->events = event_file_create(a->config, a->host);
    agent_open_local(a);
    /* srun writes over it, and cuts the terminal off before it is erased */
    a->status_line = status_line_create(
        a->loop, a->config->under_slurm ? NULL : logs_console(a->workers.logs),
        &status_calls);
    a->messages = job_messages_create(a->loop, a->config, a->status_line);
    host_linger_init(&a->linger, a->loop, a->config, &a->rendezvous);
    a->suspension = (struct suspension){ .config = a->config,
                                         .guard = &a->workers.guard,
                                         .status_line = a->status_line,
                                         .resumed = on_resumed,
                                         .arg = a };
    suspension_init(&a->suspension, a->loop);
    agent_watch_ends(a);
    loop_timer_init(&a->leave_timer, a->loop, on_leave_timer, a);
    if (rendezvous_host_start(&a->rendezvous, a->loop, a->config, a->keys, &host_calls,
                              e) < 0)
        return -1;
    agent_note_host(a);
    if (!a->config->job.preflight)
        return agent_join_job(a, "", e);
    gpu_monitor_check(a->workers.gpus, on_checked, a);
    return 0;
}

/* Lost output alone is an error, but never hides another one. */
static void report_result(struct agent *a, const struct logs_end *end)
{
    struct failure_report r = { .job = job_messages_job(a->messages),
                                .done = &a->result,
                                .others = &a->failures,
                                .epoch = a->epoch,
                                .own_host = a->host,
                                .is_first_nodes = job_messages_are_first_nodes(
                                    a->messages) };
    bool only_lost = end->has_lost && a->exit_code == 0;
    int exit_code = only_lost ? EX_IOERR : a->exit_code;

    if (end->open_line && (exit_code || a->result.reason == JOB_REASON_RELEASED))
        (void)!write(STDERR_FILENO, "\n", 1); /* there will be a message */
    event_file_add(a->events, "done", a->epoch, "%s, exit code %d",
                   agent_result_name(a), exit_code);
    failure_report_result(&r, a->exit_code);
    agent_end_local(a, &r);
    if (only_lost)
        log_error("exit code %d, because output was lost", exit_code);
    a->exit_code = exit_code;
}

static void destroy_parts(struct agent *a)
{
    struct logs_end end;

    agent_keep_facts(a);
    agent_keep_past(a);
    client_destroy(a->client);
    a->client = NULL;
    epoch_store_release(&a->store);
    rendezvous_host_end(&a->rendezvous);
    host_linger_fini(&a->linger);
    suspension_fini(&a->suspension);
    deadline_fini(&a->deadline);
    status_line_destroy(a->status_line);
    if (a->memory)
        memory_keeper_close(a->memory);
    free(a->holders);
    end = local_workers_fini(&a->workers);
    if (a->messages) /* all parts have started */
        report_result(a, &end);
    event_file_destroy(a->events);
    job_messages_destroy(a->messages);
    failure_list_clear(&a->failures);
    failure_list_clear(&a->held);
    loop_timer_fini(&a->held_timer);
    if (a->leave_timer.event)
        loop_timer_fini(&a->leave_timer);
    free(a->elsewhere);
    loop_timer_fini(&a->unanswered.timer);
    loop_destroy(a->loop);
    key_ring_close(a->keys);
    notify_end(a->notify);
}

/* A job within this process needs no key: it is not even looked for. */
static int open_keys(struct agent *a, struct err *e)
{
    if (a->config->rendezvous == CONFIG_LOCAL)
        return 0;
    if (a->config->key_text) {
        a->keys = key_ring_open_text("the launcher's key", a->config->key_text, e);
        return a->keys ? 0 : -1;
    }
    if (key_ring_open_own(a->config->key_file, a->config->require_key, &a->keys, e) < 0)
        return -1;
    if (!a->keys && a->config->job.store_tunnel)
        return err_set(e, "--store-tunnel needs a key, the same on all nodes "
                          "(crunctl keygen)");
    if (!a->keys || key_ring_access(a->keys) == ACCESS_AGENT)
        return 0;
    err_set(e, "%s has no key for a node of a job, only one of the role \"%s\"",
            key_ring_path(a->keys), access_names[key_ring_access(a->keys)]);
    key_ring_close(a->keys);
    return -1;
}

static int start_notify(struct agent *a, struct err *e)
{
    const struct config *c = a->config;
    struct notify_config notify = { .command = c->on_event,
                                    .kinds = c->event_kinds,
                                    .secret = (char *)(uintptr_t)c->key_text };

    return notify_start(&notify, &a->notify, e);
}

static int check_witness(const struct config *c, struct err *e)
{
    if (!c->witness || *c->witness != '/' || access(c->witness, W_OK | X_OK) == 0)
        return 0;
    return err_set_errno(e, errno, "--rdzv-conf witness: %s", c->witness);
}

int agent_run(const struct config *config)
{
    struct agent a = { .config = config, .exit_code = EXIT_FAILURE };
    struct err e;

    if (fd_limits_suffice(config, &e) < 0 || check_witness(config, &e) < 0 ||
        start_notify(&a, &e) < 0 || open_keys(&a, &e) < 0) {
        log_error("%s", e.text);
        notify_end(a.notify);
        return EXIT_USAGE;
    }
    a.store = (struct epoch_store){
        .config = config, .host = &a.rendezvous, .report = on_store_report, .arg = &a
    };
    a.store.keys = a.keys;
    join_request_host_name(a.host, sizeof(a.host));
    a.loop = a.store.loop = loop_create();
    if (start_parts(&a, &e) < 0) {
        log_error("%s", e.text);
        a.exit_code = EXIT_USAGE;
    } else {
        loop_run(a.loop);
    }
    destroy_parts(&a);
    return a.exit_code;
}
