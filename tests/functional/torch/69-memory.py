#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 40 s
# sanitizers: no, a Python program loads the library
"""
PyTorch programs whose checkpoints are in memory: a rank is killed in the middle of a step, then one
in the middle of a save. Each time at most one step is done again, and at the end each rank has the
bits of the undisturbed run. A job that dies for good leaves files, from which the program goes on
under torchrun, and which a program with another model refuses.
"""
import functools
import os
import re
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
import process  # noqa: E402
from process import BIN, BUILD, PROGRAMS, fail, same  # noqa: E402
from pytorch import SECONDS, torch_env  # noqa: E402

TRAIN = PROGRAMS / "memory_train.py"


def run(flags, *words, folder=None, launcher="crun", code=0, program=TRAIN):
    """What a training prints."""
    env = {**os.environ, **torch_env(), "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")}
    programs = {"crun": BIN / "crun", "torchrun": os.path.dirname(env["PYTHON_EXEC"]) + "/torchrun"}
    with tempfile.TemporaryDirectory() as own:
        where = ["--folder=" + (folder or own)] if program == TRAIN else []
        p = process.Process([str(programs[launcher]), "--nproc-per-node=2", *flags, str(program),
                             *where, *words], env=env)
        if p.wait(SECONDS) != code:
            fail(f"{words}: exit code {p.returncode}, not {code}:\n{p.out}{p.err}")
    return p.out, p.err


def digests(out):
    found = sorted(line for line in out.splitlines() if line.startswith("digest"))
    if len(found) != 2:
        fail(f"not every rank has come to the end:\n{out}")
    return found


def begins(out):
    """The steps that the lives of rank 0 began with."""
    return [int(n) for n in re.findall(r"begins rank=0 step=(\d+)", out)]


@functools.lru_cache
def undisturbed(kind):
    return digests(run(["--warm"], "--kind=" + kind)[0])


def check_lives(kind, out, err, *begun):
    if len(begins(out)) != len(begun) or any(
            step not in may for step, may in zip(begins(out), begun)):
        fail(f"{kind}: the lives began with steps {begins(out)}:\n{err}")


def check_end(kind, out):
    if digests(out) != undisturbed(kind):
        fail(f"{kind}: other bits:\n{digests(out)}\n{undisturbed(kind)}")


def ddp():
    """Its last death is for good, so the agent writes files."""
    kills = "--kill=0:1:4:step,1:0:8:writing,2:1:10:after,3:1:11:step"
    with tempfile.TemporaryDirectory() as folder:
        out, err = run(["--warm", "--max-restarts=3", "--shutdown-timeout=200"], kills,
                       folder=folder, code=137)
        # a rank that ends between two steps may have saved what the other one has not yet
        check_lives("ddp", out, err, [0], [3], [7], [9, 10])
        if "step 10, which was in memory, was written to files" not in err:
            fail("no files:", err)
        _, err = run(["--warm"], "--width=16", folder=folder, code=1)
        if not re.search(r"is not restored: model\.\S+ is float32\[16.* and was float32\[32", err):
            fail("another model:", err)
        out, err = run(["--standalone"], "--files-every=4", folder=folder, launcher="torchrun")
        check_lives("from files", out, err, [10])
        check_end("ddp", out)
        same(sorted(os.listdir(folder)), ["step-10", "step-12"])


def fsdp2():
    # a save in the background may end after the next step has begun
    out, err = run(["--warm", "--max-restarts=2"], "--kind=fsdp2", "--kill=0:1:4:writing,1:0:8:step",
                   "--background")
    check_lives("fsdp2", out, err, [0], [3], [6, 7])
    check_end("fsdp2", out)


def dcp_calls():
    """dcp.async_save and dcp.load, called by the program, with memory as their storage."""
    out, err = run(["--warm", "--max-restarts=1"], "writing", program=PROGRAMS / "memory_dcp.py")
    for rank in 0, 1:
        for line in f"begins rank={rank} step=3 3", f"end rank={rank} 60.0 [6.0, 6.0, 6.0] [6.0] 6":
            if line not in out.splitlines():
                fail(f"no line {line}:\n{out}{err}")


def checks():
    """What needs no launcher."""
    env = {**os.environ, **torch_env(), "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")}
    p = process.Process([env["PYTHON_EXEC"], str(PROGRAMS / "memory_checks.py")], env=env)
    if p.wait(SECONDS) != 0:
        fail(p.err)


def main():
    cases = {f.__name__: f for f in (checks, ddp, fsdp2, dcp_calls)}
    if not os.environ.get("CRUN_ALL_ROUNDS") and not sys.argv[1:]:
        del cases["dcp_calls"]  # its storage is what the others have, too
    for name in sys.argv[1:] or cases:
        cases[name]()


if __name__ == "__main__":
    main()
