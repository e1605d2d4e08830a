#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 90 s
# sanitizers: no, 66-culprit has crun do the same
"""
PyTorch programs (gloo) of which one rank fails and ends after its victims: it raises and
destroys its process group slowly, ends in a thread, in an atexit function, with a core dump,
with a data loader, on another node. It is named, though all cores are busy. What cannot be had
is said loudly, and the exit code is 77.

    BUILD=build CULPRIT_ROUNDS=3 tests/functional/torch/67-torch-culprit.py [TEST...]
"""
import contextlib
import os
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from culprits import (Jobs, a_late_culprit_on_another_node_is_named, busy_cores,  # noqa: E402
                      late_culprits_are_named)
from process import run  # noqa: E402
from pytorch import torch_env  # noqa: E402


def main():
    env = {**torch_env(), "CULPRIT_TRANSPORT": "torch"}
    with tempfile.TemporaryDirectory() as directory, busy_cores(os.cpu_count()), \
            contextlib.ExitStack() as stack:
        jobs = stack.enter_context(contextlib.closing(Jobs(directory, env)))
        for _ in range(int(os.environ.get("CULPRIT_ROUNDS", "1"))):
            run([late_culprits_are_named, a_late_culprit_on_another_node_is_named], jobs)


if __name__ == "__main__":
    main()
