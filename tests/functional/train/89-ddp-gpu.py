#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 12 s
# sanitizers: no, there is no emulated GPU in that tree
# emulated GPU: data-parallel training on several GPUs
"""
Data-parallel training on 2, 4 and 8 GPUs: every optimizer in every precision, with the
optimizer's state whole and sharded, accumulated gradients, unused parameters, buffers,
checkpoints and resume. On two ranks the parameters have the same bits as on the host, and are
close on more, since NCCL adds in its own order.
Needs a build with emulated GPUs (make CUDA=emulated).

    BUILD=build-emulated tests/functional/train/89-ddp-gpu.py [TEST...]
"""
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, fail  # noqa: E402

WORKER = str(BIN / "ddp-worker")
BATCH = 24
# by the number of ranks
STEPS = {2: 4, 4: 2, 8: 2}
NCCL = {2: "21903", 4: "22809", 8: "23007"}  # the release whose rules the stand-in follows
SECONDS = 200
# relative to the average change of the parameters: NCCL adds in another order, and with Adam a
# gradient near 0, whose sign depends on the order, makes a whole step
TOLERANCE = {"f32": 1e-3, "bf16": 0.1, "f16": 0.02}


@functools.cache
def train(backend, ranks, steps=None):
    """{case: values}, the same on every rank."""
    steps = STEPS[ranks] if steps is None else steps
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [BIN / "crun", f"--nproc-per-node={ranks}", "--no-python", WORKER, "gpu",
             str(steps), str(BATCH), f"{folder}/out"], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=SECONDS,
            env=dict(os.environ, CRUN_BACKEND=backend,
                     CRUN_STANDIN_VERSION=NCCL.get(ranks, "22809")))
        if done.returncode != 0:
            fail(ranks, "ranks over", backend, "have ended with", done.returncode, done.stderr)
        said = [pathlib.Path(f"{folder}/out.{rank}").read_text() for rank in range(ranks)]
    if any(one != said[0] for one in said):
        fail("the parameters of", ranks, "ranks over", backend, "differ")
    return {line["case"]: line["values"] for line in map(json.loads, said[0].splitlines())}


def apart(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def distance(a, b):
    return sum(abs(x - y) for x, y in zip(a, b, strict=True)) / len(a)


def expect_same(wanted, got, what):
    cases = wanted.keys() & got.keys()
    if not cases:
        fail(what, "have no case in common")
    for case in sorted(cases):
        if wanted[case] != got[case]:
            fail(what, "differ:", case, "by", apart(wanted[case], got[case]))


def expect_consistent(ranks, got, what):
    """Cases whose options must not change the result have the same values."""
    for case, values in got.items():
        for this, other in (("resumed", "uninterrupted"), ("sharded", "whole"), ("parted", "whole"),
                            ("gathered half", "rounded")):
            # other buckets: more ranks add in another order
            if this == "parted" and (ranks > 2 or "accumulated" in case):
                continue
            if this in case and values != got[case.replace(this, other)]:
                fail(case, "is not what it is when", other, "on", what)
    if got["buffer"] == [0] * len(got["buffer"]):
        fail("the buffer in a checkpoint is not that of its step:", what)


def expect_close(wanted, got, begin, what):
    for case in got.keys() - {"buffer"}:
        moved, off = distance(wanted[case], begin[case]), distance(wanted[case], got[case])
        precision = next(p for p in TOLERANCE if f" {p} " in case)
        if moved < 1e-4 or off > TOLERANCE[precision] * moved:
            fail(what, "differ:", case, "has moved by", moved, "and is off by", off)


def test_nccl():
    begin = train("shm", 2, steps=0)
    for ranks in STEPS:
        got, host = train("nccl", ranks), train("shm", ranks)
        expect_consistent(ranks, got, f"{ranks} ranks over nccl")
        if ranks == 2:
            expect_same(host, got, "two ranks over shm and nccl")
        expect_close(host, got, begin, f"{ranks} ranks over shm and nccl")


TESTS = {name[5:]: test for name, test in list(globals().items()) if name.startswith("test_")}

if not (BIN.parent / "lib" / "libcuda-emulated.so").exists():
    print("there are no emulated GPUs in this build")
    sys.exit(77)
for wanted in sys.argv[1:] or TESTS:
    TESTS[wanted]()
    print("ok", wanted)
