# SPDX-License-Identifier: MIT
"""
Runs of build/bin/train, or another program that trains, for the functional tests: alone
or under crun, its words and metrics, its workers by rank.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import uuid

BIN = pathlib.Path(os.environ.get("BUILD", "build")).resolve() / "bin"
SECONDS = 120 * (5 if "san" in os.environ.get("BUILD", "") else 1)
SMALL = ["--model=mlp", "--passes=2", "--train-limit=1600"]


class Run:
    """The program on `ranks` ranks under crun, or alone where that is None."""

    def __init__(self, *flags, ranks=None, crun=(), env=None, program="train"):
        self.program = BIN / program
        self.mark = "TRAIN_RUN_" + uuid.uuid4().hex
        launcher = [] if ranks is None else [BIN / "crun", f"--nproc-per-node={ranks}", *crun]
        self.command = [str(w) for w in [*launcher, self.program, *flags]]
        self.files = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.popen = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=self.files[0], stderr=self.files[1],
            env={**os.environ, "OMP_NUM_THREADS": "1", self.mark: "1", **(env or {})})

    def _read(self, which):
        fd = self.files[which].fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    out = property(lambda self: self._read(0))
    err = property(lambda self: self._read(1))

    def wait(self):
        try:
            return self.popen.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} does not end") from None

    def ends_with(self, code):
        assert self.wait() == code, f"exit code {self.popen.returncode}, not {code}: {self}"
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
        for entry in os.listdir("/proc"):
            try:
                if not entry.isdigit() or os.readlink(f"/proc/{entry}/exe") != str(self.program):
                    continue
                with open(f"/proc/{entry}/environ", "rb") as f:
                    env = dict(w.split("=", 1) for w in f.read().decode().split("\0") if "=" in w)
            except OSError:
                continue
            if self.mark in env and "RANK" in env:
                found[int(env["RANK"])] = int(entry)
        return found

    def until(self, condition, what):
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert self.popen.poll() is None, f"ended before {what}: {self}"
            assert time.monotonic() < deadline, f"waited for {what}: {self}"
            time.sleep(0.01)

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


def metrics(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def finished(*flags, **options):
    """One that has ended well."""
    with Run(*flags, **options) as run:
        return run.ends_with(0)


def main(tests):
    """Each in a folder of its own; arguments name those to run."""
    import sys
    for name, test in tests.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
        print(f"  ok {name} {time.monotonic() - began:.1f} s", flush=True)
