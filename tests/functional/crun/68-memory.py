#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 13 s
# sanitizers: no, a Python program loads the library
"""
Checkpoints in memory, of workers that are killed and of nodes that are lost: the job goes on at the
step that all ranks have saved, and ends with the bits of an undisturbed one.
"""
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, PROGRAMS, Process, expect, fail, run, until  # noqa: E402
import host  # noqa: E402

CRUN, CRUNCTL, STEPS = BIN / "crun", BIN / "crunctl", PROGRAMS / "memory_steps.py"
JOB = f"job-{os.getpid()}"  # crunctl finds jobs of all networks


def ends(*processes):
    """The state of each rank at the end."""
    return sorted(line for p in processes for line in p.out.splitlines()
                  if line.startswith("ends"))


def begins(*processes):
    return sorted(line for p in processes for line in p.out.splitlines()
                  if line.startswith("begins"))


def one_node(folder, *kills, steps=12, flags=()):
    p = Process([CRUN, "--nproc-per-node=2", "--max-restarts=5", *flags, sys.executable, STEPS,
                 folder, str(steps), *kills])
    p.wait()
    return p


@functools.cache
def undisturbed():
    with tempfile.TemporaryDirectory() as folder:
        return ends(one_node(folder))


def killed_workers_cost_no_step():
    with tempfile.TemporaryDirectory() as folder:
        p = one_node(folder, "1:1:5", "2:0:6", "3:1:12")
        expect(p, 0)
        for epoch, step in (1, 0), (2, 4), (3, 5), (4, 11):
            for rank in (0, 1):
                if f"begins epoch={epoch} rank={rank} step={step}" not in p.out:
                    fail(f"epoch {epoch} of rank {rank} does not begin with step {step}:\n{p.out}{p.err}")
        if ends(p) != undisturbed():
            fail(f"other states at the end:\n{p.out}")


def a_failed_job_leaves_files():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "fail").touch()
        p = Process([CRUN, "--nproc-per-node=2", sys.executable, STEPS, folder, "3"])
        expect(p, 7, "step 3, which was in memory, was written to files in")
        written = [f.read_text() for f in pathlib.Path(folder).glob("flushed-*")]
        if written != ["3\n"]:
            fail("the command has written", written)


def memory_of(pid):
    """Descriptors of checkpoints that a process has."""
    links = [os.readlink(f) for f in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    return sum("crun-memory" in link for link in links)


def status_shows(pattern, job, *before):
    """What crunctl prints of it, as soon as each node has told."""
    def status():
        return subprocess.run([*before, CRUNCTL, "status", job], capture_output=True, text=True,
                              check=False)
    until(lambda: re.search(pattern, status().stdout, re.M), lambda: f"{pattern}\n{status()}", pause=0.2)


def nothing_is_left_of_a_killed_agent():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "wait-at-3").touch()
        job = os.path.basename(folder)
        p = Process([CRUN, "--nproc-per-node=2", f"--rdzv-id={job}", sys.executable, STEPS, folder, "5"])
        until(lambda: p.out.count("waits") == 2, lambda: f"both wait: {p.out}{p.err}")
        if memory_of(p.pid) != 4:
            fail("the agent has", memory_of(p.pid), "memories, not 4")
        status_shows(r"^checkpoints in memory: step 3, saved [\d.]+ s ago, 1\.\d MiB in all$", job)
        workers = subprocess.run(["pgrep", "-f", f"{STEPS} {folder}"], capture_output=True,
                                 text=True, check=True).stdout.split()
        environs = "".join(pathlib.Path(f"/proc/{w}/environ").read_text() for w in workers)
        name = re.search(r"CRUN_MEMORY=(@[\w-]+)", environs).group(1)
        p.kill(signal.SIGKILL)
        p.wait()
        until(lambda: not any(os.path.exists(f"/proc/{w}") for w in workers), "no worker lives")
        until(lambda: name not in pathlib.Path("/proc/net/unix").read_text(), "no socket is left")


# -- several hosts ---------------------------------------------------------------------


def node(cluster, index, *words):
    return cluster[index].start(
        [CRUN, "--nnodes=2", "--spares=1", "--rdzv-backend=c10d", f"--rdzv-id={JOB}",
         f"--rdzv-endpoint={cluster[0].address}", f"--node-rank={index}" if index < 2 else "--spares=1",
         "--nproc-per-node=1", "--max-restarts=5", sys.executable, STEPS, *words])


def a_spare_goes_on_with_a_lost_nodes_copy(cluster):
    with tempfile.TemporaryDirectory() as folder:
        wait = pathlib.Path(folder, "wait-at-6")
        wait.touch()
        nodes = [node(cluster, i, folder, "12") for i in (0, 1)]
        until(lambda: "formed" in nodes[0].err, lambda: f"a job of two: {nodes[0]}")
        nodes.append(node(cluster, 2, folder, "12"))  # it would take rank 1
        until(lambda: sum(p.out.count("waits") for p in nodes) == 2,
              lambda: "both wait: " + "".join(p.out + p.err for p in nodes))
        status_shows(r"^checkpoints in memory: step 6, saved [\d.]+ s ago, copies of step 6 on other "
                     r"nodes, [\d.]+ MiB in all$", JOB, "ip", "netns", "exec", cluster[0].ns)
        victim, rest = nodes[1], [nodes[0], nodes[2]]
        victim.kill(signal.SIGKILL)
        wait.unlink()
        for p in rest:
            expect(p, 0)
        found = begins(*rest)
        if [line.split("step=")[1] for line in found if "epoch=1" not in line] != ["6", "6"]:
            fail("the second epoch begins with", found, "".join(p.err for p in rest))
        if ends(*rest) != undisturbed():
            fail("other states at the end:", ends(*rest))


def training_goes_on_beside_a_stopped_agent(cluster):
    """No agent copies for its worker, and the other node's copies do not arrive."""
    with tempfile.TemporaryDirectory() as folder:
        wait, hasty = pathlib.Path(folder, "wait-at-3"), pathlib.Path(folder, "hasty")
        wait.touch()
        nodes = [node(cluster, i, folder, "12", "1:1:9") for i in (0, 1)]
        until(lambda: sum(p.out.count("waits") for p in nodes) == 2,
              lambda: "both wait: " + "".join(p.out + p.err for p in nodes))
        first, other = sorted(nodes, key=lambda p: "rank=0" not in p.out)
        other.kill(signal.SIGSTOP)
        hasty.touch()
        wait.unlink()
        until(lambda: all(os.path.exists(f"{folder}/1-8-{rank}") for rank in (0, 1)), "step 8 is done")
        until(lambda: "no copies of checkpoints in memory at" in first.err, lambda: first.err)
        other.kill(signal.SIGCONT)
        for p in nodes:
            expect(p, 0)
        if first.err.count("no copies of checkpoints in memory") != 1:
            fail("more than one line:", first.err)
        # step 4 is the last that all have saved
        if [line.split("step=")[1] for line in begins(*nodes) if "epoch=2" in line] != ["4", "4"]:
            fail("the second epoch begins with", begins(*nodes), first.err)
        if ends(*nodes) != undisturbed():
            fail("other states at the end:", ends(*nodes))


def each_node_of_a_failed_job_leaves_its_part(cluster):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "fail").touch()
        nodes = [cluster[i].start([CRUN, "--nnodes=2", f"--node-rank={i}", "--master-port=29500",
                                   f"--master-addr={cluster[0].address}", "--nproc-per-node=1",
                                   sys.executable, STEPS, folder, "3"]) for i in (0, 1)]
        expect(nodes[0], 7, ": step 3, which was in memory, was written to files in")
        expect(nodes[1], 7, ": this node's part of step 3, which was in memory, was written")
        written = sorted(f.name for f in pathlib.Path(folder).glob("flushed-*"))
        if written != ["flushed-node-0", "flushed-node-1"]:
            fail("files are from", written)


def main():
    run([killed_workers_cost_no_step, a_failed_job_leaves_files,
         nothing_is_left_of_a_killed_agent])
    if not host.available():
        with host.Cluster(3) as cluster:
            run([a_spare_goes_on_with_a_lost_nodes_copy,
                 training_goes_on_beside_a_stopped_agent,
                 each_node_of_a_failed_job_leaves_its_part], cluster)


if __name__ == "__main__":
    main()
