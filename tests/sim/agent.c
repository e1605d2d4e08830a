/* SPDX-License-Identifier: MIT */
#include "tests/sim/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/client/session.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/sim/group.h"
#include "tests/sim/machine.h"
#include "tests/sim/network.h"
#include "tests/sim/oracle.h"
#include "tests/sim/probe.h"
#include "tests/sim/sim.h"

/* What the session calls out waits here until its own call has returned. */
struct sim_upcall {
    struct sim_upcall *next;
    bool abandoned; /* else an order */
    struct msg order;
};

static uint64_t now_ms(const struct sim_agent *a)
{
    return machine_clock_ms(&a->machine->clock, a->sim->world);
}

/* -- the end ---------------------------------------------------------------- */

static void agent_end(struct sim_agent *a, enum agent_end how, bool quiet)
{
    static const char *const names[] = {
        "", "told", "refused", "abandoned", "without a guard", "crashed"
    };

    trace_line(&a->sim->trace, a->name, "ends: %s", names[how]);
    a->end = how;
    a->generation++;
    a->alive = 0; /* its guard ends them */
    if (a->link)
        link_abandon(a->link, LINK_CLIENT, quiet);
    if (a->silent_link)
        link_abandon(a->silent_link, LINK_CLIENT, quiet);
    a->link = a->silent_link = NULL;
}

void agent_crash(struct sim_agent *a, bool quiet)
{
    if (a->end == AGENT_LIVES)
        agent_end(a, AGENT_CRASHED, quiet);
}

void agent_destroy(struct sim_agent *a)
{
    session_destroy(a->session);
    while (a->upcalls) {
        struct sim_upcall *u = a->upcalls;

        a->upcalls = u->next;
        free(u);
    }
}

/* Would another agent on this machine do better? */
static void start_another(struct sim_agent *a)
{
    struct sim *s = a->sim;
    bool enough = s->plan.job[a->machine->plan->job].config.limit_spares;
    bool hopeless = a->end == AGENT_TOLD ||
                    (a->end == AGENT_REFUSED && a->refusal != REFUSED_FENCED &&
                     a->refusal != REFUSED_SLOT &&
                     (enough || a->refusal != REFUSED_FULL));

    if (a->machine->agent != a)
        return;
    if (!hopeless && (s->plan.rejoin || s->healed) && !s->over)
        machine_start_agent(a->machine,
                            s->plan.lease_ms * world_between(s->world, 10, 2000));
}

/* -- acts of the agent's table ---------------------------------------------- */

static uint32_t failure_grace_ms(const struct sim_agent *a)
{
    return a->sim->plan.job[a->machine->plan->job].config.failure_grace_ms;
}

static void report_plain(struct sim_agent *a, enum msg_type type)
{
    struct msg m = { .type = type, .epoch = a->epoch };

    agent_report(a, &m);
}

static void report_own_failure(struct sim_agent *a)
{
    struct msg m = { .type = MSG_FAILED, .epoch = a->epoch };

    m.failed.kind = FAILURE_AGENT;
    m.failed.rank = a->start.first_rank;
    m.failed.pid = ++a->sim->pids; /* by which the oracle knows it */
    m.failed.at_ms = now_ms(a);
    m.failed.wall_ms = machine_clock_wall_ms(&a->machine->clock, a->sim->world);
    snprintf(m.failed.what, sizeof(m.failed.what), "the guard died");
    agent_report(a, &m);
}

static void act_start(struct sim_agent *a)
{
    sim_memory_begin(a);
    sim_group_start(a);
}

static void act_stop(struct sim_agent *a)
{
    uint32_t hurry_ms = failure_grace_ms(a);

    if (a->hurries && a->stop.grace_ms > hurry_ms)
        a->stop.grace_ms = hurry_ms;
    sim_group_stop(a, a->stop.grace_ms);
}

static void act_report_stopped(struct sim_agent *a)
{
    struct msg m = { .type = MSG_STOPPED, .epoch = a->epoch };

    sim_memory_end(a, m.stopped.memory, sizeof(m.stopped.memory));
    agent_report(a, &m);
}

static void act_report_failed(struct sim_agent *a)
{
    agent_report(a, &a->failed);
}

static void act_report_finished(struct sim_agent *a)
{
    report_plain(a, MSG_FINISHED);
}

static void act_end(struct sim_agent *a)
{
    sim_group_stop(a, failure_grace_ms(a));
}

static void act_leave(struct sim_agent *a)
{
    if (a->alive > 0)
        trace_violation(&a->sim->trace, "%s leaves %u workers behind", a->name,
                        a->alive);
    session_bye(a->session, now_ms(a));
    agent_end(a, a->verdict, false);
    start_another(a);
}

void agent_happens(struct sim_agent *a, enum agent_event event)
{
    static void (*const acts[AGENT_ACT_COUNT])(struct sim_agent *) = {
        [AGENT_ACT_START] = act_start,
        [AGENT_ACT_STOP] = act_stop,
        [AGENT_ACT_REPORT_STOPPED] = act_report_stopped,
        [AGENT_ACT_REPORT_FAILED] = act_report_failed,
        [AGENT_ACT_REPORT_FINISHED] = act_report_finished,
        [AGENT_ACT_REPORT_GUARD_DIED] = report_own_failure,
        [AGENT_ACT_END] = act_end,
        [AGENT_ACT_LEAVE] = act_leave,
    };
    struct agent_edge edge = agent_edge(a->state, event);

    trace_line(&a->sim->trace, a->name, "%s --%s--> %s", agent_state_name(a->state),
               agent_event_name(event), agent_state_name(edge.to));
    probe_agent_edges[a->state][event]++;
    a->state = edge.to;
    if (edge.act != AGENT_ACT_NONE)
        acts[edge.act](a);
}

/* -- orders ----------------------------------------------------------------- */

static void agent_obey(struct sim_agent *a, const struct msg *m)
{
    switch ((int)m->type) {
    case MSG_START:
        a->epoch = m->epoch;
        a->start = m->start;
        agent_happens(a, AGENT_EV_START);
        break;
    case MSG_MEMORY_AT:
        sim_memory_note_holders(a, m);
        break;
    case MSG_STOP:
        a->epoch = m->epoch;
        a->stop = m->stop;
        agent_happens(a, AGENT_EV_STOP);
        break;
    case MSG_ASK_CHECKPOINT:
        sim_group_ask_checkpoint(a, m->epoch);
        session_hurry(a->session, now_ms(a));
        break;
    case MSG_DONE:
        a->verdict = AGENT_TOLD;
        agent_happens(a, AGENT_EV_DONE);
        break;
    case MSG_REFUSED:
        a->verdict = AGENT_REFUSED;
        a->refusal = m->refused.why;
        agent_happens(a, AGENT_EV_REFUSED);
        break;
    }
}

static void agent_abandon(struct sim_agent *a)
{
    a->verdict = AGENT_ABANDONED;
    agent_happens(a, AGENT_EV_ABANDONED);
}

/* After every call of the session: do what it said, and come back in time. */
static void agent_settle(struct sim_agent *a);

static void agent_tick(void *obj, uint64_t token)
{
    struct sim_agent *a = obj;
    struct msg_heartbeat progress = { .step = 0 };

    if (token != a->tick_at_us || a->end != AGENT_LIVES)
        return;
    if (machine_defer(a->machine, agent_tick, a, token))
        return;
    a->tick_at_us = UINT64_MAX;
    sim_group_fill_heartbeat(a, &progress);
    session_set_progress(a->session, &progress);
    session_tick(a->session, now_ms(a));
    agent_settle(a);
}

static void agent_give_upcalls(struct sim_agent *a)
{
    while (a->upcalls && a->end == AGENT_LIVES) {
        struct sim_upcall *u = a->upcalls;

        a->upcalls = u->next;
        if (u->abandoned)
            agent_abandon(a);
        else
            agent_obey(a, &u->order);
        free(u);
    }
}

static void agent_settle(struct sim_agent *a)
{
    uint64_t delay_us, next_ms;

    if (a->settling)
        return;
    a->settling = true;
    agent_give_upcalls(a);
    a->settling = false;
    if (a->end != AGENT_LIVES)
        return;
    next_ms = session_next_tick(a->session);
    if (next_ms == UINT64_MAX)
        return;
    delay_us = machine_clock_until_us(&a->machine->clock, a->sim->world, next_ms);
    if (delay_us < 1)
        delay_us = 1;
    if (world_now(a->sim->world) + delay_us < a->tick_at_us) {
        a->tick_at_us = world_now(a->sim->world) + delay_us;
        world_after(a->sim->world, delay_us, agent_tick, a, a->tick_at_us);
    }
}

/* -- what happens to it ----------------------------------------------------- */

void agent_report(struct sim_agent *a, const struct msg *m)
{
    oracle_reports(a->sim->oracle, a, m);
    trace_line(&a->sim->trace, a->name, "reports %s, epoch %llu", proto_name(m->type),
               (unsigned long long)m->epoch);
    session_report(a->session, m, now_ms(a));
    agent_settle(a);
}

static bool agent_is_awake(const struct sim_agent *a)
{
    return a->end == AGENT_LIVES && !a->machine->paused;
}

void agent_leave(struct sim_agent *a)
{
    struct msg m = { .type = MSG_LEAVE, .epoch = a->epoch };

    if (!agent_is_awake(a))
        return;
    if (a->hurries) { /* the third signal */
        sim_group_stop(a, 0);
        return;
    }
    a->hurries = a->facts.leaves;
    if (a->hurries && a->state == AGENT_STOPPING)
        act_stop(a);
    m.leave.exit_code = 143;
    m.leave.now = a->hurries;
    snprintf(m.leave.reason, sizeof(m.leave.reason), "SIGTERM");
    agent_report(a, &m);
}

void agent_end_job(struct sim_agent *a, bool now)
{
    struct msg m = { .type = MSG_END, .epoch = a->epoch };

    if (!agent_is_awake(a))
        return;
    m.end.exit_code = 130;
    m.end.now = now;
    snprintf(m.end.reason, sizeof(m.end.reason), "SIGINT");
    agent_report(a, &m);
    if (now)
        sim_group_stop(a, 0);
}

void agent_lose_guard(struct sim_agent *a, bool for_good)
{
    if (!agent_is_awake(a))
        return;
    sim_group_forget(a);
    if (for_good)
        a->verdict = AGENT_GUARDLESS;
    agent_happens(a, for_good ? AGENT_EV_GUARD_LOST : AGENT_EV_GUARD_DIED);
}

void agent_fenced(struct sim_agent *a)
{
    if (a->state != AGENT_ENDING && a->state != AGENT_OVER)
        agent_abandon(a);
}

/* The protocol lets an agent end its workers unasked. Its table never does. */
void agent_give_up(struct sim_agent *a)
{
    if (!agent_is_awake(a) || a->state != AGENT_RUNNING || !a->started || a->stopping)
        return;
    sim_group_forget(a);
    a->state = AGENT_IDLE;
    act_report_stopped(a);
}

/* -- the connection --------------------------------------------------------- */

static void on_opened(void *arg, struct sim_link *l)
{
    struct sim_agent *a = arg;

    if (l != a->link)
        return;
    session_connected(a->session, now_ms(a));
    agent_settle(a);
}

static void on_message(void *arg, struct sim_link *l, const struct msg *m)
{
    struct sim_agent *a = arg;

    if (l != a->link || a->end != AGENT_LIVES)
        return;
    trace_message(&a->sim->trace, "daemon", a->name, m);
    oracle_arrives(a->sim->oracle, a, m);
    session_received(a->session, m, now_ms(a));
    agent_settle(a);
}

static void on_closed(void *arg, struct sim_link *l, const char *why)
{
    struct sim_agent *a = arg;

    if (l != a->link)
        return;
    a->link = NULL;
    trace_line(&a->sim->trace, a->name, "connection closed: %s", why);
    session_connection_lost(a->session, why, now_ms(a));
    agent_settle(a);
}

static uint32_t on_body_max(void *arg, struct sim_link *l)
{
    return FRAME_BODY_MAX;
}

static bool on_asleep_asked(void *arg)
{
    const struct sim_agent *a = arg;

    return a->machine->paused;
}

static const struct link_calls agent_calls = { .opened = on_opened,
                                               .message = on_message,
                                               .closed = on_closed,
                                               .body_max = on_body_max,
                                               .asleep = on_asleep_asked };

struct sim_agent *agent_of_link(const struct sim_link *l)
{
    return link_client_calls(l) == &agent_calls ? link_client(l) : NULL;
}

/* -- what the session calls ------------------------------------------------- */

static void on_disconnect(void *arg)
{
    struct sim_agent *a = arg;

    if (a->link && session_state(a->session) == SESSION_ATTACHED)
        a->silent_link = a->link;
    else if (a->link)
        link_close(a->link, LINK_CLIENT);
    a->link = NULL;
}

static void on_connect(void *arg)
{
    struct sim_agent *a = arg;

    on_disconnect(a);
    a->link = network_connect(a->sim->network, a->machine->path, a->name, &agent_calls,
                              a);
}

static void on_send(void *arg, const struct msg *m)
{
    struct sim_agent *a = arg;

    trace_message(&a->sim->trace, a->name, "daemon", m);
    if (a->link)
        link_send(a->link, LINK_CLIENT, m);
}

static struct sim_upcall *queue_upcall(struct sim_agent *a)
{
    struct sim_upcall *u = xcalloc(1, sizeof(*u)), **last = &a->upcalls;

    while (*last)
        last = &(*last)->next;
    *last = u;
    return u;
}

static void on_order(void *arg, const struct msg *m)
{
    queue_upcall(arg)->order = *m;
}

static void on_outage(void *arg, bool out, const char *why)
{
    struct sim_agent *a = arg;

    trace_line(&a->sim->trace, a->name, "%s %s", out ? "outage:" : "outage is over",
               why);
}

static void on_fence(void *arg, uint64_t until_ms)
{
    sim_group_fence(arg, until_ms);
}

static void on_abandoned(void *arg, const char *why)
{
    struct sim_agent *a = arg;

    trace_line(&a->sim->trace, a->name, "abandoned: %s", why);
    queue_upcall(a)->abandoned = true;
}

/* -- life ------------------------------------------------------------------- */

static void fill_join(struct msg_join *j, const struct sim_machine *m,
                      int32_t node_rank)
{
    const struct job_plan *job = &m->sim->plan.job[m->plan->job];

    memcpy(j->run_id, job->run_id, sizeof(j->run_id));
    j->config = job->config;
    snprintf(j->host, sizeof(j->host), "host%u", m->number);
    snprintf(j->address, sizeof(j->address), "10.0.0.%u", m->number + 1);
    snprintf(j->containment, sizeof(j->containment), "session");
    if (machine_role(m) > 0)
        snprintf(j->role, sizeof(j->role), "role %u", machine_role(m));
    j->pid = ++m->sim->pids;
    j->workers = m->plan->workers;
    j->node_rank = node_rank;
    j->memory_port = 4000 + m->number;
}

struct sim_agent *agent_start(struct sim_machine *m, int32_t node_rank)
{
    static const struct session_calls calls = { .connect = on_connect,
                                                .disconnect = on_disconnect,
                                                .send = on_send,
                                                .order = on_order,
                                                .outage = on_outage,
                                                .fence = on_fence,
                                                .abandoned = on_abandoned };
    struct sim *s = m->sim;
    struct sim_agent *a = world_alloc(s->world, sizeof(*a));
    struct session_calls mine = calls;
    struct session_config c = { .connect_for_ms = s->plan.lease_ms * 20 + 20000,
                                .outage_grace_ms = s->plan.outage_grace_ms,
                                .strict_fence = s->plan.strict_fence,
                                .seed = world_random(s->world),
                                .software = "sim 1" };

    a->sim = s;
    a->machine = m;
    a->incarnation = world_id(s->world);
    a->node_rank = node_rank;
    a->tick_at_us = a->fence_at_us = UINT64_MAX;
    a->next = s->agents;
    a->facts.trouble_us = world_now(s->world);
    s->agents = a;
    snprintf(a->name, sizeof(a->name), "n%u.%u", m->number, ++s->agent_count);
    fill_join(&c.join, m, node_rank);
    c.join.incarnation = a->incarnation;
    mine.arg = a;
    trace_line(&s->trace, a->name, "starts for %s, %u workers, node rank %d",
               c.join.run_id, c.join.workers, node_rank);
    a->session = session_create(&c, &mine, now_ms(a));
    agent_settle(a);
    return a;
}

struct sim_agent *agent_find(struct sim *s, const struct id128 *incarnation)
{
    for (struct sim_agent *a = s->agents; a; a = a->next)
        if (id128_equal(&a->incarnation, incarnation))
            return a;
    return NULL;
}
