#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
A training script as a torchrun user writes it: it knows nothing but the environment that
torchrun promises. Every rank prints one line for each epoch and one at the end; rank 0
saves a checkpoint after each epoch, from which a restarted group goes on.
"""
import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SAMPLES, FEATURES, BATCH = 512, 16, 16
WORLD = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK",
         "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME",
         "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
         "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--workers", type=int, default=0, help="of the DataLoader")
    parser.add_argument("--batch-seconds", type=float, default=0.0, help="of made-up work")
    parser.add_argument("--fail-rank", type=int, default=-1, help="raise in this rank, at the end")
    parser.add_argument("--by-hand", action="store_true",
                        help="gradients are averaged and steps taken by hand: the same numbers, "
                        "and PyTorch's compiler, which takes a second, is not imported")
    parser.add_argument("--until", help="end before the last epoch once this file is there")
    parser.add_argument("--new-groups", action="store_true",
                        help="in each epoch a process group is made, used and destroyed")
    return parser.parse_args()


def made_up_data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, FEATURES, generator=generator)
    return TensorDataset(x, x.square().sum(dim=1, keepdim=True) / FEATURES)


def make_model():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))


class HandDDP(nn.Module):
    """What DistributedDataParallel computes, each gradient on its own."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        for p in module.parameters():
            p.register_post_accumulate_grad_hook(self.average)

    @staticmethod
    def average(p):
        p.grad /= dist.get_world_size()
        dist.all_reduce(p.grad)

    def forward(self, x):
        return self.module(x)


class HandSGD:
    """What torch.optim.SGD computes."""

    def __init__(self, parameters, lr, momentum):
        self.parameters, self.lr, self.momentum = list(parameters), lr, momentum
        self.buffers = [torch.zeros_like(p) for p in self.parameters]

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    def step(self):
        with torch.no_grad():
            for p, buffer in zip(self.parameters, self.buffers):
                p -= self.lr * buffer.mul_(self.momentum).add_(p.grad)

    def state_dict(self):
        return {"buffers": self.buffers}

    def load_state_dict(self, state):
        self.buffers = state["buffers"]


def checksum(model):
    return sum(p.double().abs().sum().item() for p in model.parameters())


def save(path, epoch, model, optimizer):
    torch.save({"epoch": epoch, "model": model.module.state_dict(),
                "optimizer": optimizer.state_dict()}, path + ".new")
    os.replace(path + ".new", path)


def load(path, model, optimizer):
    """The epoch to begin with."""
    if not os.path.exists(path):
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1


def train_epoch(model, loader, optimizer, seconds):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        time.sleep(seconds)
    return total / len(loader)


LAST_WORK = []


def is_there(path):
    """What rank 0 sees, for all."""
    seen = torch.tensor([os.path.exists(path)])
    # Kept, so that it is not gloo's thread that lets go of it last: where Python is ending
    # by then, PyTorch 2.15 aborts the process ("terminate called without an active exception").
    LAST_WORK[:] = [dist.broadcast(seen, 0, async_op=True)]
    LAST_WORK[0].wait()
    return seen.item()


def use_a_new_group():
    group = dist.new_group(backend="gloo")
    ones = torch.ones(1)
    dist.all_reduce(ones, group=group)
    assert ones.item() == dist.get_world_size()
    dist.destroy_process_group(group)


def say(what, **values):
    # one write: lines of several ranks must not run into each other
    line = " ".join([what] + [f"{k}={v}" for k, v in values.items()])
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@record
def main():
    args = arguments()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    say("env", pid=os.getpid(), MASTER_ADDR=os.environ["MASTER_ADDR"],
        **{name: os.environ.get(name) for name in WORLD})

    data = made_up_data()
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, BATCH, sampler=sampler, num_workers=args.workers)
    model = make_model()
    make_optimizer = HandSGD if args.by_hand else torch.optim.SGD
    optimizer = make_optimizer(model.parameters(), lr=0.05, momentum=0.9)
    begin = load(args.checkpoint, model, optimizer)
    model = (HandDDP if args.by_hand else DistributedDataParallel)(model)
    for epoch in range(begin, args.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer, args.batch_seconds)
        if rank == 0:
            save(args.checkpoint, epoch, model, optimizer)
        dist.barrier()  # nobody is an epoch ahead of the checkpoint
        if args.new_groups:
            use_a_new_group()
        say("epoch", rank=rank, world=world, epoch=epoch, loss=f"{loss:.6f}",
            sum=f"{checksum(model):.12f}")
        if args.until and is_there(args.until):
            break
    say("done", rank=rank, world=world, began=begin, sum=f"{checksum(model):.12f}")
    if rank == args.fail_rank:
        raise ValueError(f"rank {rank} was told to fail")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
