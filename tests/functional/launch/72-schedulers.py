#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 1 s
"""
crun without flags, in the environment of each scheduler: which node it takes itself for, what
is an error, what overrides what, how it starts itself by srun, and MPICH's own mpiexec.
"""
import os
import pathlib
import re
import shutil
import socket
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, free_port, matches, run, same, skip  # noqa: E402

CRUN = BIN / "crun"
HERE = socket.gethostname()
PREFIXES = ("SLURM", "PET_", "CRUN_", "PMI", "OMPI_", "PALS_", "FLUX_", "PBS_", "LSB_",
            "LSF_", "SM_", "SKYPILOT_", "VC_", "VK_", "LWS_", "JAX_", "MPI_", "JOB_COMPLETION_INDEX",
            "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "CUDA_VISIBLE_DEVICES")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}

STEP = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2", "SLURM_STEP_NUM_NODES": "3",
        "SLURM_NODEID": "1", "SLURM_STEP_NODELIST": f"first,{HERE},n[1-9]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_PROCID": "1", "SLURM_LOCALID": "0"}
BATCH = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": "2", "SLURMD_NODENAME": HERE,
         "SLURM_JOB_NODELIST": f"{HERE},n2", "SLURM_NTASKS": "16", "SLURM_GPUS_PER_TASK": "1"}
LWS = {"LWS_WORKER_INDEX": "1", "LWS_GROUP_SIZE": "2", "LWS_LEADER_ADDRESS": "g-0.g"}
SKY = {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NUM_GPUS_PER_NODE": "4",
       "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_TASK_ID": "sky-7"}
OMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
INDEXED = {"JOB_COMPLETION_INDEX": "1"}


def crun(env, *words, path=None):
    return Process([CRUN, *words], env={**CLEAN, **env, **({"PATH": path} if path else {})})


def dry_run(env, *flags, code=0):
    p = crun(env, *flags, "--dry-run", "sh", "-c", "exit")
    p.expect(code)
    return p.out + p.err


# -- what the variables say -----------------------------------------------------------


def each_scheduler_tells_the_place():
    cases = [
        (STEP, [r"crun: Slurm step 4711\.2: 3 nodes, this is node 1, rendezvous first:1\d{4} "
                r"\(SLURM_NODEID, SLURM_STEP_NUM_NODES, SLURM_STEP_NODELIST\)",
                r"# job 4711\.2: 3 nodes, 1 worker ", r"GROUP_RANK=1 "]),
        ({**STEP, "SLURM_RESTART_COUNT": "1", "SLURM_GPUS_ON_NODE": "2"},
         [r"# job 4711\.2\.1: 3 nodes, 2 workers "]),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "m-0", "MASTER_PORT": "23456"},
         [r"PyTorchJob: 2 nodes, this is node 1, rendezvous m-0:23456"]),
        (LWS, [r"LeaderWorkerSet: 2 nodes, this is node 1, rendezvous g-0\.g ", r"g-0\.g:29500"]),
        ({"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": "j-0.j:6666"},
         [r"Kubeflow JAX: 2 nodes, this is node 1, rendezvous j-0\.j:6666"]),
        (SKY, [r"# job sky-7: 2 nodes, 4 workers", r"here, static, 10\.0\.0\.1:29500"]),
        ({"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-2"},
         [r"SageMaker job: 2 nodes, this is node 1, rendezvous algo-1"]),
        ({"VC_TASK_INDEX": "1", "VC_WORKER_HOSTS": "w-0.j,w-1.j"},
         [r"Volcano: 2 nodes, this is node 1, rendezvous w-0\.j"]),
        ({**OMPI, "MASTER_ADDR": "n1"}, [r"Open MPI: 2 nodes, this is node 1, rendezvous n1"]),
        (INDEXED | {"CRUN_NNODES": "2", "CRUN_MASTER_ADDR": "j-0.j"},
         [r"Kubernetes: 2 nodes, this is node 1, rendezvous j-0\.j"]),
        ({}, [r"# job [0-9a-f-]{36}: 1 node, 1 worker "]),
    ]
    for env, patterns in cases:
        said = dry_run(env)
        for pattern in patterns:
            matches(said, pattern)


def flags_and_their_variables_win():
    for env, flags, pattern in [
            (STEP, ["--nnodes=1"], r": 1 node, 1 worker"),
            (STEP, ["--standalone"], r": 1 node, 1 worker"),
            (STEP, ["--node-rank=2"], r"GROUP_RANK=2 "),
            (STEP, ["--master-addr=other"], r"# rendezvous: static, other:29500"),
            (STEP, ["--rdzv-id=mine"], r"# job mine: 3 nodes"),
            (STEP, ["--nproc-per-node=3"], r"3 workers on this one"),
            (STEP | {"PET_NNODES": "4", "CRUN_NNODES": "5", "PET_NODE_RANK": "3",
                     "PET_MASTER_ADDR": "a"}, [], r": 5 nodes,.*\n# rendezvous: static, a:29500"),
            (STEP, ["--nnodes=1:8"], r"# rendezvous: dynamic, first:1\d{4}"),
            (STEP, ["--nnodes=2"], r"# rendezvous: dynamic, first:1\d{4}"),
            (STEP, ["--nnodes=auto"], r": 3 nodes,"),
            (LWS | {"CRUN_MASTER_PORT": "tcp://10.96.0.12:29500", "PET_STANDALONE": "",
                    "PET_N_PROC_PER_NODE": "2"}, [], r"2 workers on this one\n.*g-0\.g:29500"),
            (LWS | {"PET_N_PROC_PER_NODE": "2", "PET_NPROC_PER_NODE": "3"}, [], r"3 workers"),
            # all is given: what is wrong in the variables does not matter
            (STEP | {"SLURM_NODEID": "x"},
             ["--nnodes=2", "--rdzv-endpoint=a:1", "--rdzv-id=b"], r"dynamic, a:1")]:
        matches(dry_run(env, *flags), pattern)


def what_is_wrong_is_named():
    for env, flags, pattern in [
            (STEP | {"SLURM_STEP_TASKS_PER_NODE": "1,2(x2)"}, [],
             r"2 tasks on this node.*--ntasks-per-node=1"),
            (STEP | {"SLURM_NODEID": "3"}, [], r"SLURM_NODEID is 3, and Slurm step 4711\.2 has"),
            (STEP | {"SLURM_NODEID": ""}, [], r"SLURM_NODEID, this node's rank, is not set"),
            (STEP | {"SLURM_STEP_NODELIST": ""}, [], r"SLURM_STEP_NODELIST, node rank 0's host"),
            (STEP | {"SLURM_STEP_NODELIST": "n[1-"}, [], r"SLURM_STEP_NODELIST: \"n\[1-\""),
            (STEP | {"SLURM_STEP_NODELIST": "n[1-3]"}, [],
             rf"does not name this host, {HERE}, and SLURMD_NODENAME"),
            (LWS | {"LWS_GROUP_SIZE": ""}, [], r"LWS_GROUP_SIZE, the number of nodes, is not set"),
            (OMPI, [], r"Open MPI do not tell node rank 0's host: give --master-addr"),
            (INDEXED, [], r"JOB_COMPLETION_INDEX is set.*--nnodes"),
            (INDEXED, ["--nnodes=2"], r"Kubernetes do not tell.*--master-addr"),
            (INDEXED, ["--nnodes=1:2", "--rdzv-backend=static", "--master-addr=a",
                       "--node-rank=7"], r"--node-rank: 7"),
            ({}, ["--nnodes=auto"], r"--nnodes: auto, but"),
            ({"PET_N_PROC_PER_NODE": "x"}, [], r"PET_N_PROC_PER_NODE: \"x\"")]:
        matches(dry_run(env, *flags, code=2), pattern)


def a_warning_is_all_that_stale_variables_make():
    said = dry_run(STEP | {"SLURM_STEP_NODELIST": "n[1-3]", "SLURMD_NODENAME": "n9"})
    matches(said, rf"SLURM_STEP_NODELIST=n\[1-3\] does not name this host, {HERE}")
    matches(said, r": 1 node, 1 worker")
    said = dry_run(STEP | OMPI)
    matches(said, r"Slurm step 4711\.2 says node 1 of 3, and Open MPI says node 1 of 2")


def one_cpu_of_many_is_a_warning():
    cpu = min(os.sched_getaffinity(0))
    p = Process(["taskset", "-c", str(cpu), CRUN, "--dry-run", "sh"],
                env={**CLEAN, **STEP, "SLURM_CPUS_ON_NODE": "64"})
    p.expect(0)
    matches(p.err, r"1 of its node's 64 CPUs \(SLURM_CPUS_ON_NODE\).*--cpus-per-task")


def two_nodes_meet_by_their_variables():
    env = LWS | {"LWS_LEADER_ADDRESS": "127.0.0.1", "CRUN_MASTER_PORT": str(free_port())}
    nodes = [crun(env | {"LWS_WORKER_INDEX": str(i)}, "sh", "-c", "echo $RANK/$WORLD_SIZE")
             for i in range(2)]
    for i, node in enumerate(nodes):
        node.expect(0)
        same(node.out, f"{i}/2\n")


# -- srun -----------------------------------------------------------------------------


def a_batch_script_starts_it_by_srun():
    with tempfile.TemporaryDirectory(prefix="crun-srun-") as directory:
        fake = pathlib.Path(directory) / "srun"
        fake.write_text('#!/bin/sh\nprintf "<%s>" "$@"; echo " ${SLURM_GPUS_PER_TASK-none}"\n'
                        "exit 7\n")
        fake.chmod(0o755)
        path = f"{directory}:{CLEAN['PATH']}"
        program = ["--max-restarts=1", "sh", "-c", "echo 'a  b'"]
        p = crun(BATCH, *program, path=path)
        p.expect(7)
        same(p.out, "<--nodes=2><--ntasks=2><--ntasks-per-node=1><--no-kill>"
             "<--kill-on-bad-exit=0><--wait=0><--mpi=none><--cpu-bind=none>"
             f"<{CRUN}>" + "".join(f"<{word}>" for word in program) + " none\n")
        same(len(p.err.splitlines()), 1)
        matches(p.err, r"crun: Slurm job 4711: 2 nodes; starting crun on each: srun --nodes=2 ")
        # salloc on a machine that is no node of the job, even for one node
        salloc = {**BATCH, "SLURM_JOB_NODELIST": "n7", "SLURM_JOB_NUM_NODES": "1"}
        del salloc["SLURMD_NODENAME"]
        crun(salloc, *program, path=path).expect(7)
        # a job of this node alone, and what was said by hand
        for env, flags in [(BATCH | {"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": HERE}, []),
                           (BATCH, ["--nnodes=1"]), (BATCH, ["--standalone"])]:
            p = crun(env, *flags, "sh", "-c", "echo $WORLD_SIZE", path=path)
            p.expect(0)
            same((p.out, p.err), ("1\n", ""))
        p = crun(BATCH, "--dry-run", *program, path=path)
        p.expect(0)
        same(p.out, "")
    p = crun(BATCH, *program, path="/nonexistent")
    p.expect(2)
    matches(p.err, r"Slurm job 4711 has 2 nodes.*srun, which would start it on each: No such file")


# -- MPICH ----------------------------------------------------------------------------


def mpiexec(*words):
    return Process([shutil.which("mpiexec.hydra"), "-launcher", "fork", *words], env=CLEAN)


def mpiexec_needs_no_addresses():
    if not shutil.which("mpiexec.hydra"):
        skip("no mpiexec.hydra", "MPICH starts the nodes of a job")
    show = "echo $RANK/$WORLD_SIZE $GROUP_RANK none$(env | grep -E '^(PMI_|MPI_LOCAL|HYDI_)')"
    hosts = ["-ppn", "1", "-hosts", "localhost,127.0.0.1,127.0.0.2"]
    # two jobs side by side have each its own port
    jobs = [mpiexec(*hosts, CRUN, "--nproc-per-node=2", "sh", "-c", show) for _ in range(2)]
    for p in jobs:
        p.expect(0)
        same(len(re.findall("formed: 3 nodes, 6 workers", p.err)), 1)
        same(sorted(p.out.splitlines()), [f"{r}/6 {r // 2} none" for r in range(6)])
    p = mpiexec(*hosts, CRUN, "sh", "-c", "exit $((RANK == 1 ? 9 : 0))")
    p.expect(9)
    matches(p.err, r"rank 1 on .* exited with code 9")


def several_on_a_node_are_refused_at_once():
    p = mpiexec("-ppn", "2", "-n", "2", "-hosts", "localhost", CRUN, "sh", "-c", "exit")
    p.wait()
    matches(p.out + p.err, r"mpiexec: 2 tasks on this node.*mpiexec -ppn 1")


def a_worker_is_no_rank_of_open_mpi():
    if not shutil.which("mpirun.openmpi"):
        skip("no mpirun.openmpi", "Open MPI starts the nodes of a job")
    left = "env | grep -E '^(OMPI_COMM_|OMPI_UNI|OMPI_MCA_(ess|orte)|PMIX_[A-LN-Z])' || echo 0"
    p = Process(["mpirun.openmpi", "-n", "1", "-x", "OMPI_MCA_btl=self", CRUN,
                 "--nproc-per-node=2", "sh", "-c", left + "; echo $OMPI_MCA_btl"],
                env={**CLEAN, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    p.expect(0)
    same(sorted(p.out.splitlines()), ["0", "0", "self", "self"])


if __name__ == "__main__":
    run([each_scheduler_tells_the_place, flags_and_their_variables_win, what_is_wrong_is_named,
         a_warning_is_all_that_stale_variables_make,
         one_cpu_of_many_is_a_warning, two_nodes_meet_by_their_variables,
         a_batch_script_starts_it_by_srun, mpiexec_needs_no_addresses,
         several_on_a_node_are_refused_at_once, a_worker_is_no_rank_of_open_mpi])
