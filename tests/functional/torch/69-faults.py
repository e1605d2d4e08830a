#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 30 s
# sanitizers: no, test_stuck and test_timeout_culprit run the code
"""
A sample of scripts/bench/faults: trainings under DDP that go wrong, and crun names the right rank
and line (a hook within backward, a forked process), or the cause (a segmentation fault, a loss that is
NaN). What cannot be had is said loudly, and the exit code is 77.

    BUILD=build tests/functional/torch/69-faults.py
"""
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BUILD, ROOT, fail  # noqa: E402
from pytorch import torch_venv  # noqa: E402

# the ranks that may be named; the lines are checked there
SAMPLE = {"backward_hook": (1,), "child_process": (1,), "crashes": (1,), "nan_loss": (0, 1)}


def main():
    torch_venv("no training that goes wrong was run under crun")
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "results")
        done = subprocess.run(
            [ROOT / "scripts" / "bench" / "faults", f"--build={BUILD}", f"--json={path}",
             "--hang=3", "--verbose", *SAMPLE], stdout=subprocess.PIPE, text=True)
        results = {r["fault"]: r for r in json.loads(path.read_text())} if path.exists() else {}
        if done.returncode or set(results) != set(SAMPLE):
            fail("not all were run:", done.returncode, done.stdout)
        for name, ranks in SAMPLE.items():
            if results[name].get("wrong", ["skipped"]) or results[name]["rank"] not in ranks:
                fail(name, results[name], done.stdout)
            print("ok", name)


main()
