/* SPDX-License-Identifier: MIT */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/common/base/progress_page.h"
#include "tests/worlds/check_main.h"
#include "worker-lib/checkpoint/checkpoint_file.h"

/*
 * A training without a training: the state that checkpoints ask for is made here, held
 * whole or, as of a rank of several, in ranges.
 */
#define TOTAL 1000

static float weight[TOTAL], running[7], momentum[TOTAL];
static struct state_range weight_range = { 0, TOTAL, weight };
static struct state_range running_range = { 0, 7, running };
static struct state_range momentum_range[2];
static struct state_part model[2], state[1];
static struct optim_scalars scalars;
static crun_world *world;
static char dir[64];
static char warnings[2048];

unsigned ddp_state(crun_ddp *ddp, const struct state_part **parts)
{
    *parts = model;
    return 2;
}

const struct device_ops *ddp_device(const crun_ddp *ddp)
{
    return &device_cpu;
}

crun_status ddp_copy_begin(crun_ddp *ddp, struct state_queues *queues)
{
    *queues = (struct state_queues){ .ops = &device_cpu };
    return CRUN_OK;
}

crun_status crun_ddp_gather(crun_ddp *ddp)
{
    return CRUN_OK;
}

crun_status ddp_await_copies(crun_ddp *ddp)
{
    return CRUN_OK;
}

bool ddp_is_divided(const crun_ddp *ddp)
{
    return state[0].range[0].count < TOTAL;
}

crun_status ddp_put(crun_ddp *ddp, void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return CRUN_OK;
}

crun_status ddp_state_put(crun_ddp *ddp)
{
    return CRUN_OK;
}

crun_status optim_state_fetch(crun_optim *optim)
{
    return CRUN_OK;
}

crun_status optim_state_put(crun_optim *optim)
{
    return CRUN_OK;
}

crun_world *ddp_world(const crun_ddp *ddp)
{
    return world;
}

unsigned optim_own_state(crun_optim *optim, const struct state_part **parts)
{
    return optim_state(optim, parts);
}

unsigned optim_state(crun_optim *optim, const struct state_part **parts)
{
    *parts = state;
    return 1;
}

const struct optim_scalars *optim_scalars_in_place(const crun_optim *optim)
{
    return &scalars;
}

void optim_get_scalars(const crun_optim *optim, struct optim_scalars *s)
{
    *s = scalars;
}

crun_status optim_set_scalars(crun_optim *optim, const struct optim_scalars *s)
{
    scalars = *s;
    return CRUN_OK;
}

static crun_ddp *const ddp = (crun_ddp *)weight;
static crun_optim *const optim = (crun_optim *)momentum;

static inline void hold(size_t begin, size_t count)
{
    momentum_range[0] = (struct state_range){ begin, count, momentum + begin };
    state[0] = (struct state_part){ .name = "optimizer.m",
                                    .type = CRUN_F32,
                                    .total = TOTAL,
                                    .range = momentum_range,
                                    .ranges = 1,
                                    .of_parameters = true };
}

static inline struct state_part array(const char *name, crun_dtype type, size_t total,
                                      const struct state_range *range)
{
    return (struct state_part){
        .name = name, .type = type, .total = total, .range = range, .ranges = 1
    };
}

static inline void fill(float seed)
{
    for (unsigned i = 0; i < TOTAL; i++) {
        weight[i] = seed + (float)i;
        momentum[i] = seed - (float)i;
    }
    for (unsigned i = 0; i < 7; i++)
        running[i] = seed * (float)i;
    scalars = (struct optim_scalars){ (uint64_t)seed, seed / 3, 9 };
}

static inline void expect_filled(float seed)
{
    for (unsigned i = 0; i < TOTAL; i++) {
        ck_assert(weight[i] == seed + (float)i);
        ck_assert(momentum[i] == seed - (float)i);
    }
    ck_assert(running[6] == seed * 6);
    ck_assert(scalars.scale == seed / 3);
    ck_assert_uint_eq(scalars.steps, (uint64_t)seed);
}

static inline void warn(void *arg, const char *text)
{
    strncat(warnings, text, sizeof(warnings) - strlen(warnings) - 1);
}

static inline crun_checkpoints *open_dir(void)
{
    crun_checkpoint_options o = { .directory = dir, .keep = 2, .warn = warn };
    crun_checkpoints *c;

    ck_assert_int_eq(crun_checkpoints_open(&c, world, &o), CRUN_OK);
    return c;
}

static inline void save(crun_checkpoints *c, uint64_t step, float seed)
{
    fill(seed);
    ck_assert_int_eq(crun_checkpoint_save(c, step, ddp, optim, NULL, NULL, 0), CRUN_OK);
    ck_assert_int_eq(crun_checkpoint_wait(c), CRUN_OK);
}

static inline crun_status load(crun_checkpoints *c, const char *file, uint64_t *step)
{
    fill(-1);
    return crun_checkpoint_load(c, file, step, ddp, optim, NULL, NULL, 0);
}

static inline void setup(void)
{
    strcpy(dir, "/tmp/test_checkpoint_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    strcat(dir, "/a/b");
    for (const char **v = (const char *[]){ "RANK", "WORLD_SIZE", NULL }; *v; v++)
        unsetenv(*v);
    ck_assert_int_eq(crun_init(&world, NULL), CRUN_OK);
    model[0] = array("fc.weight", CRUN_F32, TOTAL, &weight_range);
    model[1] = array("bn.mean", CRUN_F32, 7, &running_range);
    model[1].in_use = true;
    hold(0, TOTAL);
    *warnings = '\0';
}

static inline void teardown(void)
{
    char command[128];

    crun_finalize(world);
    *strstr(dir, "/a/b") = '\0';
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static inline unsigned files(const char *containing)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    unsigned n = 0;

    while ((entry = readdir(d)))
        n += strstr(entry->d_name, containing) != NULL;
    closedir(d);
    return n;
}

/* The steps of these tests are 10 times the number of the save. */
static inline char *path_of(uint64_t generation, uint64_t step, unsigned part,
                            unsigned parts)
{
    static char path[256];
    struct checkpoint_set set = { generation, step / 10, step, parts, 0 };
    char name[CHECKPOINT_NAME_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, checkpoint_name(&set, part, name));
    return path;
}

static inline void damage(const char *path)
{
    int fd = open(path, O_WRONLY);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "\xff", 1, lseek(fd, 0, SEEK_END) - 100), 1);
    close(fd);
}
