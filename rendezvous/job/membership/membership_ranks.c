/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/membership_ranks.h"

uint32_t membership_ranks_namesake(const struct membership *m, uint32_t slot)
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

bool membership_ranks_forget_lost_slot(struct membership *m, uint32_t index)
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

void membership_ranks_assign(struct membership *m)
{
    MEMBERSHIP_EACH(i, m)
        m->node[i].group_rank = MEMBERSHIP_NONE;
    assign_slots(m);
    remember_slots(m);
    assign_ranks(m);
}
