#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 4 s
"""
Data-parallel training by real processes: any number of ranks trains the same model, all
ranks of a run and two runs hold the same bits, optimizer state sharded or not; and the
optimizers do what torch.optim does, where a torch of scripts/torch-venv is at hand.

    BUILD=build tests/functional/train/70-ddp.py [TEST...]
"""
import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, fail  # noqa: E402

WORKER = str(BIN / "ddp-worker")
STEPS, BATCH = 40, 12
SECONDS = 200
# of how far the parameters have moved at most
TOLERANCE = {"f32": 1e-3, "bf16": 0.1, "f16": 0.02}


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=SECONDS)
    if done.returncode != 0:
        fail(command, "has ended with", done.returncode, done.stderr)
    return done.stdout


def cases(lines):
    return {line["case"]: line["values"] for line in map(json.loads, lines.splitlines())}


def train(ranks, steps=STEPS):
    """{case: values}, the same on every rank."""
    with tempfile.TemporaryDirectory() as folder:
        run(str(BIN / "crun"), f"--nproc-per-node={ranks}", "--no-python", WORKER, "train",
            str(steps), str(BATCH), f"{folder}/out")
        said = [pathlib.Path(f"{folder}/out.{rank}").read_text() for rank in range(ranks)]
    if any(one != said[0] for one in said):
        fail("the parameters of", ranks, "ranks differ")
    return cases(said[0])


def apart(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def test_ranks():
    """N ranks with a batch of B are one rank with N * B."""
    one, begin = train(1), train(1, steps=0)
    for ranks in 2, 3:
        many = train(ranks)
        if many != train(ranks):
            fail("two runs of", ranks, "ranks differ")
        if many.keys() != one.keys():
            fail("cases differ:", sorted(many), sorted(one))
        for case, values in many.items():
            if case.endswith("sharded") and values != many[case.replace("sharded", "whole")]:
                fail(case, "on", ranks, "ranks is not what it is when not sharded")
            moved, off = apart(one[case], begin[case]), apart(one[case], values)
            if moved < 1e-3 or off > TOLERANCE[case.split()[1]] * moved:
                fail(case, "on", ranks, "ranks: moved by", moved, "and is off by", off)


# -- against torch.optim --------------------------------------------------------------

TORCH = """
import json, torch
def element(i, step):
    return ((i * 7919 + step * 10473) % 2001 - 1000)
makers = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "clipped": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0),
}
for name, make in makers.items():
    p = torch.nn.Parameter(torch.arange(-50, 50, dtype=torch.float32) / 25)
    optimizer = make([p])
    for step in range(STEPS):
        p.grad = torch.tensor([element(i, step) for i in range(100)],
                              dtype=torch.float32) / 1000
        if name == "clipped":
            torch.nn.utils.clip_grad_norm_([p], 0.1)
        optimizer.step()
    print(json.dumps({"case": name, "values": p.tolist()}))
"""


def torch_python():
    cache = os.environ.get("CRUN_INTEROP_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "crun-interop")
    found = sorted(glob.glob(f"{cache}/torch-*/complete"))
    return os.path.dirname(found[-1]) + "/bin/python" if found else None


def test_torch():
    """The optimizers are PyTorch's."""
    python = torch_python()
    if not python:
        print("no torch here (scripts/torch-venv): not compared with it", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(WORKER, "optimizers", "200", f"{folder}/out")
        ours = cases(pathlib.Path(f"{folder}/out.0").read_text())
    theirs = cases(run(python, "-W", "ignore", "-c", TORCH.replace("STEPS", "200")))
    if ours.keys() != theirs.keys():
        fail("cases differ:", sorted(ours), sorted(theirs))
    for case, values in ours.items():
        if apart(values, theirs[case]) > 5e-6:
            fail(case, "is off by", apart(values, theirs[case]))


TESTS = {name[5:]: test for name, test in list(globals().items()) if name.startswith("test_")}

if "san" in BIN.parent.name:  # which finds nothing in figures
    del TESTS["torch"]
for wanted in sys.argv[1:] or TESTS:
    TESTS[wanted]()
    print("ok", wanted)
