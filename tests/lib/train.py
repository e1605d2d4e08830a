# SPDX-License-Identifier: MIT
"""
Runs of build/bin/train, or another program that trains, for the functional tests: alone
or under crun, its words and metrics, its workers by rank.
"""
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import uuid

from process import BIN, Process, SANITIZED, processes, read

SECONDS = 120 * (5 if SANITIZED else 1)
SMALL = ["--model=mlp", "--passes=2", "--train-limit=1600"]


class Run(Process):
    """The program on `ranks` ranks under crun, or alone if that is None."""

    def __init__(self, *flags, ranks=None, crun=(), env=None, program="train", before=()):
        self.program = BIN / program
        self.mark = "TRAIN_RUN_" + uuid.uuid4().hex
        launcher = [] if ranks is None else [BIN / "crun", f"--nproc-per-node={ranks}", *crun]
        super().__init__([*before, *launcher, self.program, *flags],
                         env={**os.environ, "OMP_NUM_THREADS": "1", self.mark: "1", **(env or {})})

    def ends_with(self, code):
        assert self.wait(SECONDS) == code, f"exit code {self.popen.returncode}, not {code}: {self}"
        return self

    def says(self, pattern, where="err"):
        text = getattr(self, where)
        assert re.search(pattern, text, re.M), f"no /{pattern}/: {self}"
        return self

    @property
    def sha(self):
        found = re.findall(r"^parameters sha256 ([0-9a-f]{64})$", self.out, re.M)
        assert len(found) == 1, str(self)
        return found[0]

    def workers(self):
        """Processes of this run, by rank."""
        found = {}
        for pid in processes():
            try:
                if os.readlink(f"/proc/{pid}/exe") != str(self.program):
                    continue
            except OSError:
                continue
            env = dict(w.split("=", 1) for w in
                       read(f"/proc/{pid}/environ").decode().split("\0") if "=" in w)
            if self.mark in env and "RANK" in env:
                found[int(env["RANK"])] = pid
        return found

    def until(self, condition, what):
        deadline = time.monotonic() + SECONDS
        while True:
            begun = time.monotonic()
            if condition():
                return
            asked = time.monotonic()
            assert self.popen.poll() is None, f"ended before {what}: {self}"
            assert asked < deadline, f"waited for {what}: {self}"
            time.sleep(max(0.01, min(3 * (asked - begun), 0.1)))

    def end(self):
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(40)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def __str__(self):
        return f"{' '.join(self.command)}\n--- out\n{self.out}--- err\n{self.err}"


def metrics(path, of="pass"):
    """The lines about passes, or those with another field."""
    with open(path) as f:
        return [line for line in map(json.loads, f) if of in line]


def finished(*flags, **options):
    """A run that has ended with success."""
    with Run(*flags, **options) as run:
        return run.ends_with(0)


def main(tests):
    """Each in its own folder; arguments name the tests to run."""
    import sys
    for name, test in tests.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
        print(f"  ok {name} {time.monotonic() - began:.1f} s", flush=True)
