#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 15 s
# sanitizers: no, 66-culprit has crun do the same
"""
PyTorch programs (gloo) of which one rank fails and ends after its victims, and is named: it
ends with a core dump, with torch's error file, with a data loader; on another node it raises
and destroys its process group slowly. The other ways to end have nothing of torch, and
66-culprit has them; here they run only if late_culprits_are_named is given, and with
CULPRIT_ROUNDS all cores are busy. What cannot be had is said loudly, and the exit code is 77.

    BUILD=build CULPRIT_ROUNDS=3 tests/functional/torch/67-torch-culprit.py [TEST...]
"""
import contextlib
import os
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from culprits import (Jobs, a_late_culprit_on_another_node_is_named, busy_cores,  # noqa: E402
                      late_culprits_are_named, quiet_culprits_are_named)
from process import run  # noqa: E402
from pytorch import torch_env  # noqa: E402


def late_culprits_of_torch_are_named(jobs):
    late_culprits_are_named(jobs, ("abort", "record", "loader"))


def a_late_culprit_of_torch_on_another_node_is_named(jobs):
    a_late_culprit_on_another_node_is_named(jobs, culprits=(1, ))


def quiet_culprits_of_torch_are_named(jobs):
    quiet_culprits_are_named(jobs, ("0.3", ))


TESTS = [late_culprits_of_torch_are_named, quiet_culprits_of_torch_are_named, a_late_culprit_of_torch_on_another_node_is_named]


def main():
    rounds = int(os.environ.get("CULPRIT_ROUNDS", "0"))
    env = {**torch_env(), "CULPRIT_TRANSPORT": "torch"}
    with tempfile.TemporaryDirectory() as directory, \
            busy_cores(os.cpu_count() if rounds else 0), contextlib.ExitStack() as stack:
        jobs = stack.enter_context(contextlib.closing(Jobs(
            directory, {**env, "XDG_CACHE_HOME": directory}, ["--warm=torch"])))
        for _ in range(rounds or 1):
            run([*TESTS, late_culprits_are_named] if sys.argv[1:] else TESTS, jobs)


if __name__ == "__main__":
    main()
