/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "worker-lib/backend.h"

bool abort_set(struct abort_word *a, crun_status s, const char *reason)
{
    uint32_t none = 0;
    size_t i = 0;

    if (!atomic_compare_exchange_strong(&a->set, &none, ABORT_CLAIMED))
        return false;
    for (; reason[i] && i < sizeof(a->reason) - 1; i++)
        a->reason[i] = reason[i];
    a->reason[i] = '\0';
    atomic_store(&a->set, (uint32_t)s);
    return true;
}

crun_status abort_get(const struct abort_word *a)
{
    uint32_t set = atomic_load_explicit(&a->set, memory_order_acquire);

    return set == ABORT_CLAIMED ? CRUN_OK : (crun_status)set;
}
