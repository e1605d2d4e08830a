/* SPDX-License-Identifier: MIT */
/*
 * The parts of the agent, from start to end. Each occurrence becomes an event, the
 * table in agent_state.c gives its act, and agent_acts.c performs it.
 */
#include "agent/agent_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/cleanup/fd_limits.h"
#include "agent/interface/event_file.h"
#include "agent/interface/job_messages.h"
#include "agent/interface/status_line.h"
#include "agent/join_request.h"
#include "agent/logs/logs.h"
#include "agent/memory/keeper.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/job/events/notify.h"

static void on_store_report(void *arg, struct msg *m)
{
    agent_send_report(arg, m);
}

/* The state of the job, as seen from this node. */
static void on_status_asked(void *arg, char *text, size_t size)
{
    struct agent *a = arg;
    struct msg_heartbeat progress = { 0 };

    progress_monitor_fill_heartbeat(a->workers.progress, &progress);
    job_messages_status(a->messages, &progress, text, size);
}

static void on_resumed(void *arg)
{
    struct agent *a = arg;

    if (a->client)
        client_resumed(a->client);
}

static void on_checked(void *arg, const char *unfit)
{
    struct err e;

    if (agent_join_job(arg, unfit, &e) < 0)
        agent_on_fatal(arg, e.text);
}

static int start_parts(struct agent *a, struct err *e)
{
    struct status_line_calls status_calls = { .status = on_status_asked, .arg = a };

    agent_init_signalled(a);
    agent_init_unanswered(a);
    loop_timer_init(&a->last_checkpoint, a->loop, agent_on_last_checkpoint, a);
    if (agent_open_workers(a, e) < 0)
        return -1;
    agent_open_memory(a);
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
    if (agent_open_rendezvous(a, e) < 0)
        return -1;
    if (!a->config->job.preflight)
        return agent_join_job(a, "", e);
    gpu_monitor_check(a->workers.gpus, on_checked, a);
    return 0;
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
    agent_close_memory(a);
    end = local_workers_fini(&a->workers);
    if (a->messages) /* all parts have started */
        agent_report_result(a, &end);
    event_file_destroy(a->events);
    job_messages_destroy(a->messages);
    failure_list_clear(&a->failures);
    failure_list_clear(&a->held);
    loop_timer_fini(&a->held_timer);
    if (a->leave_timer.event)
        loop_timer_fini(&a->leave_timer);
    free(a->elsewhere);
    loop_timer_fini(&a->unanswered.timer);
    loop_timer_fini(&a->last_checkpoint);
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
