/* SPDX-License-Identifier: MIT */
#include "worker-lib/meeting/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"

/* -- helpers ----------------------------------------------------------------------- */

static struct environment env;
static struct err e;

/* "NAME=VALUE ...": nothing else of the kind is set. */
static crun_status read_as(const char *variables)
{
    char text[1024], *rest = text, *one;

    clearenv();
    snprintf(text, sizeof(text), "%s", variables);
    while ((one = strsep(&rest, " ")) != NULL)
        if (*one) {
            char *value = strchr(one, '=');

            *value++ = '\0';
            setenv(one, value, 1);
        }
    return environment_read(&env, &e);
}

static void reads(const char *variables)
{
    ck_assert_msg(read_as(variables) == CRUN_OK, "%s", e.text);
}

static void refuses(const char *variables, const char *words)
{
    ck_assert_int_eq(read_as(variables), CRUN_BAD_ENVIRONMENT);
    ck_assert_msg(strstr(e.text, words) != NULL, "\"%s\"", e.text);
}

/* -- cases ------------------------------------------------------------------------- */

#define TORCHRUN                                                                       \
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 "                \
    "GROUP_WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 "                       \
    "TORCHELASTIC_RESTART_COUNT=3 TORCHELASTIC_RUN_ID=job "                            \
    "TORCHELASTIC_USE_AGENT_STORE=True "

TEST(torchruns_variables_say_it_all)
{
    reads(TORCHRUN);
    ck_assert_str_eq(env.launcher, "torchrun");
    ck_assert_uint_eq(env.rank, 5);
    ck_assert_uint_eq(env.size, 8);
    ck_assert_uint_eq(env.local_rank, 1);
    ck_assert_uint_eq(env.local_size, 4);
    ck_assert_uint_eq(env.node, 1);
    ck_assert_uint_eq(env.nodes, 2);
    ck_assert_uint_eq(env.restarts, 3);
    ck_assert_str_eq(env.host, "10.0.0.1");
    ck_assert_uint_eq(env.port, 29500);
    ck_assert(env.agent_store);
}

TEST(each_life_of_a_job_has_a_name_of_its_own)
{
    static const char *const lives[] = {
        TORCHRUN,
        TORCHRUN "TORCHELASTIC_RESTART_COUNT=4 ",
        TORCHRUN "TORCHELASTIC_RUN_ID=other ",
        TORCHRUN "CRUN_EPOCH=2 ",
        TORCHRUN "CRUN_EPOCH=3 ",
    };
    char names[5][sizeof(env.job)];

    for (unsigned i = 0; i < 5; i++) {
        reads(lives[i]);
        memcpy(names[i], env.job, sizeof(env.job));
        for (unsigned k = 0; k < i; k++)
            ck_assert_str_ne(names[i], names[k]);
    }
    reads(TORCHRUN "RANK=6 ");
    ck_assert_str_eq(env.job, names[0]);
}

TEST(each_world_of_a_process_has_a_name_of_its_own)
{
    char names[3][sizeof(env.job)];

    for (unsigned i = 0; i < 3; i++) {
        reads(TORCHRUN);
        if (i > 0)
            environment_again(&env, i);
        memcpy(names[i], env.job, sizeof(env.job));
        for (unsigned k = 0; k < i; k++)
            ck_assert_str_ne(names[i], names[k]);
    }
    ck_assert_uint_ne(env.port, 0); /* the launcher's store is still there */
    reads(TORCHRUN "TORCHELASTIC_USE_AGENT_STORE=False ");
    ck_assert_uint_ne(env.port, 0);
    environment_again(&env, 1);
    ck_assert_uint_eq(env.port, 0);
    ck_assert_str_ne(names[1], env.job); /* that port tells jobs apart */
}

TEST(with_no_variables_it_is_alone)
{
    reads("HOME=/root");
    ck_assert_str_eq(env.launcher, "");
    ck_assert_uint_eq(env.size, 1);
    ck_assert_uint_eq(env.local_size, 1);
    ck_assert_uint_eq(env.nodes, 1);
}

TEST(a_batch_script_of_slurm_is_no_task)
{
    reads("SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0");
    ck_assert_uint_eq(env.size, 1);
}

#define SLURM                                                                          \
    "SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_PROCID=9 SLURM_STEP_NUM_TASKS=16 "           \
    "SLURM_LOCALID=1 SLURM_NODEID=2 SLURM_STEP_NUM_NODES=4 "

TEST(slurm_gives_the_rank_and_the_place)
{
    reads(SLURM "SLURM_STEP_NODELIST=gpu[007-009,12]");
    ck_assert_str_eq(env.launcher, "Slurm");
    ck_assert_uint_eq(env.rank, 9);
    ck_assert_uint_eq(env.local_rank, 1);
    ck_assert_uint_eq(env.local_size, 0);
    ck_assert_uint_eq(env.node, 2);
    ck_assert_str_eq(env.host, "gpu007");
    ck_assert_uint_eq(env.port, 0);
    reads(SLURM "MASTER_ADDR=head MASTER_PORT=4000");
    ck_assert_str_eq(env.host, "head");
    ck_assert_uint_eq(env.port, 4000);
}

TEST(mpi_on_one_node_needs_no_address)
{
    reads("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "
          "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=77 PMI_RANK=0 PMI_SIZE=1");
    ck_assert_str_eq(env.launcher, "Open MPI");
    ck_assert_uint_eq(env.rank, 1);
    ck_assert_str_eq(env.host, "127.0.0.1");
    reads("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2");
    ck_assert_str_eq(env.launcher, "MPICH");
    ck_assert_uint_eq(env.local_size, 2);
    ck_assert_str_ne(env.job, "");
}

TEST(what_makes_no_sense_is_named)
{
    refuses("RANK=8 WORLD_SIZE=8", "RANK is \"8\": it must be a number from 0 to 7");
    refuses("RANK=-1 WORLD_SIZE=8", "RANK is \"-1\"");
    refuses("RANK=1x WORLD_SIZE=8", "RANK is \"1x\"");
    refuses("RANK=0", "WORLD_SIZE is not set");
    refuses("WORLD_SIZE=2", "RANK is not set");
    refuses("RANK=0 WORLD_SIZE=0", "WORLD_SIZE is \"0\"");
    refuses("RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE is \"9999");
    refuses("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3", "LOCAL_WORLD_SIZE is \"3\"");
    refuses("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 LOCAL_RANK=1",
            "LOCAL_RANK is \"1\"");
    refuses("RANK=0 WORLD_SIZE=2 MASTER_PORT=1", "MASTER_ADDR is not set");
    refuses("RANK=0 WORLD_SIZE=2 MASTER_ADDR=x", "MASTER_PORT is not set");
    refuses("RANK=0 WORLD_SIZE=2 MASTER_ADDR=x MASTER_PORT=65536",
            "MASTER_PORT is \"65536\"");
    refuses("PMIX_RANK=0", "PMIX_RANK is set");
    refuses("PMI_RANK=0 PMI_SIZE=2", "MASTER_ADDR is not set");
}

TEST(ports_are_the_same_for_all_and_differ_by_turn)
{
    uint16_t ports[ENVIRONMENT_PORTS];

    reads(SLURM "SLURM_STEP_NODELIST=a");
    for (unsigned i = 0; i < ENVIRONMENT_PORTS; i++) {
        ports[i] = environment_port(&env, i);
        ck_assert_uint_ge(ports[i], 20000);
        ck_assert_uint_lt(ports[i], 29000);
        for (unsigned k = 0; k < i; k++)
            ck_assert_uint_ne(ports[i], ports[k]);
        ck_assert_uint_eq(ports[i], environment_port(&env, i + ENVIRONMENT_PORTS));
    }
    reads(SLURM "SLURM_STEP_NODELIST=a SLURM_JOB_ID=8");
    ck_assert_uint_ne(ports[0], environment_port(&env, 0));
}
