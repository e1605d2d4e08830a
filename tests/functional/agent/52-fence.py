#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 14 s
"""
A node that nobody hears of ends its workers in time, also when its agent is stopped: the
guard does it. Each node is a network namespace; the rendezvous is a daemon on its own.
"""
import os
import pathlib
import re
import signal
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import (  # noqa: E402
    BIN, fail, lives, own_cgroup, processes, run, stat_of, until)
import host  # noqa: E402

WORKER = ["sh", "-c", "echo pid=$$ epoch=$CRUN_EPOCH world=$WORLD_SIZE; exec sleep 1000"]


def guard_of(agent):
    """Perhaps there is a warden in between."""
    return [pid for pid in processes() if stat_of(pid).name == "crun-guard"
            and agent in (stat_of(pid).parent, stat_of(stat_of(pid).parent).parent)]


def worker_of(p, epoch):
    """The pid of the node's worker in that epoch."""
    found = re.search(rf"pid=(\d+) epoch={epoch} ", p.out)
    return int(found[1]) if found else None


class Job:
    """Two nodes, one worker each, of which one may go."""

    count = 0

    def __init__(self, cluster, lease, *flags, around=()):
        Job.count += 1
        self.nodes = []
        for i in (0, 1):
            self.nodes.append(cluster[i].start(
                [*(around if i == 1 else ()), BIN / "crun", "--nnodes=1:2",
                 "--rdzv-backend=c10d", f"--rdzv-endpoint={cluster[2].address}",
                 f"--rdzv-id=job{Job.count}", "--nproc-per-node=1",
                 f"--rdzv-conf=lease={lease}", *flags, *WORKER]))
        self.stays, self.goes = self.nodes
        until(lambda: all("world=2" in p.out for p in self.nodes), "both run")
        self.pid = worker_of(self.goes, 1)

    def end(self):
        for p in self.nodes:
            if p.popen.poll() is None:
                p.kill(signal.SIGINT)
                p.wait()

    def until_fenced(self, overlap):
        """The worker of the node that went is gone; overlap: another epoch may run."""
        end = time.monotonic() + 40
        while True:
            next_runs = worker_of(self.stays, 2)
            if not lives(self.pid):
                return
            if next_runs and not overlap:
                fail("workers of two epochs live")
            if time.monotonic() > end:
                fail("the worker lives on:", self.goes.err)
            time.sleep(0.002)


def cut_off(cluster, job, overlap):
    job.goes.kill(signal.SIGSTOP)
    cluster[1].cut()
    try:
        job.until_fenced(overlap)
        if stat_of(job.goes.pid).state != "T":
            fail("the agent is not stopped")
        if not guard_of(job.goes.pid):
            fail("the guard is gone")
    finally:
        cluster[1].mend()
        job.goes.kill(signal.SIGCONT)
    if job.goes.wait() != 75:
        fail("exit code", job.goes.popen.returncode, job.goes.err)
    until(lambda: "world=1" in job.stays.out, "the other node continues alone")
    job.end()


def a_stopped_agent_that_is_cut_off(cluster):
    cut_off(cluster, Job(cluster, 1, "--outage-grace=1", "--failure-grace=1"), True)


def strictly_before_anybody_else_starts(cluster):
    cut_off(cluster, Job(cluster, 5, "--fence=strict"), False)


def a_stopped_agent_that_comes_back_late(cluster):
    job = Job(cluster, 1)
    job.goes.kill(signal.SIGSTOP)
    until(lambda: worker_of(job.stays, 2), "the epoch without it")
    if not lives(job.pid):
        fail("the outage grace is not waited for")
    job.goes.kill(signal.SIGCONT)
    if job.goes.wait() != 75:
        fail("exit code", job.goes.popen.returncode, job.goes.err)
    if lives(job.pid) or "epoch=2" in job.goes.out:
        fail("the old epoch lives, or a new one:", job.goes.out)
    if worker_of(job.stays, 3) or job.stays.popen.poll() is not None:
        fail("the job was disturbed:", job.stays.out, job.stays.err)
    job.end()


def a_whole_node_that_sleeps_for_less_than_a_lease(cluster):
    own = own_cgroup()
    if not own:
        print("   (skipped: no cgroup)")
        return
    cgroup = pathlib.Path(own, f"fence-{os.getpid()}")
    cgroup.mkdir()
    try:
        job = Job(cluster, 6, "--fence=strict",
                  around=["sh", "-c", f'echo $$ >{cgroup}/cgroup.procs; exec "$@"', "sh"])
        (cgroup / "cgroup.freeze").write_text("1")
        time.sleep(2)
        (cgroup / "cgroup.freeze").write_text("0")
        time.sleep(3)  # past the strict fence of what was known before
        if not lives(job.pid) or worker_of(job.stays, 2):
            fail("killed:", job.goes.err, job.stays.err)
        job.end()
    finally:
        end = time.monotonic() + 10
        while cgroup.exists() and time.monotonic() < end:
            try:
                cgroup.rmdir()
            except OSError:
                time.sleep(0.01)


TESTS = [
    a_stopped_agent_that_is_cut_off,
    strictly_before_anybody_else_starts,
    a_stopped_agent_that_comes_back_late,
    a_whole_node_that_sleeps_for_less_than_a_lease,
]


def main():
    host.need()
    with host.Cluster(3) as cluster:
        crund = cluster[2].start([BIN / "crund", "--listen", ":29400", "--state-dir",
                                  cluster.directory + "/state"])
        until(lambda: "listening" in crund.err, "crund")
        run(TESTS, cluster)


main()
