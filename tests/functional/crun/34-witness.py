#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 20 s
"""
Two nodes and a crund --witness, each a network namespace: the nodes lose each other, and one
of them goes on, never both.
"""
import os
import re
import signal
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, expect, fail, run, skip, until  # noqa: E402
import host  # noqa: E402

CRUN, CRUND, CRUNCTL = BIN / "crun", BIN / "crund", BIN / "crunctl"
PORT = 29400
WITNESS = f"10.77.0.3:{PORT}"

# a worker ends well once its stop file is there
WORKER = ('echo "world=$WORLD_SIZE epoch=$CRUN_EPOCH"; '
          'while [ ! -e "$DIR/end" ]; do sleep 0.05; done')


def start(cluster, index, witness=WITNESS, port=PORT, flags=()):
    return cluster[index].start(
        [CRUN, "-v", "--nnodes=1:2", f"--rdzv-endpoint={cluster[0].address}:{port}",
         "--rdzv-id=job", "--nproc-per-node=1",
         f"--rdzv-conf=last_call_timeout=60,lease=2,witness={witness}", *flags,
         "sh", "-c", WORKER], env={"DIR": cluster.directory})


def start_witness(cluster, *flags):
    p = cluster[2].start([CRUND, "--allow-root", f"--listen={WITNESS}", *flags])
    until(lambda: "listening on" in p.err, lambda: p.err)
    return p


def is_pair(p):
    said = re.findall(r"the records of the rendezvous are on (.*)\n", p.err)
    return bool(said) and said[-1] == "node-0, node-1: it outlives the loss of one"


def launch(cluster, **options):
    if os.path.exists(f"{cluster.directory}/end"):
        os.unlink(f"{cluster.directory}/end")
    ps = [start(cluster, i, **options) for i in range(2)]
    until(lambda: all("world=2 epoch=1" in p.out and is_pair(p) for p in ps),
          lambda: f"both keep the records\n{ps[0].err}\n{ps[1].err}")
    return ps


def end_well(cluster, p):
    with open(f"{cluster.directory}/end", "w", encoding="utf-8"):
        pass
    expect(p, 0)


def apart(cluster, on):
    """Both reach the witness, and not each other."""
    for node in cluster.nodes[:2]:
        host.ip("link", "set", "dev", node._peer, "type", "bridge_slave", "isolated",
                "on" if on else "off", ns=cluster.switch)


def says(p, text):
    until(lambda: text in p.out + p.err, lambda: f"{text}:\n{p.out}{p.err}")


def one_of_two_goes_on(cluster):
    """The witness has a key, and is started again on its state directory before."""
    key = f"{cluster.directory}/key"
    cluster[0].start([CRUNCTL, "keygen", key]).wait()
    keys = [f"--key-file={key}"]
    flags = ["--witness", f"--state-dir={cluster.directory}/state", *keys]
    os.mkdir(f"{cluster.directory}/state")
    w = start_witness(cluster, *flags)
    ps = launch(cluster, flags=keys)
    w.kill()
    w.wait()
    w = start_witness(cluster, *flags)
    apart(cluster, True)
    until(lambda: any("world=1 epoch=2" in p.out for p in ps)
          and any(p.popen.poll() is not None for p in ps), lambda: ps[0].err + ps[1].err)
    left, gone = ps if "epoch=2" in ps[0].out else ps[::-1]
    says(gone, "the other node has claimed the job, and goes on without this one")
    expect(gone, 75)
    apart(cluster, False)
    end_well(cluster, left)
    if "epoch=2" in gone.out:
        fail("both went on", left.err, gone.err)
    w.kill(signal.SIGTERM)
    expect(w, 0)


def a_host_without_power_is_replaced(cluster):
    """And when its network is there again, it does not go on."""
    w = start_witness(cluster, "--witness")
    a, b = launch(cluster)
    cluster[0].cut()
    says(b, "world=1 epoch=2")
    says(b, "node-0 does not answer; node-1 hosts the rendezvous now")
    cluster[0].mend()
    expect(a, 75)
    end_well(cluster, b)
    if "epoch=2" in a.out:
        fail("both went on", a.err)
    w.end()


def a_host_that_loses_the_other_node_goes_on(cluster):
    w = start_witness(cluster, "--witness")
    a, b = launch(cluster)
    cluster[1].cut()
    says(a, "world=1 epoch=2")
    cluster[1].mend()
    expect(b, 75)
    end_well(cluster, a)
    w.end()


def a_host_that_dies_is_replaced(cluster):
    w = start_witness(cluster, "--witness")
    a, b = launch(cluster)
    a.kill()
    says(b, "node-0 was lost; node-1 hosts the rendezvous now")
    says(b, "world=1 epoch=2")
    end_well(cluster, b)
    w.end()


def a_witness_that_may_have_forgotten_grants_nothing(cluster):
    """It has no state directory."""
    w = start_witness(cluster, "--witness")
    ps = launch(cluster, flags=["--outage-grace=3"])
    w.kill()
    w.wait()
    w = start_witness(cluster, "--witness")
    apart(cluster, True)
    for p in ps:
        says(p, "it is another one than when the two nodes met")
    ps[1].wait()
    ps[0].kill()
    apart(cluster, False)
    if any("epoch=2" in p.out for p in ps):
        fail(ps[0].err, ps[1].err)
    w.end()


def a_witness_that_is_none_is_named(cluster):
    expect(start(cluster, 0, witness="here"), 2, '"here" is not file:DIRECTORY')
    key = f"{cluster.directory}/other-key"
    cluster[0].start([CRUNCTL, "keygen", key]).wait()
    w = start_witness(cluster)
    keyed = cluster[2].start([CRUND, "--allow-root", "--witness", "--listen=10.77.0.3:29401",
                              f"--key-file={key}"])
    until(lambda: "listening on" in keyed.err, lambda: keyed.err)
    bad = {WITNESS: "it is no crund --witness", "10.77.0.3:29402": "Connection refused",
           "no-such-host.invalid:29400": "no-such-host.invalid",
           "10.77.0.3:29401": "it and the nodes need the same key"}
    for i, (witness, text) in enumerate(bad.items()):
        a, b = launch(cluster, witness=witness, port=PORT + 10 + i)
        if not re.search(rf"crun: {re.escape(witness)} is no witness of this job: .*"
                         rf"{re.escape(text)}", a.err):
            fail(witness, a.err)
        a.kill()
        says(b, "world=1 epoch=2")  # without a witness the kernel's word counts
        end_well(cluster, b)
    w.end()
    keyed.end()


TESTS = [
    one_of_two_goes_on,
    a_host_without_power_is_replaced,
    a_host_that_loses_the_other_node_goes_on,
    a_host_that_dies_is_replaced,
    a_witness_that_may_have_forgotten_grants_nothing,
    a_witness_that_is_none_is_named,
]


def main():
    host.need()
    if b"raft_apply" not in CRUN.read_bytes():
        skip("this build has no libraft", "two nodes and a witness")
        sys.exit(77)
    with host.Cluster(3) as cluster:
        run(TESTS, cluster)


main()
