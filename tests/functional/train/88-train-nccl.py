#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 12 s
# sanitizers: no, there is no emulated GPU in that tree
# emulated GPU: training over NCCL, each rank on a GPU of its own
"""
train on 4 and 8 GPUs over the stand-in for NCCL. With sharded state the losses are those of the
host. The bits do not depend on the order of the GPU's threads or on a
rank that is killed. If a GPU hangs, the job ends and reports why.
"""
import math
import os
import random
import signal
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BUILD  # noqa: E402
from train import Run, finished, main, metrics  # noqa: E402

SEED = int(os.environ.get("SEED") or random.randrange(10**6))
SMALL = ["--model=mlp", "--train-limit=128", "--batch=8", "--passes=1"]
GPU = ["--device=cuda"]


def last(folder, name, *flags, **options):
    path = f"{folder}/{name}"
    if os.path.exists(path):
        os.unlink(path)
    finished(*flags, f"--metrics={path}", **options)
    return metrics(path)[-1]


def same_numbers(folder):
    """--device=cuda chooses nccl by default. One and two ranks: 86-train-gpu.py."""
    for ranks, tolerance, flags in ((4, 1e-4, ["--zero", "--optimizer=adamw"]), (8, 1e-4, []),
                                    (4, 0.03, ["--precision=bf16", "--zero"])):
        here = last(folder, "cpu", *SMALL, *flags, "--device=cpu", ranks=ranks)
        there = last(folder, "gpu", *SMALL, *flags, *GPU, ranks=ranks)
        assert there["backend"] == "nccl" and there["step"] == here["step"], (here, there)
        for key in "train_loss", "test_loss":
            assert math.isclose(here[key], there[key], rel_tol=tolerance), (flags, here, there)


def same_bits(_):
    flags = [*SMALL, *GPU, "--precision=bf16"]
    whole = finished(*flags, ranks=4)
    for more, seed in ([], "1"), (["--zero"], "3"):
        run = finished(*flags, *more, ranks=4, env={"CRUN_STANDIN_SEED": seed})
        assert run.sha == whole.sha, f"{whole}\n{run}"


def is_saved(folder, ranks):
    """Whether there is a checkpoint with the parts of all ranks."""
    saves = [name.rsplit("-", 1)[0] for name in os.listdir(folder) if name.endswith(".safetensors")]
    return any(saves.count(save) == ranks for save in saves)


def killed(folder):
    flags = [*SMALL, *GPU, "--train-limit=480", "--passes=2", "--zero"]
    whole = finished(*flags, ranks=4)
    rng = random.Random(SEED)
    with Run(*flags, f"--ckpt-dir={folder}", "--ckpt-every=5", ranks=4,
             crun=["--max-restarts=3", "--restart-backoff=0"]) as run:
        run.until(lambda: is_saved(folder, 4), "a checkpoint")
        time.sleep(rng.uniform(0, 0.2))  # the random moment
        os.kill(rng.choice(sorted(run.workers().values())), signal.SIGKILL)
        run.ends_with(0).says("restart 1 of 3").says("^train: resumed after step", "out")
        assert run.sha == whole.sha, f"SEED={SEED}: {whole}\n{run}"


def hung(_):
    """The kernel of one rank hangs and ignores the abort."""
    with Run(*SMALL, *GPU, "--train-limit=640", ranks=2, crun=["--failure-grace=20"],
             env={"CRUN_TIMEOUT": "2", "CRUN_STANDIN_FAULT": "ncclAllReduce:deaf:1:12"}) as run:
        assert run.wait(60) != 0, run
        run.says(r"train: rank [01]: (rank [01]: )?waited 2 s in ")


def capture(_):
    """A program's own CUDA graph, captured while an operation is under way."""
    for ranks in 2, 4:
        run = finished("graph", ranks=ranks, program="gpu-worker")
        assert run.out.count(": right") == ranks, run


def preflight(_):
    finished(*SMALL, *GPU, ranks=8, crun=["--preflight"]).says(
        r"^preflight: all-reduce of 1 MiB over 8 ranks \(nccl\): ")


if __name__ == "__main__":
    if "emulated" not in BUILD.name:
        print("needs a build with emulated GPUs: make CUDA=emulated")
        sys.exit(77)
    main({"same_numbers": same_numbers, "same_bits": same_bits, "killed": killed, "hung": hung,
          "capture": capture, "preflight": preflight})
