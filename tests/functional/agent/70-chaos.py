#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 30 s
"""
Chaos (scripts/chaos), two clusters side by side, with seeds that are always the same. With
CHAOS_MINUTES=N in the environment also so many minutes of new ones, which are printed; a
failing one is repeated by the line that is printed with it.
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
CLUSTERS = ["--clusters", "2"]
FIXED = ["--seed", "1", "--runs", "2", "--faults", "8"]


def chaos(flags):
    command = [ROOT / "scripts" / "chaos", "--build", os.environ.get("BUILD", "build"),
               *CLUSTERS, *flags]
    code = subprocess.run(command).returncode
    if code:
        sys.exit(code)  # 77: it has said why it is skipped


chaos(FIXED)
if os.environ.get("CHAOS_MINUTES"):
    chaos(["--minutes", os.environ["CHAOS_MINUTES"]])
