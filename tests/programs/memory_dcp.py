#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program that calls torch.distributed.checkpoint itself, with memory as its storage: it adds
1 to sharded and to plain tensors; rank 1 is killed once, after step 3 (saved) or while it saves 4."""
import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import crun
from crun.checkpoint import MemoryReader, MemoryWriter, library


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {"w": distribute_tensor(torch.zeros(5, 2), mesh, [Shard(0)]),
             "same": torch.zeros(3), f"of{rank}": torch.zeros(1), "step": 0}
    reader = MemoryReader()
    if reader.step is not None:
        dcp.load(state, storage_reader=reader)
        print(f"begins rank={rank} step={reader.step} {state['step']}", flush=True)
    write = library.Client.write
    for step in range(state["step"], 6):
        if step == 3 and sys.argv[1:] == ["writing"] and crun.restarts() == 0 and rank == 1:
            library.Client.write = lambda *a: (write(*a), os.kill(os.getpid(), signal.SIGKILL))
        state = {n: v + 1 for n, v in state.items()}
        work = dcp.async_save(state, storage_writer=MemoryWriter(step + 1))
        work.result()
    print(f"end rank={rank}", state["w"].full_tensor().sum().item(), state["same"].tolist(),
          state[f"of{rank}"].tolist(), state["step"], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
