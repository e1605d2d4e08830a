# SPDX-License-Identifier: MIT
"""
A training script that knows nothing of crun: DistributedDataParallel, a data loader, an
evaluation and a checkpoint of rank 0 each epoch, from which a restarted group goes on.

    watched.py FOLDER

Ends when there is FOLDER/over; rank 1 sleeps in its forward pass once there is
FOLDER/sleep-forward, and also in load.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, STEP_SECONDS = 8, 0.02
FOLDER, RANK = sys.argv[1], int(os.environ["RANK"])
CHECKPOINT = os.path.join(FOLDER, "checkpoint.pt")


def sleep_if_asked(place):
    if RANK == 1 and os.path.exists(f"{FOLDER}/sleep-{place}"):
        os.remove(f"{FOLDER}/sleep-{place}")
        time.sleep(1000)


class Numbers(Dataset):
    def __len__(self):
        return STEPS * 4

    def __getitem__(self, index):
        if index == 5:
            sleep_if_asked("load")
        return torch.full((4,), float(index % 3))


def save(model, optimizer, epoch):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "epoch": epoch}, f"{CHECKPOINT}.{RANK}")
    os.replace(f"{CHECKPOINT}.{RANK}", CHECKPOINT)


def load(model, optimizer):
    if not os.path.exists(CHECKPOINT):
        return 0
    state = torch.load(CHECKPOINT, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        total = sum(model(x).sum() for x in loader)
    model.train()
    return total


def train_epoch(model, optimizer, loader):
    for x in loader:
        time.sleep(STEP_SECONDS)
        sleep_if_asked("forward")
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def is_over():
    seen = torch.tensor([os.path.exists(FOLDER + "/over")])
    dist.broadcast(seen, 0)
    return seen.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(Numbers(), batch_size=4)
    epoch = load(model, optimizer)
    os.write(1, f"began rank={RANK} pid={os.getpid()} epoch={epoch}\n".encode())
    while not is_over():
        train_epoch(model, optimizer, loader)
        evaluate(model, loader)
        epoch += 1
        if RANK == 0:
            save(model, optimizer, epoch)
    os.write(1, f"done rank={RANK} epoch={epoch}\n".encode())
    dist.destroy_process_group()


main()
