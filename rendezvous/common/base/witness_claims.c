/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/witness_claims.h"

#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"

bool witness_claims_take(struct claims *all, struct pair_claim *c, bool *is_new)
{
    *is_new = false;
    for (size_t i = 0; i < all->count; i++) {
        const struct pair_claim *old = &all->list[i];

        if (old->pair == c->pair && id128_equal(&old->job, &c->job)) {
            c->holder = old->holder;
            return true;
        }
    }
    if (all->count == CLAIMS_MAX)
        return false;
    c->holder = c->self;
    all->list = xrealloc(all->list, (all->count + 1) * sizeof(*all->list));
    all->list[all->count++] = *c;
    *is_new = true;
    return true;
}

void witness_claims_free(struct claims *all)
{
    free(all->list);
    *all = (struct claims){ .list = NULL };
}
