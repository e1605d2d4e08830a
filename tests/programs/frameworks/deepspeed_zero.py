# SPDX-License-Identifier: MIT
"""DeepSpeed with ZeRO-1 on CPUs. It knows nothing of crun."""
import os
import sys
import time

import deepspeed
import torch
import torch.distributed as dist

STEPS = int(sys.argv[1])
RANK = os.environ.get("RANK", "0")
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "steps_per_print": 1000,
}


def main():
    deepspeed.init_distributed()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    torch.manual_seed(int(RANK))
    for step in range(2 * STEPS):
        time.sleep(0.02)
        x = torch.randn(4, 8, dtype=torch.bfloat16)
        loss = torch.nn.functional.mse_loss(engine(x), x.sum(1, keepdim=True))
        engine.backward(loss)
        engine.step()
        if step == 1:
            os.write(1, f"first rank={RANK} pid={os.getpid()} at={time.time():.3f}\n".encode())
        if step == STEPS:
            engine.save_checkpoint(sys.argv[2])
    total = sum(p.double().sum().item() for p in engine.module.parameters())
    os.write(1, f"result rank={RANK} steps={engine.global_steps} sum={total:.6f}\n".encode())
    dist.destroy_process_group()


main()
