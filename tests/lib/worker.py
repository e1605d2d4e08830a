# SPDX-License-Identifier: MIT
"""
Ranks of the worker library (tests/programs/worker-calls.c) in processes of which each has
the variables that a launcher would give it; what they say, and how they end.
"""
import os
import re
import shutil
import subprocess
import tempfile
import time

from process import BIN, matches

CRUN, CALLS = str(BIN / "crun"), str(BIN / "worker-calls")
PATIENCE = 120
FORGET = re.compile(r"^(RANK|WORLD_SIZE|LOCAL_|MASTER_|GROUP_|TORCH|CRUN_|OMPI_|PM|SLURM_|CUDA_)")
PLAIN = {k: v for k, v in os.environ.items() if not FORGET.match(k)}


class Ranks:
    """variables(rank, size) makes a process a rank; each writes its output to one file."""

    def __init__(self, scenario, size, variables, wrap=(), **more):
        self.path = tempfile.mkdtemp(prefix="crun-worker-")
        self.processes = []
        for rank in range(size):
            env = {**PLAIN, **{k: str(v) for k, v in variables(rank, size).items()}, **more}
            with open(self.file(rank), "wb") as out:
                self.processes.append(
                    subprocess.Popen([*wrap, CALLS, scenario], env=env, stdout=out, stderr=out)
                )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.path)

    def file(self, rank):
        return os.path.join(self.path, str(rank))

    def said(self, rank):
        with open(self.file(rank), encoding="utf-8") as f:
            return f.read()

    def until_said(self, rank, pattern):
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, self.said(rank)):
            if time.monotonic() > end:
                raise AssertionError(f"rank {rank} said {self.said(rank)!r}, not {pattern!r}")
            time.sleep(0.005)

    def ends(self, rank, code, words=""):
        try:
            got = self.processes[rank].wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"rank {rank} hangs: {self.said(rank)!r}") from None
        if got != code:
            raise AssertionError(f"rank {rank} ended with {got}: {self.said(rank)!r}")
        matches(self.said(rank), words)


def run(checks):
    for check in checks:
        start = time.monotonic()
        check()
        print(f"ok {check.__name__.replace('_', ' ')} ({time.monotonic() - start:.1f} s)", flush=True)
