#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The rounds of scripts/bench/memory, in each rank: what stops a training, in seconds."""
import argparse
import statistics
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel

from crun.checkpoint import Checkpointer, library
from crun.checkpoint.section import Chunk, SectionWriter
from crun.checkpoint.storage import PartWriter


class Rounds:
    def __init__(self, args):
        self.folder, self.rank = args.folder, dist.get_rank()
        count = 16
        each = (args.mib << 20) // 4 // count
        self.state = {f"layer{i}": torch.rand(each) for i in range(count)}
        self.copy = {name: torch.zeros(each) for name in self.state}
        self.writer = SectionWriter()
        self.parts = PartWriter(library.client())
        self.step, self.pending = 0, None

    def memcpy(self):
        for name, tensor in self.state.items():
            self.copy[name].copy_(tensor)

    def memory(self):
        self.step += 1
        chunks = [Chunk(n, t, tuple(t.shape), (0,)) for n, t in self.state.items()]
        self.parts.begin(self.step, [self.writer.encode(chunks, {}, {}), None], False, 0)
        self.parts.write()
        library.client().commit()

    def torch_save(self):
        torch.save(self.state, f"{self.folder}/rank-{self.rank}.pt")

    def _sharded(self):
        return {f"rank-{self.rank}": self.state}

    def dcp_save(self):
        dcp.save(self._sharded(), checkpoint_id=f"{self.folder}/dcp")

    def dcp_async_save(self):
        self.pending = dcp.async_save(self._sharded(), checkpoint_id=f"{self.folder}/async")

    def wait(self):
        if self.pending is not None:
            self.pending.result()
            self.pending = None


WHAT = {"memcpy": "bare memcpy", "memory": "crun.checkpoint", "torch_save": "torch.save",
        "dcp_save": "dcp.save", "dcp_async_save": "dcp.async_save"}


def steps(rank):
    """What ckpt.step() takes, under DDP: 25 million parameters and Adam, 300 MB."""
    model = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(2500, 5000), torch.nn.ReLU(), torch.nn.Linear(5000, 2500)))
    optim = torch.optim.Adam(model.parameters())
    ckpt = Checkpointer("unused", {"model": model, "optim": optim})
    took = []
    for step in range(12):
        model(torch.rand(8, 2500)).sum().backward()
        optim.step()
        dist.barrier()
        began = time.monotonic()
        ckpt.step(step + 1000)
        dist.barrier()
        took.append(time.monotonic() - began)
    if rank == 0:
        print(f"| a step of DDP, 300 MB once per node | {statistics.median(took[2:]):.3f} s | |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rounds = Rounds(args)
    took = {name: [] for name in WHAT}
    for number in range(args.rounds + 2):
        for name in WHAT:
            dist.barrier()
            began = time.monotonic()
            getattr(rounds, name)()
            seconds = torch.tensor(time.monotonic() - began)
            rounds.wait()
            dist.all_reduce(seconds, dist.ReduceOp.MAX)
            if number >= 2:  # both slots have their pages
                took[name].append(seconds.item())
    if rounds.rank == 0:
        memcpy = statistics.median(took["memcpy"])
        for name, what in WHAT.items():
            median = statistics.median(took[name])
            print(f"| {what} | {median:.3f} s | {median / memcpy:.2f} |", flush=True)
    steps(rounds.rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
