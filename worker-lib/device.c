/* SPDX-License-Identifier: MIT */
#include "worker-lib/device.h"

#include "worker-lib/world.h"

const struct device_ops *world_device(const crun_world *w)
{
    (void)w;
    return &device_cpu;
}

void *world_queue(const crun_world *w)
{
    (void)w;
    return NULL;
}
