/* SPDX-License-Identifier: MIT */
#include "worker-lib/core/stuck.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "worker-lib/crun/worker.h"

static _Atomic bool process_is_stuck;

void stuck_set(void)
{
    atomic_store(&process_is_stuck, true);
}

int crun_exit_code(void)
{
    return atomic_load(&process_is_stuck) ? CRUN_EXIT_STUCK : 0;
}
