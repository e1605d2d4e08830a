#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 6 s
"""
The worker library in real processes: under crun, and under launchers of which only the
variables are there. Ranks that are killed, stopped or abort are named by the others.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import matches, same  # noqa: E402
from worker import CALLS, CRUN, PATIENCE, PLAIN, Ranks, run  # noqa: E402


def open_mpi(rank, size):
    return {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": size,
        "OMPI_COMM_WORLD_LOCAL_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_SIZE": size,
        "PMIX_NAMESPACE": f"test-{os.getpid()}",
    }


def hydra(rank, size):
    return {
        "PMI_RANK": rank,
        "PMI_SIZE": size,
        "MPI_LOCALRANKID": rank,
        "MPI_LOCALNRANKS": size,
        "PMI_JOBID": f"test-{os.getpid()}",
    }


def slurm(rank, size):
    return {
        "SLURM_STEP_ID": 0,
        "SLURM_JOB_ID": os.getpid(),
        "SLURM_PROCID": rank,
        "SLURM_STEP_NUM_TASKS": size,
        "SLURM_LOCALID": rank,
        "SLURM_NODEID": 0,
        "SLURM_STEP_NUM_NODES": 1,
        "SLURM_RESTART_COUNT": 2,
    }


# -- checks ----------------------------------------------------------------------------


def right_under_crun():
    for size in (1, 2, 4, 7):
        done = subprocess.run(
            [CRUN, f"--nproc_per_node={size}", CALLS, "check"],
            env=PLAIN, capture_output=True, text=True, timeout=PATIENCE,
        )
        same((done.returncode, sorted(done.stdout.split("\n"))[1:]),
             (0, [f"rank {r}: right" for r in range(size)]))


def right_under_other_launchers():
    for launcher in (open_mpi, hydra, slurm):
        with Ranks("check", 3, launcher) as ranks:
            for rank in range(3):
                ranks.ends(rank, 0)


def a_process_may_have_several_worlds():
    def at_a_port(rank, size):
        return {**open_mpi(rank, size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for backend in ("shm", "tcp"):
        done = subprocess.run(
            [CRUN, "--nproc_per_node=3", CALLS, "again"], env={**PLAIN, "CRUN_BACKEND": backend},
            capture_output=True, text=True, timeout=PATIENCE,
        )
        same((done.returncode, sorted(done.stdout.split("\n"))[1:]),
             (0, [f"rank {r}: 1" for r in range(3)]))
        for launcher in (open_mpi, at_a_port):
            with Ranks("again", 3, launcher, CRUN_BACKEND=backend) as ranks:
                for rank in range(3):
                    ranks.ends(rank, 0, f"rank {rank}: 1\n")


def says_who_it_is():
    with Ranks("who", 2, slurm) as ranks:
        ranks.ends(1, 0)
        same(ranks.said(1), "rank 1 of 2, local 1 of 2, node 0 of 1, 2 restarts, shm\n")
    with Ranks("who", 1, lambda rank, size: {}) as ranks:
        ranks.ends(0, 0)
        same(ranks.said(0), "rank 0 of 1, local 0 of 1, node 0 of 1, 0 restarts, self\n")


def a_killed_rank_is_lost_and_named():
    with Ranks("loop", 3, open_mpi) as ranks:
        ranks.until_said(0, "ready")
        ranks.until_said(2, "ready")
        pid = ranks.processes[1].pid
        ranks.processes[1].send_signal(signal.SIGKILL)
        # not reaped: a zombie is dead, too
        for rank in (0, 2):
            ranks.ends(rank, 3)
            matches(ranks.said(rank), rf"peer lost: .*rank 1 \(pid {pid}\) is gone")


def a_killed_rank_ends_all_groups():
    # rank 2 waits for rank 3 in a group that has no dead rank; rank 0 serves the store
    for backend in ("shm", "tcp"):
        for dead, words in ((1, r"rank 1 .*gone"), (0, r"rank 0 .*gone")):
            with Ranks("halves", 4, hydra, CRUN_BACKEND=backend) as ranks:
                for rank in range(4):
                    ranks.until_said(rank, "ready")
                ranks.processes[dead].send_signal(signal.SIGKILL)
                for rank in (1 - dead, 2):
                    ranks.ends(rank, 3)
                    matches(ranks.said(rank), rf"rank {rank}: peer lost: .*{words}")


def the_last_operations_are_written_down():
    flight = tempfile.mkdtemp(prefix="crun-flight-")
    try:
        with Ranks("loop", 2, open_mpi, CRUN_FLIGHT_DIR=flight) as ranks:
            ranks.until_said(0, "ready")
            ranks.processes[1].send_signal(signal.SIGKILL)
            ranks.ends(0, 3)
        with open(os.path.join(flight, "flight-rank-0.txt"), encoding="utf-8") as f:
            text = f.read()
        matches(text, r"^rank 0: rank 1 \(pid \d+\) is gone")
        matches(text, r"#\d+ (barrier|all_reduce 2000 x f32 sum)  ok \d+ us\n")
        matches(text, r"#\d+ all_reduce 2000 x f32 sum  peer lost \d+ us\n$")
    finally:
        shutil.rmtree(flight)


def a_stopped_rank_is_waited_for_and_named():
    with Ranks("loop", 2, open_mpi, CALLS_TIMEOUT="0.5") as ranks:
        ranks.until_said(0, "ready|timeout")
        ranks.until_said(1, "ready|timeout")
        pid = ranks.processes[1].pid
        ranks.processes[1].send_signal(signal.SIGSTOP)
        ranks.ends(0, 3)
        if "ready" in ranks.said(0):
            matches(ranks.said(0), rf"timeout: waited 0.5 s in all_reduce #\d+ for rank 1 "
                                   rf"\(pid {pid}, stopped\)")
        # when it continues, it gets the reason
        ranks.processes[1].send_signal(signal.SIGCONT)
        ranks.ends(1, 3)
        matches(ranks.said(1), "timeout: ")


def a_rank_that_does_not_get_in_is_heard():
    def one_differs(rank, size):
        return dict(open_mpi(rank, size), CRUN_BACKEND="nccl" if rank == 2 else "auto",
                    CRUN_NCCL_LIBRARY="/nowhere")

    with Ranks("who", 3, one_differs) as ranks:
        for rank in range(3):
            ranks.ends(rank, 3)
        matches(ranks.said(0), r'unsupported: rank 2: backend "nccl" on \S+: ')
        # rank 0 has the store: a rank that arrives after it has left finds no
        # store
        matches(ranks.said(1), r'unsupported: rank 2: backend "nccl" on \S+: |rank 0 .* was not found')


def rank_0_that_does_not_get_in_is_heard():
    def rank_0_differs(rank, size):
        return dict(open_mpi(rank, size), CRUN_BACKEND="nccl" if rank == 0 else "auto",
                    CRUN_NCCL_LIBRARY="/nowhere")

    with Ranks("who", 3, rank_0_differs) as ranks:
        for rank in range(3):
            # its store ends with it: ranks that have joined get the reason
            # before that
            ranks.ends(rank, 3, r'unsupported: (rank 0: )?backend "nccl" on \S+: |was not found')


def two_of_one_number_are_told_apart():
    def variables(backend):
        return lambda rank, size: dict(open_mpi(min(rank, 1), size), CRUN_BACKEND=backend)

    for backend in ("shm", "tcp"):
        with Ranks("check", 3, variables(backend)) as ranks:
            for rank in range(3):
                ranks.ends(rank, 3, r"there is another rank 1, process \d+ on .+: ")
            pids = {p.pid for p in ranks.processes[1:]}
            named = int(re.search(r"process (\d+)", ranks.said(0))[1])
            if named not in pids:
                raise AssertionError(f"process {named} is none of {pids}")


def an_abort_reaches_all():
    for backend in ("shm", "tcp"):
        with Ranks("abort", 3, hydra, CRUN_BACKEND=backend) as ranks:
            for rank in range(3):
                ranks.ends(rank, 3)
            matches(ranks.said(0), "aborted: rank 1: the loss is NaN")
            matches(ranks.said(1), "aborted: the loss is NaN")


def an_abort_in_a_signal_handler_reaches_all():
    for backend in ("shm", "tcp"):
        with Ranks("crash", 3, hydra, CRUN_BACKEND=backend) as ranks:
            ranks.ends(1, 4)
            for rank in (0, 2):
                ranks.ends(rank, 3)
                matches(ranks.said(rank), "aborted: rank 1: crun_abort_signal")


def ranks_that_do_not_see_each_others_processes():
    unshare = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        return
    with Ranks("check", 2, open_mpi, wrap=unshare) as ranks:
        ranks.ends(0, 0)
        ranks.ends(1, 0)
    with Ranks("loop", 2, open_mpi, wrap=unshare) as ranks:
        ranks.until_said(0, "ready")
        ranks.processes[1].send_signal(signal.SIGKILL)
        ranks.ends(0, 3)
        matches(ranks.said(0), r"peer lost: rank 1 \(pid \d+\) is gone")


def a_bad_environment_is_one_clear_line():
    cases = [
        ({"RANK": "2", "WORLD_SIZE": "2"}, 'RANK is "2": it must be a number from 0 to 1'),
        ({"RANK": "0"}, "WORLD_SIZE is not set: it must be a number from 1 to 1048576"),
        ({"WORLD_SIZE": "2"}, "RANK is not set: "),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, "MASTER_PORT is not set: "),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "2000"}, "MASTER_ADDR is not set: "),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "x"},
         'MASTER_PORT is "x": it must be a number from 1 to 65535'),
        ({"RANK": "0", "WORLD_SIZE": "1", "CRUN_BACKEND": "smh"}, 'CRUN_BACKEND: "smh" is not one of'),
    ]
    for variables, words in cases:
        with Ranks("who", 1, lambda rank, size, v=variables: v) as ranks:
            ranks.ends(0, 3)
            matches(ranks.said(0), re.escape("rank -1: bad environment: " + words))


CHECKS = [
    right_under_crun,
    right_under_other_launchers,
    a_process_may_have_several_worlds,
    says_who_it_is,
    a_killed_rank_is_lost_and_named,
    a_killed_rank_ends_all_groups,
    the_last_operations_are_written_down,
    a_stopped_rank_is_waited_for_and_named,
    a_rank_that_does_not_get_in_is_heard,
    rank_0_that_does_not_get_in_is_heard,
    two_of_one_number_are_told_apart,
    an_abort_reaches_all,
    an_abort_in_a_signal_handler_reaches_all,
    ranks_that_do_not_see_each_others_processes,
    a_bad_environment_is_one_clear_line,
]


run(CHECKS)
