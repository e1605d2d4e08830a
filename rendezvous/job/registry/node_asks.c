/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/node_asks.h"

#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/registry_internal.h"

void node_ask_add(struct registry *g, struct node_ask *a, struct job *job,
                  uint64_t deadline_ms)
{
    a->number = ++g->last_ask;
    a->job = job;
    a->deadline_ms = deadline_ms;
    a->owed = xcalloc(job->membership.capacity, sizeof(*a->owed));
    a->next = g->asks;
    g->asks = a;
}

unsigned node_asks_count(const struct registry *g, const struct node_ask_type *type)
{
    unsigned count = 0;

    for (const struct node_ask *a = g->asks; a; a = a->next)
        count += a->type == type;
    return count;
}

bool node_has_any_rank(const struct membership_node *n, const struct rank_ranges *ranks)
{
    for (unsigned i = 0; i < ranks->count; i++)
        if (ranks->range[i].first < (uint64_t)n->first_rank + n->workers &&
            ranks->range[i].last >= n->first_rank)
            return true;
    return ranks->count == 0;
}

void node_ask_owe(struct node_ask *a, uint32_t node)
{
    a->owed[node] = true;
    a->owing++;
}

static void node_ask_destroy(struct registry *g, struct node_ask *a)
{
    struct node_ask **at = &g->asks;

    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    if (a->type->fini)
        a->type->fini(a);
    free(a->owed);
    free(a);
}

void node_ask_finish(struct registry *g, struct node_ask *a)
{
    for (uint32_t i = 0; i < a->job->membership.capacity; i++)
        if (a->owed[i] && a->job->node[i])
            a->type->miss(a, a->job->node[i]->host, "");
    a->type->conclude(g, a);
    node_ask_destroy(g, a);
}

struct node_ask *node_ask_find(const struct registry_peer *p,
                               const struct node_ask_type *type, uint64_t number)
{
    struct node_ask *a = p->registry->asks;

    while (a && (a->type != type || a->number != number || a->job != p->job))
        a = a->next;
    return a && a->owed[p->node] ? a : NULL;
}

void node_ask_settle(struct registry *g, struct node_ask *a, uint32_t node)
{
    a->owed[node] = false;
    if (--a->owing == 0)
        node_ask_finish(g, a);
}

/* -- the ends ------------------------------------------------------------------- */

void registry_conclude_asks(struct registry *g, const struct job *job, bool is_over)
{
    struct node_ask *next;

    for (struct node_ask *a = g->asks; a; a = next) {
        next = a->next;
        if (a->job == job && (is_over || a->type->is_of_epoch))
            node_ask_finish(g, a);
    }
}

void registry_forget_asks(struct registry *g)
{
    while (g->asks)
        node_ask_destroy(g, g->asks);
}

void registry_drop_asks(struct registry_peer *p)
{
    struct node_ask *next;

    for (struct node_ask *a = p->registry->asks; a; a = next) {
        next = a->next;
        if (a->peer == p && !a->type->outlives_peer)
            node_ask_destroy(p->registry, a);
        else if (a->peer == p)
            a->peer = NULL;
    }
}

uint64_t registry_next_ask(const struct registry *g)
{
    uint64_t next = UINT64_MAX;

    for (const struct node_ask *a = g->asks; a; a = a->next)
        if (a->deadline_ms < next)
            next = a->deadline_ms;
    return next;
}

void registry_tick_asks(struct registry *g)
{
    struct node_ask *next;

    for (struct node_ask *a = g->asks; a; a = next) {
        next = a->next;
        if (g->now_ms >= a->deadline_ms)
            node_ask_finish(g, a);
    }
}
