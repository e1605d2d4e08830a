# SPDX-License-Identifier: MIT
"""A loop of Accelerate. It knows nothing of crun."""
import os
import sys
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(sys.argv[1])
RANK = os.environ.get("RANK", "0")


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.randn(STEPS * 4, 8)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = 0
    for epoch in range(4):
        model.train()
        for x, y in loader:
            time.sleep(0.02)
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps == 1:
                os.write(1, f"first rank={RANK} pid={os.getpid()} at={time.time():.3f}\n".encode())
        accelerator.save_state(sys.argv[2])
        model.eval()
        mean = accelerator.gather(loss.detach()).mean().item()
        accelerator.print(f"epoch {epoch} loss {mean:.5f}")
    total = sum(p.double().sum().item() for p in model.parameters())
    os.write(1, f"result rank={RANK} steps={steps} sum={total:.6f}\n".encode())
    accelerator.end_training()


main()
