# SPDX-License-Identifier: MIT
"""PyTorch programs under crun, for the functional tests: the path of torch, the workers' output."""
import os
import subprocess

import process
from process import PROGRAMS, ROOT, fail, skip

TRAIN = PROGRAMS / "ddp_train.py"
SECONDS = 300  # imports of torch on two cores that are busy with others take a while


class Here:
    """This machine, with the interface of a node of host.Cluster."""

    def __init__(self):
        self.processes = []

    def start(self, command, env=None):
        p = process.Process(command, env={**os.environ, **(env or {})}, start_new_session=True)
        self.processes.append(p)
        return p

    def end(self):
        for p in self.processes:
            p.end()


def torch_venv(what):
    """The folder of a virtual environment with the newest torch; `what`: not proved without."""
    found = subprocess.run([ROOT / "scripts" / "torch-venv", "newest"],
                           stdout=subprocess.PIPE, text=True)
    if found.returncode == 77:
        skip("PyPI cannot be reached", what)
    if found.returncode:
        fail("scripts/torch-venv")
    return found.stdout.strip()


def torch_env():
    """The environment in which crun finds a Python that has torch."""
    venv = torch_venv("no PyTorch program was run under crun")
    return {"PYTHON_EXEC": venv + "/bin/python", "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1"}


def said(kind, *processes):
    """[{name: value}]: the lines of this kind from the workers of these crun."""
    return [dict(word.split("=", 1) for word in line.split()[1:])
            for p in processes for line in p.out.splitlines() if line.split()[:1] == [kind]]


def lives(process):
    """[(environment, [epoch of the training])] of each worker of a crun that has one."""
    found = []
    for line in process.out.splitlines(keepends=True):
        kind, *words = line.split() or [""]
        facts = dict(word.split("=", 1) for word in words if "=" in word)
        if kind == "env" and line.endswith("\n"):
            found.append((facts, []))
        elif kind == "epoch" and line.endswith("\n"):
            found[-1][1].append(int(facts["epoch"]))
    return found


def check_world(found, nodes_count, local_world, restarts=0, max_restarts=0):
    """Every rank's environment is what torchrun would give it."""
    world = nodes_count * local_world
    if sorted(int(facts["RANK"]) for facts in found) != list(range(world)):
        fail("ranks:", found)
    for facts in found:
        rank = int(facts["RANK"])
        want = {"LOCAL_RANK": rank % local_world, "WORLD_SIZE": world,
                "LOCAL_WORLD_SIZE": local_world, "GROUP_RANK": rank // local_world,
                "GROUP_WORLD_SIZE": nodes_count, "ROLE_RANK": rank,
                "ROLE_WORLD_SIZE": world, "ROLE_NAME": "default",
                "TORCHELASTIC_RESTART_COUNT": restarts,
                "TORCHELASTIC_MAX_RESTARTS": max_restarts,
                "TORCHELASTIC_USE_AGENT_STORE": True}
        wrong = {k: (facts[k], v) for k, v in want.items() if facts[k] != str(v)}
        if wrong:
            fail(f"rank {rank}, found and wanted:", wrong)
    if len({facts["TORCHELASTIC_RUN_ID"] for facts in found}) != 1:
        fail("run ids:", found)
