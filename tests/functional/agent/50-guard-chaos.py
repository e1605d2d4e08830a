#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 15 s
"""
Agents, guards and workers are killed with -9 at random moments, while the workers are
deaf to TERM, stopped, and have daemons for children: grandchildren with sessions of
their own and no descriptors. Nothing of a launch lives afterwards, and none of its
cgroups, folders, sockets and memory files is left. In a cgroup where there can be one, in
sessions, and as an ordinary user.

  50-guard-chaos.py [KILLS] [SEED] [MODE]     120 kills; by hand: 1000 and more
"""
import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import (BIN, SANITIZED, SECONDS, children, living, own_cgroup,  # noqa: E402
                     processes, read, slowdown, stat_of)

KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 120
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
SLOW = 5 if SANITIZED else 1
SOON = 0.1 * SLOW  # the promise, kept by 19 of 20 ...
LATEST = SECONDS  # ... and this by all, on however busy a machine
NOBODY = 65534
WORKERS = 3
WORLDS = [
    "orphan 2 child sleep",
    "ignore 15 orphan 1 sleep",
    "child orphan 1 stop sleep",
    "orphan 1 storm 1 sleep",
    "sleep",
]
MODES = ["cgroup", "session"] + (["nobody"] if os.getuid() == 0 else [])
MODES = sys.argv[3:4] or MODES
CLONE_NEWNET = 0x40000000
VICTIMS = ["agent", "guard", "worker", "both"]


class OwnCgroup:
    """Below the one we are in, where that is allowed: in it, no other agent of the machine
    sweeps the leftovers of ours, with its own TMPDIR."""

    def __init__(self):
        self.before, self.path = own_cgroup(), None
        try:
            path = os.path.join(self.before or "/nonexistent", f"guard-chaos-{os.getpid()}")
            os.mkdir(path)
            self.path = path
            self.move_to(path)
        except OSError:
            self.close()

    @staticmethod
    def move_to(path):
        with open(os.path.join(path, "cgroup.procs"), "w") as f:
            f.write(str(os.getpid()))

    def close(self):
        if self.path:
            self.move_to(self.before)
            subprocess.run(["rmdir", self.path], check=False)


class Launch:
    """One agent with its guard and workers, which end the moment we leave it."""

    agents = set()

    def __init__(self, mode):
        self.mode = mode
        self.cookie = f"GUARD_CHAOS={os.getpid()}.{SEED}.{time.monotonic_ns()}".encode()
        env = {**os.environ, "GUARD_CHAOS": self.cookie.decode().partition("=")[2],
               "TMPDIR": FOLDERS}
        if mode != "cgroup":
            env["CRUN_NO_CGROUP"] = "1"
        worker = [os.path.join(PROGRAMS, "test-worker"), *random.choice(WORLDS).split()]
        self.agent = subprocess.Popen(
            random.choice(AGENTS) + worker, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            user=NOBODY if mode == "nobody" else None)
        Launch.agents.add(self.agent.pid)

    def guard(self):
        """Perhaps there is a warden in between."""
        below = children(self.agent.pid)
        for pid in below + [grandchild for pid in below for grandchild in children(pid)]:
            if stat_of(pid).name == "crun-guard":
                return pid
        return None

    def workers(self):
        guard = self.guard()
        return children(guard) if guard else []

    def kill(self, victim):
        """False if there was nothing to kill yet."""
        if victim == "agent":
            self.agent.kill()
        elif victim == "guard":
            self.killed_guard = self.guard()
            return kill(self.killed_guard)
        elif victim == "worker":
            workers = self.workers()
            return kill(random.choice(workers)) if workers else False
        else:  # the agent first, and the guard before it can do anything
            guard = self.guard()
            if not guard:
                return False
            os.kill(guard, signal.SIGSTOP)
            # it may be making a child
            while stat_of(guard).name == "crun-guard" and stat_of(guard).state in ("R", "S", "D"):
                time.sleep(0.001)
            holders = [guard] + children(guard)
            self.agent.kill()
            os.kill(guard, signal.SIGKILL)
            # what says that the cgroup is in use goes with the guard, and with workers
            # that had not come to be the program yet
            while any(stat_of(pid).name == "crun-guard" and stat_of(pid).state not in ("Z", "X")
                      for pid in holders):
                time.sleep(0.001)
        return True

    def goes_on(self):
        """After its guard was killed: whether the agent lives, with another guard."""
        deadline = time.monotonic() + SECONDS
        while self.agent.poll() is None:
            guard = self.guard()  # or a worker on its way, of the old guard: has no child
            if guard not in (None, self.killed_guard) and children(guard):
                return True
            assert time.monotonic() < deadline, f"{self.mode}: no guard, and no end: {self.agent.args}"
            time.sleep(0.001)
        return False

    def gone(self):
        """How long it takes until nothing is left; the agent must end by itself."""
        started = time.monotonic()
        while True:
            looked = time.monotonic() - started
            self.agent.poll()
            left = living(self.cookie)
            if not left and self.agent.returncode is not None:
                return looked
            assert looked < LATEST, f"{self.mode}: after {looked:.3f} s {describe(left)}"
            time.sleep(0.001)


def kill(pid):
    try:
        if pid:
            os.kill(pid, signal.SIGKILL)
            return True
    except ProcessLookupError:
        pass
    return False


def describe(pids):
    return "; ".join(f"{pid} {read(f'/proc/{pid}/cmdline')!r} "
                     f"{read(f'/proc/{pid}/stat')[-200:].split()[-50:]!r}" for pid in pids)


def one(victim, mode):
    """How long it took until all was over, or None if the kill hit nothing."""
    launch = Launch(mode)
    try:
        time.sleep(random.choice([0, 0.002, 0.005, 0.01, 0.02, 0.05]) * random.random() * SLOW)
        if not launch.kill(victim):
            return None
        if victim == "worker":  # the group is started anew; then all of it goes
            time.sleep(random.random() * 0.01)
            launch.kill("agent")
        if victim == "guard" and launch.goes_on():
            launch.kill("agent")
        if victim == "both":  # what is left is the warden's to end, or in a cgroup the
            launch.agent.wait()  # next agent's
            if mode == "cgroup":
                finish(Launch(mode))
        return launch.gone()
    finally:
        launch.agent.kill()
        launch.agent.wait()


def finish(launch):
    """A launch that is up, and ended."""
    deadline = time.monotonic() + SECONDS
    while len(launch.workers()) < WORKERS:
        assert time.monotonic() < deadline, f"{launch.mode}: no workers"
        time.sleep(0.001)
    launch.kill("agent")
    launch.agent.wait()
    launch.gone()


def cgroups():
    """Those of our agents."""
    own = own_cgroup()
    return [name for name in (os.listdir(own) if own else [])
            if name.startswith("crun-") and int(name.split("-")[1]) in Launch.agents]


def own_network():
    """Then all sockets in view are ours, and so is every process; root can have it."""
    alone = os.getuid() == 0 and ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0
    if alone:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return alone


def lines_of(path, wanted=""):
    return [line for line in read(path).decode().splitlines()[1:] if wanted in line]


def in_our_network():
    """The processes that live in it, but for ourselves; the dead have no namespace."""
    found = []
    for pid in processes():
        try:
            if pid != os.getpid() and (os.readlink(f"/proc/{pid}/ns/net") ==
                                       os.readlink("/proc/self/ns/net")):
                found.append(pid)
        except OSError:
            pass
    return found


def memory_files(pids):
    found = []
    for pid in pids:
        try:
            found += [link for fd in os.listdir(f"/proc/{pid}/fd")
                      if "/memfd:" in (link := os.readlink(f"/proc/{pid}/fd/{fd}"))]
        except OSError:
            pass
    return found


def leftovers(alone):
    """What is there of all launches, by kind. Without a network of our own sockets cannot
    be told from others': then they are not in the list."""
    mine = f"GUARD_CHAOS={os.getpid()}.".encode()
    pids = set(living(mine)) | set(in_our_network() if alone else [])
    left = {"processes": pids, "memory files": memory_files(pids), "cgroups": cgroups(),
            "folders": os.listdir(FOLDERS)}
    if alone:
        left["unix sockets"] = lines_of("/proc/net/unix")
        left["listening sockets"] = [line for name in ("tcp", "tcp6")
                                     for line in lines_of(f"/proc/net/{name}", " 0A ")]
    return left


def nothing_is_left(alone):
    deadline = time.monotonic() + SECONDS  # the last ones may still be on their way
    while any((left := leftovers(alone)).values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    print("left: " + ", ".join(f"{len(found)} {kind}" for kind, found in left.items()))
    assert not any(left.values()), f"left: {left}"


def has_cgroup():
    launch = Launch("cgroup")
    try:
        while len(launch.workers()) < WORKERS:
            time.sleep(0.001)
        return len(cgroups()) > 0
    finally:
        launch.kill("agent")
        launch.agent.wait()
        launch.gone()


def programs_for_all():
    """A folder of the programs that an ordinary user can get at."""
    folder = tempfile.mkdtemp(prefix="guard-chaos-")
    os.chmod(folder, 0o755)
    for name in ("crun", "guard-driver", "test-worker"):
        shutil.copy(BIN / name, folder)
    return folder


def main():
    random.seed(SEED)
    print(f"seed {SEED}", flush=True)
    alone = own_network()
    contained = has_cgroup()
    print("cgroups: " + ("usable" if contained else "not usable here"))
    for mode in MODES:  # a process that ends by itself would be easy to kill
        finish(Launch(mode))
    took, hits = [], dict.fromkeys(VICTIMS, 0)
    while sum(hits.values()) < KILLS:
        victim, mode = random.choice(VICTIMS), random.choice(MODES)
        seconds = one(victim, mode)
        if seconds is not None:
            hits[victim] += 1
            took.append(seconds)
    for mode in dict.fromkeys(["cgroup", *MODES]):  # sweeps what its user has left that was
        finish(Launch(mode))  # killed before there was a guard
    nothing_is_left(alone)
    took.sort()
    print(f"killed {hits}; all gone after: median {took[len(took) // 2] * 1000:.0f} ms, "
          f"19 of 20 {took[len(took) * 19 // 20] * 1000:.0f} ms, last {took[-1] * 1000:.0f} ms")
    crowd = max(1, os.getloadavg()[0] / os.cpu_count(), slowdown())
    assert took[len(took) * 19 // 20] <= SOON * crowd, "too late"


PROGRAMS = programs_for_all()
FOLDERS = tempfile.mkdtemp(prefix="guard-chaos-tmp-")
os.chmod(FOLDERS, 0o1777)
AGENTS = [  # crun, and the least that can have a guard
    [os.path.join(PROGRAMS, "crun"), "--standalone", f"--nproc-per-node={WORKERS}",
     "--max-restarts=1000", "--restart-backoff=0"],
    [os.path.join(PROGRAMS, "guard-driver"), str(WORKERS)],
]
CGROUP = OwnCgroup()
try:
    main()
finally:
    CGROUP.close()
    shutil.rmtree(PROGRAMS)
    shutil.rmtree(FOLDERS, ignore_errors=True)  # perhaps others are at it
