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

uint32_t membership_table_namesake(const struct membership *m, uint32_t slot)
{
    MEMBERSHIP_EACH(i, m)
        if (m->node[i].state != MEMBERSHIP_NODE_DISMISSED &&
            m->node[i].wanted_slot == slot)
            return i;
    return MEMBERSHIP_NONE;
}

static bool can_be_member(const struct membership_node *n)
{
    return n->state == MEMBERSHIP_NODE_WAITING && n->connected && !n->leaving;
}

/* The passes in which slots are given.
 * A node that is absent may have asked for the slot of a spare: it has it in the next
 * epoch again. */
enum slot_pass {
    SLOT_NAMED,
    SLOT_HELD,
    SLOT_HOST,
    SLOT_OLD, /* the slot that its host had */
    SLOT_NEW, /* the lowest that no absent host has had */
    SLOT_ANY, /* the lowest */
    SLOT_COUNT
};

static enum slot_pass slot_claim_of(const struct membership_node *n)
{
    if (n->wanted_slot != MEMBERSHIP_NONE)
        return SLOT_NAMED;
    if (n->slot != MEMBERSHIP_NONE)
        return SLOT_HELD;
    return n->host ? SLOT_HOST : SLOT_ANY;
}

/* The lowest free slot from *from on that was last held by `identity`. */
static uint32_t next_free_slot(const struct membership *m, uint32_t from,
                               uint64_t identity)
{
    while (from < m->config.max_nodes && (m->slot_node[from] != MEMBERSHIP_NONE ||
                                          m->slot_identity[from] != identity))
        from++;
    return from < m->config.max_nodes ? from : MEMBERSHIP_NONE;
}

struct placing { /* below these no slot is free */
    uint32_t lowest_new, lowest;
};

/* The slot that the node gets in this pass, or MEMBERSHIP_NONE: it gets one in a later
 * pass. */
static uint32_t choose_slot(const struct membership *m, const struct membership_node *n,
                            enum slot_pass pass, struct placing *p)
{
    uint32_t slot = pass == SLOT_HELD    ? n->slot
                    : pass == SLOT_NAMED ? n->wanted_slot
                                         : 0;

    if (pass < SLOT_OLD)
        return slot_claim_of(n) == pass && m->slot_node[slot] == MEMBERSHIP_NONE
                   ? slot
                   : MEMBERSHIP_NONE;
    if (pass == SLOT_OLD) /* before the first epoch no host has had a slot */
        return n->identity && m->epoch > 0 ? next_free_slot(m, 0, n->identity)
                                           : MEMBERSHIP_NONE;
    if (pass == SLOT_NEW) {
        slot = next_free_slot(m, p->lowest_new, 0);
        p->lowest_new = slot == MEMBERSHIP_NONE ? m->config.max_nodes : slot;
        return slot;
    }
    while (p->lowest < m->config.max_nodes &&
           m->slot_node[p->lowest] != MEMBERSHIP_NONE)
        p->lowest++;
    return p->lowest < m->config.max_nodes ? p->lowest : MEMBERSHIP_NONE;
}

static bool node_is_placed(const struct membership *m, uint32_t i)
{
    return m->node[i].slot != MEMBERSHIP_NONE && m->slot_node[m->node[i].slot] == i;
}

/* The number of the last join in quarantine that the minimum needs;
 * 0: it needs none. */
static uint64_t last_needed_join(const struct membership *m)
{
    uint32_t willing = m->tally.here - m->tally.barred_here;
    uint64_t joined = 0;

    for (uint32_t i = m->first; i != MEMBERSHIP_NONE && willing < m->config.min_nodes;
         i = m->node[i].next)
        if (can_be_member(&m->node[i]) && m->node[i].quarantined) {
            joined = m->node[i].joined;
            willing++;
        }
    return joined;
}

static void assign_slots(struct membership *m)
{
    uint64_t needed = last_needed_join(m);
    struct placing p = { 0, 0 };

    for (uint32_t i = 0; i < m->config.max_nodes; i++)
        m->slot_node[i] = MEMBERSHIP_NONE;
    for (enum slot_pass pass = 0; pass < SLOT_COUNT; pass++)
        MEMBERSHIP_EACH(i, m) {
            struct membership_node *n = &m->node[i];
            uint32_t slot;

            if (!can_be_member(n) || (n->quarantined && n->joined > needed) ||
                node_is_placed(m, i))
                continue;
            slot = choose_slot(m, n, pass, &p);
            if (slot == MEMBERSHIP_NONE)
                continue;
            m->slot_node[slot] = i;
            n->slot = slot;
        }
}

static void remember_slots(struct membership *m)
{
    for (uint32_t slot = 0; slot < m->config.max_nodes; slot++)
        if (m->slot_node[slot] != MEMBERSHIP_NONE)
            m->slot_identity[slot] = m->node[m->slot_node[slot]].identity;
}

bool membership_table_forget_lost_slot(struct membership *m, uint32_t index)
{
    struct membership_node *n = &m->node[index];

    if (n->slot == MEMBERSHIP_NONE || m->slot_node[n->slot] == MEMBERSHIP_NONE ||
        m->slot_node[n->slot] == index)
        return false;
    n->slot = MEMBERSHIP_NONE;
    return true;
}

static void assign_ranks(struct membership *m)
{
    m->group_size = m->world_size = 0;
    m->leader = MEMBERSHIP_NONE;
    for (uint32_t slot = 0; slot < m->config.max_nodes; slot++) {
        uint32_t i = m->slot_node[slot];

        if (i == MEMBERSHIP_NONE)
            continue;
        if (m->leader == MEMBERSHIP_NONE)
            m->leader = i;
        m->node[i].group_rank = m->group_size++;
        m->node[i].first_rank = m->world_size;
        m->world_size += m->node[i].workers;
    }
}

void membership_table_place(struct membership *m)
{
    MEMBERSHIP_EACH(i, m)
        m->node[i].group_rank = MEMBERSHIP_NONE;
    assign_slots(m);
    remember_slots(m);
    assign_ranks(m);
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
