/* SPDX-License-Identifier: MIT */
#include "agent/agent_internal.h"

#include <string.h>

#include "agent/memory/keeper.h"
#include "rendezvous/common/base/log.h"

/* The checkpoints of this node's workers in memory, over the epochs of the job. */

/* No worker lives, and what they have left in memory is known. */
static void on_memory_held(void *arg, const char *text)
{
    struct agent *a = arg;
    struct msg m = { .type = MSG_STOPPED };

    if (a->state == AGENT_OVER) /* the job has ended meanwhile */
        return;
    m.stopped = progress_monitor_last_steps(a->workers.progress);
    agent_send_report(a, &m);
    agent_leave_alone(a);
}

static void on_memory_restored(void *arg, uint64_t step, enum memory_source from,
                               const char *host)
{
}

static void on_memory_said(void *arg, const char *line)
{
    log_warn("%s", line);
}

static void on_memory_flushed(void *arg, int code, const char *text)
{
    if (code == 0)
        log_info("%s", text);
    else if (code > 0)
        log_warn("%s", text);
    agent_leave(arg);
}

void agent_open_memory(struct agent *a)
{
    struct memory_keeper_callbacks calls = { .held = on_memory_held,
                                             .restored = on_memory_restored,
                                             .said = on_memory_said,
                                             .flushed = on_memory_flushed,
                                             .arg = a };
    struct memory_keeper_config config = { .loop = a->loop,
                                           .workers = a->config->workers,
                                           .keys = a->keys };
    struct err e;

    a->memory = memory_keeper_open(&config, &calls, &e);
    if (!a->memory)
        log_warn("%s", e.text);
    local_workers_set_memory(&a->workers, memory_keeper_path(a->memory));
}

void agent_begin_memory(struct agent *a)
{
    struct memory_set restore = { .world = 0 };

    memory_keeper_instance(a->memory, session_instance(client_session(a->client)));
    memory_keeper_begin(a->memory, a->epoch, a->start.first_rank, a->config->workers,
                        a->start.world_size, &restore, "");
}

void agent_end_memory(struct agent *a)
{
    if (a->memory)
        memory_keeper_end(a->memory);
    else
        on_memory_held(a, "");
}

void agent_flush_memory(struct agent *a)
{
    struct memory_set newest = { .world = 0 };

    if (a->memory)
        memory_keeper_flush(a->memory, &newest, a->config->job.shutdown_grace_ms);
    else
        agent_leave(a);
}
