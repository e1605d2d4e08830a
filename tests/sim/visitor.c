/* SPDX-License-Identifier: MIT */
#include "tests/sim/visitor.h"

#include <string.h>

#include "rendezvous/client/session.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/sim/agent.h"
#include "tests/sim/machine.h"
#include "tests/sim/sim.h"

#define STAYS_US 30000000

struct visitor {
    struct sim *sim;
    struct sim_link *link;
    struct path path;
    struct msg question;
    const struct sim_agent *ghost; /* of whom, or NULL */
};

static void leave(void *obj, uint64_t token)
{
    struct visitor *v = obj;

    if (v->link)
        link_close(v->link, LINK_CLIENT);
    v->link = NULL;
}

static void on_opened(void *arg, struct sim_link *l)
{
    struct visitor *v = arg;
    struct msg hello = { .type = MSG_HELLO,
                         .hello = { .version_min = PROTO_VERSION_MIN,
                                    .version_max = PROTO_VERSION_MAX } };

    hello.hello.role = v->ghost ? PEER_AGENT : PEER_CTL;
    link_send(l, LINK_CLIENT, &hello);
}

/* What a ghost would report if it were believed. */
static void lie(struct visitor *v, struct sim_link *l)
{
    struct msg m = { .type = MSG_FAILED,
                     .sequence = 1,
                     .epoch = v->ghost->epoch,
                     .instance = v->question.instance };

    m.failed.kind = FAILURE_EXIT;
    m.failed.code = 1;
    link_send(l, LINK_CLIENT, &m);
}

static void on_message(void *arg, struct sim_link *l, const struct msg *m)
{
    struct visitor *v = arg;

    trace_message(&v->sim->trace, "daemon", v->ghost ? "ghost" : "person", m);
    if (m->type == MSG_WELCOME) {
        trace_message(&v->sim->trace, v->ghost ? "ghost" : "person", "daemon",
                      &v->question);
        link_send(l, LINK_CLIENT, &v->question);
        if (v->ghost && world_chance(v->sim->world, 300))
            lie(v, l);
    } else if (!v->ghost) {
        if (m->type == MSG_ACK || m->type == MSG_REFUSED || m->type == MSG_END_OF_LIST)
            leave(v, 0);
    } else if (m->type == MSG_JOINED || m->type == MSG_ACK || m->type == MSG_START) {
        trace_violation(&v->sim->trace, "a ghost of %s is taken for alive",
                        v->ghost->name);
    } else if (m->type == MSG_REFUSED) {
        if (m->refused.why != REFUSED_FENCED && m->refused.why != REFUSED_ENDED)
            trace_violation(&v->sim->trace,
                            "a ghost of %s is refused as %s, not fenced",
                            v->ghost->name, proto_refusal_name(m->refused.why));
        leave(v, 0);
    }
}

static void on_closed(void *arg, struct sim_link *l, const char *why)
{
    struct visitor *v = arg;

    v->link = NULL;
}

static uint32_t body_max(void *arg, struct sim_link *l)
{
    return FRAME_BODY_MAX;
}

static bool is_asleep(void *arg)
{
    return false;
}

static void visit(struct sim *s, const struct sim_agent *ghost,
                  const struct msg *question)
{
    static const struct link_calls calls = { .opened = on_opened,
                                             .message = on_message,
                                             .closed = on_closed,
                                             .body_max = body_max,
                                             .asleep = is_asleep };
    struct visitor *v = world_alloc(s->world, sizeof(*v));

    v->sim = s;
    v->ghost = ghost;
    v->question = *question;
    v->path = (struct path){ .address = "10.9.9.9",
                             .delay_max_us = s->plan.delay_max_us };
    v->link = network_connect(s->network, &v->path, ghost ? "ghost" : "person", &calls,
                              v);
    world_after(s->world, STAYS_US, leave, v, 0);
}

void visitor_ask(struct sim *s, const struct msg *question)
{
    visit(s, NULL, question);
}

void visitor_haunt(struct sim *s, const struct sim_agent *a,
                   const struct id128 *instance)
{
    struct msg m = { .type = MSG_RESUME, .instance = *instance, .epoch = a->epoch };
    const struct job_plan *job = &s->plan.job[a->machine->plan->job];

    memcpy(m.resume.run_id, job->run_id, sizeof(m.resume.run_id));
    m.resume.incarnation = a->incarnation;
    m.resume.node = (uint32_t)world_below(s->world, job->config.max_nodes);
    visit(s, a, &m);
}
