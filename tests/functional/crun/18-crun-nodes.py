#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 5 s
"""
crun on several nodes, each a network namespace with an address and a host name of its
own: where the rendezvous runs, which ranks come out, how failures, signals and losses end.
"""
import pathlib
import signal
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, expect, fail, run, until  # noqa: E402
import host  # noqa: E402

CRUN = BIN / "crun"

# what a worker says of itself, a word each
SHOW = ("echo rank=$RANK local=$LOCAL_RANK world=$WORLD_SIZE group=$GROUP_RANK/"
        "$GROUP_WORLD_SIZE restart=$TORCHELASTIC_RESTART_COUNT epoch=$CRUN_EPOCH "
        "master=$MASTER_ADDR:$MASTER_PORT;")


def ranks(*processes):
    """{rank: {name: value}} of the workers of the newest epoch, the last line of each."""
    found = {}
    for p in processes:
        for line in p.out.splitlines():
            if line.startswith("rank="):
                facts = dict(word.split("=", 1) for word in line.split())
                found[int(facts["rank"])] = facts
    newest = max((int(f["epoch"]) for f in found.values()), default=0)
    return {rank: f for rank, f in found.items() if int(f["epoch"]) == newest}


def static(cluster, index, workers, *rest, nnodes=2, flags=()):
    return cluster[index].start(
        [CRUN, f"--nnodes={nnodes}", f"--node_rank={index}",
         f"--master_addr={cluster[0].address}", "--master_port=29500",
         f"--nproc_per_node={workers}", *flags, *rest])


def dynamic(node, endpoint, workers, *rest, nnodes="2", flags=()):
    return node.start(
        [CRUN, f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
         "--rdzv-id=job", f"--nproc-per-node={workers}", *flags, *rest])


def sh(script):
    return ["sh", "-c", script]


def check_ranks(found, world, master):
    if sorted(found) != list(range(world)):
        fail("ranks", sorted(found), "not 0 to", world - 1)
    for rank, facts in found.items():
        if facts["world"] != str(world) or facts["master"] != master:
            fail("rank", rank, "has", facts, "not world", world, "master", master)


# -- the command lines as typed -------------------------------------------------------


def two_nodes_static(cluster):
    b = static(cluster, 1, 3, *sh(SHOW))  # the first one retries
    a = static(cluster, 0, 1, *sh(SHOW))
    expect(a, 0, "formed: 2 nodes, 4 workers", "anyone who reaches port 29500 of "
           "this machine can run code as you: give all nodes the key that crunctl keygen makes")
    expect(b, 0)
    found = ranks(a, b)
    check_ranks(found, 4, f"{cluster[0].address}:29500")
    if found[0]["group"] != "0/2" or found[3]["group"] != "1/2":
        fail("group ranks", found)
    if [found[r]["local"] for r in range(4)] != ["0", "0", "1", "2"]:
        fail("local ranks", found)


def two_nodes_dynamic(cluster):
    endpoint = cluster[0].address
    b = dynamic(cluster[1], endpoint, 2, *sh(SHOW))
    a = dynamic(cluster[0], endpoint, 2, *sh(SHOW))
    expect(a, 0)
    expect(b, 0)
    check_ranks(ranks(a, b), 4, f"{endpoint}:29400")
    if {r for r, f in ranks(a).items()} != {0, 1}:
        fail("the node of the rendezvous does not have rank 0")


def each_role_has_its_ranks(cluster):
    """Counted among the nodes with the same role, also when the next epoch has others."""
    crund = cluster[2].start([BIN / "crund", "--listen", ":29400"])
    until(lambda: "listening" in crund.err, "crund")
    show = SHOW.replace(";", " role=$ROLE_NAME:$ROLE_RANK/$ROLE_WORLD_SIZE;")
    stay = sh(show + "exec sleep 1000")
    common = ["--rdzv-conf=last_call_timeout=60", "--max-restarts=3"]
    all3 = [dynamic(cluster[i], cluster[2].address, i + 1, *stay, nnodes="2:3",
                    flags=[f"--role={role}", *common])
            for i, role in enumerate(("trainer", "reader", "trainer"))]
    until(lambda: len(ranks(*all3)) == 6, "six workers")
    check_roles(all3, {0: "trainer", 1: "reader", 2: "trainer"},
                {"trainer": 4, "reader": 2})
    all3[2].kill(signal.SIGKILL)
    left = all3[:2]
    until(lambda: sorted(f["epoch"] for f in ranks(*left).values()) == ["2"] * 3,
                "the second epoch")
    check_roles(left, {0: "trainer", 1: "reader"}, {"trainer": 1, "reader": 2})
    left[0].kill(signal.SIGINT)
    for p in left:
        p.wait()
    crund.kill(signal.SIGTERM)
    expect(crund, 0)


def check_roles(processes, role_of, size_of):
    """A role's ranks follow those of the job, and each node's are its own role's."""
    world = ranks(*processes)
    seen = {role: 0 for role in size_of}
    mine = {rank: role_of[i] for i, p in enumerate(processes) for rank in ranks(p)}
    for rank in sorted(world):
        role = mine[rank]
        want = f"{role}:{seen[role]}/{size_of[role]}"
        if world[rank]["role"] != want:
            fail("rank", rank, "has the role", world[rank]["role"], "not", want)
        seen[role] += 1
    if seen != size_of:
        fail("roles are", seen, "not", size_of)


# VALIDATE, then PING, which comes back
ASK_STORE = ["--no-python", "python3", "-c", """
import os, socket, struct
s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
s.settimeout(10)
s.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + struct.pack("<BI", 13, 4711))
print("store", "answers" if s.recv(4) == struct.pack("<I", 4711) else "is closed", flush=True)
"""]


def the_host_need_not_be_rank_0(cluster):
    endpoint = cluster[0].address + ":29400"
    b = dynamic(cluster[1], endpoint, 1, *ASK_STORE, flags=["--node-rank=0"])
    a = dynamic(cluster[0], endpoint, 1, *ASK_STORE, flags=["--node-rank=1"])
    for p in (a, b):
        expect(p, 0, "store answers")


def with_a_daemon(cluster):
    crund = cluster[2].start([BIN / "crund", "--listen", ":29400"])
    until(lambda: "listening" in crund.err, "crund")
    flag = cluster.directory + "/once"
    again = SHOW + (f"if [ $RANK = 1 ] && mkdir {flag} 2>/dev/null; then kill -9 $$; fi;"
                    "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000")
    both = [dynamic(cluster[i], cluster[2].address, 2, *sh(again),
                    flags=["--max-restarts=2"]) for i in (0, 1)]
    for p in both:
        expect(p, 0, "killed by SIGKILL", "epoch 2 formed")
    found = ranks(*both)
    if sorted(found) != [0, 1, 2, 3] or any(f["restart"] != "1" for f in found.values()):
        fail("after the restart:", found)
    leader = found[0]["master"].split(":")[0]
    if leader not in (cluster[0].address, cluster[1].address):
        fail("MASTER_ADDR is", leader)
    crund.kill(signal.SIGTERM)
    expect(crund, 0)


def a_host_may_be_called_anything(cluster):
    # Linux's name of a machine without a name is (none)
    for name, shown in (("(none)", "_none_"), ("", "localhost")):
        rename = (f"import os, socket; socket.sethostname({name!r}); "
                  f"os.execv('{CRUN}', ['crun', 'sh', '-c', 'exit 3'])")
        expect(cluster[0].start(["python3", "-c", rename]), 3,
               f"rank 0 on {shown} exited with code 3")


# what Kubernetes calls a pod of a job
LONG_NAME = "trainer-worker-0.trainer-headless.machine-learning.svc.cluster.local"


def an_address_may_be_a_long_name(cluster):
    hosts = cluster.directory + "/hosts"
    pathlib.Path(hosts).write_text(f"127.0.0.1 localhost\n127.0.0.1 {LONG_NAME}\n")
    p = cluster[0].start(
        ["unshare", "--mount", "sh", "-c", f"mount --bind {hosts} /etc/hosts && exec \"$@\"",
         "sh", CRUN, f"--master-addr={LONG_NAME}", "--master-port=29500", *sh(SHOW)])
    expect(p, 0, f"master={LONG_NAME}:29500")


# -- how it ends ----------------------------------------------------------------------


def a_failure_ends_all_nodes_with_its_code(cluster):
    script = "[ $RANK = 2 ] && { echo broken >&2; exit 85; }; exec sleep 1000"
    a = static(cluster, 0, 2, *sh(script))
    b = static(cluster, 1, 2, *sh(script))
    for p in (a, b):
        expect(p, 85, "rank 2 on node-1 exited with code 85", "| broken",
               "exit code 85, as rank 2's")


def nodes_of_one_host_are_told_apart(cluster):
    """The second to come has its number behind the name, here and in what both say."""
    crund = cluster[2].start([BIN / "crund", "--listen", ":29400"])
    until(lambda: "listening" in crund.err, "crund")
    both = []
    for _ in range(2):
        both.append(dynamic(cluster[0], cluster[2].address, 1,
                            *sh("echo up; [ $RANK = 0 ] && exec sleep 1000; exit 3"),
                            flags=["--redirects=3", f"--log-dir={cluster.directory}/one"]))
        until(lambda: crund.err.count(" joined ") == len(both), "it has joined")
    for p in both:
        expect(p, 3, "node node-0:1")
    if "(on node-0:1)" not in both[0].err or "(on node-0:1)" in both[1].err:
        fail("the log does not name the node:", both[0].err, both[1].err)
    crund.kill(signal.SIGTERM)
    expect(crund, 0)


def sigterm_lets_one_node_leave(cluster):
    crund = cluster[2].start([BIN / "crund", "--listen", ":29400"])
    until(lambda: "listening" in crund.err, "crund")
    script = SHOW + "[ $WORLD_SIZE = 1 ] || exec sleep 1000"
    both = [dynamic(cluster[i], cluster[2].address, 1, *sh(script), nnodes="1:2",
                    flags=["--rdzv-conf=last_call_timeout=30"]) for i in (0, 1)]
    until(lambda: all("world=2" in p.out for p in both), "both run")
    both[1].kill(signal.SIGTERM)
    expect(both[1], 143, "crun: this node has left the job")
    if "has failed" in both[1].err:
        fail(f"a node that leaves prints a failure: {both[1].err}")
    expect(both[0], 0, "world=1", "node-1 leaves")
    crund.kill(signal.SIGTERM)
    expect(crund, 0)


def a_lost_node_ends_a_job_of_fixed_size(cluster):
    """At once, not after its lease."""
    a, b = [static(cluster, i, 1, *sh("echo up; exec sleep 1000"), flags=["--rdzv-conf=lease=600"])
            for i in (0, 1)]
    until(lambda: "up" in a.out and "up" in b.out, "both run")
    b.kill(signal.SIGKILL)
    expect(a, 1, "node node-1 was lost")


def the_loss_of_the_host_ends_all(cluster):
    a = static(cluster, 0, 1, *sh("echo up; exec sleep 1000"), flags=["--rdzv-conf=replicas=1"])
    b = static(cluster, 1, 1, *sh("echo up; exec sleep 1000"))
    until(lambda: "up" in a.out and "up" in b.out, "both run")
    a.kill(signal.SIGKILL)
    expect(b, 1, "no other node has kept the rendezvous' records")


def a_leader_lost_before_it_begins_holds_nobody_up(cluster):
    crund = cluster[2].start([BIN / "crund", "--listen", ":29400"])
    until(lambda: "listening" in crund.err, "crund")
    both = [dynamic(cluster[i], cluster[2].address, 1, *sh(SHOW), nnodes="1:3",
                    flags=[f"--node-rank={i}", "--rdzv-conf=lease=3,last_call_timeout=60"])
            for i in (0, 1)]
    until(lambda: crund.err.count(" joined ") == 2, "both have joined")
    both[0].kill(signal.SIGSTOP)  # rank 0's, which never opens the store
    last = dynamic(cluster[2], cluster[2].address, 1, *sh(SHOW), nnodes="1:3",
                   flags=["--node-rank=2", "--rdzv-conf=lease=3,last_call_timeout=60"])
    expect(both[1], 0, "epoch 2")
    expect(last, 0)
    both[0].kill()
    both[0].wait()
    crund.kill(signal.SIGTERM)
    expect(crund, 0)


# -- mistakes -------------------------------------------------------------------------


def mistakes_are_told_where_they_can_be_mended(cluster):
    a = cluster[0].start([CRUN, "--nnodes=2", "--node_rank=0", "--master_addr=10.77.0.99",
                          "--master_port=29500", "true"])
    warning = ("10.77.0.99 is not an address of this machine, which has 10.77.0.1: listening on "
               "all of them")
    until(lambda: warning in a.err, "it warns, and listens")
    a.kill(signal.SIGINT)
    expect(a, 130)
    a = static(cluster, 0, 1, *sh("true"))
    dup = cluster[1].start([CRUN, "--nnodes=2", "--node_rank=0",
                            f"--master_addr={cluster[1].address}", "--master_port=29501",
                            "true"])
    other = static(cluster, 1, 1, "false")  # another program
    expect(other, 2, "this rendezvous serves job \"sh\"", "this node runs false")
    b = static(cluster, 1, 1, *sh("true"))
    expect(a, 0)
    expect(b, 0)
    dup.kill(signal.SIGINT)
    expect(dup, 130)
    taken = cluster[0].start(["python3", "-c", "import socket, time; "
                              "s = socket.create_server(('0.0.0.0', 29500)); "
                              "print('up', flush=True); time.sleep(60)"])
    until(lambda: "up" in taken.out, "the port is taken")
    a = static(cluster, 0, 1, "true")
    expect(a, 2, "29500", "in use")
    taken.kill()


TESTS = [
    two_nodes_static,
    two_nodes_dynamic,
    each_role_has_its_ranks,
    the_host_need_not_be_rank_0,
    with_a_daemon,
    a_host_may_be_called_anything,
    an_address_may_be_a_long_name,
    a_failure_ends_all_nodes_with_its_code,
    nodes_of_one_host_are_told_apart,
    sigterm_lets_one_node_leave,
    a_lost_node_ends_a_job_of_fixed_size,
    the_loss_of_the_host_ends_all,
    a_leader_lost_before_it_begins_holds_nobody_up,
    mistakes_are_told_where_they_can_be_mended,
]


def main():
    host.need()
    with host.Cluster(3) as cluster:
        run(TESTS, cluster)


main()
