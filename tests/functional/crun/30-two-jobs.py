#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 5 s
"""
Two jobs that meet at one port: no node of one becomes a node of the other, and the messages
name the job that has the port.
"""
import contextlib
import os
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, expect, fail, free_port, run, until  # noqa: E402

CRUN, CRUNCTL = BIN / "crun", BIN / "crunctl"
SCHEDULERS = ("SLURM_", "PBS_", "LSB_", "FLUX_", "CRUN_", "PET_")
ENV = {name: value for name, value in os.environ.items() if not name.startswith(SCHEDULERS)}


@contextlib.contextmanager
def processes():
    started = []
    try:
        yield started
    finally:
        for p in started:
            p.end()


def node(started, port, rank, script, *flags, nnodes=2, arguments=(), **variables):
    p = Process([CRUN, f"--nnodes={nnodes}", f"--node_rank={rank}", f"--master_port={port}",
                 "--master_addr=127.0.0.1", *flags, "sh", "-c", script, *arguments],
                env={**ENV, **variables})
    started.append(p)
    return p


def crunctl(port, *words):
    p = Process([CRUNCTL, "-e", f"127.0.0.1:{port}", *words], env=ENV)
    code = p.wait()
    return code, p.out + p.err


def slurm(job, step=0, nodes=2):
    return {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step),
            "SLURM_STEP_NUM_NODES": str(nodes)}


def two_programs_of_one_user():
    port = free_port()
    with processes() as started:
        a = node(started, port, 0, "echo A")
        expect(node(started, port, 1, "echo B"), 2, 'this rendezvous serves job "sh" of ',
               ", started ", "other arguments for sh", "the same --rdzv-id")
        until(lambda: "was refused: this rendezvous serves" in a.err, a.__str__)
        b = node(started, port, 1, "echo A")
        expect(a, 0)
        expect(b, 0)


def a_flag_of_one_node_makes_no_other_job():
    port = free_port()
    with processes() as started:
        both = [node(started, port, rank, 'echo "$1"',
                     arguments=["train", f"--node_rank={rank}", "--node-name", f"n{rank}"])
                for rank in (0, 1)]
        for p in both:
            expect(p, 0)
            if "other arguments" in p.err:
                fail(p.err)


def a_name_joins_nodes_with_other_arguments():
    port = free_port()
    with processes() as started:
        both = [node(started, port, rank, f"echo {rank}", "--rdzv-id=joined")
                for rank in (0, 1)]
        for p in both:
            expect(p, 0, "other arguments for sh")


def two_batch_jobs():
    port = free_port()
    with processes() as started:
        a = node(started, port, 0, "exit 0", SLURM_JOB_ID="26")
        expect(node(started, port, 1, "exit 0", SLURM_JOB_ID="27"), 2,
               "Slurm job 26, started ", "this node is of Slurm job 27")
        b = node(started, port, 1, "exit 0")  # by ssh from the batch script: it cannot know
        expect(a, 0)
        expect(b, 0)


def the_steps_of_a_batch_job():
    port = free_port()
    with processes() as started:
        a = node(started, port, 0, "echo run=$TORCHELASTIC_RUN_ID", **slurm(26))
        expect(node(started, port, 1, "exit 0", **slurm(26, step=1)), 2,
               'serves job "26.0" (sh)', 'this node is of job "26.1"')
        expect(node(started, port, 1, "exit 0", SLURM_RESTART_COUNT="1", **slurm(26)), 2,
               'this node is of job "26.0.1"')
        b = node(started, port, 1, "echo run=$TORCHELASTIC_RUN_ID", **slurm(26))
        expect(a, 0, "run=26.0")
        expect(b, 0, "run=26.0")


def a_step_for_each_node():
    port = free_port()
    with processes() as started:
        both = [node(started, port, rank, "echo run=$TORCHELASTIC_RUN_ID",
                     **slurm(26, step=rank, nodes=1)) for rank in (0, 1)]
        for p in both:
            expect(p, 0, "run=none")


def a_taken_rank_names_the_node_that_wants_it():
    port = free_port()
    with processes() as started:
        a = node(started, port, 0, "exit 0", "--rdzv-conf=lease=3", nnodes=3)
        b = node(started, port, 1, "exit 0", "--rdzv-conf=lease=3", nnodes=3)
        until(lambda: crunctl(port, "status", "--json")[1].count('"host"') == 2, "both")
        again = node(started, port, 1, "exit 0", "--rdzv-conf=lease=3", nnodes=3)
        expect(again, 2, f"node rank 1 is taken by", f"(pid {b.pid})")
        until(lambda: f"(pid {again.pid}, 127.0.0.1) was refused: node rank 1" in a.err,
              lambda: a.err)


def a_taken_port_names_its_job():
    port = free_port()
    with processes() as started:
        a = node(started, port, 0, "exit 0")
        until(lambda: crunctl(port, "status")[0] == 0, a.__str__)
        expect(node(started, port, 0, "exit 0", "--rdzv-id=other"), 2,
               f'port {port} is in use by {a.pid} (crun), job "sh", started ',
               "give this job another port")


def settings_are_said_as_they_are_given():
    port = free_port()
    with processes() as started:
        a = node(started, port, 0, "exit 0")
        expect(node(started, port, 1, "exit 0", "--shutdown-timeout=2"), 2,
               "--shutdown-timeout is ", " s in the job and 2 s here")
        expect(node(started, port, 1, "exit 0", nnodes="2:4"), 2,
               "--nnodes is 2 in the job and 2:4 here")
        expect(node(started, port, 1, "exit 0", "--rdzv-id=other"), 2,
               'serves job "sh"', 'this node is of job "other" (--rdzv-id)')
        code, said = crunctl(port, "status", "--rdzv-id=none")
        if code != 0 or "sh  waiting" not in said:
            fail(said)
        code, said = crunctl(port, "stop", "--rdzv-id=none")
        if code != 0:
            fail(said)
        expect(a, 143)


TESTS = [
    two_programs_of_one_user,
    a_flag_of_one_node_makes_no_other_job,
    a_name_joins_nodes_with_other_arguments,
    two_batch_jobs,
    the_steps_of_a_batch_job,
    a_step_for_each_node,
    a_taken_rank_names_the_node_that_wants_it,
    a_taken_port_names_its_job,
    settings_are_said_as_they_are_given,
]

if __name__ == "__main__":
    run(TESTS)
