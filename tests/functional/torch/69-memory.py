#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 40 s
# sanitizers: no, a Python program loads the library
"""
PyTorch programs whose checkpoints are in memory: a rank is killed in the middle of a step, then one
in the middle of a save. Each time at most one step is done again, and at the end each rank has the
bits of the undisturbed run.
"""
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
import process  # noqa: E402
from process import BIN, BUILD, PROGRAMS, fail  # noqa: E402
from pytorch import SECONDS, torch_env  # noqa: E402

TRAIN = PROGRAMS / "memory_train.py"


def run(flags, *words, launcher=None, code=0):
    """What a training prints."""
    env = {**os.environ, **torch_env(), "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")}
    folder = tempfile.mkdtemp()
    try:
        p = process.Process([str(BIN / "crun"), "--nproc-per-node=2", "--max-restarts=3", *flags,
                             str(TRAIN), "--folder=" + folder, *words], env=env)
        if p.wait(SECONDS) != code:
            fail(f"{words}: exit code {p.code}, not {code}:\n{p.out}{p.err}")
    finally:
        shutil.rmtree(folder)
    return p.out, p.err


def digests(out):
    found = sorted(line for line in out.splitlines() if line.startswith("digest"))
    if len(found) != 2:
        fail(f"not every rank has come to the end:\n{out}")
    return found


def begins(out):
    """The steps that the lives of rank 0 began with."""
    return [int(n) for n in re.findall(r"begins rank=0 step=(\d+)", out)]


def check_kills(kind, flags):
    undisturbed, _ = run(["--warm"], "--kind=" + kind)
    out, err = run(flags, "--kind=" + kind, "--kill=0:1:4:step,1:0:8:writing,2:1:10:after")
    steps = begins(out)
    # a rank that was killed between two saves may be one step ahead of what all have
    if not (steps[:3] == [0, 3, 7] and steps[3] in (9, 10) and len(steps) == 4):
        fail(f"{kind}: the lives began with steps {steps}:\n{err}")
    if digests(out) != digests(undisturbed):
        fail(f"{kind}: other bits:\n{digests(out)}\n{digests(undisturbed)}")


def ddp_warm():
    check_kills("ddp", ["--warm"])


def fsdp2_cold():
    check_kills("fsdp2", [])


def main():
    cases = {f.__name__: f for f in (ddp_warm, fsdp2_cold)}
    for name in sys.argv[1:] or cases:
        cases[name]()


if __name__ == "__main__":
    main()
