#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 20 s
# sanitizers: no, test_store_server_doors runs the code
"""
The store of rank 0 with --store-auth user: a connection of another host is served if it is
of the job's user there, for whom that host's agent vouches. Other users of that host, whose
address is a member's, get nothing.
"""
import os
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, expect, fail, until  # noqa: E402
import host  # noqa: E402

STRANGER = 12345
REFUSED = ("got b''", "got [Errno 104] Connection reset by peer")

# A worker: sets its key in the store, waits for that of the other rank, then for the end.
WORKER = r'''
import os, socket, struct, time
def text(s): return struct.pack("<Q", len(s)) + s
rank = os.environ["RANK"].encode()
begun = time.monotonic()
s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
s.sendall(b"\0" + struct.pack("<I", 0x3c85f7ce) + b"\x0d" + b"ping")
assert s.recv(4, socket.MSG_WAITALL) == b"ping", "the store has closed the connection"
print("served", rank.decode(), "after", round((time.monotonic() - begun) * 1000, 1), "ms", flush=True)
s.sendall(b"\x01" + text(b"k" + rank) + text(b"the secret value " + rank))
other = b"1" if rank == b"0" else b"0"
s.sendall(b"\x06" + struct.pack("<Q", 1) + text(b"k" + other))
assert s.recv(1) == b"\0"
print("store", os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"], flush=True)
while not os.path.exists(os.environ["END"]):
    time.sleep(0.01)
'''

SECRET = b"the secret value"

# Another user's program: what the store answers to a correct client within ten seconds.
INTRUDER = r'''
import socket, struct, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
s.settimeout(20)
try:
    s.sendall(b"\0" + struct.pack("<I", 0x3c85f7ce) + b"\x0d" + b"ping")
    print("got", s.recv(4))
except OSError as e:
    print("got", e)
'''


def new_key(cluster):
    path = f"{cluster.directory}/key"
    subprocess.run([BIN / "crunctl", "keygen", path], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return path


class Job:
    def __init__(self, cluster, name, *flags, daemon=None):
        self.name, self.end, self.daemon = name, f"{cluster.directory}/{name}.end", daemon
        worker = f"{cluster.directory}/worker.py"
        with open(worker, "w") as f:
            f.write(WORKER)
        os.chmod(cluster.directory, 0o755)
        self.nodes = [cluster[i].start(
            [BIN / "crun", "--nnodes=2", f"--node-rank={i}",
             *(["--rdzv-endpoint=10.77.0.2:29501", f"--rdzv-id={name}", "--rdzv-backend=c10d"]
               if daemon else [f"--master-addr={cluster[0].address}", "--master-port=29500"]),
             *flags, "--no-python", sys.executable, worker],
            env={"END": self.end}) for i in range(2)]

    def running(self):
        def both():
            for p in self.nodes:
                if p.popen.poll() is not None:
                    fail(p, "ended:", p.out, p.err)
            return all("store " in p.out for p in self.nodes)
        until(both, lambda: f"{self.name}: both ranks meet: {[p.out + p.err for p in self.nodes]}")
        return self.nodes[0].out.split("store ")[1].split()[:2]

    def ends_well(self):
        open(self.end, "w").close()
        for p in self.nodes:
            expect(p, 0)


def intruder(cluster, i, where, user):
    p = cluster[i].start(["setpriv", f"--reuid={user}", "--clear-groups", sys.executable, "-c",
                          INTRUDER, *where])
    expect(p, 0)
    return p.out.strip()


def another_user_of_the_second_host_gets_nowhere(cluster):
    nowhere(cluster, Job(cluster, "user", "--store-auth=user"))


def a_key_is_enough_for_that(cluster):
    nowhere(cluster, Job(cluster, "keyed", f"--key-file={new_key(cluster)}"))


def nowhere(cluster, job):
    where = job.running()
    got = intruder(cluster, 1, where, STRANGER)
    if got not in REFUSED:
        fail("a stranger", got)
    until(lambda: "knows no socket of this job's user" in job.nodes[0].err, "a line of the refusal")
    got = intruder(cluster, 1, where, 0)  # of the job's user
    if got != "got b'ping'":
        fail("the job's user", got)
    job.ends_well()


def by_address_any_user_of_a_members_host_may_come(cluster):
    """As in a job without a key. With one, that is said."""
    job = Job(cluster, "address", "--store-auth=address", f"--key-file={new_key(cluster)}")
    got = intruder(cluster, 1, job.running(), STRANGER)
    if got != "got b'ping'":
        fail("by address", got)
    if job.nodes[0].err.count("every user of a node's machine can") != 1:
        fail(job.nodes[0].err)
    job.ends_well()


def a_host_whose_agent_is_frozen_gets_no_service_and_harms_no_other(cluster):
    job = Job(cluster, "frozen", "--store-auth=user", "--rdzv-conf=lease=30")
    where = job.running()
    os.kill(job.nodes[1].pid, 19)
    begun = time.monotonic()
    got = intruder(cluster, 1, where, 0)
    took = time.monotonic() - begun
    os.kill(job.nodes[1].pid, 18)
    if got not in REFUSED or took <= 3:
        fail("with a frozen agent:", got, "after", took, "s")
    if intruder(cluster, 0, where, 0) != "got b'ping'":
        fail("rank 0's own node")
    job.ends_well()


def all_nodes_must_agree(cluster):
    a, b = [cluster[i].start(
        [BIN / "crun", "--nnodes=2", f"--node-rank={i}", f"--master-addr={cluster[0].address}",
         "--rdzv-conf=join_timeout=20", f"--store-auth={how}", "--no-python", "true"])
        for i, how in enumerate(("user", "address"))]
    expect(b, 2)
    until(lambda: "--store-auth is user in the job and address" in a.err, lambda: a.err)
    a.end()


def capture(cluster, i):
    """What goes over the wire of a host, from now on: a process and its file."""
    path = f"{cluster.directory}/wire"
    p = cluster[i].start([sys.executable, "-c", host.SNIFFER, cluster[i].interface, path])
    until(lambda: "ready" in p.out, "the capture")
    return p, path


def in_a_tunnel_no_byte_of_the_store_is_in_clear(cluster):
    """Workers meet at 127.0.0.1, and other users of both hosts do not get in."""
    tunnelled(cluster, Job(cluster, "tunnel", f"--key-file={new_key(cluster)}", "--store-tunnel"))


def a_store_with_a_port_of_its_own_has_tunnels_too(cluster):
    """The rendezvous is a crund."""
    key = new_key(cluster)
    daemon = cluster[1].start([BIN / "crund", f"--listen={cluster[1].address}:29501",
                               f"--key-file={key}"])
    until(lambda: "29501" in daemon.err, lambda: daemon.err)
    tunnelled(cluster, Job(cluster, "own", f"--key-file={key}", "--store-tunnel", daemon=daemon))
    daemon.end()


def tunnelled(cluster, job):
    sniffer, path = capture(cluster, 1)
    job.running()
    for i, p in enumerate(job.nodes):
        where = p.out.split("store ")[1].split()[:2]
        if where[0] != "127.0.0.1":
            fail(p.out)
        got = intruder(cluster, i, where, STRANGER)
        if got not in REFUSED:
            fail("a stranger on node", i, got)
        got = intruder(cluster, i, where, 0)
        if got != "got b'ping'":
            fail("the job's user on node", i, got)
    store = job.nodes[0].out.split("store ")[1].split()[1] if job.daemon else "29500"
    got = intruder(cluster, 1, [cluster[0].address, store], 0)  # plain, and not in a tunnel
    if got not in REFUSED:
        fail("plain from another machine", got)
    job.ends_well()
    sniffer.end()
    with open(path, "rb") as f:
        wire = f.read()
    if b"crun1-store:" not in wire:
        fail("the capture has no tunnel:", len(wire), "bytes")
    if SECRET in wire:
        fail("the capture shows what workers set")


def the_worker_library_speaks_tls_itself(cluster):
    """Its keys are on the wire without a key, and are not with one, tunnel or not."""
    for name, *flags in [["plain"], ["keyed", "key"], ["tunnel", "key", "--store-tunnel"]]:
        sniffer, path = capture(cluster, 1)
        if flags:
            flags[0] = f"--key-file={new_key(cluster)}"
        nodes = [cluster[i].start(
            [BIN / "crun", "--nnodes=2", f"--node-rank={i}", "--nproc-per-node=2",
             f"--master-addr={cluster[0].address}", f"--rdzv-id={name}", *flags, "--no-python",
             BIN / "example-all-reduce"]) for i in range(2)]
        for p in nodes:
            expect(p, 0)
        sniffer.end()
        with open(path, "rb") as f:
            wire = f.read()
        if (b"rank/2/who" in wire) != (name == "plain"):
            fail(f"keys of the store on the wire of the job {name}")
        if (b"crun1-store:" in wire) != (name != "plain"):
            fail(f"TLS with the store on the wire of the job {name}")
        os.remove(f"{cluster.directory}/key") if flags else None


def a_tunnel_needs_a_key(cluster):
    p = cluster[0].start([BIN / "crun", "--nnodes=2", "--node-rank=0", "--store-tunnel",
                          f"--master-addr={cluster[0].address}", "--no-python", "true"])
    expect(p, 2)
    if "--store-tunnel needs a key" not in p.err:
        fail(p.err)


CHECKS = [
    in_a_tunnel_no_byte_of_the_store_is_in_clear,
    a_store_with_a_port_of_its_own_has_tunnels_too,
    the_worker_library_speaks_tls_itself,
    a_tunnel_needs_a_key,
    a_key_is_enough_for_that,
    another_user_of_the_second_host_gets_nowhere,
    by_address_any_user_of_a_members_host_may_come,
    a_host_whose_agent_is_frozen_gets_no_service_and_harms_no_other,
    all_nodes_must_agree,
]


if __name__ == "__main__":
    host.need()
    for check in CHECKS:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        with host.Cluster(2) as cluster:
            check(cluster)
        print(f"ok {check.__name__}", flush=True)
