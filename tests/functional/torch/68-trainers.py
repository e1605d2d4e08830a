#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 100 s
# sanitizers: no, 25 has crun do the same
"""
Lightning's and transformers' trainers, the newest of PyPI, under `crun --watch`: unmodified,
their steps are shown; with the callback of the package crun, a node is taken in at a
checkpoint that the callback has written. What cannot be had is said loudly, and the exit code
is 77.

    BUILD=build tests/functional/torch/68-trainers.py [TEST...]
"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, PROGRAMS, ROOT, fail, run, skip, until  # noqa: E402
from pytorch import Here, SECONDS, said  # noqa: E402

# the imports take seconds, and workers that are started again make them again
WARM = {"lightning": "--warm=torch._dynamo,lightning.pytorch",
        "transformers": "--warm=torch._dynamo,transformers.trainer"}


def environment():
    found = subprocess.run([ROOT / "scripts" / "frameworks-venv"], stdout=subprocess.PIPE, text=True)
    if found.returncode == 77:
        skip("PyPI cannot be reached", "no trainer of Lightning or transformers was run under crun")
    if found.returncode:
        fail("scripts/frameworks-venv")
    return {"PYTHON_EXEC": found.stdout.strip() + "/bin/python", "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT / "worker-lib" / "python")}


def step_shown(address):
    jobs = json.loads(subprocess.run([BIN / "crunctl", "-e", address, "status", "--json"],
                                     check=True, capture_output=True, text=True).stdout)
    return jobs[0]["nodes"][0].get("step") or 0 if jobs and jobs[0]["nodes"] else 0


def trains(kind, *words, nodes):
    variables = environment()
    here = Here()
    with tempfile.TemporaryDirectory(prefix="crun-trainers-") as folder:
        try:
            crund = here.start([BIN / "crund", "--listen", "127.0.0.1:0"])
            address = until(lambda: re.search(r"listening.*?(127\.0\.0\.1:\d+)", crund.err),
                            "crund", SECONDS)[1]

            def start():
                return here.start(
                    [BIN / "crun", "--nproc-per-node=1", f"--nnodes=1:{nodes}", "--watch",
                     *([WARM[kind]] if nodes > 1 else []),
                     "--rdzv-backend=c10d", f"--rdzv-endpoint={address}", "--rdzv-id=trainer",
                     "--rdzv-conf=last_call_timeout=0,scale=checkpoint",
                     PROGRAMS / "trainers.py", kind, folder, *words],
                    env={**variables, "TMPDIR": folder, "XDG_CACHE_HOME": folder})

            jobs = [start()]
            until(lambda: step_shown(address) > 5, lambda: f"steps: {jobs[0].err}", SECONDS)
            if nodes == 2:
                jobs.append(start())
                until(lambda: len(said("began", *jobs)) == 3,
                      lambda: f"all workers: {jobs[0].err} {jobs[1].err}", SECONDS)
                steps = [int(f["step"]) for f in said("began", *jobs)]
                if steps[0] != 0 or min(steps[1:]) < 5:
                    fail("not from the checkpoint of the callback:", steps)
            pathlib.Path(folder, "over").touch()
            for job in jobs:
                if job.popen.wait(SECONDS) != 0:
                    fail("exit code", job.popen.returncode, job.err)
        finally:
            here.end()


def lightning_is_watched():
    trains("lightning", nodes=1)


def transformers_is_watched():
    trains("transformers", nodes=1)


def lightning_saves_on_request():
    trains("lightning", "--callback", nodes=2)


def transformers_saves_on_request():
    trains("transformers", "--callback", nodes=2)


def a_step_of_slurm():
    name = socket.gethostname()
    return {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_JOB_NAME": "train",
            "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NNODES": "1",
            "SLURM_JOB_NUM_NODES": "1", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0",
            "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1",
            "SLURM_NODELIST": name, "SLURM_JOB_NODELIST": name, "SLURM_STEP_NODELIST": name,
            "SLURMD_NODENAME": name}


def lightning_that_handles_the_signals_of_slurm_does_not_die_of_them():
    """It leaves SIGUSR1 alone where it is ignored, and crun asks for the checkpoint."""
    variables = environment()
    here = Here()
    with tempfile.TemporaryDirectory(prefix="crun-trainers-") as folder:
        try:
            job = here.start([BIN / "crun", "--nnodes=1", WARM["lightning"],
                              PROGRAMS / "trainers.py", "lightning", folder, "--callback",
                              "--slurm"],
                             env={**variables, **a_step_of_slurm(), "TMPDIR": folder,
                                  "XDG_CACHE_HOME": folder})
            began = until(lambda: said("began", job), lambda: job.err, SECONDS)
            for signo in (signal.SIGUSR1, signal.SIGUSR2):
                os.kill(int(began[0]["pid"]), signo)
            job.kill(signal.SIGUSR1)
            if job.wait(SECONDS) != 75:
                fail("exit code", job.popen.returncode, job.err)
            if not list(pathlib.Path(folder, "checkpoints").glob("*.ckpt")):
                fail("no checkpoint:", job.err)
        finally:
            here.end()


run([lightning_that_handles_the_signals_of_slurm_does_not_die_of_them, lightning_is_watched, transformers_is_watched, lightning_saves_on_request,
     transformers_saves_on_request])
