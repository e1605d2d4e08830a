#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 3 s
"""
The nodes of a Slurm step write to one file: what is of the job stands there once, also
where the node that would have said it is the one that was lost.
"""
import contextlib
import os
import signal
import socket
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, expect, fail, free_ports, run, same, until  # noqa: E402

CRUN, CRUND, CRUNCTL = BIN / "crun", BIN / "crund", BIN / "crunctl"
SCHEDULERS = ("SLURM_", "PMI_", "PBS_", "LSB_", "FLUX_", "CRUN_", "PET_")
ENV = {name: value for name, value in os.environ.items() if not name.startswith(SCHEDULERS)}
HOST = socket.gethostname()


@contextlib.contextmanager
def step(script, *flags):
    """Three nodes of one step, all of them on this machine."""
    nodes = []
    try:
        for rank in range(3):
            env = {**ENV, "SLURM_JOB_ID": "26", "SLURM_STEP_ID": "0", "SLURM_NODEID": str(rank),
                   "SLURM_PROCID": str(rank), "SLURM_LOCALID": "0", "SLURM_STEP_NUM_NODES": "3",
                   "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
                   "SLURM_NTASKS": "3", "SLURM_STEP_NODELIST": f"{HOST},b,c",
                   "SLURM_JOB_NODELIST": f"{HOST},b,c", "SLURMD_NODENAME": (HOST, "b", "c")[rank]}
            nodes.append(Process([CRUN, "--nnodes=3", f"--node_rank={rank}", *flags,
                                  "sh", "-c", script], env=env))
        yield nodes
    finally:
        for p in nodes:
            p.end()


def count(nodes, text):
    return sum(p.err.count(text) for p in nodes)


def static(port):
    return ["--master_addr=127.0.0.1", f"--master_port={port}"]


def a_failure_is_reported_once():
    with step("[ $RANK = 2 ] || exec sleep 1000; echo broken >&2; exit 7",
              *static(free_ports(1)[0])) as nodes:
        same([p.wait() for p in nodes], [7, 7, 7])
        same([count(nodes, text) for text in (" formed: 3 nodes", "first failure", "broken",
                                               "exit code 7, as rank 2's")],
             [1, 1, 2, 1])  # the worker's own line, and the report's


def the_loss_of_rank_0_is_reported_by_the_next(listen):
    with step("echo up; exec sleep 1000", f"--rdzv-endpoint={listen}", "--rdzv-backend=c10d",
              "--rdzv-conf=lease=3") as nodes:
        until(lambda: all("up" in p.out for p in nodes), lambda: [p.err for p in nodes])
        nodes[0].kill(signal.SIGKILL)
        same([p.wait() for p in nodes[1:]], [1, 1])
        same([count([p], "first failure") for p in nodes], [0, 1, 0])
        same([count([p], "has failed") for p in nodes], [0, 1, 0])
        same(nodes[2].err, "")


def the_loss_of_the_host_is_reported_by_the_next():
    with step("echo up; exec sleep 1000", *static(free_ports(1)[0]),
              "--rdzv-conf=lease=3") as nodes:
        until(lambda: all("up" in p.out for p in nodes), lambda: [p.err for p in nodes])
        nodes[0].kill(signal.SIGKILL)
        same([p.wait() for p in nodes[1:]], [1, 1])
        same([count([p], "the job ends here") for p in nodes], [0, 1, 0])
        if nodes[2].err:
            fail(nodes[2].err)
        pid = str(nodes[2].popen.pid)
        for command, text in (("events", "lost, exit code 1"), ("status", "out of reach")):
            p = Process([CRUNCTL, command, pid], env=ENV)
            expect(p, 0)
            if text not in p.out:
                fail(command, p.out)


def with_crund(test):
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    crund = Process([CRUND, "--listen", listen, "--allow-root"], env=ENV)
    try:
        until(lambda: "listening" in crund.err, lambda: crund.err)
        test(listen)
    finally:
        crund.end()


def the_loss_of_rank_0():
    with_crund(the_loss_of_rank_0_is_reported_by_the_next)


if __name__ == "__main__":
    run([a_failure_is_reported_once, the_loss_of_rank_0,
         the_loss_of_the_host_is_reported_by_the_next])
