/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/registry_internal.h"

/* Every decision begins here: an event goes to the membership of its job, and what that
 * decides is done in registry_actions.c. */
static void on_action(void *arg, const struct membership *membership,
                      const struct membership_action *a)
{
    registry_act(arg, a);
}

enum membership_verdict registry_step(struct registry *g, struct job *job,
                                      const struct membership_event *ev,
                                      struct registry_peer *peer, const struct msg *msg,
                                      uint32_t *node_out)
{
    struct registry_step s = { .registry = g, .job = job, .peer = peer, .msg = msg };
    struct membership_sink sink = { .act = on_action, .arg = &s };
    enum membership_verdict verdict;

    job->stepped_ms = g->now_ms;
    job->stepped_wall_ms = g->wall_ms;
    verdict = membership_step(&job->membership, ev, g->now_ms, &sink, node_out);
    registry_note_start(g, job);
    return verdict;
}
