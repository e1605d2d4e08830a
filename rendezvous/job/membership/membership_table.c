/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/membership_table.h"

#include <assert.h>
#include <string.h>

#include "rendezvous/common/base/keyed_hash.h"

/* Incarnations are random, but a peer can choose its own. */
static uint32_t *bucket_of(const struct membership *m, const struct id128 *incarnation)
{
    uint64_t hash = keyed_hash(m->bucket_key, incarnation->byte,
                               sizeof(incarnation->byte));

    return &m->bucket[hash % m->capacity];
}

static void tally_count(struct membership *m, const struct membership_node *n,
                        uint32_t sign)
{
    struct membership_tally *t = &m->tally;

    if (n->state == MEMBERSHIP_NODE_FREE)
        return;
    t->live += sign;
    if (!n->connected)
        t->disconnected += sign;
    if (n->leaving)
        t->leaving += sign;
    else if (n->state == MEMBERSHIP_NODE_WAITING)
        *(n->connected ? &t->here : &t->away) += sign;
    if (!n->leaving && n->state == MEMBERSHIP_NODE_WAITING && n->quarantined)
        *(n->connected ? &t->barred_here : &t->barred_away) += sign;
    if (n->leaving &&
        (n->state == MEMBERSHIP_NODE_ACTIVE || n->state == MEMBERSHIP_NODE_FINISHED))
        t->departing += sign;
    if (n->state == MEMBERSHIP_NODE_ACTIVE)
        t->active += sign;
    if (n->state == MEMBERSHIP_NODE_FINISHED)
        t->finished += sign;
}

void membership_table_set_state(struct membership *m, struct membership_node *n,
                                enum membership_node_state state)
{
    tally_count(m, n, -1u);
    n->state = state;
    tally_count(m, n, 1);
}

void membership_table_set_connected(struct membership *m, struct membership_node *n,
                                    bool connected)
{
    tally_count(m, n, -1u);
    n->connected = connected;
    tally_count(m, n, 1);
}

void membership_table_set_leaving(struct membership *m, struct membership_node *n,
                                  bool leaving)
{
    tally_count(m, n, -1u);
    n->leaving = leaving;
    tally_count(m, n, 1);
}

void membership_table_set_quarantined(struct membership *m, struct membership_node *n,
                                      bool on)
{
    tally_count(m, n, -1u);
    n->quarantined = on;
    tally_count(m, n, 1);
}

void membership_table_init(struct membership *m)
{
    m->first = m->last = m->first_free = MEMBERSHIP_NONE;
    m->used = 0;
    memset(&m->tally, 0, sizeof(m->tally));
    for (uint32_t i = 0; i < m->capacity; i++)
        m->bucket[i] = MEMBERSHIP_NONE;
    for (uint32_t i = 0; i < m->config.max_nodes; i++) {
        m->slot_node[i] = MEMBERSHIP_NONE;
        m->slot_identity[i] = 0;
    }
}

/* Add a filled record to the list, its bucket and the tally. */
static void link_node(struct membership *m, uint32_t index)
{
    struct membership_node *n = &m->node[index];
    uint32_t *bucket = bucket_of(m, &n->incarnation);

    n->prev = m->last;
    n->next = MEMBERSHIP_NONE;
    *(m->last == MEMBERSHIP_NONE ? &m->first : &m->node[m->last].next) = index;
    m->last = index;
    n->next_in_bucket = *bucket;
    *bucket = index;
    tally_count(m, n, 1);
}

uint32_t membership_table_add(struct membership *m, const struct id128 *incarnation)
{
    uint32_t index = m->first_free;
    struct membership_node *n;

    if (index != MEMBERSHIP_NONE)
        m->first_free = m->node[index].next;
    else if (m->used < m->capacity)
        index = m->used++;
    else
        return MEMBERSHIP_NONE;
    n = &m->node[index];
    *n = (struct membership_node){
        .incarnation = *incarnation,
        .state = MEMBERSHIP_NODE_WAITING,
        .wanted_slot = MEMBERSHIP_NONE,
        .slot = MEMBERSHIP_NONE,
        .group_rank = MEMBERSHIP_NONE,
        .connected = true,
        .joined = ++m->joins,
    };
    link_node(m, index);
    return index;
}

void membership_table_remove(struct membership *m, uint32_t index)
{
    struct membership_node *n = &m->node[index];
    uint32_t *at = bucket_of(m, &n->incarnation);

    while (*at != index)
        at = &m->node[*at].next_in_bucket;
    *at = n->next_in_bucket;
    *(n->prev == MEMBERSHIP_NONE ? &m->first : &m->node[n->prev].next) = n->next;
    *(n->next == MEMBERSHIP_NONE ? &m->last : &m->node[n->next].prev) = n->prev;
    if (n->slot != MEMBERSHIP_NONE && m->slot_node[n->slot] == index)
        m->slot_node[n->slot] = MEMBERSHIP_NONE;
    membership_table_set_state(m, n, MEMBERSHIP_NODE_FREE);
    n->next = m->first_free;
    m->first_free = index;
}

void membership_table_put(struct membership *m, uint32_t index,
                          const struct membership_node *saved)
{
    /* the records in between are free, at least until they are put */
    for (; m->used <= index; m->used++)
        m->node[m->used].state = MEMBERSHIP_NODE_FREE;
    m->node[index] = *saved;
    if (saved->joined > m->joins)
        m->joins = saved->joined;
    link_node(m, index);
}

void membership_table_rebuild(struct membership *m)
{
    m->first_free = MEMBERSHIP_NONE;
    for (uint32_t i = m->used; i-- > 0;)
        if (m->node[i].state == MEMBERSHIP_NODE_FREE) {
            m->node[i].next = m->first_free;
            m->first_free = i;
        }
}

uint32_t membership_find(const struct membership *m, const struct id128 *incarnation)
{
    uint32_t i = *bucket_of(m, incarnation);

    while (i != MEMBERSHIP_NONE && !id128_equal(&m->node[i].incarnation, incarnation))
        i = m->node[i].next_in_bucket;
    return i;
}

void membership_table_sane(const struct membership *m)
{
    struct membership copy = *m;
    uint32_t previous = MEMBERSHIP_NONE;

    memset(&copy.tally, 0, sizeof(copy.tally));
    MEMBERSHIP_EACH(i, m) {
        const struct membership_node *n = &m->node[i];

        assert(i < m->used && n->state != MEMBERSHIP_NODE_FREE);
        assert(n->prev == previous);
        assert(membership_find(m, &n->incarnation) == i);
        assert(n->slot == MEMBERSHIP_NONE || n->slot < m->config.max_nodes);
        tally_count(&copy, n, 1);
        previous = i;
    }
    assert(m->last == previous);
    assert(memcmp(&copy.tally, &m->tally, sizeof(m->tally)) == 0);
}
