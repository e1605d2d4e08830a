# SPDX-License-Identifier: MIT
"""
A training of a small net by DistributedDataParallel over gloo, as it is written for torchrun.
Each rank prints when it came how far, in nanoseconds of CLOCK_MONOTONIC, once it has made its
first step; and at the end the median time of a step.

With --folder, it has a Checkpointer: checkpoints in memory where crun keeps them, and in files each
--files-every steps; and it prints when it has made step --lost, or in a later life the first one from it on.

Between two steps it sleeps for --pause, or multiplies matrices for about --work. Both are in
milliseconds.
"""
import time

BEGAN = time.monotonic_ns()

import argparse  # noqa: E402
import os  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

IMPORTED = time.monotonic_ns()
FEATURES, BATCH = 64, 32


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000000)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--work", type=float, default=0)
    parser.add_argument("--folder")
    parser.add_argument("--files-every", type=int, default=100)
    parser.add_argument("--lost", type=int, default=0)
    return parser.parse_args()


def say(kind, **values):
    """In one write: the lines of several ranks must not run into each other."""
    line = " ".join([kind, *(f"{name}={value}" for name, value in values.items())])
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def multiply(matrix, times):
    for _ in range(times):
        matrix @ matrix


def products_in(matrix, milliseconds):
    """How many products of the matrix with itself take so long."""
    took = []
    for _ in range(50):
        begin = time.perf_counter()
        matrix @ matrix
        took.append(time.perf_counter() - begin)
    return max(1, round(milliseconds / 1000 / statistics.median(took)))


def main():
    args = arguments()
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    grouped = time.monotonic_ns()
    rank = dist.get_rank()
    net = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    matrix = torch.rand(192, 192)
    products = products_in(matrix, args.work) if args.work else 0
    first, checkpointer = 0, None
    if args.folder:
        from crun.checkpoint import Checkpointer
        checkpointer = Checkpointer(args.folder, {"model": model, "optimizer": optimizer},
                                    files_every=args.files_every)
        first = checkpointer.restore()
    built = time.monotonic_ns()
    times = []
    for step in range(first, args.steps):
        begin = time.perf_counter()
        multiply(matrix, products)
        x = torch.randn(BATCH, FEATURES)
        loss = nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        reached = {"first": first + 1, "lost": args.lost and max(args.lost, first + 1)}
        for kind in (kind for kind, at in reached.items() if at == step + 1):
            say(kind, rank=rank, pid=os.getpid(),
                restarts=os.environ["TORCHELASTIC_RESTART_COUNT"], began=BEGAN,
                imported=IMPORTED, grouped=grouped, built=built, step=time.monotonic_ns())
        if checkpointer:
            checkpointer.step(step + 1)
        times.append(time.perf_counter() - begin)
        time.sleep(args.pause / 1000)
    say("done", rank=rank, step_ms=1000 * statistics.median(times))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
