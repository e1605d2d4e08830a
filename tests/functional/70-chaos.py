#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
A minute of chaos (scripts/chaos): a seed that is always the same, and then new ones,
which are printed; a failing one is repeated by the line that is printed with it.
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIXED = ["--seed", "1", "--runs", "1", "--faults", "6"]
RANDOM = ["--minutes", "0.5"]


def chaos(flags):
    command = [ROOT / "scripts" / "chaos", "--build", os.environ.get("BUILD", "build"), *flags]
    code = subprocess.run(command).returncode
    if code:
        sys.exit(code)  # 77: it has said why it is skipped


chaos(FIXED)
chaos(RANDOM)
