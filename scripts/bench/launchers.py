# SPDX-License-Identifier: MIT
"""crun and the launchers it is compared with: command lines, and the resources of their processes.

Peers that are not installed (scripts/bench/setup) are None and left out.
"""

import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

OURS = "crun"


class Launcher:
    """One way to launch workers on this machine. `rounds` bounds how often a slow one
    takes part."""

    def __init__(self, name, command, rounds=None):
        self.name, self.command, self.rounds = name, command, rounds

    def argv(self, workers, program):
        return [word.replace("{N}", str(workers)) for word in self.command] + program


def crun(build):
    path = f"{build}/bin/crun"
    return [path] if os.access(path, os.X_OK) else None


def torchrun():
    """The newest one that scripts/torch-venv has installed."""
    cache = os.environ.get("CRUN_INTEROP_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "crun-interop")

    def version(path):
        return [int(n) for n in re.findall(r"\d+", path.rsplit("torch-", 1)[1])]

    found = glob.glob(f"{cache}/torch-*/complete")
    return [os.path.dirname(max(found, key=version)) + "/bin/torchrun"] if found else None


def installed(command):
    return [command] if shutil.which(command) else None


def available(wanted, tell=True):
    """Those of [(name, argv or None, further words, rounds)] that are installed."""
    here = []
    for name, program, words, rounds in wanted:
        if program:
            here.append(Launcher(name, program + words, rounds))
        elif tell:
            missing = "not built" if name == OURS else "not installed"
            print(f"{name} is {missing}: left out", file=sys.stderr)
    return here


def environment():
    """torchrun's banner and warnings are not needed here."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


QUIET = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
         (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]


def spawn(argv, stderr=None):
    """subprocess.Popen itself takes milliseconds. Returns the pid."""
    actions = QUIET + ([(os.POSIX_SPAWN_OPEN, 2, stderr, os.O_WRONLY | os.O_CREAT, 0o600)]
                       if stderr else [])
    return os.posix_spawnp(argv[0], argv, environment(), file_actions=actions)


def wait_all(pids):
    """The exit codes, in the order of pids."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def children():
    """{parent: [child, ...]} of all processes."""
    tree = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as stat:
                pid, rest = stat.read().split(" (", 1)
        except OSError:
            continue
        tree.setdefault(int(rest.rsplit(")", 1)[1].split()[1]), []).append(int(pid))
    return tree


def descendants(pid):
    """pid itself first, then all below it."""
    tree, found = children(), [pid]
    for one in found:
        found += tree.get(one, [])
    return found


def runs(pid, program):
    try:
        return os.path.realpath(program) == os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False


def pss_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return int(re.search(r"^Pss:\s+(\d+)", rollup.read(), re.M).group(1))


def cpu_ns(pid):
    """Finer than utime and stime, which count in hundredths of a second."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path) as schedstat:
            total += int(schedstat.read().split()[0])
    return total


class Job:
    """A running job of `workers` processes of `program`; leaving its context ends it."""

    def __init__(self, launcher, workers, argv):
        self.program, self.workers = argv[0], workers
        self.name = launcher.name
        self.process = subprocess.Popen(
            launcher.argv(workers, argv), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())

    def wait_for_workers(self, deadline_s=60):
        end = time.monotonic() + deadline_s
        while time.monotonic() < end and self.process.poll() is None:
            below = descendants(self.process.pid)
            if sum(runs(pid, self.program) for pid in below) == self.workers:
                return
            time.sleep(0.05)
        sys.exit(f"{self.name} does not start {self.workers} workers")

    def own_processes(self):
        """The launcher's, without the workers."""
        return [p for p in descendants(self.process.pid) if not runs(p, self.program)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
