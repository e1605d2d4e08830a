/* SPDX-License-Identifier: MIT */
/* takes: 6 s */
#include "agent/devices/numa_binding.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "agent/devices/gpu_visible.h"
#include "agent/devices/id_set.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/tree.h"

/* -- GPUs, instead of gpu_visible.c ----------------------------------------- */

static const char *gpu_address[8];
static uint32_t gpus;

uint32_t gpu_visible_count(const char *cuda_visible_devices)
{
    return gpus;
}

bool gpu_visible_pci_address(const char *cuda_visible_devices, uint32_t index,
                             char *buf, size_t size)
{
    if (index >= gpus || !gpu_address[index])
        return false;
    snprintf(buf, size, "%s", gpu_address[index]);
    return true;
}

static void add_gpu(int node)
{
    static char address[8][16];
    char text[16];

    snprintf(address[gpus], sizeof(address[gpus]), "0000:%02x:00.0", 0x10 + gpus);
    gpu_address[gpus] = address[gpus];
    snprintf(text, sizeof(text), "%d\n", node);
    tree_put(text, "sys/bus/pci/devices/%s/numa_node", address[gpus++]);
}

/* -- machines --------------------------------------------------------------- */

/*
 * CPUs are numbered as PCs do: the first threads of all cores, node after node, then
 * the second ones.
 */
struct numa_machine {
    int sockets, nodes; /* nodes of each socket */
    int cores, threads; /* of each node, of each core */
    int complex;        /* cores that share a cache */
};

static int cores_of(const struct numa_machine *m)
{
    return m->sockets * m->nodes * m->cores;
}

/* "4-7,20-23" for the cores 4 to 7 of 16 */
static const char *cpus_of(const struct numa_machine *m, int first, int count)
{
    static char text[256];
    size_t used = 0;

    for (int t = 0; t < m->threads; t++) {
        int low = t * cores_of(m) + first, high = low + count - 1;

        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d", t ? "," : "",
                                 low);
        if (high > low)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "-%d", high);
    }
    strcpy(text + used, "\n");
    return text;
}

static void put_cache(int cpu, int index, const char *level, const char *cpus)
{
    tree_put(level, "sys/devices/system/cpu/cpu%d/cache/index%d/level", cpu, index);
    tree_put(cpus, "sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu,
             index);
}

static void put_cpu(const struct numa_machine *m, int cpu)
{
    int core = cpu % cores_of(m);
    char socket[16];

    snprintf(socket, sizeof(socket), "%d\n", core / (m->cores * m->nodes));
    tree_put(socket, "sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    tree_put(cpus_of(m, core, 1),
             "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    put_cache(cpu, 0, "1\n", cpus_of(m, core, 1));
    put_cache(cpu, 1, "3\n", cpus_of(m, core - core % m->complex, m->complex));
    put_cache(cpu, 2, "2\n", cpus_of(m, core, 1));
}

static void allow(const char *cpus, const char *memory)
{
    char text[512];

    snprintf(text, sizeof(text),
             "Name:\tcrun\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\n"
             "Mems_allowed_list:\t%s\n",
             cpus, memory);
    tree_put(text, "proc/self/status");
}

static void make(const struct numa_machine *m)
{
    int nodes = m->sockets * m->nodes;
    char online[32];

    gpus = 0;
    snprintf(online, sizeof(online), "0-%d\n", nodes - 1);
    tree_put(online, "sys/devices/system/node/online");
    for (int n = 0; n < nodes; n++)
        tree_put(cpus_of(m, n * m->cores, m->cores),
                 "sys/devices/system/node/node%d/cpulist", n);
    for (int cpu = 0; cpu < cores_of(m) * m->threads; cpu++)
        put_cpu(m, cpu);
    allow("0-8191", "0-1023");
}

static const struct numa_machine small = { 1, 1, 4, 1, 4 };
static const struct numa_machine two_by_two = { 2, 2, 4, 2, 4 }; /* 16 cores, 32 CPUs */
static const struct numa_machine amd = { 2, 1, 8, 2, 2 }; /* 4 complexes a node */

/* -- asking ----------------------------------------------------------------- */

static void expect(const char *what, enum config_numa binding, uint32_t local_rank,
                   uint32_t workers, const char *cpus, int node)
{
    struct id_set set = { { 0 } };
    struct numa_place place;
    struct err e = { 0 };

    ck_assert_msg(numa_place(tree_root, binding, local_rank, workers, &place, &e) == 0,
                  "%s", e.text);
    ck_assert(id_set_parse(&set, cpus));
    for (int cpu = 0; cpu < ID_SET_MAX; cpu++)
        ck_assert_msg(!CPU_ISSET_S((size_t)cpu, place.cpus_size, place.cpus) ==
                          !id_set_has(&set, cpu),
                      "%s: CPU %d, expected %s", what, cpu, cpus);
    ck_assert_int_eq(place.node, node);
    CPU_FREE(place.cpus);
}

static void expect_refusal(enum config_numa binding, uint32_t local_rank,
                           uint32_t workers, const char *why)
{
    struct numa_place place;
    struct err e = { 0 };

    ck_assert_int_eq(numa_place(tree_root, binding, local_rank, workers, &place, &e),
                     -1);
    ck_assert_str_eq(e.text, why);
    ck_assert_ptr_null(place.cpus);
    ck_assert_int_eq(place.node, -1);
}

/* -- cases ------------------------------------------------------------------ */

#define GPUS_MAX 8
#define ROW(what, m, may, gpu_nodes, binds, r, w, gets, n)                             \
    {                                                                                  \
        what, &m, may, gpu_nodes, CONFIG_NUMA_##binds, r, w, gets, n                   \
    }
#define G(...)                                                                         \
    {                                                                                  \
        __VA_ARGS__, -2                                                                \
    }
#define NO_GPU                                                                         \
    {                                                                                  \
        -2                                                                             \
    }

static const struct {
    const char *name;
    const struct numa_machine *machine;
    const char *allowed;
    int gpu_node[GPUS_MAX + 1]; /* ended by -2 */
    enum config_numa binding;
    uint32_t rank, workers;
    const char *cpus;
    int node;
} cases[] = {
    ROW("one node", small, NULL, NO_GPU, NODE, 1, 2, "0-3", 0),
    ROW("GPU does not say", small, NULL, G(-1), NODE, 0, 1, "0-3", 0),
    ROW("node of the GPU", two_by_two, NULL, G(3, 0), NODE, 0, 2, "12-15,28-31", 3),
    ROW("node of the GPU", two_by_two, NULL, G(3, 0), NODE, 1, 2, "0-3,16-19", 0),
    ROW("third of two GPUs", two_by_two, NULL, G(3, 0), NODE, 2, 4, "12-15,28-31", 3),
    ROW("fourth of two", two_by_two, NULL, G(3, 0), NODE, 3, 4, "0-3,16-19", 0),
    ROW("dealt out", two_by_two, NULL, NO_GPU, NODE, 0, 2, "0-3,16-19", 0),
    ROW("dealt out", two_by_two, NULL, NO_GPU, NODE, 1, 2, "8-11,24-27", 2),
    ROW("dealt out", two_by_two, NULL, NO_GPU, NODE, 1, 8, "0-3,16-19", 0),
    ROW("dealt out", two_by_two, NULL, NO_GPU, NODE, 7, 8, "12-15,28-31", 3),
    ROW("only where allowed", two_by_two, "2-5,17", NO_GPU, NODE, 0, 2, "2-3,17", 0),
    ROW("only where allowed", two_by_two, "2-5,17", NO_GPU, NODE, 1, 2, "4-5", 1),
    ROW("only where allowed", two_by_two, "2-5,17", G(1), NODE, 0, 1, "4-5", 1),
    ROW("allowed on one node", two_by_two, "5", G(-1), NODE, 0, 1, "5", 1),

    ROW("socket", two_by_two, NULL, G(3), SOCKET, 0, 1, "8-15,24-31", -1),
    ROW("socket", two_by_two, NULL, NO_GPU, SOCKET, 0, 2, "0-7,16-23", -1),
    ROW("socket of one node", amd, NULL, G(1), SOCKET, 0, 1, "8-15,24-31", 1),
    ROW("allowed in it", two_by_two, "0-9", G(2), SOCKET, 0, 1, "8-9", 2),
    ROW("allowed in it", two_by_two, "3-4,31", G(1), SOCKET, 0, 1, "3-4", -1),

    ROW("alone on its node", two_by_two, NULL, G(1, 3), EXCLUSIVE, 0, 2, "4-7,20-23",
        1),
    ROW("half a node", two_by_two, NULL, G(1, 1), EXCLUSIVE, 0, 2, "4-5,20-21", 1),
    ROW("half a node", two_by_two, NULL, G(1, 1), EXCLUSIVE, 1, 2, "6-7,22-23", 1),
    ROW("one more first", two_by_two, NULL, G(1, 0, 1, 1), EXCLUSIVE, 0, 4, "4-5,20-21",
        1),
    ROW("one more first", two_by_two, NULL, G(1, 0, 1, 1), EXCLUSIVE, 2, 4, "6,22", 1),
    ROW("one more first", two_by_two, NULL, G(1, 0, 1, 1), EXCLUSIVE, 3, 4, "7,23", 1),
    ROW("fewer workers", two_by_two, NULL, G(1, 1), EXCLUSIVE, 0, 1, "4-7,20-23", 1),
    ROW("allowed cores", two_by_two, "5-6,20", G(1, 1), EXCLUSIVE, 0, 2, "5-6", 1),
    ROW("allowed cores", two_by_two, "5-6,20", G(1, 1), EXCLUSIVE, 1, 2, "20", 1),
    ROW("no GPU", two_by_two, NULL, NO_GPU, EXCLUSIVE, 5, 8, "10-11,26-27", 2),

    ROW("a complex", amd, NULL, G(0, 1, 1), CORE_COMPLEX, 0, 3, "0-1,16-17", 0),
    ROW("a complex", amd, NULL, G(0, 1, 1), CORE_COMPLEX, 1, 3, "8-9,24-25", 1),
    ROW("a complex", amd, NULL, G(0, 1, 1), CORE_COMPLEX, 2, 3, "10-11,26-27", 1),
    ROW("in turn", amd, NULL, G(0), CORE_COMPLEX, 5, 6, "2-3,18-19", 0),
    ROW("largest first", amd, "1,3-31", NO_GPU, CORE_COMPLEX, 3, 8, "3,18-19", 0),
    ROW("largest first", amd, "1,3-31", NO_GPU, CORE_COMPLEX, 0, 8, "4-5,20-21", 0),
};

FIXTURE(tree_setup, tree_teardown);

TEST_LOOP(a_worker_gets_its_cpus_and_its_memory, 0, sizeof(cases) / sizeof(*cases))
{
    make(cases[_i].machine);
    if (cases[_i].allowed)
        allow(cases[_i].allowed, "0-3");
    for (const int *node = cases[_i].gpu_node; *node != -2; node++)
        add_gpu(*node);
    expect(cases[_i].name, cases[_i].binding, cases[_i].rank, cases[_i].workers,
           cases[_i].cpus, cases[_i].node);
}

TEST(exclusive_shares_are_disjoint_and_leave_nothing)
{
    struct id_set all = { { 0 } };

    make(&two_by_two);
    for (uint32_t rank = 0; rank < 11; rank++) {
        struct numa_place place;
        struct err e;

        ck_assert_int_eq(
            numa_place(tree_root, CONFIG_NUMA_EXCLUSIVE, rank, 11, &place, &e), 0);
        for (int cpu = 0; cpu < 32; cpu++) {
            if (!CPU_ISSET_S((size_t)cpu, place.cpus_size, place.cpus))
                continue;
            ck_assert_msg(!id_set_has(&all, cpu), "CPU %d twice", cpu);
            id_set_add(&all, cpu);
        }
        CPU_FREE(place.cpus);
    }
    ck_assert_uint_eq(id_set_count(&all), 32);
}

TEST(offline_cpus_and_empty_nodes_do_not_exist)
{
    make(&two_by_two);
    /* the second thread of CPU 4 is off, and so is all of node 2 */
    tree_put("4-7,21-23\n", "sys/devices/system/node/node1/cpulist");
    tree_put("\n", "sys/devices/system/node/node2/cpulist");
    tree_remove("sys/devices/system/cpu/cpu20");
    tree_put("4\n", "sys/devices/system/cpu/cpu4/topology/thread_siblings_list");
    expect("a CPU that is off", CONFIG_NUMA_NODE, 1, 3, "4-7,21-23", 1);
    expect("the last node with CPUs", CONFIG_NUMA_NODE, 2, 3, "12-15,28-31", 3);
    expect("a core with one thread on", CONFIG_NUMA_EXCLUSIVE, 4, 12, "4", 1);
    expect("a socket with an empty node", CONFIG_NUMA_SOCKET, 2, 3, "12-15,28-31", 3);
}

TEST(a_cpu_shares_with_itself_at_least)
{
    make(&small);
    tree_put("0\n", "sys/devices/system/cpu/cpu2/topology/thread_siblings_list");
    tree_put("\n", "sys/devices/system/cpu/cpu0/cache/index1/shared_cpu_list");
    expect("a core", CONFIG_NUMA_EXCLUSIVE, 2, 4, "2", 0);
    expect("a complex", CONFIG_NUMA_CORE_COMPLEX, 1, 4, "0", 0);
}

TEST(memory_that_is_not_there_is_not_asked_for)
{
    make(&two_by_two);
    allow("0-31", "0,2-3");
    expect("no memory", CONFIG_NUMA_NODE, 1, 4, "4-7,20-23", -1);
    expect("memory", CONFIG_NUMA_NODE, 2, 4, "8-11,24-27", 2);
    tree_put("Cpus_allowed_list:\t0-31\n", "proc/self/status");
    expect("not restricted", CONFIG_NUMA_NODE, 1, 4, "4-7,20-23", 1);
}

TEST(a_kernel_without_nodes_has_one)
{
    make(&small);
    tree_remove("sys/devices/system/node");
    tree_put("0-2\n", "sys/devices/system/cpu/online");
    expect("no nodes", CONFIG_NUMA_NODE, 1, 2, "0-2", -1);
    expect("a core without nodes", CONFIG_NUMA_EXCLUSIVE, 1, 2, "2", -1);
    tree_remove("sys/devices/system/cpu/online");
    expect_refusal(CONFIG_NUMA_NODE, 0, 1,
                   "--numa-binding: cannot find out which CPUs this machine has "
                   "(/sys/devices/system/cpu/online)");
}

TEST(a_gpu_whose_address_is_not_known_needs_a_machine_of_one_node)
{
    make(&small);
    gpus = 1;
    gpu_address[0] = NULL;
    expect("one node", CONFIG_NUMA_NODE, 0, 1, "0-3", 0);
    tree_teardown();
    tree_setup();
    make(&two_by_two);
    gpus = 1;
    gpu_address[0] = NULL;
    expect_refusal(CONFIG_NUMA_NODE, 0, 1,
                   "--numa-binding: cannot find out which NUMA node GPU 0 is "
                   "near");
}

TEST(what_is_missing_is_named)
{
    make(&two_by_two);
    tree_remove("sys/devices/system/cpu/cpu9/topology");
    tree_remove("sys/devices/system/cpu/cpu12/topology/physical_package_id");
    tree_remove("sys/devices/system/cpu/cpu0/cache");
    expect_refusal(CONFIG_NUMA_EXCLUSIVE, 2, 4,
                   "--numa-binding: cannot find out which CPUs share a core "
                   "with CPU 9");
    expect_refusal(CONFIG_NUMA_SOCKET, 0, 4,
                   "--numa-binding: cannot find out in which socket CPU 12 "
                   "is");
    expect_refusal(CONFIG_NUMA_CORE_COMPLEX, 0, 4,
                   "--numa-binding: cannot find out which CPUs share a cache "
                   "with CPU 0");
    expect_refusal(CONFIG_NUMA_EXCLUSIVE, 0, 20,
                   "--numa-binding: 5 workers need a core each, but crun may use only "
                   "4 on their NUMA node");
    add_gpu(0);
    add_gpu(-1);
    expect("a GPU that says", CONFIG_NUMA_NODE, 0, 1, "0-3,16-19", 0);
    expect_refusal(CONFIG_NUMA_NODE, 1, 2,
                   "--numa-binding: cannot find out which NUMA node GPU 1 is "
                   "near");
    allow("8-15", "0-3");
    expect_refusal(
        CONFIG_NUMA_NODE, 0, 1,
        "--numa-binding: GPU 0 is near NUMA node 0, of which crun may use no CPU");
    allow("40-50", "0-3");
    expect_refusal(CONFIG_NUMA_NODE, 0, 1,
                   "--numa-binding: no CPU that crun may use belongs to a NUMA node");
    tree_put("Name:\tcrun\n", "proc/self/status");
    expect_refusal(CONFIG_NUMA_NODE, 0, 1,
                   "--numa-binding: /proc/self/status does not say which CPUs crun may "
                   "use");
    allow("0-31", "0-3");
    tree_remove("sys/devices/system/node/node1");
    expect_refusal(CONFIG_NUMA_NODE, 0, 1,
                   "--numa-binding: cannot find out which CPUs NUMA node 1 "
                   "has (/sys/devices/system/node/node1/cpulist)");
}

TEST(this_machine_can_be_bound_to)
{
    struct numa_place place;
    cpu_set_t before;
    struct err e = { 0 };

    gpus = 0;
    ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
    ck_assert_msg(numa_place("/", CONFIG_NUMA_NODE, 0, 1, &place, &e) == 0, "%s",
                  e.text);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        ck_assert(!CPU_ISSET_S(cpu, place.cpus_size, place.cpus) ||
                  CPU_ISSET(cpu, &before));
    ck_assert_int_eq(sched_setaffinity(0, place.cpus_size, place.cpus), 0);
    CPU_FREE(place.cpus);
}

/* -- lists ------------------------------------------------------------------ */

static const struct {
    const char *text;
    bool good;
    unsigned count;
} texts[] = {
    { "", true, 0 },      { "\n", true, 0 },
    { "0\n", true, 1 },   { "0-3,8", true, 5 },
    { "5,1-2", true, 3 }, { "8191", true, 1 },
    { "8192", false, 0 }, { "3-1", false, 0 },
    { "-1", false, 0 },   { "1-", false, 0 },
    { "a", false, 0 },    { "1 2", false, 0 },
    { "1;2", false, 0 },  { "99999999999999999999", false, 0 },
};

FIXTURE(NULL, NULL);

TEST_LOOP(a_list_of_cpus_is_read_as_the_kernel_writes_it, 0,
          sizeof(texts) / sizeof(*texts))
{
    struct id_set set = { { 0 } };

    ck_assert_int_eq(id_set_parse(&set, texts[_i].text), texts[_i].good);
    if (texts[_i].good)
        ck_assert_uint_eq(id_set_count(&set), texts[_i].count);
}
