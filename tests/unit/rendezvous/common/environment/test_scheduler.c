/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/environment/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"

#define VARIABLES_MAX 24

/* What a test says that the files of PBS and LSF contain. */
static char *read_fake_file(const char *path)
{
    if (strcmp(path, "/nodes") == 0)
        return xstrdup("n1.cluster\nn1.cluster\nn2.cluster\n");
    if (strcmp(path, "/one") == 0)
        return xstrdup("n2\n");
    return NULL;
}

/* The variables are separated by "|". This host is n2. */
static int find(const char *variables, struct scheduler_node *n, struct err *e)
{
    const char *list[VARIABLES_MAX];
    char *copy = xstrdup(variables), *rest = copy, *one;
    struct scheduler_env env = { .variables = list,
                                 .host = "n2",
                                 .read_file = read_fake_file };
    size_t count = 0;
    int rc;

    while ((one = strsep(&rest, "|")) != NULL) {
        ck_assert_uint_lt(count, VARIABLES_MAX - 1);
        list[count++] = one;
    }
    list[count] = NULL;
    rc = scheduler_find_node(&env, n, e);
    free(copy);
    return rc;
}

#define STEP                                                                           \
    "SLURM_JOB_ID=4711|SLURM_STEP_ID=0|SLURM_STEP_NUM_NODES=3|SLURM_NODEID=1|"         \
    "SLURM_STEP_NODELIST=n[1-3]|SLURM_STEP_TASKS_PER_NODE=1(x3)|SLURMD_NODENAME=n2"
#define BATCH "SLURM_JOB_ID=4711|SLURMD_NODENAME=n2|"
#define PYTORCHJOB "RANK=1|WORLD_SIZE=2|MASTER_ADDR=j-0|MASTER_PORT=23456"
#define LWS "LWS_WORKER_INDEX=1|LWS_GROUP_SIZE=2|LWS_LEADER_ADDRESS=g-0.g.default"
#define KUBEFLOW_JAX                                                                   \
    "JAX_PROCESS_ID=1|JAX_NUM_PROCESSES=2|JAX_COORDINATOR_ADDRESS=j-node-0-0.j:6666|"  \
    "JAX_COORDINATOR_PORT=6666|JOB_COMPLETION_INDEX=1"
#define SKY                                                                            \
    "SKYPILOT_NODE_RANK=1|SKYPILOT_NUM_NODES=2|SKYPILOT_NODE_IPS=10.0.0.1\n10.0.0.2|"  \
    "SKYPILOT_NUM_GPUS_PER_NODE=8|SKYPILOT_TASK_ID=sky-1_a b"
#define SAGE                                                                           \
    "SM_HOSTS=[\"algo-1\", \"algo-2\"]|SM_CURRENT_HOST=algo-2|SM_NUM_GPUS=8|"          \
    "TRAINING_JOB_NAME=bert-1"
#define VOLCANO                                                                        \
    "VC_TASK_INDEX=1|VC_WORKER_HOSTS=j-worker-0.j,j-worker-1.j|VC_WORKER_NUM=2"
#define FLUX                                                                           \
    "FLUX_JOB_ID=f1|FLUX_TASK_RANK=1|FLUX_JOB_NNODES=2|FLUX_JOB_SIZE=2|"               \
    "FLUX_TASK_LOCAL_ID=0|PMI_FD=5|PMI_RANK=1|PMI_SIZE=2"
#define HYDRA "PMI_FD=5|PMI_RANK=1|PMI_SIZE=2|MPI_LOCALNRANKS=1|MPI_LOCALRANKID=0"
#define PALS                                                                           \
    "PALS_RANKID=1|PALS_LOCAL_RANKID=0|PALS_LOCAL_SIZE=1|PALS_APID=a-1|PMI_SIZE=2|"    \
    "PMI_RANK=1|PBS_JOBID=12.server"
#define OMPI                                                                           \
    "OMPI_COMM_WORLD_RANK=1|OMPI_COMM_WORLD_SIZE=2|OMPI_COMM_WORLD_LOCAL_SIZE=1"
#define PBS "PBS_JOBID=12.server|PBS_NODEFILE=/nodes"
#define LSF "LSB_JOBID=7|LSB_MCPU_HOSTS=n1 4 n2 4"

static const struct {
    const char *variables, *scheduler, *source;
    uint32_t nodes;
    int32_t rank;
    const char *host, *run_id;
    uint32_t gpus;
    const char *names; /* that were read */
} good[] = {
    { "", "", "", 0, -1, "", "", 0, "" },
    { "LANG=C|RANK=0|LOCAL_RANK=0|MASTER_ADDR=a|WORLD_SIZE=2", "", "", 0, -1, "", "", 0,
      "" }, /* a worker of torchrun */
    { STEP, "Slurm", "Slurm step 4711.0", 3, 1, "n1", "4711.0", 0,
      "SLURM_NODEID, SLURM_STEP_NUM_NODES, SLURM_STEP_NODELIST" },
    { STEP "|SLURM_RESTART_COUNT=2|SLURM_GPUS_ON_NODE=4", "Slurm", "Slurm step 4711.0",
      3, 1, "n1", "4711.0.2", 4, NULL },
    { PYTORCHJOB, "PyTorchJob", "PyTorchJob", 2, 1, "j-0", "", 0,
      "RANK, WORLD_SIZE, MASTER_ADDR" },
    { LWS, "LeaderWorkerSet", "LeaderWorkerSet", 2, 1, "g-0.g.default", "", 0, NULL },
    { KUBEFLOW_JAX, "Kubeflow JAX", "Kubeflow JAX", 2, 1, "j-node-0-0.j", "", 0,
      "JAX_PROCESS_ID, JAX_NUM_PROCESSES, JAX_COORDINATOR_ADDRESS" },
    { "RANK=0|LOCAL_RANK=0|JAX_PROCESS_ID=0|JAX_NUM_PROCESSES=2|"
      "JAX_COORDINATOR_ADDRESS=a:1",
      "", "", 0, -1, "", "", 0, "" }, /* a worker of crun */
    { SKY, "SkyPilot", "SkyPilot task sky-1_a-b", 2, 1, "10.0.0.1", "sky-1_a-b", 8,
      NULL },
    { SAGE, "SageMaker", "SageMaker job bert-1", 2, 1, "algo-1", "bert-1", 8,
      "SM_HOSTS, SM_CURRENT_HOST" },
    { VOLCANO, "Volcano", "Volcano", 2, 1, "j-worker-0.j", "", 0,
      "VC_TASK_INDEX, VC_WORKER_HOSTS" },
    { "VC_TASK_INDEX=0|VC_TRAIN_HOSTS=a,b|MA_NUM_GPUS=8", "Volcano", "Volcano", 2, 0,
      "a", "", 8, NULL },
    { "VC_TASK_INDEX=0|VC_X_HOSTS|VC_WORKER_HOSTS=a,b", "Volcano", "Volcano", 2, 0, "a",
      "", 0, "VC_TASK_INDEX, VC_WORKER_HOSTS" },
    { "VC_TASK_INDEX=0|VC_A_TASK_WITH_A_NAME_OF_MORE_THAN_SIXTY_FOUR_LETTERS_OR_SO_"
      "HOSTS=a",
      "Volcano", "Volcano", 1, 0, "a", "", 0, NULL },
    { FLUX, "Flux", "Flux job f1", 2, 1, "", "f1", 0,
      "FLUX_TASK_RANK, FLUX_JOB_NNODES" },
    { HYDRA, "mpiexec", "mpiexec", 2, 1, "", "", 0, "PMI_RANK, PMI_SIZE" },
    { PALS "|PBS_NODEFILE=/nodes", "PALS", "PALS application 12.server.a-1", 2, 1,
      "n1.cluster", "12.server.a-1", 0, "PALS_RANKID, PMI_SIZE, PBS_NODEFILE" },
    { OMPI "|SLURM_STEP_NODELIST=n[1-2]", "Open MPI", "Open MPI", 2, 1, "n1", "", 0,
      NULL },
    { OMPI "|MASTER_ADDR=n7", "Open MPI", "Open MPI", 2, 1, "n7", "", 0,
      "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, MASTER_ADDR" },
    { PBS "|PBS_TASKNUM=3", "PBS", "PBS job 12.server", 2, 1, "n1.cluster", "12.server",
      0, "PBS_NODEFILE" },
    { "PBS_JOBID=12|PBS_NODEFILE=/one", "PBS", "PBS job 12", 1, 0, "n2", "12", 0,
      NULL },
    { LSF "|LSF_PM_TASKID=2", "LSF", "LSF job 7", 2, 1, "n1", "7", 0,
      "LSB_MCPU_HOSTS" },
    { BATCH "SLURM_JOB_NODELIST=n2|SLURM_JOB_NUM_NODES=1", "Slurm", "Slurm job 4711", 1,
      0, "n2", "4711", 0, NULL },
};

TEST_EACH(complete_variables_tell_the_place, good)
{
    struct scheduler_node n;
    struct err e = { 0 };

    ck_assert_msg(find(good[_i].variables, &n, &e) == 0, "%s", e.text);
    ck_assert_str_eq(n.scheduler, good[_i].scheduler);
    ck_assert_str_eq(n.source, good[_i].source);
    ck_assert_uint_eq(n.nodes, good[_i].nodes);
    ck_assert_int_eq(n.rank, good[_i].rank);
    ck_assert_str_eq(n.host, good[_i].host);
    ck_assert_str_eq(n.run_id, good[_i].run_id);
    ck_assert_uint_eq(n.gpus, good[_i].gpus);
    if (good[_i].names)
        ck_assert_str_eq(n.variables, good[_i].names);
    if (*n.source && !n.has_pmi)
        ck_assert_str_eq(n.missing_host, "");
    ck_assert_str_eq(n.missing_nodes, "");
    ck_assert_str_eq(n.missing_rank, "");
    ck_assert_str_eq(n.warning, "");
}

static const struct {
    const char *variables, *nodes, *rank, *host; /* what begins each text */
} partial[] = {
    { "SLURM_JOB_ID=1|SLURM_STEP_ID=0|SLURM_NODEID=0|SLURM_STEP_NODELIST=n[2-3]",
      "SLURM_STEP_NUM_NODES", "", "" },
    { "SLURM_JOB_ID=1|SLURM_STEP_ID=0|SLURM_STEP_NUM_NODES=2|SLURM_STEP_NODELIST=n2,n3",
      "", "SLURM_NODEID", "" },
    { "SLURM_JOB_ID=1|SLURM_STEP_ID=0|SLURM_STEP_NUM_NODES=2|SLURM_NODEID=0", "", "",
      "SLURM_STEP_NODELIST" },
    { "RANK=1|MASTER_ADDR=a", "WORLD_SIZE", "", "" },
    { "LWS_WORKER_INDEX=1|LWS_LEADER_ADDRESS=a", "LWS_GROUP_SIZE", "", "" },
    { "LWS_WORKER_INDEX=1|LWS_GROUP_SIZE=2", "", "", "LWS_LEADER_ADDRESS" },
    { "SKYPILOT_NODE_RANK=1|SKYPILOT_NODE_IPS=a", "SKYPILOT_NUM_NODES", "", "" },
    { "SKYPILOT_NODE_RANK=1|SKYPILOT_NUM_NODES=2", "", "", "SKYPILOT_NODE_IPS" },
    { "VC_TASK_INDEX=0", "VC_<TASK>_HOSTS", "", "the variables of Volcano" },
    { "VC_TASK_INDEX=0|VC_MASTER_HOSTS=a|VC_WORKER_HOSTS=b",
      "VC_MASTER_HOSTS and VC_WORKER_HOSTS", "VC_MASTER_HOSTS", "the variables" },
    { "JOB_COMPLETION_INDEX=2", "JOB_COMPLETION_INDEX is set", "", "the variables" },
    { "FLUX_JOB_ID=f1|FLUX_TASK_RANK=0|PMI_FD=3", "FLUX_JOB_NNODES", "", "" },
    { "PMI_FD=3|PMI_RANK=0", "PMI_SIZE", "", "" },
    { "PMI_RANK=0|PMI_SIZE=2", "", "", "the variables of mpiexec" },
    { PALS, "", "", "the variables of PALS" },
    { OMPI, "", "", "the variables of Open MPI" },
    { PBS, "", "PBS_NODEFILE names 2 hosts", "" },
    { "PBS_JOBID=1|PBS_NODEFILE=/none", "PBS_NODEFILE cannot be read",
      "the variables of PBS", "the variables of PBS" },
    { LSF, "", "LSB_MCPU_HOSTS names 2 hosts", "" },
};

TEST_EACH(what_variables_do_not_tell_is_named, partial)
{
    struct scheduler_node n;
    struct err e = { 0 };

    ck_assert_msg(find(partial[_i].variables, &n, &e) == 0, "%s", e.text);
    ck_assert_uint_ne(strlen(n.source), 0);
    ck_assert_int_eq(n.nodes == 0, *partial[_i].nodes != '\0');
    ck_assert_int_eq(n.rank < 0, *partial[_i].rank != '\0');
    ck_assert_int_eq(!*n.host && !n.has_pmi, *partial[_i].host != '\0');
    ck_assert(strncmp(n.missing_nodes, partial[_i].nodes, strlen(partial[_i].nodes)) ==
              0);
    ck_assert(strncmp(n.missing_rank, partial[_i].rank, strlen(partial[_i].rank)) == 0);
    ck_assert(strncmp(n.missing_host, partial[_i].host, strlen(partial[_i].host)) == 0);
    ck_assert_int_eq(*n.missing_nodes == '\0', n.nodes > 0);
    ck_assert_int_eq(*n.missing_rank == '\0', n.rank >= 0);
}

static const struct {
    const char *variables, *error; /* a part of it */
} wrong[] = {
    { "SLURM_NODEID=x|" STEP, "SLURM_NODEID is \"x\"" },
    { "SLURM_NODEID=3|" STEP, "SLURM_NODEID is 3, and Slurm step 4711.0 has only 3" },
    { "SLURMD_NODENAME=|SLURM_STEP_NODELIST=n[7-9]|" STEP,
      "SLURM_STEP_NODELIST=n[7-9] does not name this host, n2, and SLURMD_NODENAME" },
    { "SLURM_STEP_NUM_NODES=0|" STEP, "SLURM_STEP_NUM_NODES is \"0\"" },
    { "SLURM_STEP_NODELIST=n[2-|" STEP,
      "SLURM_STEP_NODELIST: \"n[2-\" is not a list of hosts" },
    { "SLURM_STEP_TASKS_PER_NODE=1,2(x2)|" STEP, "--ntasks-per-node=1" },
    { "SLURM_JOB_ID=1|SLURM_STEP_ID=0|SLURM_STEP_NUM_NODES=2|SLURM_NODEID=0|"
      "SLURM_STEP_NODELIST=n[2-3]|SLURM_STEP_NUM_TASKS=4",
      "2 tasks on this node" },
    { "WORLD_SIZE=1|" PYTORCHJOB, "RANK is 1" },
    { "MASTER_PORT=99999|" PYTORCHJOB, "MASTER_PORT is \"99999\"" },
    { "LWS_GROUP_SIZE=1|" LWS, "LWS_WORKER_INDEX is 1" },
    { "JAX_COORDINATOR_ADDRESS=j-0|" KUBEFLOW_JAX, "is \"j-0\", not HOST:PORT" },
    { "JAX_COORDINATOR_ADDRESS=j-0:66666|" KUBEFLOW_JAX, "not HOST:PORT" },
    { "SKYPILOT_NODE_RANK=-1|" SKY, "SKYPILOT_NODE_RANK is \"-1\"" },
    { "SM_CURRENT_HOST=algo-3|" SAGE, "SM_CURRENT_HOST is \"algo-3\"" },
    { "SM_HOSTS={}|" SAGE, "SM_HOSTS" },
    { "VC_TASK_INDEX=2|" VOLCANO, "VC_TASK_INDEX is 2" },
    { "FLUX_JOB_SIZE=4|" FLUX, "flux run --tasks-per-node=1" },
    { "MPI_LOCALNRANKS=2|" HYDRA, "mpiexec -ppn 1" },
    { "PALS_LOCAL_SIZE=4|" PALS, "mpiexec --ppn 1" },
    { "OMPI_COMM_WORLD_LOCAL_SIZE=2|" OMPI, "mpirun --map-by ppr:1:node" },
    { "LSB_JOBID=7|LSB_MCPU_HOSTS=a 4 b 4",
      "LSB_MCPU_HOSTS does not name this host, n2" },
};

TEST_EACH(what_cannot_be_is_an_error_that_names_the_variable, wrong)
{
    struct scheduler_node n;
    struct err e = { 0 };

    ck_assert_int_eq(find(wrong[_i].variables, &n, &e), -1);
    ck_assert_msg(strstr(e.text, wrong[_i].error) != NULL, "%s", e.text);
}

/* Variables that a shell or ssh took along say nothing about this process. */
TEST(stale_variables_are_not_taken)
{
    struct scheduler_node n;
    struct err e;

    ck_assert_int_eq(
        find("SLURMD_NODENAME=n4|SLURM_STEP_NODELIST=n[7-9]|" STEP, &n, &e), 0);
    ck_assert_str_eq(n.source, "");
    ck_assert_ptr_nonnull(strstr(n.warning, "SLURM_STEP_NODELIST=n[7-9] does not name "
                                            "this host, n2"));
    /* sbatch within a step of another job */
    ck_assert_int_eq(find("SLURM_STEP_NODELIST=n[7-9]|SLURM_JOB_NODELIST=n[2-3]|"
                          "SLURM_JOB_NUM_NODES=2|" STEP,
                          &n, &e),
                     0);
    ck_assert(n.is_shell);
    ck_assert_str_ne(n.warning, "");
    ck_assert_int_eq(
        find("SLURM_JOB_ID=1|SLURM_NODEID=1|SLURM_STEP_NUM_NODES=2", &n, &e), 0);
    ck_assert_str_eq(n.source, "");
    ck_assert_int_eq(find("SLURM_JOB_ID=1|SLURM_JOB_NODELIST=n[7-8]|"
                          "SLURM_JOB_NUM_NODES=2|SLURMD_NODENAME=n7",
                          &n, &e),
                     0);
    ck_assert(n.is_shell); /* slurmd says that this is its node n7 */
    ck_assert(!n.is_outside);
}

TEST(a_shell_of_a_job_is_no_step)
{
    struct scheduler_node n;
    struct err e;

    ck_assert_int_eq(
        find(BATCH "SLURM_JOB_NODELIST=n[2-3]|SLURM_JOB_NUM_NODES=2", &n, &e), 0);
    ck_assert(n.is_shell);
    ck_assert(!n.is_outside);
    ck_assert_uint_eq(n.nodes, 2);
    ck_assert_int_eq(n.rank, -1);
    /* salloc's shell on the first node, which is a step of Slurm's own */
    ck_assert_int_eq(find("SLURM_STEP_ID=4294967290|SLURM_STEP_NUM_NODES=1|"
                          "SLURM_STEP_NODELIST=n2|SLURM_NODEID=0|" BATCH
                          "SLURM_JOB_NODELIST=n[2-3]|SLURM_JOB_NUM_NODES=2",
                          &n, &e),
                     0);
    ck_assert(n.is_shell);
    ck_assert_uint_eq(n.nodes, 2);
    /* salloc on another machine */
    ck_assert_int_eq(find("SLURM_JOB_ID=1|SLURM_JOB_NODELIST=n[7-8]|"
                          "SLURM_JOB_NUM_NODES=2",
                          &n, &e),
                     0);
    ck_assert(n.is_shell);
    ck_assert(n.is_outside);
    ck_assert_str_eq(n.warning, "");
}

TEST(sources_that_disagree_are_both_named)
{
    struct scheduler_node n;
    struct err e;

    ck_assert_int_eq(find(STEP "|" OMPI, &n, &e), 0);
    ck_assert_str_eq(n.source, "Slurm step 4711.0");
    ck_assert_ptr_nonnull(strstr(n.warning, "Slurm step 4711.0 says node 1 of 3"));
    ck_assert_ptr_nonnull(strstr(n.warning, "Open MPI says node 1 of 2"));
    ck_assert_int_eq(
        find(STEP "|OMPI_COMM_WORLD_RANK=1|OMPI_COMM_WORLD_SIZE=3", &n, &e), 0);
    ck_assert_str_eq(n.warning, "");
    ck_assert_int_eq(find(LWS "|JOB_COMPLETION_INDEX=0", &n, &e), 0);
    ck_assert_str_eq(n.source, "LeaderWorkerSet");
    ck_assert_str_eq(n.warning, "");
}

static uint16_t step_port(unsigned job, unsigned step)
{
    char text[512];
    struct scheduler_node n;
    struct err e;

    snprintf(text, sizeof(text), "SLURM_JOB_ID=%u|SLURM_STEP_ID=%u|" STEP, job, step);
    ck_assert_int_eq(find(text, &n, &e), 0);
    return n.port;
}

TEST(steps_and_jobs_have_ports_of_their_own)
{
    ck_assert_uint_eq(step_port(4711, 0), step_port(4711, 0));
    for (unsigned job = 1; job < 40; job++)
        for (unsigned step = 0; step < 40; step++) {
            uint16_t port = step_port(4711 + job, step);

            ck_assert_uint_ne(port, step_port(4711, 0));
            ck_assert_uint_ge(port, 11000);
            ck_assert_uint_lt(port, 20000);
        }
    for (unsigned step = 1; step < 1000; step++)
        ck_assert_uint_ne(step_port(4711, step), step_port(4711, 0));
    ck_assert_uint_ne(step_port(4294967293u, 4294967279u), 0);
}

TEST(the_first_host_of_a_list)
{
    static const struct {
        const char *list, *host;
    } cases[] = {
        { "a", "a" },
        { "a,b", "a" },
        { "n[1-3]", "n1" },
        { "n[01,03]", "n01" },
        { "n[9]", "n9" },
        { "[4-5]", "4" },
        { "gpu-a[1],b", "gpu-a1" },
        { "x[3-4]y[01-02]-ib,z", "x3y01-ib" },
        { "10.0.0.1\n10.0.0.2", "10.0.0.1" },
        { "", NULL },
        { ",", NULL },
    };
    char host[16];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int rc = scheduler_first_host(cases[i].list, host, sizeof(host));

        ck_assert_int_eq(rc, cases[i].host ? 0 : -1);
        if (cases[i].host)
            ck_assert_str_eq(host, cases[i].host);
    }
    ck_assert_int_eq(scheduler_first_host("a-name-that-is-too-long", host, 16), -1);
}

/* -- one process per rank ---------------------------------------------------------- */

static const char *rank_launcher(const char *variable, const char *other)
{
    const char *list[] = { variable, other, NULL };
    const struct scheduler_env env = { .variables = list };
    const struct scheduler_rank_variables *l = scheduler_find_rank(&env);

    return l ? l->launcher : "";
}

TEST(a_rank_belongs_to_the_innermost_launcher)
{
    ck_assert_str_eq(rank_launcher("LANG=C", NULL), "");
    ck_assert_str_eq(rank_launcher("SLURM_STEP_ID=0", NULL), "Slurm");
    ck_assert_str_eq(rank_launcher("SLURM_PROCID=0", NULL), "");
    ck_assert_str_eq(rank_launcher("SLURM_STEP_ID=4294967290", NULL), "");
    ck_assert_str_eq(rank_launcher("SLURM_STEP_ID=0", "PMI_RANK=0"), "MPICH");
    ck_assert_str_eq(rank_launcher("SLURM_STEP_ID=0", "OMPI_COMM_WORLD_RANK=0"),
                     "Open MPI");
    ck_assert_str_eq(rank_launcher("RANK=0", "OMPI_COMM_WORLD_RANK=0"), "torchrun");
    ck_assert_str_eq(rank_launcher("RANK=", "OMPI_COMM_WORLD_RANK=0"), "Open MPI");
}

static const struct {
    const char *variables[4];
    struct scheduler_batch expected;
} batches[] = {
    { { "HOME=/" }, { .end_time = 0 } },
    { { "SLURM_JOB_ID=26", "SLURM_JOB_END_TIME=5000" },
      { .job = "Slurm job 26", .end_time = 5000 } },
    { { "SLURM_JOB_ID=27", "SLURM_HET_JOB_ID=26", "SLURM_STEP_ID=0" },
      { .job = "Slurm job 26", .is_slurm_step = true } },
    { { "SLURM_JOB_END_TIME=5000", "SLURM_STEP_ID=0" }, { .end_time = 0 } },
    { { "PBS_JOBID=4.host" }, { .job = "PBS job 4.host" } },
    { { "LSB_JOBID=7", "SLURM_JOB_ID=" }, { .job = "LSF job 7" } },
    { { "FLUX_JOB_ID=f1" }, { .job = "Flux job f1" } },
};

TEST_EACH(the_batch_job_is_named_with_its_end, batches)
{
    const struct scheduler_env env = { .variables = batches[_i].variables };
    struct scheduler_batch b;

    scheduler_read_batch(&env, &b);
    ck_assert_str_eq(b.job, batches[_i].expected.job);
    ck_assert_int_eq(b.end_time, batches[_i].expected.end_time);
    ck_assert(b.is_slurm_step == batches[_i].expected.is_slurm_step);
}
