/* SPDX-License-Identifier: MIT */
#include "tests/sim/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/xalloc.h"
#include "rendezvous/session/session.h"
#include "rendezvous/protocol/proto.h"
#include "tests/sim/group.h"
#include "tests/sim/machine.h"
#include "tests/sim/network.h"
#include "tests/sim/oracle.h"
#include "tests/sim/sim.h"

/* An order waits here until the member's call has returned. */
struct order {
    struct order *next;
    struct msg msg;
};

static uint64_t now_ms(const struct agent *a)
{
    return machine_clock_ms(&a->machine->clock, a->sim->world);
}

/* -- the end ----------------------------------------------------------------------- */

static void end(struct agent *a, enum agent_end how, bool quiet)
{
    static const char *const names[] = { "", "told", "refused", "abandoned",
                                         "crashed" };

    trace_line(&a->sim->trace, a->name, "ends: %s", names[how]);
    a->end = how;
    a->generation++;
    a->alive = 0; /* the guard sees to it, whatever became of the agent */
    if (a->link)
        link_abandon(a->link, LINK_CLIENT, quiet);
    a->link = NULL;
}

void agent_crash(struct agent *a, bool quiet)
{
    if (a->end == AGENT_LIVES)
        end(a, AGENT_CRASHED, quiet);
}

void agent_destroy(struct agent *a)
{
    session_destroy(a->member);
    while (a->orders) {
        struct order *o = a->orders;

        a->orders = o->next;
        free(o);
    }
}

/* Would another agent on this machine do better? */
static void start_another(struct agent *a)
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

/* -- orders ------------------------------------------------------------------------ */

static void obey(struct agent *a, const struct msg *m)
{
    switch ((int)m->type) {
    case MSG_START:
        group_start(a, m);
        break;
    case MSG_STOP:
        group_stop(a, m);
        break;
    case MSG_ASK_CHECKPOINT:
        group_ask_checkpoint(a, m->epoch);
        break;
    case MSG_DONE:
        session_bye(a->member, now_ms(a));
        end(a, AGENT_TOLD, false);
        start_another(a);
        break;
    case MSG_REFUSED:
        a->refusal = m->refused.why;
        end(a, AGENT_REFUSED, false);
        start_another(a);
        break;
    }
}

/* After every call of the member: do what it said, and come back in time. */
static void after(struct agent *a);

static void tick(void *obj, uint64_t token)
{
    struct agent *a = obj;

    if (token != a->tick_at_us || a->end != AGENT_LIVES)
        return;
    if (machine_defer(a->machine, tick, a, token))
        return;
    a->tick_at_us = UINT64_MAX;
    session_tick(a->member, now_ms(a));
    after(a);
}

static void after(struct agent *a)
{
    uint64_t delay_us, next_ms;

    while (a->orders && a->end == AGENT_LIVES) {
        struct order *o = a->orders;

        a->orders = o->next;
        obey(a, &o->msg);
        free(o);
    }
    if (a->end != AGENT_LIVES)
        return;
    next_ms = session_next_tick(a->member);
    if (next_ms == UINT64_MAX)
        return;
    delay_us = machine_clock_until_us(&a->machine->clock, a->sim->world, next_ms);
    if (delay_us < 1)
        delay_us = 1;
    if (world_now(a->sim->world) + delay_us < a->tick_at_us) {
        a->tick_at_us = world_now(a->sim->world) + delay_us;
        world_after(a->sim->world, delay_us, tick, a, a->tick_at_us);
    }
}

void agent_report(struct agent *a, const struct msg *m)
{
    if (a->end != AGENT_LIVES || a->machine->paused)
        return;
    oracle_reports(a->sim->oracle, a, m);
    trace_line(&a->sim->trace, a->name, "reports %s, epoch %llu", proto_name(m->type),
               (unsigned long long)m->epoch);
    session_report(a->member, m, now_ms(a));
    after(a);
}

void agent_leave(struct agent *a)
{
    struct msg m = { .type = MSG_LEAVE, .epoch = session_epoch(a->member) };

    m.leave.exit_code = 143;
    m.leave.now = a->facts.leaves; /* again */
    snprintf(m.leave.reason, sizeof(m.leave.reason), "SIGTERM");
    agent_report(a, &m);
}

void agent_end_job(struct agent *a, bool now)
{
    struct msg m = { .type = MSG_END, .epoch = session_epoch(a->member) };

    m.end.exit_code = 130;
    m.end.now = now;
    snprintf(m.end.reason, sizeof(m.end.reason), "SIGINT");
    agent_report(a, &m);
}

/* -- the connection ---------------------------------------------------------------- */

static void on_opened(void *arg, struct link *l)
{
    struct agent *a = arg;

    if (l != a->link)
        return;
    session_connected(a->member, now_ms(a));
    after(a);
}

static void on_message(void *arg, struct link *l, const struct msg *m)
{
    struct agent *a = arg;

    if (l != a->link || a->end != AGENT_LIVES)
        return;
    trace_message(&a->sim->trace, "daemon", a->name, m);
    oracle_arrives(a->sim->oracle, a, m);
    session_received(a->member, m, now_ms(a));
    after(a);
}

static void on_closed(void *arg, struct link *l, const char *why)
{
    struct agent *a = arg;

    if (l != a->link)
        return;
    a->link = NULL;
    trace_line(&a->sim->trace, a->name, "connection closed: %s", why);
    session_connection_lost(a->member, why, now_ms(a));
    after(a);
}

static uint32_t body_max(void *arg, struct link *l)
{
    (void)arg;
    (void)l;
    return FRAME_BODY_MAX;
}

static bool is_asleep(void *arg)
{
    const struct agent *a = arg;

    return a->machine->paused;
}

static const struct link_calls agent_calls = { .opened = on_opened,
                                               .message = on_message,
                                               .closed = on_closed,
                                               .body_max = body_max,
                                               .asleep = is_asleep };

struct agent *agent_of_link(const struct link *l)
{
    return link_client_calls(l) == &agent_calls ? link_client(l) : NULL;
}

static void disconnect(void *arg)
{
    struct agent *a = arg;

    if (a->link)
        link_close(a->link, LINK_CLIENT);
    a->link = NULL;
}

static void connect_now(void *arg)
{
    struct agent *a = arg;

    disconnect(a);
    a->link = network_connect(a->sim->network, a->machine->path, a->name, &agent_calls,
                              a);
}

static void send_msg(void *arg, const struct msg *m)
{
    struct agent *a = arg;

    trace_message(&a->sim->trace, a->name, "daemon", m);
    if (a->link)
        link_send(a->link, LINK_CLIENT, m);
}

static void take_order(void *arg, const struct msg *m)
{
    struct agent *a = arg;
    struct order *o = xmalloc(sizeof(*o)), **last = &a->orders;

    o->next = NULL;
    o->msg = *m;
    while (*last)
        last = &(*last)->next;
    *last = o;
}

static void hear_outage(void *arg, bool out, const char *why)
{
    struct agent *a = arg;

    trace_line(&a->sim->trace, a->name, "%s %s", out ? "outage:" : "outage is over",
               why);
}

static void be_abandoned(void *arg, const char *why)
{
    struct agent *a = arg;

    trace_line(&a->sim->trace, a->name, "abandoned: %s", why);
    end(a, AGENT_ABANDONED, false);
    start_another(a);
}

/* -- life -------------------------------------------------------------------------- */

static void fill_join(struct msg_join *j, const struct machine *m, int32_t node_rank)
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
}

struct agent *agent_start(struct machine *m, int32_t node_rank)
{
    static const struct session_calls calls = { .connect = connect_now,
                                                .disconnect = disconnect,
                                                .send = send_msg,
                                                .order = take_order,
                                                .outage = hear_outage,
                                                .abandoned = be_abandoned };
    struct sim *s = m->sim;
    struct agent *a = world_alloc(s->world, sizeof(*a));
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
    a->tick_at_us = UINT64_MAX;
    a->next = s->agents;
    a->facts.trouble_us = world_now(s->world);
    s->agents = a;
    snprintf(a->name, sizeof(a->name), "n%u.%u", m->number, ++s->agent_count);
    fill_join(&c.join, m, node_rank);
    c.join.incarnation = a->incarnation;
    mine.arg = a;
    trace_line(&s->trace, a->name, "starts for %s, %u workers, node rank %d",
               c.join.run_id, c.join.workers, node_rank);
    a->member = session_create(&c, &mine, now_ms(a));
    after(a);
    return a;
}

struct agent *agent_find(struct sim *s, const struct id128 *incarnation)
{
    for (struct agent *a = s->agents; a; a = a->next)
        if (id128_equal(&a->incarnation, incarnation))
            return a;
    return NULL;
}
