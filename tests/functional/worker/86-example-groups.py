#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 3 s
# emulated GPU: the same over NCCL's stand-in
"""
The example groups.c, whose net is split over pairs of ranks: the losses are those of one rank,
except for rounding, since the sums have another order.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, BUILD, matches  # noqa: E402
from worker import CRUN, PATIENCE, PLAIN, run  # noqa: E402

PROGRAM = os.environ.get("EXAMPLE_GROUPS", str(BIN / "example-groups"))
# relative; sums of f32 in another order, over 100 steps
BOUND = 1e-4


def losses(ranks, backend):
    done = subprocess.run([CRUN, f"--nproc-per-node={ranks}", PROGRAM], timeout=PATIENCE,
                          env={**PLAIN, "CRUN_BACKEND": backend}, capture_output=True, text=True)
    assert done.returncode == 0, done
    return [float(loss) for loss in re.findall(r"step \d+: loss ([\d.]+)", done.stdout)]


def the_losses_are_those_of_one_rank():
    one = losses(1, "auto")
    assert len(one) == 10 and one[-1] < 0.8 * one[0], one
    cases = [(2, "auto"), (4, "auto"), (4, "tcp"), (8, "auto")]
    if os.path.exists(os.path.join(BUILD, "lib", "libnccl-standin.so")):
        cases = [(2, "nccl"), (4, "nccl"), (8, "nccl")]
    for ranks, backend in cases:
        many = losses(ranks, backend)
        assert len(many) == len(one), many
        for a, b in zip(one, many):
            assert abs(a - b) <= BOUND * a, f"{ranks} ranks, {backend}: {many}, one rank: {one}"


def a_number_of_ranks_that_does_not_fit_is_refused():
    done = subprocess.run([CRUN, "--nproc-per-node=3", PROGRAM], timeout=PATIENCE, env=PLAIN,
                          capture_output=True, text=True)
    assert done.returncode != 0
    matches(done.stdout + done.stderr, r"1 rank, or 2, 4, 8, ... 128")


run([the_losses_are_those_of_one_rank, a_number_of_ranks_that_does_not_fit_is_refused])
