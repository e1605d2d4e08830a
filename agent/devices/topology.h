/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "agent/devices/id_set.h"
#include "rendezvous/common/base/err.h"

/*
 * The CPUs and memory of this machine and which of them this process may use, according
 * to sysfs and /proc below `root`. Offline CPUs do not count.
 */
struct topology_node {
    int id;             /* -1: the kernel has no NUMA, and this is the only node */
    struct id_set cpus; /* that may be used: at least one */
};

struct topology {
    const char *root;
    struct id_set memory; /* nodes that have memory that may be used */
    struct topology_node *node;
    unsigned nodes;
};

/* Call topology_free in any case. root must outlive t. */
int topology_read(struct topology *t, const char *root, struct err *e) MUST_CHECK;
void topology_free(struct topology *t);

/* The node that a PCI device, "0000:1b:00.0", is near; -1 if unknown. */
int topology_near(const struct topology *t, const char *pci_address);

/* The socket of a CPU. */
int topology_socket(const struct topology *t, int cpu, int *socket,
                    struct err *e) MUST_CHECK;

/* The CPUs that share a core with one, itself included; and those that share its last
 * cache. */
int topology_core(const struct topology *t, int cpu, struct id_set *cpus,
                  struct err *e) MUST_CHECK;
int topology_complex(const struct topology *t, int cpu, struct id_set *cpus,
                     struct err *e) MUST_CHECK;
