/* SPDX-License-Identifier: MIT */
#ifndef AGENT_NUMA_TOPOLOGY_H
#define AGENT_NUMA_TOPOLOGY_H

#include <stdbool.h>

#include "agent/numa/id_set.h"
#include "rendezvous/base/err.h"

/*
 * How this machine's CPUs and memory hang together, and which of them this process may
 * use, as sysfs and /proc below `root` say. Offline CPUs do not exist.
 */
struct topology_node {
    int id;             /* -1: the kernel knows no nodes, and this is all there is */
    struct id_set cpus; /* those that may be used: at least one */
};

struct topology {
    const char *root;
    struct id_set memory; /* nodes that have memory that may be used */
    struct topology_node *node;
    unsigned nodes;
};

/* topology_free, whatever it returned. root must outlive t. */
int topology_read(struct topology *t, const char *root, struct err *e) MUST_CHECK;
void topology_free(struct topology *t);

/* The id of the node that a PCI device, "0000:1b:00.0", is near; -1 if nothing says. */
int topology_near(const struct topology *t, const char *pci_address);

/* The socket of a CPU. */
int topology_socket(const struct topology *t, int cpu, int *socket,
                    struct err *e) MUST_CHECK;

/* Which CPUs share a core with one, itself included; and which its last cache. */
int topology_core(const struct topology *t, int cpu, struct id_set *cpus,
                  struct err *e) MUST_CHECK;
int topology_complex(const struct topology *t, int cpu, struct id_set *cpus,
                     struct err *e) MUST_CHECK;

#endif
