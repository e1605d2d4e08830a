/* SPDX-License-Identifier: MIT */
#ifndef AGENT_NUMA_H
#define AGENT_NUMA_H

#include <sched.h>
#include <stdint.h>

#include "agent/config.h"
#include "rendezvous/base/err.h"

/*
 * --numa-binding without the numactl program: which CPUs and which memory a worker
 * gets, from sysfs. GPU local ranks are bound near their GPU; without GPUs, nodes are
 * dealt out. `root` is "/" but in tests.
 */
struct numa_place {
    cpu_set_t *cpus; /* CPU_ALLOC; the caller frees with CPU_FREE */
    size_t cpus_size;
    int node;
};

int numa_place(const char *root, enum config_numa binding, uint32_t local_rank,
               uint32_t workers, struct numa_place *place, struct err *e) MUST_CHECK;

#endif
