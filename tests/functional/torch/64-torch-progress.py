#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 20 s
# sanitizers: no, 25 has crun do the same
"""
A PyTorch training (gloo) that reports its progress by the package crun: `crunctl
status` shows its steps and loss; a rank that stops is named, with what the others wait for,
the job restarts and goes on from its checkpoint. What cannot be had is said loudly, and the
exit code is 77.

    BUILD=build tests/functional/torch/64-torch-progress.py
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, PROGRAMS, ROOT, fail, until  # noqa: E402
from pytorch import Here, SECONDS, said, torch_env  # noqa: E402

SCRIPT = PROGRAMS / "ddp_progress.py"
STEPS_PER_S_MAX = 1 / 0.02


def ask(address, *words):
    return subprocess.run([BIN / "crunctl", "-e", address, "status", *words], check=True,
                          capture_output=True, text=True, timeout=SECONDS).stdout


def steps_and_loss_are_shown(address, beyond=0):
    """Returns a step that was, past that one."""
    node = {}

    def getting_on():
        jobs = json.loads(ask(address, "--json"))
        node.update(jobs[0]["nodes"][0] if jobs and jobs[0]["nodes"] else {})
        # the first step of a worker has no loss yet; an agent that waits for a core between
        # the step and the time of it is wrong about the steps of a short while
        return ((node.get("step") or 0) > beyond and node.get("loss") and
                0 < float(node.get("steps_per_s") or 0) <= STEPS_PER_S_MAX)

    until(getting_on, lambda: f"a step past {beyond}, a loss and steps per second: {node}", SECONDS)
    if not 0 < float(node["loss"]) < 100:
        fail("not what the workers do:", node)
    row = rf"{node['host']}.* \d+ +\d+\.\d+ +\d+\.\d+"
    if not re.search(row, ask(address)):
        fail("not in the table:", ask(address))
    return node["step"]


def stop_one(job):
    """Rank 1 stops in the middle; it is named, and all begin again where they were."""
    found = {f["rank"]: f for f in said("began", job)}
    os.kill(int(found["1"]["pid"]), signal.SIGSTOP)  # whatever it says that it does
    until(lambda: len(said("began", job)) == 4, "the workers after a restart", SECONDS)
    for pattern in (r"rank 1 on \S+ hangs: no progress for \S+ s at step \d+",
                    r"rank 0 waits in \w+ \(ddp_progress.py:\d+, in \w+\); "
                    r"rank 1 does not answer: stopped; it began \w+ at ddp_progress.py:\d+",
                    r"all other ranks wait for rank 1\n",
                    r"restart 1 of 1: epoch 2 formed"):
        if not re.search(pattern, job.err):
            fail(f"nothing matches {pattern!r} in:\n{job.err}")


def check_end(job, step):
    if job.popen.wait(SECONDS) != 0:
        fail("exit code", job.popen.returncode, job.err)
    began = [int(f["step"]) for f in said("began", job)]
    done = [int(f["step"]) for f in said("done", job)]
    if began[:2] != [1, 1] or len(set(began[2:])) != 1 or began[2] < step:
        fail("not from the checkpoint:", began)
    if len(done) != 2 or len(set(done)) != 1 or done[0] < began[2]:
        fail("the end:", done)


def run(directory, here):
    over = pathlib.Path(directory, "over")
    crund = here.start([BIN / "crund", "--listen", "127.0.0.1:0"])
    address = until(lambda: re.search(r"listening.*?(127\.0\.0\.1:\d+)", crund.err),
                    "crund", SECONDS)[1]
    job = here.start([BIN / "crun", "--nnodes=1", "--nproc-per-node=2", "--rdzv-backend=c10d",
                      f"--rdzv-endpoint={address}", "--rdzv-id=training",
                      "--rdzv-conf=lease=3", "--max-restarts=1", "--hang-timeout=6", SCRIPT,
                      f"{directory}/checkpoint.pt", over],
                     env={**torch_env(), "TMPDIR": directory,
                          "PYTHONPATH": str(ROOT / "worker-lib" / "python")})
    step = steps_and_loss_are_shown(address)
    stop_one(job)
    steps_and_loss_are_shown(address, beyond=step)
    over.touch()
    check_end(job, step)


def main():
    here = Here()
    with tempfile.TemporaryDirectory(prefix="crun-torch-progress-") as directory:
        try:
            run(directory, here)
        finally:
            here.end()
    print("ok a_training_that_writes_its_page")


main()
