# SPDX-License-Identifier: MIT
"""The nets of build/bin/train in PyTorch, trained by DistributedDataParallel over gloo with
one thread on each rank: rank 0 prints the steps per second of each pass as JSON."""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NETS = {
    "mlp": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 10)),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=NETS, default="cnn")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50, help="of a pass")
    return parser.parse_args()


def make_model(name, ranks):
    torch.manual_seed(1)
    model = NETS[name]()
    if ranks == 1:
        return model
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def one_pass(model, optimizer, images, labels, args):
    count = len(images) // args.batch
    for step in range(args.steps):
        part = slice(step % count * args.batch, (step % count + 1) * args.batch)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(images[part]), labels[part])
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    args = arguments()
    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    torch.set_num_threads(1)
    if ranks > 1:
        dist.init_process_group("gloo")
    model = make_model(args.model, ranks)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
    torch.manual_seed(10 + rank)
    images, labels = torch.randn(3200, 1, 28, 28), torch.randint(10, (3200,))
    rates = []
    for _ in range(args.passes):
        begin = time.perf_counter()
        one_pass(model, optimizer, images, labels, args)
        rates.append(args.steps / (time.perf_counter() - begin))
    if rank == 0:
        print(json.dumps({"ranks": ranks, "steps_per_s": rates}))
    if ranks > 1:
        dist.destroy_process_group()


main()
