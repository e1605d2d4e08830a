/* SPDX-License-Identifier: MIT */
/*
 * Reads sysfs. It knows the paths and formats; numa_binding.c makes the decisions. The
 * sets of the nodes are reduced to the affinity of this process when they are read.
 */
#include "agent/devices/topology.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

#define CPU_PATH "sys/devices/system/cpu"
#define NODE_PATH "sys/devices/system/node"

/* The first line of a file below root; false if it cannot be read. */
__attribute__((format(printf, 4, 5))) static bool
read_line(const struct topology *t, char *line, size_t size, const char *fmt, ...)
{
    char name[256], path[512];
    va_list ap;
    FILE *in;
    bool ok;

    va_start(ap, fmt);
    vsnprintf(name, sizeof(name), fmt, ap);
    va_end(ap);
    snprintf(path, sizeof(path), "%s/%s", t->root, name);
    in = fopen(path, "re");
    if (!in)
        return false;
    ok = fgets(line, (int)size, in) != NULL;
    fclose(in);
    return ok;
}

/* a file in sysfs has at most a page */
#define LINE_MAX_BYTES 4097

/* The list after a name in /proc/self/status; false if there is none. */
static bool read_status(const struct topology *t, const char *name, struct id_set *set)
{
    char path[512], *line = NULL;
    size_t room = 0, length = strlen(name);
    bool found = false;
    FILE *in;

    snprintf(path, sizeof(path), "%s/proc/self/status", t->root);
    in = fopen(path, "re");
    if (!in)
        return false;
    while (!found && getline(&line, &room, in) > 0)
        if (strncmp(line, name, length) == 0)
            found = id_set_parse(set, line + length + strspn(line + length, "\t "));
    free(line);
    fclose(in);
    return found;
}

static void add_node(struct topology *t, int id, const struct id_set *cpus,
                     const struct id_set *allowed)
{
    struct topology_node *n;

    t->node = xrealloc(t->node, (t->nodes + 1) * sizeof(*t->node));
    n = &t->node[t->nodes];
    n->id = id;
    n->cpus = *cpus;
    id_set_keep(&n->cpus, allowed);
    if (id_set_count(&n->cpus) > 0)
        t->nodes++;
}

/* A kernel without NUMA: one node without a number has all CPUs. */
static int read_whole(struct topology *t, const struct id_set *allowed, struct err *e)
{
    char line[LINE_MAX_BYTES];
    struct id_set online = { { 0 } };

    if (!read_line(t, line, sizeof(line), CPU_PATH "/online") ||
        !id_set_parse(&online, line))
        return err_set(e, "cannot find out which CPUs this machine has (/" CPU_PATH
                          "/online)");
    add_node(t, -1, &online, allowed);
    return 0;
}

static int read_nodes(struct topology *t, const struct id_set *allowed, struct err *e)
{
    struct id_set online = { { 0 } };
    char line[LINE_MAX_BYTES];

    if (!read_line(t, line, sizeof(line), NODE_PATH "/online"))
        return read_whole(t, allowed, e);
    if (!id_set_parse(&online, line))
        return err_set(e, "/" NODE_PATH "/online is not a list of nodes");
    for (int id = id_set_next(&online, 0); id >= 0; id = id_set_next(&online, id + 1)) {
        struct id_set cpus = { { 0 } };

        if (!read_line(t, line, sizeof(line), NODE_PATH "/node%d/cpulist", id) ||
            !id_set_parse(&cpus, line))
            return err_set(e,
                           "cannot find out which CPUs NUMA node %d has (/" NODE_PATH
                           "/node%d/cpulist)",
                           id, id);
        add_node(t, id, &cpus, allowed);
    }
    return 0;
}

int topology_read(struct topology *t, const char *root, struct err *e)
{
    struct id_set allowed = { { 0 } };

    memset(t, 0, sizeof(*t));
    t->root = root;
    if (!read_status(t, "Cpus_allowed_list:", &allowed))
        return err_set(e, "/proc/self/status does not say which CPUs crun may use");
    /* without restrictions of memory there is no such line */
    if (!read_status(t, "Mems_allowed_list:", &t->memory))
        memset(&t->memory, 0xff, sizeof(t->memory));
    if (read_nodes(t, &allowed, e) < 0)
        return -1;
    if (t->nodes == 0)
        return err_set(e, "no CPU that crun may use belongs to a NUMA node");
    return 0;
}

void topology_free(struct topology *t)
{
    free(t->node);
    t->node = NULL;
    t->nodes = 0;
}

int topology_near(const struct topology *t, const char *pci_address)
{
    char line[32];

    if (!read_line(t, line, sizeof(line), "sys/bus/pci/devices/%s/numa_node",
                   pci_address))
        return -1;
    return atoi(line);
}

int topology_socket(const struct topology *t, int cpu, int *socket, struct err *e)
{
    char line[32];

    if (!read_line(t, line, sizeof(line),
                   CPU_PATH "/cpu%d/topology/physical_package_id", cpu))
        return err_set(e, "cannot find out in which socket CPU %d is", cpu);
    *socket = atoi(line);
    return 0;
}

int topology_core(const struct topology *t, int cpu, struct id_set *cpus, struct err *e)
{
    char line[LINE_MAX_BYTES];

    memset(cpus, 0, sizeof(*cpus));
    if (!read_line(t, line, sizeof(line),
                   CPU_PATH "/cpu%d/topology/thread_siblings_list", cpu) ||
        !id_set_parse(cpus, line))
        return err_set(e, "cannot find out which CPUs share a core with CPU %d", cpu);
    id_set_add(cpus, cpu);
    return 0;
}

/* The level of a cache of a CPU; -1 if there is none of that index. */
static int cache_level(const struct topology *t, int cpu, int index)
{
    char line[32];

    if (!read_line(t, line, sizeof(line), CPU_PATH "/cpu%d/cache/index%d/level", cpu,
                   index))
        return -1;
    return atoi(line);
}

int topology_complex(const struct topology *t, int cpu, struct id_set *cpus,
                     struct err *e)
{
    char line[LINE_MAX_BYTES];
    int last = -1, best = 0, level;

    for (int index = 0; (level = cache_level(t, cpu, index)) >= 0; index++)
        if (level > best) {
            best = level;
            last = index;
        }
    memset(cpus, 0, sizeof(*cpus));
    if (last < 0 ||
        !read_line(t, line, sizeof(line),
                   CPU_PATH "/cpu%d/cache/index%d/shared_cpu_list", cpu, last) ||
        !id_set_parse(cpus, line))
        return err_set(e, "cannot find out which CPUs share a cache with CPU %d", cpu);
    id_set_add(cpus, cpu);
    return 0;
}
