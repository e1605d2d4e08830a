/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/worker_roles.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/job.h"

struct role_member {
    struct job_node *node;
    uint32_t first_rank, workers;
};

static int compare_roles(const void *a, const void *b)
{
    const struct role_member *x = a, *y = b;
    int by_role = strcmp(x->node->role, y->node->role);

    return by_role ? by_role
                   : (x->first_rank > y->first_rank) - (x->first_rank < y->first_rank);
}

static uint32_t list_members(const struct job *j, struct role_member *member)
{
    const struct membership *membership = &j->membership;
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < membership->config.max_nodes; slot++) {
        uint32_t i = membership->slot_node[slot];

        if (i != MEMBERSHIP_NONE && membership->node[i].group_rank != MEMBERSHIP_NONE)
            member[count++] = (struct role_member){ j->node[i],
                                                    membership->node[i].first_rank,
                                                    membership->node[i].workers };
    }
    return count;
}

/* How many members, from the first on, have the role of the first. */
static uint32_t count_alike(const struct role_member *member, uint32_t count)
{
    uint32_t alike = 1;

    while (alike < count && strcmp(member[alike].node->role, member->node->role) == 0)
        alike++;
    return alike;
}

void worker_roles_count(struct job *j)
{
    struct role_member *member = xcalloc(j->membership.config.max_nodes,
                                         sizeof(*member));
    uint32_t count = list_members(j, member), alike;

    qsort(member, count, sizeof(*member), compare_roles);
    for (struct role_member *m = member; m < member + count; m += alike) {
        uint32_t workers = 0;

        alike = count_alike(m, count - (uint32_t)(m - member));
        for (uint32_t i = 0; i < alike; i++) {
            m[i].node->role_first_rank = workers;
            workers += m[i].workers;
        }
        for (uint32_t i = 0; i < alike; i++)
            m[i].node->role_world_size = workers;
    }
    free(member);
}
