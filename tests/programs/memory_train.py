#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
A training that keeps its checkpoints in memory. It draws random numbers of all kinds and has
buffers and, with DDP, a parameter and learning rates that differ between ranks. Each rank prints the
steps that it begins with and, at the end, a digest of all that it has. --kill=LIFE:RANK:STEP:WHERE,...
ends a rank with SIGKILL; the first LIFE is 0, WHERE is "step" (in its middle), "writing" (the slot is
not whole) or "after". While FOLDER/wait-at-STEP exists, each rank waits before that step. With
--undisturbed it then trains once more, without checkpoints, and prints the digest of that.
"""
import argparse
import hashlib
import os
import random
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import crun
from crun.checkpoint import Checkpointer, library

FEATURES = 24


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--kind", choices=("ddp", "fsdp2", "plain"), default="ddp")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--files-every", type=int, default=0)
    parser.add_argument("--background", action="store_true")
    parser.add_argument("--kill", default="")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--undisturbed", action="store_true")
    parser.add_argument("--width-after", type=int, default=0, help="of the model after a restart")
    return parser.parse_args()


class Gain(nn.Module):
    """A frozen parameter, which DDP makes equal on all ranks only where it begins."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x):
        return x * self.gain


class Loader:
    """A data loader that knows where it is, and is another one on each rank."""

    def __init__(self, rank):
        self.seen, self.rank = 0, rank

    def next(self):
        self.seen += 1
        generator = torch.Generator().manual_seed(1000 * self.rank + self.seen)
        return torch.randn(8, FEATURES, generator=generator)

    def state_dict(self):
        return {"seen": self.seen, "rank": self.rank}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def make_model(kind, width):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(FEATURES, width), nn.BatchNorm1d(width), nn.Tanh(),
                          nn.Dropout(0.2), nn.Linear(width, 1), Gain())
    if kind == "ddp":
        model = DistributedDataParallel(model)
        model.module[5].gain.data.add_(dist.get_rank())
        return model
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        for layer in model[0], model[4]:
            fully_shard(layer)
        return fully_shard(model)
    return model


def wait_here(folder, rank, step):
    waits = os.path.join(folder, f"wait-at-{step}")
    if os.path.exists(waits):
        say(f"waits rank={rank} step={step}")
    while os.path.exists(waits):
        time.sleep(0.01)


def say(line):
    """At once: under torchrun, all ranks write to one pipe."""
    os.write(1, f"{line}\n".encode())


def digest(*states):
    whole = hashlib.sha256()
    for state in states:  # files keep no order
        for _, value in sorted(state.items()):
            for _, tensor in sorted(value.items()) if isinstance(value, dict) else [("", value)]:
                if hasattr(tensor, "full_tensor"):
                    tensor = tensor.full_tensor()
                if isinstance(tensor, torch.Tensor):
                    whole.update(tensor.detach().numpy().tobytes())
    return whole.hexdigest()[:16]


def train(args, rank, is_disturbed):
    """What it has at the end."""
    width = args.width_after if args.width_after and crun.restarts() else args.width
    model = make_model(args.kind, width)
    optim = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optim, 3, 0.9)
    stage = nn.ModuleDict({f"of-{rank}": nn.Linear(1, 1)})  # as of a pipeline
    stage_optim = torch.optim.SGD(stage.parameters(), 0.1 / (rank + 1), 0.5)
    stage_schedule = torch.optim.lr_scheduler.StepLR(stage_optim, 2, 0.9 - 0.1 * rank)
    loader = Loader(rank)
    torch.manual_seed(rank)
    random.seed(rank)
    first, ckpt = 0, None
    if is_disturbed:
        ckpt = Checkpointer(args.folder, {"model": model, "optim": optim, "schedule": schedule,
                                          "loader": loader, "stage": stage, "stage_optim": stage_optim,
                                          "stage_schedule": stage_schedule},
                            args.every, args.files_every, background=args.background)
        first = ckpt.restore()
        say(f"begins rank={rank} step={first}")
    write = library.Client.write

    for step in range(first, args.steps):
        def die_if(where, step=step):
            if is_disturbed and f"{crun.restarts()}:{rank}:{step + 1}:{where}" in args.kill.split(","):
                os.kill(os.getpid(), signal.SIGKILL)

        def slow_write(client, shared, pieces, die_if=die_if):
            write(client, shared, pieces)
            die_if("writing")
        library.Client.write = slow_write
        if is_disturbed:
            wait_here(args.folder, rank, step + 1)
        optim.zero_grad()
        stage_optim.zero_grad()
        x = loader.next() * random.random()
        loss = model(x).square().mean() + model(x * 2).abs().mean()
        stage[f"of-{rank}"](x[:, :1] + loss.detach()).square().mean().backward()
        die_if("step")
        loss.backward()
        optim.step()
        schedule.step()
        if args.kind == "ddp" and step == 1:  # as a schedule that looks at the rank's own loss
            optim.param_groups[0]["lr"] *= 1 + rank
        stage_optim.step()
        stage_schedule.step()
        if ckpt:
            ckpt.step(step + 1)
        die_if("after")
    return (f"rank={rank} {digest(model.state_dict(), optim.state_dict()['state'], stage.state_dict())} "
            f"{random.random()} {float(torch.rand(1))} {loader.seen}")


def main():
    args = arguments()
    say(f"life epoch={crun.epoch()} rank={crun.rank()} pid={os.getpid()} "
        f"store={os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    say(f"digest {train(args, rank, True)}")
    if args.undisturbed:
        say(f"undisturbed {train(args, rank, False)}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
