# SPDX-License-Identifier: MIT
"""
The nets of `train` in PyTorch, on one GPU, with autocast to bf16: samples in a second.

    gpu-torch.py mlp|cnn BATCH
"""
import sys
import time

import torch
from torch import nn

SIDE, CLASSES, SECONDS = 28, 10, 3


def net(model):
    if model == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 512), nn.ReLU(), nn.Linear(512, 512),
                             nn.ReLU(), nn.Linear(512, CLASSES))
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Linear(128, CLASSES))


def main():
    model, batch = net(sys.argv[1]).cuda(), int(sys.argv[2])
    optimizer = torch.optim.SGD(model.parameters(), lr=.01, momentum=.9)
    images = torch.rand(batch, 1, SIDE, SIDE)
    labels = torch.randint(CLASSES, (batch,))

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # train reads it in each step, too

    for _ in range(20):
        step()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        step()
        steps += 1
    print(batch * steps / (time.perf_counter() - began))


main()
