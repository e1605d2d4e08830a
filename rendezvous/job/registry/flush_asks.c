/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/membership/memory_sets.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/node_asks.h"
#include "rendezvous/job/registry/registry_internal.h"

/*
 * A checkpoint in memory is written to files while the job goes on. First all nodes
 * hold what they have and report it: after that no rank overwrites the newest whole set
 * of these reports, as all ranks agree before each save. Then the nodes that have parts
 * of it write them. It fails as a whole, and nodes let go of what they hold.
 */
struct flush_ask {
    struct node_ask ask;
    struct memory_sets *held;
    struct memory_set set; /* that is written; world 0: nodes report still */
    uint64_t began_ms;
    enum job_state state; /* of the job, as it began */
    bool in_files, holds_any;
    char fault[ERROR_TEXT_MAX_BYTES + 1], folder[ERROR_TEXT_MAX_BYTES + 1];
};

static struct flush_ask *flush_of(struct node_ask *a)
{
    return (struct flush_ask *)a;
}

/* The first one counts. */
static void flush_fail(struct flush_ask *a, const char *host, const char *why)
{
    bool alone = a->ask.job->membership.config.max_nodes == 1;

    if (!*a->fault && !a->in_files)
        snprintf(a->fault, sizeof(a->fault), "%s%s%.400s", alone ? "" : host,
                 alone ? "" : ": ", why);
}

static void miss_flush(struct node_ask *a, const char *host, const char *why)
{
    if (a->job->membership.state != flush_of(a)->state)
        flush_fail(flush_of(a), host, "workers were stopped or started meanwhile");
    else
        flush_fail(flush_of(a), host, *why ? why : "it has not answered");
}

/* -- the result ------------------------------------------------------------------- */

static void let_go(struct flush_ask *a)
{
    const struct job *job = a->ask.job;

    MEMBERSHIP_EACH(i, &job->membership) {
        struct msg m = { .type = MSG_FLUSH, .flush.ask = a->ask.number };

        if (job->node[i]->peer && job->node[i]->peer->flush)
            registry_send(job->node[i]->peer, &m);
    }
}

static void describe(const struct registry *g, const struct flush_ask *a, char *text,
                     size_t size)
{
    char took[32];

    if (*a->fault && a->set.world == 0)
        snprintf(text, size, "no checkpoint in memory was written to files: %s",
                 a->fault);
    else if (*a->fault)
        snprintf(text, size,
                 "step %" PRIu64 ", which is in memory, was not written to files: %s",
                 a->set.step, a->fault);
    else if (a->in_files)
        snprintf(text, size, "step %" PRIu64 " is in %s already, or a newer one",
                 a->set.step, *a->folder ? a->folder : "files");
    else
        snprintf(text, size, "step %" PRIu64 ", which was in memory, is in %s (%s)",
                 a->set.step, *a->folder ? a->folder : "files",
                 clock_format_duration(g->now_ms - a->began_ms, took, sizeof(took)));
}

/* To crunctl, and as an event of the job, unless --memory-flush asks again anyway. */
static void flush_end(struct registry *g, struct flush_ask *a)
{
    struct msg ack = { .type = MSG_ACK, .sequence = a->ask.sequence };
    struct msg m = { .type = MSG_NOTICE, .notice = { .kind = "checkpoint" } };
    struct job *job = a->ask.job;
    uint32_t leader = job->membership.leader;
    char text[NOTICE_MAX_BYTES + 1];

    let_go(a);
    describe(g, a, text, sizeof(text));
    if (a->ask.peer && *a->fault) {
        registry_refuse(a->ask.peer, &ack, REFUSED_BUSY, false, "%s: %s", job->name,
                        text);
    } else if (a->ask.peer) {
        snprintf(ack.ack.text, sizeof(ack.ack.text), "%s: %.400s", job->name, text);
        registry_send(a->ask.peer, &ack);
    }
    if (a->in_files ||
        (*a->fault && (a->ask.peer || job->membership.state != a->state)))
        return;
    registry_report(g, job, "checkpoint", "", "%s", text);
    snprintf(m.notice.text, sizeof(m.notice.text), "%s", text);
    if (leader != MEMBERSHIP_NONE && job->node[leader] && job->node[leader]->peer)
        registry_send(job->node[leader]->peer, &m);
}

/* -- asking ----------------------------------------------------------------------- */

/* While no workers run, the nodes that are there. */
static bool takes_part(const struct flush_ask *a, uint32_t node)
{
    const struct membership *m = &a->ask.job->membership;

    if (a->set.world)
        return memory_sets_has(a->held, node, &a->set, 0, a->set.world) ||
               memory_sets_has(a->held, node, &a->set, 0, 0);
    return m->state == JOB_RUNNING ? m->node[node].state == MEMBERSHIP_NODE_ACTIVE
                                   : a->ask.job->node[node]->peer != NULL;
}

static void flush_ask_nodes(struct registry *g, struct flush_ask *a)
{
    struct job *job = a->ask.job;

    MEMBERSHIP_EACH(i, &job->membership) {
        struct registry_peer *p = job->node[i]->peer;
        struct msg m = { .type = MSG_FLUSH, .flush.ask = a->ask.number };

        if (!takes_part(a, i))
            continue;
        m.flush.hold = a->set.world == 0;
        memory_set_print(&a->set, m.flush.memory, sizeof(m.flush.memory));
        if (!p || !p->flush) {
            flush_fail(a, job->node[i]->host,
                       p ? "its crun is older and cannot" : "it is not connected");
            continue;
        }
        registry_send(p, &m);
        node_ask_owe(&a->ask, i);
    }
    if (a->ask.owing == 0 || *a->fault)
        node_ask_finish(g, &a->ask);
}

/* The nodes have reported: those with parts of the set write them. */
static void flush_write(struct registry *g, struct flush_ask *from)
{
    struct flush_ask *a = xmemdup(from, sizeof(*from));

    from->held = NULL;
    a->ask.owed = NULL;
    a->ask.owing = 0;
    node_ask_add(g, &a->ask, a->ask.job, g->now_ms + FLUSH_DEADLINE_MS);
    flush_ask_nodes(g, a);
}

static void conclude_flush(struct registry *g, struct node_ask *ask)
{
    struct flush_ask *a = flush_of(ask);

    if (a->set.world == 0 && !*a->fault) {
        a->set = memory_sets_choose(a->held, ask->job->membership.epoch);
        if (a->set.world) {
            flush_write(g, a);
            return;
        }
        snprintf(a->fault, sizeof(a->fault), "%s",
                 a->holds_any ? "no step is there with the parts of all ranks"
                              : "the program keeps none, or has not saved its first");
    }
    flush_end(g, a);
}

static void fini_flush(struct node_ask *a)
{
    memory_sets_destroy(flush_of(a)->held);
}

static const struct node_ask_type flush_ask_type = { .is_of_epoch = true,
                                                     .outlives_peer = true,
                                                     .miss = miss_flush,
                                                     .conclude = conclude_flush,
                                                     .fini = fini_flush };

static bool is_open(const struct registry *g, const struct job *job)
{
    const struct node_ask *a = g->asks;

    while (a && (a->job != job || a->type != &flush_ask_type))
        a = a->next;
    return a != NULL;
}

void registry_flush(struct registry *g, struct registry_peer *p, const struct msg *m,
                    struct job *job)
{
    enum job_state state = job->membership.state;
    const char *why = state == JOB_DONE       ? "it has ended already"
                      : state == JOB_STOPPING ? "its workers are being stopped"
                      : is_open(g, job)
                          ? "a checkpoint in memory is being written to files already"
                          : NULL;
    struct flush_ask *a;

    if (why && p)
        registry_refuse(p, m, state == JOB_DONE ? REFUSED_ENDED : REFUSED_BUSY, false,
                        "%s: %s", job->name, why);
    if (why)
        return;
    a = xcalloc(1, sizeof(*a));
    a->ask.type = &flush_ask_type;
    a->ask.peer = p;
    a->ask.sequence = m ? m->sequence : 0;
    a->began_ms = g->now_ms;
    a->state = state;
    a->held = memory_sets_create();
    node_ask_add(g, &a->ask, job, g->now_ms + HOLD_DEADLINE_MS);
    flush_ask_nodes(g, a);
}

void registry_end_old_flush(struct registry_peer *p)
{
    struct msg m = { .type = MSG_FLUSH };

    if (p->flush && !is_open(p->registry, p->job))
        registry_send(p, &m);
}

void registry_take_flushed(struct registry_peer *p, const struct msg *m,
                           struct membership_event *ev)
{
    const struct msg_flushed *f = &m->flushed;
    struct node_ask *ask = node_ask_find(p, &flush_ask_type, f->ask);
    struct flush_ask *a = flush_of(ask);

    if (!f->ask)
        registry_flush(p->registry, NULL, NULL, p->job);
    if (!ask)
        return;
    if (f->failed)
        flush_fail(a, p->job->node[p->node]->host, f->text);
    a->in_files |= f->in_files && !*a->fault;
    a->holds_any |= *f->memory != '\0';
    if (a->set.world == 0)
        (void)memory_sets_put(a->held, p->node, f->memory);
    if (*f->text && !f->failed)
        memcpy(a->folder, f->text, sizeof(a->folder));
    if (*a->fault || a->in_files)
        node_ask_finish(p->registry, ask); /* the others need not go on */
    else
        node_ask_settle(p->registry, ask, p->node);
}
