# SPDX-License-Identifier: MIT
"""
A training script that reports its progress by the package crun. Rank 0 saves after each step,
and a restarted group goes on from there.

    ddp_progress.py CHECKPOINT OVER      ends once the file OVER is there
"""
import os
import sys
import time

import crun

crun.progress(0, phase="loading")  # before the imports, which take a while

import torch
import torch.distributed as dist
from torch import nn

CHECKPOINT, OVER = sys.argv[1:]
BATCH, STEP_SECONDS = 16, 0.02


def save(model, step):
    torch.save({"model": model.state_dict(), "step": step}, CHECKPOINT + ".new")
    os.replace(CHECKPOINT + ".new", CHECKPOINT)


def load(model):
    """The step to begin with."""
    if not os.path.exists(CHECKPOINT):
        return 1
    state = torch.load(CHECKPOINT, weights_only=True)
    model.load_state_dict(state["model"])
    return state["step"] + 1


def is_over():
    """What rank 0 sees, for all."""
    seen = torch.tensor([os.path.exists(OVER)])
    dist.broadcast(seen, 0)
    return seen.item()


def average(parameters):
    """As DistributedDataParallel does, without the second that its import takes."""
    for p in parameters:
        p.grad /= dist.get_world_size()
        dist.all_reduce(p.grad)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(8, 1)
    for p in model.parameters():
        nn.init.ones_(p)
    torch.manual_seed(rank)
    step = load(model)
    os.write(1, f"began rank={rank} pid={os.getpid()} step={step}\n".encode())
    loss = float("nan")
    while True:
        crun.progress(step, samples=BATCH * (step - 1), loss=loss, phase="training")
        x = torch.randn(BATCH, 8)
        time.sleep(STEP_SECONDS)
        error = nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        with crun.communicating():
            error.backward()
            average(model.parameters())
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.01 * p.grad
                    p.grad = None
            loss = error.item()
            over = is_over()
        if rank == 0:
            with crun.checkpointing():
                save(model, step)
        if over:
            break
        step += 1
    crun.done()
    os.write(1, f"done rank={rank} step={step}\n".encode())
    dist.destroy_process_group()


main()
