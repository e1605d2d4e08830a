#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 80 s
# sanitizers: no, 25 has crun do the same
"""
`crun --watch` and a PyTorch training that knows nothing of it: `crunctl status` shows its
steps and loss, a rank that hangs is named, and a node is taken in at a checkpoint. What cannot be
had is said loudly, and the exit code is 77.

    BUILD=build tests/functional/torch/66-watch.py [TEST...]
"""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, PROGRAMS, fail, run, same, until  # noqa: E402
from pytorch import Here, SECONDS, said, torch_env  # noqa: E402

WATCHED = PROGRAMS / "watched.py"
# one import for all workers of a node; 68-trainers watches cold ones
FLAGS = ["--nnodes=1:2", "--rdzv-conf=last_call_timeout=0,scale=checkpoint", "--hang-timeout=3",
         "--max-restarts=2", "--warm=torch,torch._dynamo"]


class Daemon:
    def __init__(self, here):
        process = here.start([BIN / "crund", "--listen", "127.0.0.1:0"])
        self.address = until(lambda: re.search(r"listening.*?(127\.0\.0\.1:\d+)", process.err),
                             "crund", SECONDS)[1]

    def ask(self, *words):
        return subprocess.run([BIN / "crunctl", "-e", self.address, *words], check=True,
                              capture_output=True, text=True, timeout=SECONDS).stdout

    def node(self):
        jobs = json.loads(self.ask("status", "--json"))
        return jobs[0]["nodes"][0] if jobs and jobs[0]["nodes"] else {}


@contextlib.contextmanager
def machine():
    here = Here()
    with tempfile.TemporaryDirectory(prefix="crun-watch-") as folder:
        try:
            yield here, Daemon(here), folder
        finally:
            here.end()


def start(here, daemon, folder):
    return here.start(
        [BIN / "crun", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=watched",
         f"--rdzv-endpoint={daemon.address}", "--watch", *FLAGS, WATCHED, folder],
        env={**torch_env(), "TMPDIR": folder, "XDG_CACHE_HOME": folder})


def end_well(job, folder):
    pathlib.Path(folder, "over").touch()
    if job.popen.wait(SECONDS) != 0:
        fail("exit code", job.popen.returncode, job.err)
    same(len(said("done", job)), 2)


def the_hooks_do_what_they_should():
    """They cost far more here than on an idle machine, and less than with a mistake."""
    env = torch_env()
    done = subprocess.run([env["PYTHON_EXEC"], PROGRAMS / "watch_checks.py"],
                          env={**os.environ, **env}, capture_output=True, text=True)
    if done.returncode:
        fail(done.stderr)
    print(done.stdout.strip())
    if float(re.search(r"us=(\S+)", done.stdout)[1]) > 200:
        fail(done.stdout)


def the_status_shows_steps_and_loss(daemon, job):
    node = until(lambda: n if (n := daemon.node()).get("step") and n.get("loss") and
                 n.get("steps_per_s") else None, lambda: f"steps and a loss: {job.err}",
                 SECONDS)
    until(lambda: daemon.node()["step"] > node["step"], "a later step", SECONDS)
    if not 0 < float(node["loss"]) < 100:
        fail("not what the workers do:", node)


def a_rank_that_hangs_is_named(daemon, job, folder):
    """In its own code, and in the data, where it may be silent for ten times as long."""
    step = 0
    for restarts, (place, phase) in enumerate([("forward", "training"), ("load", "loading")]):
        # past the first steps, in which ranks wait for each other in forward, too
        until(lambda: (daemon.node().get("step") or 0) > step + 10,
              lambda: f"steps past {step}: {job.err}", SECONDS)
        pathlib.Path(folder, f"sleep-{place}").touch()
        until(lambda: len(said("began", job)) == 4 + 2 * restarts,
              lambda: f"a restart: {job.err}", SECONDS)
        if not re.search(r"rank 1 on \S+ hangs: no progress for \S+ s at step \d+, " + phase,
                         job.err):
            fail(f"rank 1 is not named as {phase}:\n{job.err}")
        step = max(int(n) for n in re.findall(r" at step (\d+)", job.err))


def a_node_is_taken_in_at_a_checkpoint(here, daemon, a, folder):
    before = len(said("began", a))
    b = start(here, daemon, folder)
    until(lambda: len(said("began", a)) == before + 2 and len(said("began", b)) == 2,
          lambda: f"all workers: {a.err} {b.err}", SECONDS)
    began = [int(f["epoch"]) for f in said("began", a)[before:] + said("began", b)]
    if len(set(began)) != 1 or began[0] < 1:
        fail("not from a checkpoint:", began)
    if "no checkpoint" in a.err:
        fail(a.err)
    return b


def a_job_is_watched():
    """One, since each crun imports torch."""
    with machine() as (here, daemon, folder):
        a = start(here, daemon, folder)
        the_status_shows_steps_and_loss(daemon, a)
        a_rank_that_hangs_is_named(daemon, a, folder)
        b = a_node_is_taken_in_at_a_checkpoint(here, daemon, a, folder)
        end_well(a, folder)
        end_well(b, folder)


run([the_hooks_do_what_they_should, a_job_is_watched])
