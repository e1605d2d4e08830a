#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 2 s
"""
The example compress.c, whose ranks exchange their gradients as f16: with what the rounding has left
out the parameters become the mean almost exactly, and without it they do not. All ranks agree.
"""
import re
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN  # noqa: E402
from worker import CRUN, PATIENCE, PLAIN, run  # noqa: E402


def off(ranks, backend, *flags):
    done = subprocess.run([CRUN, f"--nproc-per-node={ranks}", BIN / "example-compress", *flags],
                          timeout=PATIENCE, env={**PLAIN, "CRUN_BACKEND": backend},
                          capture_output=True, text=True)
    assert done.returncode == 0, done
    found = re.findall(r"rank \d: off by (\S+)", done.stdout)
    assert len(found) == ranks and len(set(found)) == 1, done
    return float(found[0])


def nothing_is_lost_in_the_long_run():
    for ranks, backend in (2, "shm"), (3, "tcp"):
        kept, forgotten = off(ranks, backend), off(ranks, backend, "--forget")
        assert kept < 2e-5 and forgotten > 5 * kept, (ranks, backend, kept, forgotten)


run([nothing_is_lost_in_the_long_run])
