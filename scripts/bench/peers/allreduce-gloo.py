# SPDX-License-Identifier: MIT
"""The peer of coll-bench on PyTorch's gloo, under torchrun or crun: as allreduce-mpi.c.

    allreduce-gloo.py ITERATIONS:BYTES...
"""
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
for word in sys.argv[1:]:
    iterations, size = map(int, word.split(":"))
    buffer, took = torch.zeros(size // 4), []
    dist.barrier()
    for i in range(-(iterations // 10) - 1, iterations):
        begin = time.perf_counter()
        dist.all_reduce(buffer)
        if i >= 0:
            took.append(time.perf_counter() - begin)
    slowest = torch.tensor(took, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(size, float(slowest.median()) * 1e6, flush=True)
dist.destroy_process_group()
