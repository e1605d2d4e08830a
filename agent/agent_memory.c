/* SPDX-License-Identifier: MIT */
#include "agent/agent_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/memory/keeper.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/membership/memory_sets.h"

/* The checkpoints of this node's workers in memory, over the epochs of the job. */

/* No worker lives, and what they have left in memory is known. */
static void on_memory_held(void *arg, const char *text)
{
    struct agent *a = arg;
    struct msg m = { .type = MSG_STOPPED };

    if (a->state == AGENT_OVER) /* the job has ended meanwhile */
        return;
    m.stopped = progress_monitor_last_steps(a->workers.progress);
    snprintf(m.stopped.memory, sizeof(m.stopped.memory), "%s", text);
    agent_send_report(a, &m);
    agent_leave_alone(a);
}

static void on_memory_restored(void *arg, uint64_t step)
{
    struct agent *a = arg;

    a->restored_step = step;
}

static void on_memory_said(void *arg, const char *line)
{
    log_warn("%s", line);
}

static void on_memory_flushed(void *arg, uint64_t flush, int code, const char *text)
{
    struct msg m = { .type = MSG_FLUSHED,
                     .flushed = {
                         .ask = flush, .failed = code > 0, .in_files = code < 0 } };

    if (flush) {
        snprintf(m.flushed.text, sizeof(m.flushed.text), "%s", text);
        agent_send_report(arg, &m);
        return;
    }
    if (code == 0)
        log_info("%s", text);
    else if (code > 0)
        log_warn("%s", text);
    agent_leave(arg);
}

void agent_on_flush(struct agent *a, const struct msg *m)
{
    struct msg answer = { .type = MSG_FLUSHED, .flushed.ask = m->flush.ask };
    struct memory_set set;
    struct err e = { .text = "it keeps no checkpoints in memory" };

    if (m->flush.hold) {
        answer.flushed.failed = !a->memory ||
                                memory_keeper_hold(a->memory, answer.flushed.memory,
                                                   sizeof(answer.flushed.memory),
                                                   &e) < 0;
        if (answer.flushed.failed)
            snprintf(answer.flushed.text, sizeof(answer.flushed.text), "%s", e.text);
        agent_send_report(a, &answer);
    } else if (a->memory && memory_set_parse(m->flush.memory, &set)) {
        a->flushed_step = set.step;
        memory_keeper_flush_held(a->memory, m->flush.ask, &set);
    } else if (a->memory) {
        memory_keeper_let_go(a->memory);
    }
}

/* --memory-flush: the node of rank 0 asks for all of them. */
static void on_flush_due(void *arg)
{
    struct agent *a = arg;
    struct msg m = { .type = MSG_FLUSHED };
    struct memory_figures f;

    loop_timer_arm(&a->flush_timer, clock_ms() + a->config->memory_flush_ms);
    if (a->state != AGENT_RUNNING || a->start.first_rank != 0)
        return;
    memory_keeper_figures(a->memory, &f);
    if (f.step && f.step == a->flushed_step)
        return; /* it is written, or the reason why not was said */
    if (f.step && session_can_flush(client_session(a->client))) {
        a->flushed_step = f.step;
        agent_send_report(a, &m);
    } else if (!a->warned_of_flush) {
        a->warned_of_flush = true;
        log_warn("--memory-flush writes nothing: %s",
                 f.step ? "the rendezvous is older than this crun"
                        : "the program has kept no checkpoint in memory yet");
    }
}

void agent_open_memory(struct agent *a)
{
    struct memory_keeper_callbacks calls = { .held = on_memory_held,
                                             .restored = on_memory_restored,
                                             .said = on_memory_said,
                                             .flushed = on_memory_flushed,
                                             .arg = a };
    const struct config *c = a->config;
    bool alone = c->rendezvous == CONFIG_LOCAL || c->job.max_nodes == 1;
    struct memory_keeper_config config = { .loop = a->loop,
                                           .workers = c->workers,
                                           .copies = alone ? 0 : c->memory_copies,
                                           .limit = c->memory_limit,
                                           .copy_rate = c->memory_copy_rate,
                                           .keys = a->keys };
    struct err e;

    a->memory = memory_keeper_open(&config, &calls, &e);
    if (a->memory)
        local_workers_set_memory(&a->workers, memory_keeper_path(a->memory));
    else
        log_warn("%s", e.text);
    if (!a->memory || !c->memory_flush_ms)
        return;
    loop_timer_init(&a->flush_timer, a->loop, on_flush_due, a);
    loop_timer_arm(&a->flush_timer, clock_ms() + c->memory_flush_ms);
}

void agent_close_memory(struct agent *a)
{
    if (a->flush_timer.event)
        loop_timer_fini(&a->flush_timer);
    if (a->memory)
        memory_keeper_close(a->memory);
    free(a->holders);
}

/* "rendezvous:4000" is at the address at which this node has reached it. */
static char *address_of_agent(const struct agent *a, const char *text, char *buf,
                              size_t size)
{
    const size_t length = strlen(MEMBERS_RENDEZVOUS);
    const struct net_addr *peer = client_peer(a->client);
    struct net_addr addr;
    struct err e;

    snprintf(buf, size, "%s", text);
    if (strncmp(text, MEMBERS_RENDEZVOUS ":", length + 1) != 0)
        return buf;
    if (peer)
        addr = *peer;
    else if (net_parse_host("127.0.0.1", 0, &addr, &e) < 0)
        return buf;
    net_set_port(&addr, (uint16_t)atoi(text + length + 1));
    return net_format(&addr, buf, size);
}

void agent_note_holders(struct agent *a, const struct msg *m)
{
    char *old = a->holders;

    if (a->holders_epoch != m->epoch)
        old = NULL;
    a->holders_epoch = m->epoch;
    old = xasprintf("%s%s%s", old ? old : "", old ? " " : "", m->memory_at.holders);
    free(a->holders);
    a->holders = old;
}

/* Of the set that START names, as the keeper reaches them. */
static char *holders_of_start(struct agent *a)
{
    char *rest = a->holders_epoch == a->epoch ? a->holders : NULL, *word;
    char *list = xstrdup("");

    while (rest && (word = strsep(&rest, " "))) {
        char address[MEMORY_AGENT_BYTES + 1], *before = list;
        char *ranks = strchr(word, '=');

        if (!ranks)
            continue;
        *ranks++ = '\0';
        address_of_agent(a, word, address, sizeof(address));
        list = xasprintf("%s%s%s=%s", before, *before ? " " : "", address, ranks);
        free(before);
    }
    free(a->holders);
    a->holders = NULL;
    return list;
}

void agent_begin_memory(struct agent *a)
{
    struct memory_epoch now = { .epoch = a->epoch,
                                .first_rank = a->start.first_rank,
                                .world = a->start.world_size,
                                .job = *session_instance(client_session(a->client)) };
    char *holders = holders_of_start(a);

    a->restored_step = 0;
    if (!memory_set_parse(a->start.memory, &now.restore) && *a->start.memory)
        log_warn("no checkpoint in memory has the name \"%s\"", a->start.memory);
    address_of_agent(a, a->start.memory_neighbour, now.neighbour,
                     sizeof(now.neighbour));
    now.holders = holders;
    if (a->memory)
        memory_keeper_begin(a->memory, &now);
    free(holders);
}

void agent_fill_memory(struct agent *a, struct msg_memory *memory)
{
    struct memory_figures f = { .step = 0 };

    if (a->memory)
        memory_keeper_figures(a->memory, &f);
    *memory = (struct msg_memory){
        .step = f.step,
        .copied = f.copied,
        .restored = a->restored_step,
        .bytes = f.bytes,
        .age_ms = f.age_ms < UINT32_MAX ? (uint32_t)f.age_ms : UINT32_MAX,
    };
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
    struct memory_set newest;

    memory_set_parse(a->result.memory, &newest);
    if (a->memory)
        memory_keeper_flush(a->memory, &newest, a->config->job.shutdown_grace_ms);
    else
        agent_leave(a);
}
