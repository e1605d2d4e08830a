#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 25 s
# sanitizers: no, test_stuck and test_timeout_culprit run the code
"""
Hangs of a PyTorch training (DDP, gloo) that knows nothing of crun are explained: a rank in its
data loader, one in a collective that the others skip, a deadlock of two locks. What cannot be
had is said loudly, and the exit code is 77.

    BUILD=build tests/functional/torch/67-hang-explained.py
"""
import os
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, fail  # noqa: E402
from pytorch import Here, SECONDS, torch_env  # noqa: E402

TRAIN = """
import os, sys, threading, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

how, victim, rank = sys.argv[1], int(sys.argv[2]), int(os.environ["RANK"])
locks = threading.Lock(), threading.Lock()

def load_image(i):
    if how == "loader" and rank == victim and i >= 40:
        time.sleep(1000)
    return torch.ones(4)

class Images(Dataset):
    def __len__(self):
        return 100000
    def __getitem__(self, i):
        return load_image(i)

def take(first, second, both):
    with locks[first]:
        both.wait()
        with locks[second]:
            pass

def deadlock():
    both = threading.Barrier(2)
    threading.Thread(target=take, args=(1, 0, both), daemon=True).start()
    take(0, 1, both)

def train(model, optimizer, batch, n):
    if n == 10 and how == "deadlock" and rank == victim:
        deadlock()
    if n == 10 and how == "collective":
        dist.all_reduce(torch.ones(1)) if rank == victim else dist.barrier()
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for n, batch in enumerate(DataLoader(Images(), batch_size=4)):
    train(model, optimizer, batch, n)
    time.sleep(0.02)
"""

WAITS = r"ranks 0, 2 wait in \w+ \(train.py:\d+, in train\)"
CASES = {
    "loader": (WAITS + r"; rank 1 is in load_image \(train.py:11\)\n",
               r"all other ranks wait for rank 1\n"),
    "collective": (r"ranks 0, 2 wait in barrier \(train.py:\d+, in train\); "
                   r"rank 1 waits in all_reduce \(train.py:\d+, in train\)\n",
                   r"rank 1 and the others wait for each other in different calls\n"),
    "deadlock": (WAITS + r"; rank 1 is in take \(train.py:\d+\), a thread in take \(train.py:\d+\)\n",
                 r"all other ranks wait for rank 1\n"),
}


def main():
    here = Here()
    env = torch_env()
    with tempfile.TemporaryDirectory(prefix="crun-torch-hang-") as directory:
        script = pathlib.Path(directory, "train.py")
        script.write_text(TRAIN.lstrip("\n"))
        try:
            for how, patterns in CASES.items():
                # 64 has workers that start cold
                p = here.start([BIN / "crun", "--nproc-per-node=3", "--hang-timeout=2",
                                "--warm=torch,torch._dynamo", script, how, "1"],
                               env={**os.environ, **env, "TMPDIR": directory,
                                    "XDG_CACHE_HOME": directory})
                if p.wait(SECONDS) != 1:
                    fail(how, "exit code", p.popen.returncode, p.err)
                for pattern in patterns:
                    if not re.search(pattern, p.err):
                        fail(f"{how}: nothing matches {pattern!r} in:\n{p.err}")
                print("ok", how, flush=True)
        finally:
            here.end()


main()
