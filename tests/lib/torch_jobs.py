# SPDX-License-Identifier: MIT
"""PyTorch programs under crun, for the functional tests: where torch is, what workers said."""
import os
import pathlib
import subprocess
import sys
import tempfile

from expect import fail

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TRAIN = ROOT / "tests" / "programs" / "ddp_train.py"
SECONDS = 300  # imports of torch on two cores that are busy with others take a while


def skip(why, what):
    print(f"{'*' * 72}\n* SKIPPED: {why}:\n*   {what}\n{'*' * 72}", file=sys.stderr)
    sys.exit(77)


class Here:
    """This machine as it is, in the shape of a node of nodes.Cluster."""

    class Process:
        def __init__(self, command, env):
            self.command = command
            self.output = tempfile.TemporaryFile(), tempfile.TemporaryFile()
            self.popen = subprocess.Popen([str(word) for word in command], env=env,
                                          stdin=subprocess.DEVNULL, stdout=self.output[0],
                                          stderr=self.output[1], start_new_session=True)

        out = property(lambda self: self._read(0))
        err = property(lambda self: self._read(1))

        def _read(self, which):
            fd = self.output[which].fileno()
            return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

        def __str__(self):
            return " ".join(map(str, self.command))

    def __init__(self):
        self.processes = []

    def start(self, command, env=None):
        p = Here.Process(command, {**os.environ, **(env or {})})
        self.processes.append(p)
        return p

    def end(self):
        for p in self.processes:
            if p.popen.poll() is None:
                p.popen.kill()
                p.popen.wait()


def torch_env():
    """The environment in which crun finds a Python that has torch."""
    found = subprocess.run([ROOT / "scripts" / "torch-venv", "newest"],
                           stdout=subprocess.PIPE, text=True)
    if found.returncode == 77:
        skip("PyPI cannot be reached", "no PyTorch program was run under crun")
    if found.returncode:
        fail("scripts/torch-venv")
    return {"PYTHON_EXEC": found.stdout.strip() + "/bin/python", "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1"}


def said(kind, *processes):
    """[{name: value}]: what the workers of these crun said in lines of this kind."""
    return [dict(word.split("=", 1) for word in line.split()[1:])
            for p in processes for line in p.out.splitlines() if line.split()[:1] == [kind]]


def lives(process):
    """[(environment, [epoch of the training])] of each worker of a crun that has one."""
    found = []
    for line in process.out.splitlines(keepends=True):
        kind, *words = line.split() or [""]
        facts = dict(word.split("=", 1) for word in words if "=" in word)
        if kind == "env" and line.endswith("\n"):
            found.append((facts, []))
        elif kind == "epoch" and line.endswith("\n"):
            found[-1][1].append(int(facts["epoch"]))
    return found
