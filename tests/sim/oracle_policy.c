/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "rendezvous/job/membership/limits.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/sim/agent.h"
#include "tests/sim/daemon.h"
#include "tests/sim/facts.h"
#include "tests/sim/machine.h"
#include "tests/sim/oracle.h"
#include "tests/sim/sim.h"

/*
 * The oracle's view of policies: which node is placed where, which is kept out, how
 * long a crash loop waits, and what a stop waits for. It keeps books of its own, by
 * machine, and never looks at the membership's.
 */
static struct sim_machine *machine_of(const struct oracle *o,
                                      const struct membership *r, uint32_t node)
{
    const struct sim_agent *a = agent_find(o->sim, &r->node[node].incarnation);

    return a ? a->machine : NULL;
}

static uint64_t now_ms(const struct oracle *o)
{
    return daemon_awake_ms(o->sim->daemon);
}

/* -- crash loops ------------------------------------------------------------ */

static void learn_age(struct job_facts *f, const struct membership *r)
{
    uint64_t ran_ms = f->formed_ms ? r->clock.now - f->formed_ms : UINT64_MAX;

    f->now.short_lived = ran_ms < CRASH_LOOP_MS;
    f->now.young = ran_ms < r->config.restart_min_uptime_ms;
}

static void learn_loop(struct job_facts *f, const struct membership *r)
{
    if (!f->now.short_lived)
        f->now.loop = 0;
    else if (r->stop.cause == JOB_CAUSE_FAILURE)
        f->now.loop++;
}

/* Two restarts at once, then a second, and twice as long each time. */
static uint64_t wait_due_ms(const struct job_facts *f, const struct membership *r)
{
    uint64_t ms = 1000;

    if (r->stop.cause != JOB_CAUSE_FAILURE || f->now.loop < 3)
        return 0;
    for (uint32_t i = 3; i < f->now.loop && ms < r->config.restart_backoff_ms; i++)
        ms *= 2;
    return ms < r->config.restart_backoff_ms ? ms : r->config.restart_backoff_ms;
}

static void check_wait(struct oracle *o, const struct membership *r,
                       struct job_facts *f)
{
    uint64_t due = wait_due_ms(f, r);
    uint64_t waited = f->was_empty ? r->clock.now - f->entered_at
                                   : now_ms(o) - f->entered_ms;

    if (waited + facts_slack_ms(r) < due)
        VIOLATION(o,
                  "epoch %" PRIu64 " forms after %" PRIu64
                  " ms of a crash loop's %" PRIu64,
                  r->epoch, waited, due);
    if (r->stop.cause == JOB_CAUSE_FAILURE && f->now.young)
        VIOLATION(o, "epoch %" PRIu64 " follows one that was too young to fail",
                  r->epoch);
}

/* -- quarantine ------------------------------------------------------------- */

static bool has_other(const struct oracle *o, const struct membership *r,
                      const struct sim_machine *m)
{
    MEMBERSHIP_EACH(i, r)
        if (machine_of(o, r, i) != m)
            return true;
    return false;
}

/* Too often of late? Our clock does not stand still while the membership is not
 * stepped, so that what is late for the membership may be in time for us, but not the
 * other way. */
static void learn_trouble(struct oracle *o, const struct membership *r,
                          struct job_facts *f)
{
    uint32_t most = r->config.quarantine;
    uint64_t at_ms = world_now(o->sim->world) / 1000; /* the daemon's may begin anew */
    struct view_machine *v;

    if ((r->stop.cause != JOB_CAUSE_FAILURE && r->stop.cause != JOB_CAUSE_LOST) ||
        !f->now.root_machine)
        return;
    v = &f->now.machine[f->now.root_machine->number];
    v->trouble_ms[v->troubles++ % VIEW_TROUBLES_MAX] = at_ms;
    if (most > 0 && r->config.max_nodes > 1 && v->troubles >= most &&
        has_other(o, r, f->now.root_machine) &&
        at_ms - v->trouble_ms[(v->troubles - most) % VIEW_TROUBLES_MAX] <=
            QUARANTINE_WINDOW_MS)
        v->quarantined = true;
}

static bool is_quarantined(const struct oracle *o, const struct membership *r,
                           const struct job_facts *f, uint32_t node)
{
    const struct sim_machine *m = machine_of(o, r, node);

    return m && f->now.machine[m->number].quarantined;
}

static bool has_part(const struct membership_node *n)
{
    return n->state == MEMBERSHIP_NODE_ACTIVE;
}

static bool could_have(const struct membership_node *n)
{
    return has_part(n) ||
           (n->state == MEMBERSHIP_NODE_WAITING && n->connected && !n->leaving);
}

static void check_quarantine(struct oracle *o, const struct membership *r,
                             const struct job_facts *f)
{
    uint32_t others = 0, used = 0;

    MEMBERSHIP_EACH(i, r) {
        bool barred = is_quarantined(o, r, f, i);
        const struct sim_machine *m = machine_of(o, r, i);

        others += could_have(&r->node[i]) && !barred;
        used += has_part(&r->node[i]) && barred;
        if (r->node[i].quarantined && !barred && m &&
            f->now.machine[m->number].troubles < r->config.quarantine)
            VIOLATION(o, "machine %u is in quarantine after %u troubles", m->number,
                      f->now.machine[m->number].troubles);
    }
    if (used > 0 && others + used > r->config.min_nodes)
        VIOLATION(o, "epoch %" PRIu64 ": %u nodes in quarantine have a part beside %u",
                  r->epoch, used, others);
    if (used == 0 && r->group_size < r->config.max_nodes && others > r->group_size)
        VIOLATION(o, "epoch %" PRIu64 ": %u of %u nodes have a part", r->epoch,
                  r->group_size, others);
}

/* -- slots ------------------------------------------------------------------ */

/* One that has no slot of its own, and is not given one by name or as the host. */
static bool is_newly_placed(const struct oracle *o, const struct membership *r,
                            uint32_t node)
{
    const struct sim_agent *a = agent_find(o->sim, &r->node[node].incarnation);

    return a && !a->facts.placed && a->node_rank < 0 && !r->node[node].host &&
           !r->node[node].quarantined;
}

/* A slot that is free, and that at most this machine has had. */
static bool is_there_for(const struct membership *r, const struct job_facts *f,
                         const struct sim_machine *m)
{
    for (uint32_t slot = 0; slot < r->config.max_nodes; slot++)
        if (r->slot_node[slot] == MEMBERSHIP_NONE && f->now.slot_machine[slot] == m)
            return true;
    return false;
}

static void check_new_place(struct oracle *o, const struct membership *r,
                            const struct job_facts *f, uint32_t node)
{
    struct sim_machine *m = machine_of(o, r, node);
    struct sim_machine *had = f->now.slot_machine[r->node[node].slot];

    if (had != m && is_there_for(r, f, m))
        VIOLATION(o, "machine %u is back and has slot %u, not its old one", m->number,
                  r->node[node].slot);
    if (had && had != m && is_there_for(r, f, NULL))
        VIOLATION(o, "slot %u is given to machine %u, but machine %u had it",
                  r->node[node].slot, m->number, had->number);
    /* the old one is not free: no newcomer may have it */
    for (uint32_t slot = 0; slot < r->config.max_nodes; slot++) {
        uint32_t holder = r->slot_node[slot];

        if (f->now.slot_machine[slot] == m && had != m && holder != MEMBERSHIP_NONE &&
            is_newly_placed(o, r, holder) && machine_of(o, r, holder) != m)
            VIOLATION(o, "slot %u of machine %u, which is back, is given away", slot,
                      m->number);
    }
}

static void check_places(struct oracle *o, const struct membership *r,
                         struct job_facts *f)
{
    for (uint32_t slot = 0; slot < r->config.max_nodes; slot++)
        if (r->slot_node[slot] != MEMBERSHIP_NONE &&
            is_newly_placed(o, r, r->slot_node[slot]))
            check_new_place(o, r, f, r->slot_node[slot]);
    for (uint32_t slot = 0; slot < r->config.max_nodes; slot++) {
        uint32_t i = r->slot_node[slot];

        if (i == MEMBERSHIP_NONE)
            continue;
        f->now.slot_machine[slot] = machine_of(o, r, i);
        agent_find(o->sim, &r->node[i].incarnation)->facts.placed = true;
    }
}

/* -- checkpoints ------------------------------------------------------------ */

/* A node that asked twice to leave is not waited for. */
static bool is_in_a_hurry(const struct oracle *o, const struct membership *r)
{
    MEMBERSHIP_EACH(i, r) {
        const struct sim_agent *a = agent_find(o->sim, &r->node[i].incarnation);

        if (r->node[i].leaving && a && a->facts.hurries)
            return true;
    }
    return false;
}

/* A stop that could be chosen waited for all that have work to save. */
static void check_patience(struct oracle *o, const struct membership *r,
                           const struct job_facts *f)
{
    bool drain = r->stop.cause == JOB_CAUSE_DRAIN;
    uint64_t since = drain ? f->leaves_ms : f->asked_ms;
    uint64_t most = drain ? r->config.shutdown_grace_ms : CHECKPOINT_WAIT_MS;

    if (!drain && (r->stop.cause != JOB_CAUSE_SCALE_UP ||
                   r->config.scale != JOB_SCALE_CHECKPOINT))
        return;
    if (drain && is_in_a_hurry(o, r))
        return;
    if (!r->store_ready || most == 0 || now_ms(o) - since + facts_slack_ms(r) >= most)
        return;
    if (f->asked_ms &&
        now_ms(o) - f->asked_ms + facts_slack_ms(r) >= CHECKPOINT_WAIT_MS)
        return;
    MEMBERSHIP_EACH(i, r) {
        const struct sim_agent *a = agent_find(o->sim, &r->node[i].incarnation);

        if (has_part(&r->node[i]) && a && a->facts.checkpointed_epoch != r->epoch &&
            r->node[i].heard_at > r->checkpoint.asked_at)
            VIOLATION(o, "epoch %" PRIu64 " stops (%s) without a checkpoint of %s",
                      r->epoch, proto_cause_name(r->stop.cause), a->name);
    }
}

/* -- what happens ----------------------------------------------------------- */

static void on_entered(struct oracle *o, const struct membership *r,
                       enum job_state from)
{
    struct job_facts *f = facts_of_job(o, &r->instance);

    if (from == JOB_STOPPING) {
        learn_loop(f, r);
        learn_trouble(o, r, f);
    }
    if (r->state == JOB_STOPPING) {
        learn_age(f, r);
        check_patience(o, r, f);
    }
    if (r->state != JOB_RUNNING)
        return;
    check_wait(o, r, f);
    check_quarantine(o, r, f);
    check_places(o, r, f);
    f->formed_ms = r->clock.now;
    f->asked_ms = f->leaves_ms = 0;
    f->now.root_machine = NULL;
}

void policy_acts(struct oracle *o, const struct membership *r,
                 const struct membership_event *ev, const struct membership_action *a)
{
    struct job_facts *f = facts_of_job(o, &r->instance);

    if (o->regressed)
        return;
    if (a->type == MEMBERSHIP_ACT_ENTERED)
        on_entered(o, r, a->from);
    else if (a->type == MEMBERSHIP_ACT_ROOT_CAUSE ||
             a->type == MEMBERSHIP_ACT_ROOT_LOST)
        f->now.root_machine = machine_of(o, r, a->node);
    else if (a->type == MEMBERSHIP_ACT_ASK_CHECKPOINT && !f->asked_ms)
        f->asked_ms = now_ms(o);
    else if (a->type == MEMBERSHIP_ACT_SAVE_NODE && r->state == JOB_RUNNING &&
             r->node[a->node].leaving && !f->leaves_ms)
        f->leaves_ms = now_ms(o);
}

void policy_stepped(struct oracle *o, const struct membership *before,
                    const struct membership *after)
{
    uint32_t were = before->tally.live - before->tally.leaving;
    uint32_t are = after->tally.live - after->tally.leaving;

    if (after->tally.live == 0)
        facts_of_job(o, &after->instance)->was_empty = true;
    if (after->state != JOB_DONE && after->config.limit_spares && are > were &&
        are > after->config.max_nodes + after->config.spares)
        VIOLATION(o, "%u nodes are kept of at most %u and %u spares", are,
                  after->config.max_nodes, after->config.spares);
}
