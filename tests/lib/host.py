# SPDX-License-Identifier: MIT
"""
Several hosts on one machine: network namespaces with host names of their own, joined by
a bridge in another namespace. Needs root; `available()` says why not where it cannot be.

    with host.Cluster(2) as cluster:
        p = cluster[0].start(["build/bin/crun", ...])

Everything a cluster started is ended with it, by process id.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from process import Process

# Run by python3 with an interface and a file: writes all that passes the interface.
# a job that never stops sending must not fill the disk
SNIFFER = r'''
import signal, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 0))
with open(sys.argv[2], "wb", 0) as f:
    print("ready", flush=True)
    while f.tell() < 1 << 24:
        f.write(s.recv(65536))
while True:
    signal.pause()
'''


outer_pid = os.getpid()  # of this test, also when it is enclosed


def available():
    """None, or why there can be no namespaces here."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "unshare", "nsenter"):
        if not shutil.which(tool):
            return f"{tool} is not installed"
    probe = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True)
    return None if probe.returncode == 0 else "namespaces cannot be made here"


def enclose():
    """
    Runs the test again in network, mount and pid namespaces of its own, where /run/netns is
    its own as well: what it starts and makes ends with it, even if it is killed.
    """
    global outer_pid
    pid = os.environ.pop("CRUN_TEST_ENCLOSED", None)
    if pid is None:
        os.environ["CRUN_TEST_ENCLOSED"] = str(os.getpid())
        os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
                              "--mount-proc", sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an init has no default action
    os.makedirs("/run/netns", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
    ip("link", "set", "lo", "up")
    outer_pid = int(pid)


def ip(*words, ns=None, check=True):
    command = ["ip"] + (["-n", ns] if ns else []) + [str(w) for w in words]
    subprocess.run(command, check=check, capture_output=True)


def add_host(ns, interface, peer, switch, address):
    """A namespace whose interface is the other end of `peer`, in the switch's namespace."""
    ip("netns", "add", ns)
    ip("link", "add", interface, "netns", ns, "type", "veth", "peer", "name", peer, "netns", switch)
    ip("link", "set", peer, "up", ns=switch)
    ip("addr", "add", address + "/24", "dev", interface, ns=ns)
    ip("link", "set", interface, "up", ns=ns)
    ip("link", "set", "lo", "up", ns=ns)


class Node:
    def __init__(self, cluster, index):
        self.cluster = cluster
        self.name = f"node-{index}"
        self.ns = f"crun{os.getpid()}n{index}"
        self.address = f"10.77.0.{index + 1}"
        self.interface = f"v{os.getpid() % 100000}x{index}"
        self._peer = f"p{os.getpid() % 100000}x{index}"

    def make(self):
        add_host(self.ns, self.interface, self._peer, self.cluster.switch, self.address)
        ip("link", "set", self._peer, "master", "br0", ns=self.cluster.switch)

    def start(self, command, env=None, **options):
        # `ip netns exec`, unshare and sh all become the command: the pid is its own
        p = Process(["ip", "netns", "exec", self.ns, "unshare", "--uts", "sh", "-c",
                     f'hostname {self.name}; exec "$@"', "sh", *command],
                    where=f" on {self.name}", env={**os.environ, **(env or {})},
                    start_new_session=True, **options)
        p.node, p.command = self, [str(word) for word in command]
        self.cluster.processes.append(p)
        return p

    def cut(self):
        """Take the link away silently: no side gets a reset."""
        ip("link", "set", self._peer, "down", ns=self.cluster.switch)

    def deafen(self):
        """The node receives nothing; what it sends arrives."""
        for node in self.cluster.nodes:
            if node is not self:
                ip("neigh", "replace", self.address, "lladdr", "02:00:00:00:00:01", "nud",
                   "permanent", "dev", node.interface, ns=node.ns)

    def hear(self):
        for node in self.cluster.nodes:
            if node is not self:
                ip("neigh", "del", self.address, "dev", node.interface, ns=node.ns)

    def lose_large(self, mtu=1200):
        """Packets larger than that are lost in both directions, without an error."""
        for node in self.cluster.nodes:  # one packet at a time, or the size is not looked at
            ip("link", "set", node.interface, "gso_max_segs", "1", ns=node.ns)
        ip("link", "set", self._peer, "mtu", str(mtu), ns=self.cluster.switch)

    def mend(self):
        ip("link", "set", self._peer, "up", ns=self.cluster.switch)


class Cluster:
    node_class = Node

    def __init__(self, count):
        self.directory = tempfile.mkdtemp(prefix="crun-nodes-")
        self.switch = f"crun{os.getpid()}sw"
        self.processes = []
        self.nodes = [self.node_class(self, i) for i in range(count)]

    def __enter__(self):
        ip("netns", "add", self.switch)
        ip("link", "add", "br0", "type", "bridge", ns=self.switch)
        ip("link", "set", "br0", "up", ns=self.switch)
        for node in self.nodes:
            node.make()
        return self

    def __getitem__(self, index):
        return self.nodes[index]

    def __exit__(self, *_):
        for p in self.processes:
            p.end()
        for ns in [n.ns for n in self.nodes] + [self.switch]:
            subprocess.run(["ip", "netns", "del", ns], capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def need():
    """Ends a test that cannot run here."""
    why = available()
    if why:
        print(f"SKIPPED: several nodes on one machine: {why}")
        sys.exit(77)
