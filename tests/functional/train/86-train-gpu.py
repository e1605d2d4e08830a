#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 22 s
# sanitizers: no, there is no emulated GPU in that tree
# emulated GPU: training on a GPU
"""
train on a GPU: the losses are those of the host, on one rank and on two, in every precision, and
from a checkpoint that the host has written. Needs a GPU, or a build with an emulated one (make CUDA=emulated).
"""
import math
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from train import BIN, Run, finished, main, metrics  # noqa: E402

SMALL = ["--model=mlp", "--train-limit=96", "--batch=8", "--passes=2"]
GPU = ["--device=cuda", "--backend=nccl"]


def last(folder, name, *flags, ranks=1):
    path = f"{folder}/{name}"
    if os.path.exists(path):
        os.unlink(path)
    finished(*flags, f"--metrics={path}", ranks=ranks)
    return metrics(path)[-1]


def close(a, b, tolerance):
    for key in "train_loss", "test_loss":
        assert math.isclose(a[key], b[key], rel_tol=tolerance), (a, b)
    assert a["step"] == b["step"], (a, b)


def same_numbers(folder):
    for flags, ranks, tolerance in (
            ([], 1, 1e-4), ([], 2, 1e-4), (["--zero=2", "--optimizer=adamw"], 2, 1e-4),
            (["--optimizer=sgd"], 1, 1e-4),
            (["--precision=bf16"], 2, 0.03), (["--precision=f16"], 1, 0.03),
            (["--model=cnn", "--train-limit=24", "--passes=1"], 1, 1e-3)):
        here = last(folder, "cpu", *SMALL, *flags, "--device=cpu", ranks=ranks)
        there = last(folder, "gpu", *SMALL, *flags, *GPU, ranks=ranks)
        close(here, there, tolerance)
        assert there["backend"] == "nccl", there


def same_bits(_):
    first, second = (finished(*SMALL, *GPU, ranks=2) for _ in range(2))
    assert first.sha == second.sha, f"{first}\n{second}"


def checkpoints(folder):
    """The first pass on the host, the second on two ranks with GPUs, and the other way."""
    whole = last(folder, "whole", *SMALL, "--device=cpu")
    for n, (first, second) in enumerate(((["--device=cpu"], GPU), (GPU, ["--device=cpu"]))):
        ckpt = f"--ckpt-dir={folder}/{n}"
        last(folder, "first", *SMALL, ckpt, "--ckpt-every=6", *first)
        os.unlink(sorted(f"{folder}/{n}/{name}" for name in os.listdir(f"{folder}/{n}")
                         if name.endswith(".safetensors"))[-1])
        close(whole, last(folder, "second", *SMALL, ckpt, *second), 1e-3)


def overlapped(trace):
    """In how many steps an exchange has begun between two graphs of the step."""
    parts = re.split(r"(?:^0 work\n)+", trace, flags=re.M)
    return sum(bool(re.search(r"^0 graph\n(0 nccl\n)*0 ncclReduceScatter\n(0 nccl\w*\n)*0 graph", part, re.M))
               for part in parts)


def graphs(folder):
    """The same bits, and the first buckets are exchanged while the next part is computed."""
    trace = pathlib.Path(f"{folder}/trace")
    for flags in (["--model=cnn", "--precision=f16", "--train-limit=12", "--batch=4"],
                  ["--zero", "--train-limit=56"]):
        plain = finished(*SMALL, *GPU, *flags, ranks=2)
        trace.unlink(missing_ok=True)
        run = finished(*SMALL, *GPU, *flags, "--cuda-graph", ranks=2, env={"CRUN_STANDIN_TRACE": str(trace)})
        assert run.sha == plain.sha, f"{plain}\n{run}"
    if trace.exists():
        lines = "".join(line for line in trace.read_text().splitlines(True) if line.startswith("0 "))
        assert overlapped(lines) > 0, lines


def words(_):
    run = finished(*SMALL, *GPU)
    run.says("a GPU each · nccl", "out")
    run = finished(*SMALL, "--device=cpu")
    assert "GPU" not in run.out, run


if __name__ == "__main__":
    probe = subprocess.run([BIN / "train", *SMALL, *GPU, "--train-limit=8"], text=True,
                           capture_output=True)
    if probe.returncode != 0 and re.search("no NVIDIA driver|no GPU|without GPUs", probe.stderr):
        print(probe.stderr.strip())
        sys.exit(77)
    main({"same_numbers": same_numbers, "same_bits": same_bits, "checkpoints": checkpoints,
          "graphs": graphs, "words": words})
