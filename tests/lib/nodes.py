# SPDX-License-Identifier: MIT
"""
Several hosts on one machine: network namespaces with host names of their own, joined by
a bridge in another namespace. Needs root; `available()` says why not where it cannot be.

    with nodes.Cluster(2) as cluster:
        p = cluster[0].start(["build/bin/crun", ...])

Everything a cluster started is ended with it, by process id.
"""
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

_count = itertools.count()


def available():
    """None, or why there can be no namespaces here."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "unshare", "nsenter"):
        if not shutil.which(tool):
            return f"{tool} is not installed"
    probe = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True)
    return None if probe.returncode == 0 else "namespaces cannot be made here"


def _ip(*words, ns=None):
    command = ["ip"] + (["-n", ns] if ns else []) + list(words)
    subprocess.run(command, check=True, capture_output=True)


class Process:
    """A command on a node; its output is in files, to be looked at while it runs."""

    def __init__(self, node, command, env=None, **options):
        self.node = node
        self.command = command
        base = os.path.join(node.cluster.directory, f"{node.name}-{next(_count)}")
        self.out_path, self.err_path = base + ".out", base + ".err"
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.popen = subprocess.Popen(
                ["ip", "netns", "exec", node.ns, "unshare", "--uts", "sh", "-c",
                 f'hostname {node.name}; exec "$@"', "sh"] + [str(w) for w in command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env={**os.environ, **(env or {})}, start_new_session=True, **options)
        # `ip netns exec`, unshare and sh all become the command: the pid is its own
        self.pid = self.popen.pid

    @property
    def out(self):
        with open(self.out_path, errors="replace") as f:
            return f.read()

    @property
    def err(self):
        with open(self.err_path, errors="replace") as f:
            return f.read()

    def kill(self, signo=signal.SIGKILL):
        try:
            os.kill(self.pid, signo)
        except ProcessLookupError:
            pass

    def wait(self, seconds=30):
        """The exit code (-N for signal N); fails with what was said if it takes longer."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            sys.exit(f"FAILED: {self} still runs after {seconds} s\n{self.out}{self.err}")

    def __str__(self):
        return f"{' '.join(map(str, self.command))} on {self.node.name}"


class Node:
    def __init__(self, cluster, index):
        self.cluster = cluster
        self.name = f"node-{index}"
        self.ns = f"crun{os.getpid()}n{index}"
        self.address = f"10.77.0.{index + 1}"
        self.interface = f"v{os.getpid() % 100000}x{index}"
        self._peer = f"p{os.getpid() % 100000}x{index}"

    def make(self):
        _ip("netns", "add", self.ns)
        _ip("link", "add", self.interface, "netns", self.ns, "type", "veth", "peer", "name",
            self._peer, "netns", self.cluster.switch)
        _ip("link", "set", self._peer, "master", "br0", "up", ns=self.cluster.switch)
        _ip("addr", "add", self.address + "/24", "dev", self.interface, ns=self.ns)
        _ip("link", "set", self.interface, "up", ns=self.ns)
        _ip("link", "set", "lo", "up", ns=self.ns)

    def start(self, command, **options):
        p = Process(self, command, **options)
        self.cluster.processes.append(p)
        return p

    def cut(self):
        """Take the link away, silently: nobody gets a reset."""
        _ip("link", "set", self._peer, "down", ns=self.cluster.switch)

    def lose_large(self, mtu=1200):
        """Packets larger than that are lost both ways, silently: nobody is told of it."""
        for node in self.cluster.nodes:  # one packet at a time, or the size is not looked at
            _ip("link", "set", node.interface, "gso_max_segs", "1", ns=node.ns)
        _ip("link", "set", self._peer, "mtu", str(mtu), ns=self.cluster.switch)

    def mend(self):
        _ip("link", "set", self._peer, "up", ns=self.cluster.switch)


class Cluster:
    def __init__(self, count):
        self.directory = tempfile.mkdtemp(prefix="crun-nodes-")
        self.switch = f"crun{os.getpid()}sw"
        self.processes = []
        self.nodes = [Node(self, i) for i in range(count)]

    def __enter__(self):
        _ip("netns", "add", self.switch)
        _ip("link", "add", "br0", "type", "bridge", ns=self.switch)
        _ip("link", "set", "br0", "up", ns=self.switch)
        for node in self.nodes:
            node.make()
        return self

    def __getitem__(self, index):
        return self.nodes[index]

    def __exit__(self, *_):
        for p in self.processes:
            if p.popen.poll() is None:
                p.kill()
                p.popen.wait()
        for ns in [n.ns for n in self.nodes] + [self.switch]:
            subprocess.run(["ip", "netns", "del", ns], capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def run(tests, argument):
    """The tests one after another; only those that the command line names, if it does."""
    for test in tests:
        if sys.argv[1:] and test.__name__ not in sys.argv[1:]:
            continue
        begun = time.monotonic()
        test(argument)
        print(f"ok {test.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)


def need():
    """Ends a test that has nowhere to run."""
    why = available()
    if why:
        print(f"SKIPPED: several nodes on one machine: {why}")
        sys.exit(77)
