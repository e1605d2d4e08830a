#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 35 s
# sanitizers: no, the programs that it runs have their own tests
# emulated GPU: every command of scripts/gpu-check, in small, on emulated GPUs
"""
scripts/gpu-check: each of its commands works, and each part of it has a result. With
emulated GPUs its figures have no meaning.
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = os.environ["BUILD"]


def main():
    command = [ROOT / "scripts" / "gpu-check", "--build", BUILD, "--gpus=2"]
    if not os.path.exists(f"{BUILD}/lib/libcuda-emulated.so"):
        dry = subprocess.run([*command, "--dry-run"], capture_output=True, text=True)
        print("skipped: this build has no emulated GPU" if dry.returncode == 0 else dry)
        sys.exit(77 if dry.returncode == 0 else 1)
    done = subprocess.run([*command, "--small"], capture_output=True, text=True)
    if done.returncode != 0 or "| exchange hidden" not in done.stdout:
        print(done.stdout, done.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
