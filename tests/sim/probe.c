/* SPDX-License-Identifier: MIT */
#include "tests/sim/probe.h"

#include "rendezvous/job/membership/membership.h"
#include "rendezvous/job/records/journal.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/sim/daemon.h"
#include "tests/sim/oracle.h"
#include "tests/sim/sim.h"
#include "tests/worlds/membership_names.h"

#define SNAPSHOT_PER_MILLE 20

uint64_t probe_edges[PROBE_EDGES_MAX];
uint64_t probe_agent_edges[AGENT_STATE_COUNT][AGENT_EVENT_COUNT];
uint64_t probe_memory[PROBE_MEMORY_COUNT];

/* One simulation at a time: membership_step has no argument for it. */
static struct sim *watched;

struct wire_tap {
    const struct membership_sink *sink;
    const struct membership_event *ev;
};

enum membership_verdict __real_membership_step(struct membership *r,
                                               const struct membership_event *ev,
                                               uint64_t now,
                                               const struct membership_sink *sink,
                                               uint32_t *node_out);
enum membership_verdict __wrap_membership_step(struct membership *r,
                                               const struct membership_event *ev,
                                               uint64_t now,
                                               const struct membership_sink *sink,
                                               uint32_t *node_out);

bool __real_journal_wants_snapshot(const struct journal *j);
bool __wrap_journal_wants_snapshot(const struct journal *j);

/* A journal grows for days before it wants one. */
bool __wrap_journal_wants_snapshot(const struct journal *j)
{
    return world_chance(watched->world, SNAPSHOT_PER_MILLE) ||
           __real_journal_wants_snapshot(j);
}

void probe_watch(struct sim *s)
{
    watched = s;
}

static void count_edge(enum job_state from, enum membership_event_type event,
                       enum job_state to)
{
    for (unsigned i = 0; i < membership_edge_count; i++)
        if (membership_edges[i].from == from && membership_edges[i].event == event &&
            membership_edges[i].to == to) {
            probe_edges[i]++;
            return;
        }
    trace_violation(&watched->trace, "illegal edge: %s --%s--> %s",
                    proto_state_name(from), membership_event_name(event),
                    proto_state_name(to));
}

static void act(void *arg, const struct membership *r,
                const struct membership_action *a)
{
    const struct wire_tap *tap = arg;

    if (a->type == MEMBERSHIP_ACT_ENTERED)
        count_edge(a->from, tap->ev->type, r->state);
    oracle_acts(watched->oracle, r, tap->ev, a);
    tap->sink->act(tap->sink->arg, r, a);
}

enum membership_verdict __wrap_membership_step(struct membership *r,
                                               const struct membership_event *ev,
                                               uint64_t now,
                                               const struct membership_sink *sink,
                                               uint32_t *node_out)
{
    struct wire_tap tap = { sink, ev };
    struct membership_sink mine = { act, &tap };
    struct membership before = *r;
    enum membership_verdict verdict;

    if (daemon_is_dying(watched->daemon))
        return __real_membership_step(r, ev, now, sink, node_out);
    verdict = __real_membership_step(r, ev, now, &mine, node_out);
    membership_sane(r);
    oracle_stepped(watched->oracle, &before, r, ev);
    return verdict;
}
