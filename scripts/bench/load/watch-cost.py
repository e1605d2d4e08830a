# SPDX-License-Identifier: MIT
"""
CPU time that the hooks of `crun --watch` take of a training step, as JSON. A step has a data
loader, a forward and a backward pass, an optimizer step and zero_grad of a small net.

"hooks_us" is measured as in a training whose steps take some milliseconds: before each step
matrices are multiplied for so long, which is not counted, but fills the processor's caches.
"hot_us" is measured without. Steps with a status page and without take turns, at random, in one
process.
"""
import json
import os
import pathlib
import random
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "lib"))
import watch_cost  # noqa: E402

os.environ.setdefault("OMP_NUM_THREADS", "1")
watch, page = watch_cost.load_watch()
watch.prepare()
import torch  # noqa: E402

STEPS, SKIPPED = 3000, 50
WORK_S = 0.005


class Training:
    def __init__(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(),
                                         torch.nn.Linear(128, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        data = torch.zeros(32 * (STEPS + SKIPPED), 64)
        self.batches = iter(torch.utils.data.DataLoader(data, batch_size=32))

    def step(self):
        x = next(self.batches)
        loss = self.model(x).sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def work_for(seconds, matrix):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        matrix @ matrix


def measure_hooks(work_s):
    """Microseconds that a step takes longer with a status page; the medians' difference."""
    matrix, training = torch.rand(384, 384), Training()
    took = {True: [], False: []}
    for step in range(STEPS + SKIPPED):
        is_open = page.worker_page.is_open = random.random() < 0.5
        work_for(work_s, matrix)
        begin = time.thread_time_ns()
        training.step()
        if step >= SKIPPED:
            took[is_open].append((time.thread_time_ns() - begin) / 1000)
    return statistics.median(took[True]) - statistics.median(took[False])


def main():
    watch._had_peers = True  # as if there were other ranks
    file = watch_cost.new_page()
    page.worker_page.open(file.name)
    print(json.dumps({"hooks_us": measure_hooks(WORK_S), "hot_us": measure_hooks(0)}))


if __name__ == "__main__":
    main()
