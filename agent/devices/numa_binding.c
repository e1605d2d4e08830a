/* SPDX-License-Identifier: MIT */
/*
 * The four bindings, as torchrun names them. First the worker's node is chosen: the
 * node near its GPU or, without GPUs, an even share of the nodes. Then the binding
 * chooses CPUs in or around that node; two of the bindings divide the node among its
 * workers.
 *
 * The place of each worker follows from the same facts, so each is computed
 * independently.
 */
#include "agent/devices/numa_binding.h"

#include <assert.h>
#include <stdlib.h>

#include "agent/devices/gpu_visible.h"
#include "agent/devices/topology.h"
#include "rendezvous/common/base/xalloc.h"

struct numa_choice {
    const struct topology *machine;
    const struct topology_node *node; /* of the worker */
    unsigned peers;                   /* workers on this node, this one included */
    unsigned position;                /* of this worker among them */
    struct id_set cpus;               /* its result */
    bool any_memory;                  /* not only of the node */
};

/* -- the node of a worker ------------------------------------------------------- */

static const struct topology_node *find_node_by_id(const struct topology *machine,
                                                   int id)
{
    for (unsigned i = 0; i < machine->nodes; i++)
        if (machine->node[i].id == id)
            return &machine->node[i];
    return NULL;
}

static const struct topology_node *find_node_of_gpu(const struct topology *machine,
                                                    uint32_t local_rank, uint32_t gpus,
                                                    struct err *e)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    const struct topology_node *node;
    uint32_t gpu = local_rank;
    char address[32];
    int id = -1;

    /* if there are more workers than GPUs, they share them in turn */
    if (gpu_visible_pci_address(visible, gpu, address, sizeof(address)) ||
        gpu_visible_pci_address(visible, gpu = local_rank % gpus, address,
                                sizeof(address)))
        id = topology_near(machine, address);
    /* firmware often does not report the only node */
    if (id < 0 && machine->nodes == 1)
        return &machine->node[0];
    if (id < 0) {
        err_set(e, "cannot find out which NUMA node GPU %u is near", gpu);
        return NULL;
    }
    node = find_node_by_id(machine, id);
    if (!node)
        err_set(e, "GPU %u is near NUMA node %d, of which crun may use no CPU", gpu,
                id);
    return node;
}

static const struct topology_node *find_node_of_rank(const struct topology *machine,
                                                     uint32_t local_rank,
                                                     uint32_t workers, uint32_t gpus,
                                                     struct err *e)
{
    if (gpus > 0)
        return find_node_of_gpu(machine, local_rank, gpus, e);
    return &machine->node[(uint64_t)local_rank * machine->nodes / workers];
}

static int choose_position(struct numa_choice *c, uint32_t local_rank, uint32_t workers,
                           struct err *e)
{
    uint32_t gpus = gpu_visible_count(getenv("CUDA_VISIBLE_DEVICES"));

    c->node = find_node_of_rank(c->machine, local_rank, workers, gpus, e);
    if (!c->node)
        return -1;
    for (uint32_t rank = 0; rank < workers; rank++) {
        const struct topology_node *node = find_node_of_rank(c->machine, rank, workers,
                                                             gpus, e);

        if (!node)
            return -1;
        c->peers += node == c->node;
        c->position += node == c->node && rank < local_rank;
    }
    return 0;
}

/* -- parts of a node ------------------------------------------------------------ */

struct numa_parts {
    struct id_set *part; /* in the order of their lowest CPU */
    unsigned count;
};

typedef int sharing_fn(const struct topology *, int cpu, struct id_set *, struct err *);

/* Splits the CPUs of the worker's node into sets that share something. */
static int split_node(const struct numa_choice *c, sharing_fn *sharing,
                      struct numa_parts *parts, struct err *e)
{
    struct id_set left = c->node->cpus, part;

    for (int cpu; (cpu = id_set_next(&left, 0)) >= 0;) {
        if (sharing(c->machine, cpu, &part, e) < 0)
            return -1;
        id_set_keep(&part, &left);
        id_set_drop(&left, &part);
        parts->part = xrealloc(parts->part, (parts->count + 1) * sizeof(*parts->part));
        parts->part[parts->count++] = part;
    }
    return 0;
}

/* Larger sets first, because crun may not use all CPUs of some sets;
 * sets of one size keep their order. */
static int compare_sizes(const void *a, const void *b)
{
    unsigned size_a = id_set_count(a), size_b = id_set_count(b);

    if (size_a != size_b)
        return size_a > size_b ? -1 : 1;
    return id_set_next(a, 0) - id_set_next(b, 0);
}

/* -- the bindings --------------------------------------------------------------- */

static int choose_node(struct numa_choice *c, struct err *e)
{
    c->cpus = c->node->cpus;
    return 0;
}

static int read_socket(const struct numa_choice *c, const struct topology_node *node,
                       int *socket, struct err *e)
{
    return topology_socket(c->machine, id_set_next(&node->cpus, 0), socket, e);
}

static int choose_socket(struct numa_choice *c, struct err *e)
{
    int wanted, socket;

    if (read_socket(c, c->node, &wanted, e) < 0)
        return -1;
    for (unsigned i = 0; i < c->machine->nodes; i++) {
        const struct topology_node *node = &c->machine->node[i];

        if (read_socket(c, node, &socket, e) < 0)
            return -1;
        if (socket != wanted)
            continue;
        id_set_join(&c->cpus, &node->cpus);
        /* the memory of the node it runs on is taken first */
        c->any_memory |= node != c->node;
    }
    return 0;
}

/* An equal share of the cores; if they do not divide, one more for the first
 * workers. */
static int choose_exclusive(struct numa_choice *c, struct err *e)
{
    struct numa_parts cores = { 0 };
    unsigned share, more, first;
    int rc = split_node(c, topology_core, &cores, e);

    if (rc == 0 && cores.count < c->peers)
        rc = err_set(
            e,
            "%u workers need a core each, but crun may use only %u on their NUMA node",
            c->peers, cores.count);
    if (rc == 0) {
        share = cores.count / c->peers;
        more = cores.count % c->peers;
        first = c->position * share + (c->position < more ? c->position : more);
        share += c->position < more;
        for (unsigned i = first; i < first + share; i++)
            id_set_join(&c->cpus, &cores.part[i]);
    }
    free(cores.part);
    return rc;
}

/* One complex for each worker; if there are fewer, workers share them in turn. */
static int choose_complex(struct numa_choice *c, struct err *e)
{
    struct numa_parts complexes = { 0 };
    int rc = split_node(c, topology_complex, &complexes, e);

    if (rc == 0) {
        qsort(complexes.part, complexes.count, sizeof(*complexes.part), compare_sizes);
        c->cpus = complexes.part[c->position % complexes.count];
    }
    free(complexes.part);
    return rc;
}

static int (*const choosers[])(struct numa_choice *, struct err *) = {
    [CONFIG_NUMA_NODE] = choose_node,
    [CONFIG_NUMA_SOCKET] = choose_socket,
    [CONFIG_NUMA_EXCLUSIVE] = choose_exclusive,
    [CONFIG_NUMA_CORE_COMPLEX] = choose_complex,
};

static void fill_place(struct numa_place *place, const struct numa_choice *c)
{
    place->cpus = CPU_ALLOC(ID_SET_MAX);
    if (!place->cpus)
        abort();
    place->cpus_size = CPU_ALLOC_SIZE(ID_SET_MAX);
    CPU_ZERO_S(place->cpus_size, place->cpus);
    for (int cpu = id_set_next(&c->cpus, 0); cpu >= 0;
         cpu = id_set_next(&c->cpus, cpu + 1))
        CPU_SET_S((size_t)cpu, place->cpus_size, place->cpus);
    /* a node without memory for us would be an error */
    if (!c->any_memory && id_set_has(&c->machine->memory, c->node->id))
        place->node = c->node->id;
}

int numa_place(const char *root, enum config_numa binding, uint32_t local_rank,
               uint32_t workers, struct numa_place *place, struct err *e)
{
    struct topology machine;
    struct numa_choice c = { .machine = &machine };
    int rc = -1;

    assert(binding != CONFIG_NUMA_NONE && local_rank < workers);
    *place = (struct numa_place){ .node = -1 };
    if (topology_read(&machine, root, e) == 0 &&
        choose_position(&c, local_rank, workers, e) == 0)
        rc = choosers[binding](&c, e);
    if (rc == 0)
        fill_place(place, &c);
    else
        err_wrap(e, "--numa-binding");
    topology_free(&machine);
    return rc;
}
