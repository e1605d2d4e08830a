/* SPDX-License-Identifier: MIT */
#pragma once

#include <sched.h>
#include <stdint.h>

#include "agent/config.h"
#include "rendezvous/common/base/err.h"

/*
 * --numa-binding without the numactl program: the CPUs and the memory of a worker. A
 * worker is placed near the GPU of its local rank; without GPUs the nodes are divided
 * among the workers. It never gets a CPU that crun itself may not use. `root` is "/"
 * except in tests.
 */
struct numa_place {
    cpu_set_t *cpus; /* CPU_ALLOC; the caller frees with CPU_FREE; NULL on failure */
    size_t cpus_size;
    int node; /* memory of this node only; -1: the kernel's default, nearest first */
};

int numa_place(const char *root, enum config_numa binding, uint32_t local_rank,
               uint32_t workers, struct numa_place *place, struct err *e) MUST_CHECK;
