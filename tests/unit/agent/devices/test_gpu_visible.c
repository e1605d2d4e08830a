/* SPDX-License-Identifier: MIT */
#include "agent/devices/gpu_visible.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/devices/gpu_list.h"
#include "tests/fakes/nvml/nvml.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/tree.h"

/* Each test is a process of its own: the machine is asked once in each. */

#define FOUR "1b:GPU-1a 3d:GPU-1b 9a:GPU-2 dc:GPU-3"
#define PARTS "1b:GPU-1 MIG-1a MIG-1b 3d:GPU-2 MIG-2"

/* -- CUDA_VISIBLE_DEVICES --------------------------------------------------- */

static const struct {
    const char *machine, *visible; /* NULL: not set */
    unsigned count;
    const char *buses; /* of those that are visible, in their order */
} lists[] = {
    { FOUR, NULL, 4, "1b 3d 9a dc" },
    { FOUR, "", 0, "" },
    { FOUR, "-1", 0, "" },
    { FOUR, "NoDevFiles", 0, "" },
    { FOUR, "2", 1, "9a" },
    { FOUR, "3,0", 2, "dc 1b" },
    { FOUR, " 3 , 0 ", 2, "dc 1b" },
    { FOUR, "3,0,", 2, "dc 1b" },
    { FOUR, ",3", 0, "" },
    { FOUR, "0,2,-1,1", 2, "1b 9a" },
    { FOUR, "0,4,1", 1, "1b" },
    { FOUR, "1gpu2,2ampere", 2, "3d 9a" },
    { FOUR, "99999999999999999999", 0, "" },
    { FOUR, "0,1,0", 0, "" },
    { FOUR, "GPU-2,GPU-1a", 2, "9a 1b" },
    { FOUR, "GPU-1a", 1, "1b" },
    { FOUR, "GPU-1", 0, "" },
    { FOUR, "GPU-3,GPU-1,GPU-2", 1, "dc" },
    { FOUR, "GPU-2,GPU-2", 0, "" },
    { FOUR, "GPU-2,0", 1, "9a" },
    { FOUR, "0,GPU-2", 1, "1b" },
    { FOUR, "gpu-2", 0, "" },
    { PARTS, NULL, 2, "1b 3d" },
    { PARTS, "1", 1, "3d" },
    { PARTS, "MIG-2", 1, "3d" },
    { PARTS, "MIG-1b,MIG-2,MIG-1a", 1, "1b 3d 1b" },
    { PARTS, "MIG-1", 0, "" },
    { PARTS, "MIG-1b,GPU-2", 1, "1b" },
    { PARTS, "GPU-2,MIG-1b", 1, "3d" },
    { PARTS, "MIG-1a,MIG-1a", 0, "" },
    { "1b:GPU-1 3d:? 9a:GPU-3", NULL, 3, "1b . 9a" },
    { "1b:GPU-1 3d:? 9a:GPU-3", "2,1", 2, "9a ." },
    { "", NULL, 0, "" },
    { "", "0", 0, "" },
};

/* "1b 3d", and "." for one whose address is not known */
static void expect_buses(const char *visible, const char *buses)
{
    char address[32], expected[32], copy[64], *save;
    unsigned index = 0;

    strcpy(copy, buses);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        bool known = gpu_visible_pci_address(visible, index++, address,
                                             sizeof(address));

        ck_assert_int_eq(known, *w != '.');
        snprintf(expected, sizeof(expected), "0000:%s:00.0", w);
        if (known)
            ck_assert_str_eq(address, expected);
    }
    ck_assert(!gpu_visible_pci_address(visible, index, address, sizeof(address)));
}

__attribute__((constructor)) static void begin_program(void)
{
    nvml_stand_in();
    unsetenv("NVML_GPUS");
}

TEST_EACH(a_list_shows_what_cuda_shows, lists)
{
    setenv("NVML_GPUS", lists[_i].machine, 1);
    ck_assert_uint_eq(gpu_visible_count(lists[_i].visible), lists[_i].count);
    expect_buses(lists[_i].visible, lists[_i].buses);
}

static const struct {
    const char *visible;
    uint32_t index;
    const char *entry;
} entries[] = {
    { NULL, 0, "0" },
    { NULL, 3, "3" },
    { "4,5", 0, "4" },
    { "4,5", 1, "5" },
    { "4,5", 2, "" },
    { "4", 4000000000u, "" },
    { "", 0, "" },
    { " GPU-1 ,\tMIG-2/1/0 ", 0, "GPU-1" },
    { " GPU-1 ,\tMIG-2/1/0 ", 1, "MIG-2/1/0" },
};

TEST_EACH(a_worker_alone_sees_the_entry_of_its_index, entries)
{
    char entry[64];

    ck_assert_str_eq(
        gpu_visible_entry(entries[_i].visible, entries[_i].index, entry, sizeof(entry)),
        entries[_i].entry);
}

/* -- the machine ------------------------------------------------------------ */

static void expect_gpu(const struct gpu_device *g, const char *address,
                       const char *uuid, bool is_part)
{
    ck_assert_str_eq(g->address, address);
    ck_assert_str_eq(g->uuid, uuid);
    ck_assert_int_eq(g->is_part, is_part);
}

FIXTURE(tree_setup, tree_teardown);

TEST(parts_follow_their_gpu)
{
    struct gpu_list list;

    setenv("NVML_GPUS", PARTS, 1);
    gpu_list_read(&list, tree_root);
    ck_assert_uint_eq(list.count, 5);
    expect_gpu(&list.item[0], "0000:1b:00.0", "GPU-1", false);
    expect_gpu(&list.item[2], "0000:1b:00.0", "MIG-1b", true);
    expect_gpu(&list.item[3], "0000:3d:00.0", "GPU-2", false);
    expect_gpu(&list.item[4], "0000:3d:00.0", "MIG-2", true);
    free(list.item);
}

TEST(without_the_library_the_driver_tells)
{
    struct gpu_list list;

    tree_put("Model: \t\t NVIDIA\nIRQ:   \t\t 24\nGPU UUID: \t GPU-b\nBus: 3d\n",
             "proc/driver/nvidia/gpus/0000:3d:00.0/information");
    tree_put("GPU UUID: \t GPU-a\n",
             "proc/driver/nvidia/gpus/0000:1b:00.0/information");
    tree_put("", "proc/driver/nvidia/gpus/0000:9a:00.0/registry");
    tree_put("", "proc/driver/nvidia/gpus/readme");
    gpu_list_read(&list, tree_root);
    ck_assert_uint_eq(list.count, 3);
    expect_gpu(&list.item[0], "0000:1b:00.0", "GPU-a", false);
    expect_gpu(&list.item[1], "0000:3d:00.0", "GPU-b", false);
    expect_gpu(&list.item[2], "0000:9a:00.0", "", false);
    free(list.item);
}

TEST(no_driver_is_no_gpu)
{
    struct gpu_list list;

    gpu_list_read(&list, tree_root);
    ck_assert_uint_eq(list.count, 0);
    free(list.item);
}

FIXTURE(NULL, NULL);

TEST(the_library_is_let_go)
{
    unsigned count = 0;
    int (*get_count)(unsigned *) = (int (*)(unsigned *))dlsym(RTLD_DEFAULT,
                                                              "nvmlDeviceGetCount_v2");

    setenv("NVML_GPUS", FOUR, 1);
    ck_assert_uint_eq(gpu_visible_count(NULL), 4);
    ck_assert_ptr_nonnull(get_count);
    ck_assert_int_ne(get_count(&count), 0);
}

TEST(the_machine_is_asked_once)
{
    setenv("NVML_GPUS", FOUR, 1);
    ck_assert_uint_eq(gpu_visible_count(NULL), 4);
    unsetenv("NVML_GPUS");
    ck_assert_uint_eq(gpu_visible_count(NULL), 4);
}

/* -- suite ------------------------------------------------------------------ */
