#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 5 s
# sanitizers: no, 82-train calls the same library
"""
The example that trains a net with the worker library: it learns, and a rank that is killed
costs nothing but the steps after the last checkpoint.
"""
import os
import re
import signal
import struct
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from train import Run, finished, main  # noqa: E402

PROGRAM = {"program": "example-train", "ranks": 2}
# 94 steps each; a checkpoint is written every 50
PASSES = 4


def passes(run):
    """Loss and accuracy after each pass."""
    return [tuple(map(float, words)) for words in re.findall(
        r"^pass \d+: loss ([\d.]+), test accuracy ([\d.]+) %$", run.out, re.M)]


def killed(folder):
    """A run with a killed rank prints the same result, digit by digit, as a run without."""
    whole = passes(finished(f"--passes={PASSES}", **PROGRAM))
    assert len(whole) == PASSES and whole[-1][0] < whole[0][0] and whole[-1][1] > 95, whole
    with Run(f"--passes={PASSES}", f"--checkpoints={folder}/c", **PROGRAM,
             crun=["--max-restarts=1", "--restart-backoff=0"]) as run:
        run.until(lambda: any(name.endswith(".safetensors") for name in
                              (os.listdir(folder + "/c") if os.path.isdir(folder + "/c") else ())),
                  "a checkpoint")
        os.kill(run.workers()[1], signal.SIGKILL)
        run.ends_with(0).says(r"^resumed after step [1-9]\d*$", "out")
        assert passes(run)[-1][1] == whole[-1][1], f"{whole} without a death: {run}"


def write_set(folder, name, count):
    """Images of one grey each, which is their digit."""
    labels = [i % 10 for i in range(count)]
    with open(f"{folder}/{name}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">IIII", 0x803, count, 28, 28))
        f.write(b"".join(bytes([25 * label] * 784) for label in labels))
    with open(f"{folder}/{name}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">II", 0x801, count) + bytes(labels))


def files(folder):
    write_set(folder, "train", 640)
    write_set(folder, "t10k", 100)
    count, right = 20, 20
    (first, _), *_, (last, accuracy) = passes(finished(
        f"--data={folder}", f"--passes={count}", **PROGRAM))
    assert last < first and accuracy > right, (first, last, accuracy)
    with Run("--data=/nowhere", program="example-train") as run:
        run.ends_with(1).says("^digits: /nowhere/train-images-idx3-ubyte: .* cannot be read$")


main({"killed": killed, "files": files})
