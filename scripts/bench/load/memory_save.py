#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The rounds of scripts/bench/memory, in each rank; seconds of the slowest one."""
import argparse
import os
import shutil
import signal
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import crun
from crun.checkpoint import Checkpointer, library
from crun.checkpoint.section import Chunk, SectionWriter
from crun.checkpoint.storage import PartWriter

COUNT = 16  # tensors


def slowest(began):
    seconds = torch.tensor(time.monotonic() - began, dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return seconds.item()


def show(rows, unit):
    """[(what, seconds)]; the ratios are those to the first."""
    if dist.get_rank() == 0:
        for what, seconds in rows:
            print(f"| {what} | {seconds:.3f} s | {seconds / rows[0][1]:.2f} {unit} |", flush=True)


def medians(took, names):
    return [(what, statistics.median(took[name])) for name, what in names.items() if took.get(name)]


# -- save ------------------------------------------------------------------------------


class Saves:
    names = {"memcpy": "bare memcpy", "memory": "crun.checkpoint", "torch_save": "torch.save",
             "dcp_save": "dcp.save", "dcp_async_save": "dcp.async_save",
             "nvrx": "nvidia-resiliency-ext's local checkpoint"}

    def __init__(self, args):
        self.folder, self.rank = args.folder, dist.get_rank()
        each = (args.mib << 20) // 4 // COUNT
        self.state = {f"layer{i}": torch.rand(each) for i in range(COUNT)}
        self.copy = {name: torch.zeros(each) for name in self.state}
        self.writer = SectionWriter()
        self.client = library.client()
        self.parts = PartWriter(self.client)
        self.step, self.pending = 0, None
        self.others = {}
        if others := os.environ.get("OTHERS"):
            sys.path.append(others)
            self.others["nvrx"] = self.make_nvrx()

    def make_nvrx(self):
        from nvidia_resiliency_ext.checkpointing.local.basic_state_dict import BasicTensorAwareStateDict
        from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import LocalCheckpointManager
        manager = LocalCheckpointManager(self.folder + "/nvrx")

        def save():
            shutil.rmtree(self.folder + "/nvrx", ignore_errors=True)
            os.makedirs(self.folder + "/nvrx", exist_ok=True)
            manager.save(BasicTensorAwareStateDict(self.state), self.step, is_async=False)
        return save

    def memcpy(self):
        for name, tensor in self.state.items():
            self.copy[name].copy_(tensor)

    def memory(self):
        chunks = [Chunk(n, t, tuple(t.shape), (0,)) for n, t in self.state.items()]
        self.parts.begin(self.step, [self.writer.encode(chunks, {}, {}), None], False, 0)
        self.parts.write()
        self.client.commit()

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


def save(args):
    saves = Saves(args)
    took = {name: [] for name in Saves.names}
    for number in range(args.rounds + 2):
        saves.step += 1
        for name in Saves.names:
            call = saves.others.get(name) or getattr(saves, name, None)
            if not call:
                continue
            dist.barrier()
            began = time.monotonic()
            call()
            seconds = slowest(began)
            saves.wait()
            if number >= 2:  # both slots have their pages
                took[name].append(seconds)
    show(medians(took, Saves.names), "of memcpy")


# -- restore ---------------------------------------------------------------------------


def big_model(mib):
    width = 1024
    model = nn.Module()
    for i in range(mib * (1 << 20) // 4 // width // width):
        model.register_parameter(f"w{i}", nn.Parameter(torch.full((width, width), float(i)), False))
    return model


def restore(args):
    """Each life restores in all ways, and ends by a kill of rank 0."""
    rank, rounds = dist.get_rank(), f"{args.folder}/rounds"
    model = big_model(args.mib)
    ckpt = Checkpointer(args.folder + "/own", {"m": model})
    took = {}

    def timed(name, call):
        dist.barrier()
        began = time.monotonic()
        result = call()
        took[name] = slowest(began)
        return result

    first = timed("memory", ckpt.restore)
    mine = {f"rank-{rank}": model.state_dict()}
    if first:
        copies = [p.clone() for p in model.parameters()]
        timed("memcpy", lambda: [p.copy_(copy) for p, copy in zip(model.parameters(), copies)])
        del copies
    if first == 0:
        dcp.save(mine, checkpoint_id=args.folder + "/dcp")
        torch.save(mine, f"{args.folder}/{rank}.pt")
        dcp.load(mine, checkpoint_id=args.folder + "/dcp")  # the page cache has it then
    else:
        timed("dcp", lambda: dcp.load(mine, checkpoint_id=args.folder + "/dcp"))
        timed("torch", lambda: model.load_state_dict(
            torch.load(f"{args.folder}/{rank}.pt")[f"rank-{rank}"]))
        if rank == 0:
            with open(rounds, "a") as file:
                print(*(took[name] for name in ("memory", "memcpy", "dcp", "torch")), file=file)
    if first < args.rounds:
        ckpt.step(first + 1)
        dist.barrier()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    with open(rounds) as file:
        columns = list(zip(*(map(float, line.split()) for line in file)))
    show(list(zip(("crun.checkpoint, of a killed worker", "bare memcpy", "dcp.load", "torch.load"),
                  map(statistics.median, columns))), "of crun")


# -- step ------------------------------------------------------------------------------


def step(args):
    """100 MB of parameters and Adam, under DDP; a step of 200 ms or longer."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2500, 5000), nn.ReLU(), nn.Linear(5000, 2500)))
    optim = torch.optim.Adam(model.parameters())
    ckpt = Checkpointer(args.folder + "/step", {"model": model, "optim": optim}, background=True)
    ckpt.restore()
    names = {"none": "a step without", "now": "with every=1", "background": "with every=1, background=True"}
    for waits in True, False:
        took = {name: [] for name in names}
        for number in range(3 * 3 * args.rounds):
            name = list(names)[number // 3 % 3]
            ckpt._wait()
            ckpt._in_background = name == "background"
            dist.barrier()
            began = time.monotonic()
            optim.zero_grad()
            with model.no_sync():  # gloo's all-reduce of 100 MB would be all there is
                model(torch.rand(8, 2500)).sum().backward()
                while time.monotonic() < began + 0.2:
                    if waits:  # as for a device
                        time.sleep(0.005)
                    else:
                        model(torch.rand(8, 2500)).sum().backward()
            optim.step()
            if name != "none":
                ckpt.step(ckpt._last_step + 1)
            if number >= 9 and number % 3:  # the first after another way also waits for that one
                took[name].append(slowest(began))
            else:
                slowest(began)
        if dist.get_rank() == 0:
            print("the CPU " + ("idles" if waits else "computes"), flush=True)
        show(medians(took, names), "of none")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", choices=("save", "restore", "step"), required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    if dist.get_rank() == 0 and crun.restarts() == 0:
        what = f"{args.mib} MiB per rank" if args.part != "step" else "100 MB and Adam"
        print(f"| {args.part}: {what}, 2 ranks | seconds | ratio |\n|---|---|---|", flush=True)
    globals()[args.part](args)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
