# SPDX-License-Identifier: MIT
"""Checkpoints in memory and in files: after a failure a program goes on at its last step.

    from crun.checkpoint import Checkpointer
    ckpt = Checkpointer("checkpoints", {"model": model, "optim": optim}, files_every=1000)
    for step in range(ckpt.restore(), last):
        train_one_step()
        ckpt.step(step + 1)

Without a crun that keeps memory, as under torchrun, the same program has files only.
"""
from .checkpointer import Checkpointer
from .library import MemoryFault
from .storage import MemoryReader, MemoryWriter

__all__ = ["Checkpointer", "MemoryReader", "MemoryWriter", "MemoryFault"]
