/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_shutdown.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cleanup/cgroup.h"
#include "agent/cleanup/child_procs.h"
#include "agent/cleanup/launch_lock.h"
#include "agent/cleanup/run_tmpdir.h"
#include "agent/guard/guard_events.h"
#include "agent/guard/guard_wire.h"
#include "agent/guard/guard_workers.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/proc.h"

#define PIDS_PER_ROUND 1024
#define TERM_ROUND_MS 20 /* a deep orphan arrives without a signal to the guard */
#define KILL_ROUND_MS_MIN 1
#define KILL_ROUND_MS_MAX 50
#define REMOVE_ROUND_MS 5 /* of a cgroup whose last process is not quite gone */

static struct {
    bool wants_answer; /* the agent waits for EMPTY */
    uint32_t ticket;
    bool terming; /* from term_ms until until_ms */
    uint64_t term_ms, until_ms;
    pid_t termed[PIDS_PER_ROUND]; /* children that got TERM */
    size_t termed_count;
    bool killing, killed;
    uint32_t kill_round_ms;
} ongoing;

static bool was_termed(pid_t pid)
{
    for (size_t i = 0; i < ongoing.termed_count; i++)
        if (ongoing.termed[i] == pid)
            return true;
    return false;
}

static void report_leftover(pid_t pid)
{
    struct guard_event t = { .type = GUARD_EVENT_LEFTOVER,
                             .pid = pid,
                             .status = getsid(pid) };
    struct proc_stat stat;

    if (proc_read_stat(pid, &stat))
        snprintf(t.name, sizeof(t.name), "%s", stat.name);
    guard_events_add(t);
}

/* A child that got the pid of another one between two rounds gets no TERM; KILL
 * follows. */
static void term_new_children(void)
{
    static pid_t pids[PIDS_PER_ROUND];
    size_t count = child_procs_list(pids, PIDS_PER_ROUND);

    for (size_t i = 0; i < count; i++) {
        if (was_termed(pids[i]) || guard_workers_has(pids[i]) ||
            guard_workers_is_excepted(pids[i]))
            continue;
        if (ongoing.wants_answer)
            report_leftover(pids[i]);
        kill(pids[i], SIGTERM);
        kill(pids[i], SIGCONT);
    }
    memcpy(ongoing.termed, pids, count * sizeof(pids[0]));
    ongoing.termed_count = count;
}

static void start_term_rounds(uint32_t term_delay_ms, uint32_t grace_ms)
{
    ongoing.terming = true;
    ongoing.termed_count = 0;
    ongoing.term_ms = clock_ms() + term_delay_ms;
    ongoing.until_ms = ongoing.term_ms + grace_ms;
}

void guard_shutdown_sweep(uint32_t ticket, uint32_t term_delay_ms, uint32_t grace_ms)
{
    ongoing.wants_answer = true;
    ongoing.ticket = ticket;
    start_term_rounds(term_delay_ms, grace_ms);
}

void guard_shutdown_fence(uint32_t grace_ms)
{
    guard_workers_signal_all(SIGTERM);
    start_term_rounds(0, grace_ms);
}

static void shutdown_kill_all(void)
{
    if (!ongoing.killing)
        ongoing.kill_round_ms = KILL_ROUND_MS_MIN;
    ongoing.killing = true;
}

void guard_shutdown_kill(uint32_t ticket)
{
    ongoing.wants_answer = true;
    ongoing.ticket = ticket;
    shutdown_kill_all();
}

bool guard_shutdown_is_running(void)
{
    return ongoing.wants_answer || ongoing.terming || ongoing.killing;
}

static void kill_all(void)
{
    static pid_t pids[PIDS_PER_ROUND];
    size_t count;

    ongoing.killed = true;
    cgroup_kill(guard_workers_cgroup());
    guard_workers_signal_all(SIGKILL);
    count = child_procs_list(pids, PIDS_PER_ROUND);
    for (size_t i = 0; i < count; i++)
        if (!guard_workers_is_excepted(pids[i]))
            kill(pids[i], SIGKILL);
}

static void finish_shutdown(void)
{
    if (ongoing.killed)
        guard_workers_renew_cgroup();
    ongoing.killed = false;
    if (ongoing.wants_answer)
        guard_events_add((struct guard_event){ .type = GUARD_EVENT_EMPTY,
                                               .local_rank = ongoing.ticket });
    ongoing.wants_answer = ongoing.terming = ongoing.killing = false;
}

int guard_shutdown_advance(void)
{
    uint64_t now_ms = clock_ms();

    if (!guard_shutdown_is_running())
        return -1;
    if (guard_workers_is_empty()) {
        finish_shutdown();
        return -1;
    }
    if (!ongoing.killing && now_ms < ongoing.term_ms)
        return (int)(ongoing.term_ms - now_ms);
    if (!ongoing.killing) {
        uint64_t left_ms = ongoing.until_ms - now_ms;

        term_new_children(); /* also if this process is late */
        if (now_ms < ongoing.until_ms)
            return left_ms < TERM_ROUND_MS ? (int)left_ms : TERM_ROUND_MS;
        shutdown_kill_all();
    }
    kill_all();
    if (ongoing.kill_round_ms < KILL_ROUND_MS_MAX)
        ongoing.kill_round_ms *= 2;
    return (int)ongoing.kill_round_ms;
}

int guard_shutdown_without_agent(struct cgroup *cgroup, const char *tmpdir_tag)
{
    int wait_ms;

    shutdown_kill_all();
    wait_ms = guard_shutdown_advance();
    if (guard_shutdown_is_running())
        return wait_ms;
    if (!cgroup_remove(cgroup))
        return REMOVE_ROUND_MS;
    run_tmpdir_remove_empty(tmpdir_tag);
    launch_lock_remove(tmpdir_tag);
    _exit(EXIT_SUCCESS);
}
