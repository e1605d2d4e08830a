# SPDX-License-Identifier: MIT
"""Lightning's Trainer with DistributedDataParallel. It knows nothing of crun."""
import os
import sys
import time

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(sys.argv[1])
RANK = os.environ.get("RANK", "0")


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(),
                                          torch.nn.Linear(16, 1))

    def training_step(self, batch, index):
        time.sleep(0.02)
        x, y = batch
        return torch.nn.functional.mse_loss(self.layers(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.log("loss", torch.nn.functional.mse_loss(self.layers(x), y), sync_dist=True)

    def on_before_zero_grad(self, optimizer):
        if self.global_step == 1:
            os.write(1, f"first rank={RANK} pid={os.getpid()} at={time.time():.3f}\n".encode())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main():
    lightning.seed_everything(1)
    x = torch.randn(STEPS * 4, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=4)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)), strategy="ddp",
        max_epochs=2, logger=False, default_root_dir=sys.argv[2], enable_progress_bar=False)
    model = Model()
    trainer.fit(model, loader, DataLoader(data, batch_size=16))
    total = sum(p.double().sum().item() for p in model.parameters())
    os.write(1, f"result rank={RANK} steps={trainer.global_step} sum={total:.6f} "
                f"loss={trainer.callback_metrics['loss'].item():.5f}\n".encode())


main()
