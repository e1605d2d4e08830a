/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_shutdown.h"

#include <signal.h>
#include <string.h>

#include "agent/guard/guard_events.h"
#include "agent/guard/guard_wire.h"
#include "agent/guard/guard_workers.h"
#include "agent/cleanup/child_procs.h"
#include "rendezvous/base/clock.h"

#define KIN_PER_ROUND 1024
#define TERM_ROUND_MS 20 /* a deep orphan comes up without a signal to us */
#define KILL_ROUND_MS_MIN 1
#define KILL_ROUND_MS_MAX 50

static struct {
    const struct cgroup *cgroup;
    bool asked; /* the agent wants to be told when nothing is left */
    uint32_t ticket;
    bool terming; /* until until_ms */
    uint64_t until_ms;
    pid_t termed[KIN_PER_ROUND]; /* children that have had their TERM */
    size_t termed_count;
    bool killing, killed;
    uint32_t kill_round_ms;
} ending;

void guard_shutdown_init(const struct cgroup *cgroup)
{
    ending.cgroup = cgroup;
}

static bool was_termed(pid_t pid)
{
    for (size_t i = 0; i < ending.termed_count; i++)
        if (ending.termed[i] == pid)
            return true;
    return false;
}

/* Whose pid is given to another child between two rounds goes without: KILL comes. */
static void term_newcomers(void)
{
    static pid_t pids[KIN_PER_ROUND];
    size_t count = child_procs_children(pids, KIN_PER_ROUND);

    for (size_t i = 0; i < count; i++) {
        if (was_termed(pids[i]) || guard_workers_has(pids[i]))
            continue;
        kill(pids[i], SIGTERM);
        kill(pids[i], SIGCONT);
    }
    memcpy(ending.termed, pids, count * sizeof(pids[0]));
    ending.termed_count = count;
}

static void start_terming(uint32_t grace_ms)
{
    ending.terming = true;
    ending.termed_count = 0;
    ending.until_ms = clock_ms() + grace_ms;
}

void guard_shutdown_sweep(uint32_t ticket, uint32_t grace_ms)
{
    ending.asked = true;
    ending.ticket = ticket;
    start_terming(grace_ms);
}

void guard_shutdown_fence(uint32_t grace_ms)
{
    guard_workers_signal_all(SIGTERM);
    start_terming(grace_ms);
}

void guard_shutdown_kill_unasked(void)
{
    if (!ending.killing)
        ending.kill_round_ms = KILL_ROUND_MS_MIN;
    ending.killing = true;
}

void guard_shutdown_kill(uint32_t ticket)
{
    ending.asked = true;
    ending.ticket = ticket;
    guard_shutdown_kill_unasked();
}

bool guard_shutdown_goes_on(void)
{
    return ending.asked || ending.terming || ending.killing;
}

static void kill_all(void)
{
    static pid_t pids[KIN_PER_ROUND];
    size_t count;

    ending.killed = true;
    cgroup_kill(ending.cgroup);
    guard_workers_signal_all(SIGKILL);
    count = child_procs_children(pids, KIN_PER_ROUND);
    for (size_t i = 0; i < count; i++)
        kill(pids[i], SIGKILL);
}

static void end(void)
{
    if (ending.killed)
        guard_workers_move_home();
    ending.killed = false;
    if (ending.asked)
        guard_events_add((struct guard_tell){ .type = GUARD_TELL_EMPTY,
                                              .local_rank = ending.ticket });
    ending.asked = ending.terming = ending.killing = false;
}

int guard_shutdown_advance(void)
{
    uint64_t now_ms = clock_ms();

    if (!guard_shutdown_goes_on())
        return -1;
    if (guard_workers_none()) {
        end();
        return -1;
    }
    if (ending.terming && now_ms >= ending.until_ms)
        guard_shutdown_kill_unasked();
    if (!ending.killing) {
        uint64_t left_ms = ending.until_ms - now_ms;

        term_newcomers();
        return left_ms < TERM_ROUND_MS ? (int)left_ms : TERM_ROUND_MS;
    }
    kill_all();
    if (ending.kill_round_ms < KILL_ROUND_MS_MAX)
        ending.kill_round_ms *= 2;
    return (int)ending.kill_round_ms;
}
