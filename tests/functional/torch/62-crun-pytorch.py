#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 20 s
# sanitizers: no, 18 and 19 have crun do the same
"""
An unmodified PyTorch program under crun: tests/programs/ddp_train.py on one node, and on two with
a key and a tunnel, killed in the middle and resumed, failing with a traceback. A cold worker takes
three seconds of a core to import PyTorch: they are cold on one node only. PyTorch comes from PyPI
by scripts/torch-venv; several nodes are network namespaces. What cannot be had is said loudly, and
the exit code is 77.

    BUILD=build tests/functional/torch/62-crun-pytorch.py [TEST...]
"""
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, fail, run, until  # noqa: E402
import host  # noqa: E402
from pytorch import Here, SECONDS, TRAIN, check_world, said, skip, torch_env  # noqa: E402

CRUN = BIN / "crun"
EPOCHS = 6
WARM = "--warm=torch"  # an import for each node, not for each worker
SAMPLES, BATCH = 512, 16  # of ddp_train.py


# -- running and judging --------------------------------------------------------------


class Job:
    """What a test needs: where checkpoints go, and how a worker finds its Python."""

    def __init__(self, env, directory):
        self.env = {**env, "TMPDIR": directory}
        self.directory = directory
        self.count = 0

    def new(self):
        """The arguments of a separate training."""
        self.count += 1
        return [TRAIN, "--epochs", EPOCHS, "--checkpoint",
                f"{self.directory}/checkpoint-{self.count}.pt"]

    def crun(self, node, *words):
        env = dict(self.env)
        if not isinstance(node, Here):
            env["GLOO_SOCKET_IFNAME"] = node.interface  # its host name is in no DNS
        return node.start([CRUN, *words], env=env)


def expect(code, *processes):
    """All end with this exit code; if one does not, do not wait for the others."""
    end = time.monotonic() + SECONDS
    codes = {None}
    while codes <= {None, code} and time.monotonic() < end:
        codes = {p.popen.poll() for p in processes}
        if codes == {code}:
            return
        time.sleep(0.01)
    for p in processes:
        print(f"{p}: exit code {p.popen.poll()}\n{p.out}{p.err}", file=sys.stderr)
    fail(f"not all ended with {code} within {SECONDS} s")


def check_trained(world, *processes):
    """All ranks ended with the same parameters, those of every other training of that size."""
    done = said("done", *processes)
    if sorted(int(facts["rank"]) for facts in done) != list(range(world)):
        fail("ranks that are done:", done)
    if len({facts["sum"] for facts in done}) != 1:
        fail("the ranks differ:", done)
    total = float(done[0]["sum"])
    first = check_trained.sums.setdefault(world, total)
    # gloo adds in its own order, and a float32 is rounded at each step
    tolerance = EPOCHS * SAMPLES // BATCH * 2**-23
    if not math.isclose(total, first, rel_tol=tolerance):
        fail(f"trainings differ: {total}, {first}")
    # which is less than any epoch adds: a missing epoch would be detected
    sums = {f["epoch"]: float(f["sum"]) for f in said("epoch", *processes)}
    if math.isclose(sums[str(EPOCHS - 2)], total, rel_tol=10 * tolerance):
        fail("the last epoch moved nothing:", sums)
    return done


check_trained.sums = {}


def kill_in_the_middle(rank, *processes):
    """kill -9 of a worker once the second epoch's checkpoint is written; what crun said before."""
    until(lambda: any(f["epoch"] == "1" for f in said("epoch", *processes)),
          "the second epoch", SECONDS)
    before = "".join(p.err for p in processes)
    pid = next(int(f["pid"]) for f in said("env", *processes) if f["RANK"] == str(rank))
    os.kill(pid, signal.SIGKILL)
    return before


def check_resumed(nodes_count, local_world, *processes):
    envs = said("env", *processes)
    check_world([f for f in envs if f["TORCHELASTIC_RESTART_COUNT"] == "0"],
                nodes_count, local_world, 0, 1)
    check_world([f for f in envs if f["TORCHELASTIC_RESTART_COUNT"] != "0"],
                nodes_count, local_world, 1, 1)
    began = {int(facts["began"])
             for facts in check_trained(nodes_count * local_world, *processes)}
    if len(began) != 1 or not 2 <= began.pop() < EPOCHS:
        fail("did not resume from the checkpoint:", said("done", *processes))


# -- one node -------------------------------------------------------------------------


def check_report(p):
    """The end of a job in which rank 1 raised: its traceback is printed."""
    report = p.err[p.err.rfind("crun: the job has failed"):]
    for text in (" failed: ", "rank 1", "ValueError: rank 1 was told to fail",
                 "exit code 1, as rank 1's"):
        if text not in report:
            fail(f"{text!r} is not in crun's report:\n{p.err}")
    if not re.search(r"\| +File \"[^\"]*ddp_train\.py\", line \d+, in main", report):
        fail(f"no traceback in crun's report:\n{p.err}")


def a_killed_worker_is_resumed_and_an_exception_is_told(job, node):
    p = job.crun(node, "--standalone", "--nproc-per-node=2", "--max-restarts=1", *job.new(),
                 "--batch-seconds", 0.01, "--fail-rank", 1, "--by-hand")
    said_before = kill_in_the_middle(1, p)
    if said_before:
        fail("not quiet:", said_before)
    expect(1, p)
    check_resumed(1, 2, p)
    for text in ("rank 1", "SIGKILL", "restart 1 of 1"):
        if text not in p.err:
            fail(f"{text!r} is not in:\n{p.err}")
    check_report(p)


# -- two nodes ------------------------------------------------------------------------


def two_nodes_with_a_daemon(job, cluster):
    """With a key, and the workers' store in a tunnel."""
    key = f"--key-file={job.directory}/key"
    subprocess.run([BIN / "crunctl", "keygen", f"{job.directory}/key"], check=True,
                   capture_output=True)
    daemon = cluster[0].start([BIN / "crund", "--listen", ":29400", key])
    until(lambda: "listening" in daemon.err, "crund")
    training = job.new() + ["--batch-seconds", 0.01, "--by-hand"]
    both = [job.crun(cluster[i], "--nnodes=2", "--nproc-per-node=1", "--max-restarts=1",
                     "--rdzv-backend=c10d", "--rdzv-id=training",
                     f"--rdzv-endpoint={cluster[0].address}:29400", key, "--store-tunnel", WARM,
                     *training)
            for i in (0, 1)]
    kill_in_the_middle(1, *both)
    expect(0, *both)
    check_resumed(2, 1, *both)
    found = {facts["MASTER_ADDR"] for facts in said("env", *both)}
    if found != {"127.0.0.1"}:
        fail("not in a tunnel:", found)


ONE_NODE = [a_killed_worker_is_resumed_and_an_exception_is_told]
TWO_NODES = [two_nodes_with_a_daemon]


def main():
    with tempfile.TemporaryDirectory(prefix="crun-pytorch-") as directory:
        job = Job(torch_env(), directory)
        here = Here()
        try:
            run(ONE_NODE, job, here)
        finally:
            here.end()
        why = host.available()
        if why:
            skip(why, "PyTorch was run under crun on one node only")
        with host.Cluster(2) as cluster:
            run(TWO_NODES, job, cluster)


main()
