# SPDX-License-Identifier: MIT
"""
What the hooks of --watch cost a training step, in microseconds of CPU time: a step has a
data loader, backward, an optimizer step and zero_grad. Run it by a Python that has torch:

    watch_cost.py [STEPS [BLOCKS]]
"""
import os
import pathlib
import struct
import sys
import tempfile
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load_watch():
    """(watch, page): as the bootstrap does, with a page of its own."""
    package = types.ModuleType("_crun")
    package.__path__ = [str(ROOT / "worker-lib" / "python" / folder)
                        for folder in ("bootstrap", "crun")]
    sys.modules["_crun"] = package
    from _crun import page, watch
    return watch, page


def new_page():
    file = tempfile.NamedTemporaryFile(prefix="page-", dir="/dev/shm")
    file.write(struct.pack("=II", 0x67707263, 1).ljust(4096, b"\0"))
    file.flush()
    return file


def step_us(steps, blocks, depth=20):
    """(with the hooks, without a page): the fastest of several blocks, in turns."""
    watch, page = load_watch()
    watch.prepare()
    import torch
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(torch.zeros(steps + 1, 1))

    def train():
        batches = iter(loader)
        next(batches)  # sets the loader up
        began = time.thread_time()
        for _ in range(steps):
            x = next(batches)
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return (time.thread_time() - began) / steps * 1e6

    def deeper(levels):
        """As far below the program's own lines as in a framework."""
        return train() if levels == 0 else deeper(levels - 1)

    watch._had_peers = True  # as if there were other ranks
    file = new_page()
    fastest = {True: float("inf"), False: float("inf")}
    for block in range(2 * blocks):
        is_open = block % 2 == 0
        if is_open:
            page.worker_page.open(file.name)
        else:
            page.worker_page.close()
        fastest[is_open] = min(fastest[is_open], deeper(depth))
    return fastest[True], fastest[False]


def print_cost(steps, blocks):
    hooked, plain = step_us(steps, blocks)
    cost = hooked - plain
    print(f"cost us={cost:.1f} step_us={plain:.1f} share_of_5ms={cost / 5000:.4%}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print_cost(int(sys.argv[1]) if len(sys.argv) > 1 else 50,
               int(sys.argv[2]) if len(sys.argv) > 2 else 150)
