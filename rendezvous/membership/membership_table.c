/* SPDX-License-Identifier: MIT */
#include "rendezvous/membership/membership_table.h"

#include <assert.h>
#include <string.h>

/* incarnations are random bits: any four bytes of one are a hash */
static uint32_t *bucket_of(const struct membership *r, const struct id128 *incarnation)
{
    uint32_t hash;

    memcpy(&hash, incarnation->byte, sizeof(hash));
    return &r->bucket[hash % r->capacity];
}

static void count(struct membership *r, const struct membership_node *n, uint32_t sign)
{
    struct membership_tally *t = &r->tally;

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

void membership_table_set_state(struct membership *r, struct membership_node *n,
                                enum membership_node_state state)
{
    count(r, n, -1u);
    n->state = state;
    count(r, n, 1);
}

void membership_table_set_connected(struct membership *r, struct membership_node *n,
                                    bool connected)
{
    count(r, n, -1u);
    n->connected = connected;
    count(r, n, 1);
}

void membership_table_set_leaving(struct membership *r, struct membership_node *n,
                                  bool leaving)
{
    count(r, n, -1u);
    n->leaving = leaving;
    count(r, n, 1);
}

void membership_table_set_quarantined(struct membership *r, struct membership_node *n,
                                      bool on)
{
    count(r, n, -1u);
    n->quarantined = on;
    count(r, n, 1);
}

void membership_table_init(struct membership *r)
{
    r->first = r->last = r->first_free = MEMBERSHIP_NONE;
    r->used = 0;
    memset(&r->tally, 0, sizeof(r->tally));
    for (uint32_t i = 0; i < r->capacity; i++)
        r->bucket[i] = MEMBERSHIP_NONE;
    for (uint32_t i = 0; i < r->config.max_nodes; i++) {
        r->slot_node[i] = MEMBERSHIP_NONE;
        r->slot_identity[i] = 0;
    }
}

/* Into the list, its bucket and the tally; the record is filled already. */
static void link_node(struct membership *r, uint32_t index)
{
    struct membership_node *n = &r->node[index];
    uint32_t *bucket = bucket_of(r, &n->incarnation);

    n->prev = r->last;
    n->next = MEMBERSHIP_NONE;
    *(r->last == MEMBERSHIP_NONE ? &r->first : &r->node[r->last].next) = index;
    r->last = index;
    n->next_in_bucket = *bucket;
    *bucket = index;
    count(r, n, 1);
}

uint32_t membership_table_add(struct membership *r, const struct id128 *incarnation)
{
    uint32_t index = r->first_free;
    struct membership_node *n;

    if (index != MEMBERSHIP_NONE)
        r->first_free = r->node[index].next;
    else if (r->used < r->capacity)
        index = r->used++;
    else
        return MEMBERSHIP_NONE;
    n = &r->node[index];
    *n = (struct membership_node){
        .incarnation = *incarnation,
        .state = MEMBERSHIP_NODE_WAITING,
        .wanted_slot = MEMBERSHIP_NONE,
        .slot = MEMBERSHIP_NONE,
        .group_rank = MEMBERSHIP_NONE,
        .connected = true,
        .joined = ++r->joins,
    };
    link_node(r, index);
    return index;
}

void membership_table_remove(struct membership *r, uint32_t index)
{
    struct membership_node *n = &r->node[index];
    uint32_t *at = bucket_of(r, &n->incarnation);

    while (*at != index)
        at = &r->node[*at].next_in_bucket;
    *at = n->next_in_bucket;
    *(n->prev == MEMBERSHIP_NONE ? &r->first : &r->node[n->prev].next) = n->next;
    *(n->next == MEMBERSHIP_NONE ? &r->last : &r->node[n->next].prev) = n->prev;
    if (n->slot != MEMBERSHIP_NONE && r->slot_node[n->slot] == index)
        r->slot_node[n->slot] = MEMBERSHIP_NONE;
    membership_table_set_state(r, n, MEMBERSHIP_NODE_FREE);
    n->next = r->first_free;
    r->first_free = index;
}

void membership_table_put(struct membership *r, uint32_t index,
                          const struct membership_node *saved)
{
    /* the records skipped over are free until they are put, or for good */
    for (; r->used <= index; r->used++)
        r->node[r->used].state = MEMBERSHIP_NODE_FREE;
    r->node[index] = *saved;
    if (saved->joined > r->joins)
        r->joins = saved->joined;
    link_node(r, index);
}

void membership_table_rebuild(struct membership *r)
{
    r->first_free = MEMBERSHIP_NONE;
    for (uint32_t i = r->used; i-- > 0;)
        if (r->node[i].state == MEMBERSHIP_NODE_FREE) {
            r->node[i].next = r->first_free;
            r->first_free = i;
        }
}

uint32_t membership_find(const struct membership *r, const struct id128 *incarnation)
{
    uint32_t i = *bucket_of(r, incarnation);

    while (i != MEMBERSHIP_NONE && !id128_equal(&r->node[i].incarnation, incarnation))
        i = r->node[i].next_in_bucket;
    return i;
}

uint32_t membership_table_holder(const struct membership *r, uint32_t slot)
{
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next) {
        const struct membership_node *n = &r->node[i];

        if (n->state == MEMBERSHIP_NODE_TOLD)
            continue;
        if (n->slot == slot || (n->slot == MEMBERSHIP_NONE && n->wanted_slot == slot))
            return i;
    }
    return MEMBERSHIP_NONE;
}

static bool can_be_member(const struct membership_node *n)
{
    return n->state == MEMBERSHIP_NODE_WAITING && n->connected && !n->leaving;
}

/* The order in which nodes are served. A spare may hold the slot that a node asked for
 * by name, but only while that node is away. */
enum session_identity {
    PLACE_NAMED,
    PLACE_HELD,
    PLACE_HOST,
    PLACE_OLD, /* the one that its host had */
    PLACE_NEW, /* the lowest that nobody absent has had */
    PLACE_ANY, /* the lowest */
    PLACE_COUNT
};

static enum session_identity place_of(const struct membership_node *n)
{
    if (n->wanted_slot != MEMBERSHIP_NONE)
        return PLACE_NAMED;
    if (n->slot != MEMBERSHIP_NONE)
        return PLACE_HELD;
    return n->host ? PLACE_HOST : PLACE_ANY;
}

/* The lowest free slot from *from on that was last held by `identity`. */
static uint32_t next_free(const struct membership *r, uint32_t from, uint64_t identity)
{
    while (from < r->config.max_nodes && (r->slot_node[from] != MEMBERSHIP_NONE ||
                                          r->slot_identity[from] != identity))
        from++;
    return from < r->config.max_nodes ? from : MEMBERSHIP_NONE;
}

struct placing { /* below these no slot is free */
    uint32_t lowest_new, lowest;
};

/* The slot the node is to have on this pass, or MEMBERSHIP_NONE if it must wait for a
 * later one. */
static uint32_t slot_for(const struct membership *r, const struct membership_node *n,
                         enum session_identity pass, struct placing *p)
{
    uint32_t slot = pass == PLACE_HELD    ? n->slot
                    : pass == PLACE_NAMED ? n->wanted_slot
                                          : 0;

    if (pass < PLACE_OLD)
        return place_of(n) == pass && r->slot_node[slot] == MEMBERSHIP_NONE
                   ? slot
                   : MEMBERSHIP_NONE;
    if (pass == PLACE_OLD) /* at the first forming nobody has had one */
        return n->identity && r->epoch > 0 ? next_free(r, 0, n->identity)
                                           : MEMBERSHIP_NONE;
    if (pass == PLACE_NEW) {
        slot = next_free(r, p->lowest_new, 0);
        p->lowest_new = slot == MEMBERSHIP_NONE ? r->config.max_nodes : slot;
        return slot;
    }
    while (p->lowest < r->config.max_nodes &&
           r->slot_node[p->lowest] != MEMBERSHIP_NONE)
        p->lowest++;
    return p->lowest < r->config.max_nodes ? p->lowest : MEMBERSHIP_NONE;
}

static bool is_placed(const struct membership *r, uint32_t i)
{
    return r->node[i].slot != MEMBERSHIP_NONE && r->slot_node[r->node[i].slot] == i;
}

/* The last join of those in quarantine who are needed to meet the minimum; 0: none is.
 */
static uint64_t last_needed(const struct membership *r)
{
    uint32_t willing = r->tally.here - r->tally.barred_here;
    uint64_t joined = 0;

    for (uint32_t i = r->first; i != MEMBERSHIP_NONE && willing < r->config.min_nodes;
         i = r->node[i].next)
        if (can_be_member(&r->node[i]) && r->node[i].quarantined) {
            joined = r->node[i].joined;
            willing++;
        }
    return joined;
}

static void assign_slots(struct membership *r)
{
    uint64_t needed = last_needed(r);
    struct placing p = { 0, 0 };

    for (uint32_t i = 0; i < r->config.max_nodes; i++)
        r->slot_node[i] = MEMBERSHIP_NONE;
    for (enum session_identity pass = 0; pass < PLACE_COUNT; pass++)
        for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next) {
            struct membership_node *n = &r->node[i];
            uint32_t slot;

            if (!can_be_member(n) || (n->quarantined && n->joined > needed) ||
                is_placed(r, i))
                continue;
            slot = slot_for(r, n, pass, &p);
            if (slot == MEMBERSHIP_NONE)
                continue;
            r->slot_node[slot] = i;
            n->slot = slot;
        }
}

static void remember_slots(struct membership *r)
{
    for (uint32_t slot = 0; slot < r->config.max_nodes; slot++)
        if (r->slot_node[slot] != MEMBERSHIP_NONE)
            r->slot_identity[slot] = r->node[r->slot_node[slot]].identity;
}

bool membership_table_forget_lost_slot(struct membership *r, uint32_t index)
{
    struct membership_node *n = &r->node[index];

    if (n->slot == MEMBERSHIP_NONE || r->slot_node[n->slot] == MEMBERSHIP_NONE ||
        r->slot_node[n->slot] == index)
        return false;
    n->slot = MEMBERSHIP_NONE;
    return true;
}

static void assign_ranks(struct membership *r)
{
    r->group_size = r->world_size = 0;
    r->leader = MEMBERSHIP_NONE;
    for (uint32_t slot = 0; slot < r->config.max_nodes; slot++) {
        uint32_t i = r->slot_node[slot];

        if (i == MEMBERSHIP_NONE)
            continue;
        if (r->leader == MEMBERSHIP_NONE)
            r->leader = i;
        r->node[i].group_rank = r->group_size++;
        r->node[i].first_rank = r->world_size;
        r->world_size += r->node[i].workers;
    }
}

void membership_table_place(struct membership *r)
{
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next)
        r->node[i].group_rank = MEMBERSHIP_NONE;
    assign_slots(r);
    remember_slots(r);
    assign_ranks(r);
}

void membership_table_sane(const struct membership *r)
{
    struct membership copy = *r;
    uint32_t previous = MEMBERSHIP_NONE;

    memset(&copy.tally, 0, sizeof(copy.tally));
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next) {
        const struct membership_node *n = &r->node[i];

        assert(i < r->used && n->state != MEMBERSHIP_NODE_FREE);
        assert(n->prev == previous);
        assert(membership_find(r, &n->incarnation) == i);
        assert(n->slot == MEMBERSHIP_NONE || n->slot < r->config.max_nodes);
        count(&copy, n, 1);
        previous = i;
    }
    assert(r->last == previous);
    assert(memcmp(&copy.tally, &r->tally, sizeof(r->tally)) == 0);
}
