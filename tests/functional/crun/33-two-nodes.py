#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 40 s
"""
crun on two nodes, each a network namespace: the one that hosts the rendezvous dies, is
stopped or cut off. At most one of the two goes on, and it has all that was decided.
"""
import os
import re
import signal
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, expect, fail, run, skip, until  # noqa: E402
import host  # noqa: E402

CRUN = BIN / "crun"
PORT = 29400

# a worker ends well once its stop file is there, and fails once with the other one
WORKER = ('[ ! -e "$DIR/slow" ] || trap \': > "$DIR/saving"; sleep 1; exit 143\' TERM; '
          'echo "rank=$RANK world=$WORLD_SIZE epoch=$CRUN_EPOCH restart='
          '$TORCHELASTIC_RESTART_COUNT"; '
          'while [ ! -e "$DIR/end" ]; do [ "$RANK" != 0 ] || ! rm "$DIR/fail" 2> /dev/null '
          '|| exit 3; sleep 0.05; done')


def has_replicas():
    """A build without libraft has none."""
    return b"raft_apply" in (BIN / "crun").read_bytes()


def start(cluster, index, conf="", nodes="1:2", flags=()):
    return cluster[index].start(
        [CRUN, "-v", f"--nnodes={nodes}", f"--rdzv-endpoint={cluster[0].address}:{PORT}",
         "--rdzv-id=job", "--nproc-per-node=1", "--max-restarts=3",
         f"--rdzv-conf=last_call_timeout=60{conf}", *flags, "sh", "-c", WORKER],
        env={"DIR": cluster.directory})


def touch(cluster, name):
    open(f"{cluster.directory}/{name}", "w").close()


def is_pair(p):
    said = re.findall(r"the records of the rendezvous are on (.*)\n", p.err)
    return bool(said) and re.fullmatch(r"node-\d, node-\d: it outlives the loss of one", said[-1])


def launch(cluster, **options):
    for name in ("end", "fail", "slow", "saving"):
        if os.path.exists(f"{cluster.directory}/{name}"):
            os.unlink(f"{cluster.directory}/{name}")
    ps = [start(cluster, i, **options) for i in range(2)]
    until(lambda: all("world=2 epoch=1" in p.out for p in ps), "the job runs")
    until(lambda: all(is_pair(p) for p in ps), lambda: "both keep the records\n" + ps[1].err)
    return ps


def end_well(cluster, ps):
    touch(cluster, "end")
    for p in ps:
        expect(p, 0)


def the_host_dies_and_the_other_node_goes_on(cluster):
    a, b = launch(cluster)
    touch(cluster, "fail")  # one restart is spent before
    until(lambda: "epoch=2 restart=1" in b.out, "the workers have been restarted")
    a.kill()
    until(lambda: "world=1 epoch=3 restart=1" in b.out, lambda: "the other goes on\n" + b.err)
    if "crun: node-0 was lost; node-1 hosts the rendezvous now\n" not in b.err:
        fail(b.err)
    touch(cluster, "fail")  # the restart is decided by the new host
    until(lambda: "epoch=4 restart=2" in b.out, "the new host restarts the workers")
    end_well(cluster, [b])


def each_host_in_turn_dies_and_comes_back(cluster):
    ps = launch(cluster)
    for turn in range(3):
        gone, left = turn % 2, 1 - turn % 2
        ps[gone].kill()
        until(lambda: f"node-{gone} was lost; node-{left} hosts the rendezvous now"
              in ps[left].err, lambda: ps[left].err)
        epoch = int(re.findall(r"epoch=(\d+)", ps[left].out)[-1])
        ps[gone] = start(cluster, gone)
        until(lambda: re.search(f"world=2 epoch=({epoch + 1}|{epoch + 2}) restart=0", ps[gone].out),
              lambda: f"it is in the job again\n{ps[0].err}\n{ps[1].err}")
        until(lambda: all(is_pair(p) for p in ps), "both keep the records")
        if f"node-{gone} was lost" in ps[gone].err:  # what was before it came
            fail(ps[gone].err)
    end_well(cluster, ps)


def a_third_node_joins_while_the_host_dies(cluster):
    """The two that run know of each other, though there may be more nodes."""
    options = {"nodes": "1:3", "conf": ",last_call_timeout=1"}
    a, b = launch(cluster, **options)
    c = start(cluster, 2, **options)
    until(lambda: "the records of the rendezvous are on" in c.err, lambda: c.err)
    a.kill()
    until(lambda: all(re.search("world=2 epoch=[2-9]", p.out) for p in (b, c)),
          lambda: f"both go on\n{b.err}\n{c.err}", seconds=30)
    end_well(cluster, [b, c])


def the_other_node_dies_and_comes_back(cluster):
    a, b = launch(cluster)
    b.kill()
    until(lambda: "world=1 epoch=2 restart=0" in a.out, "the host goes on")
    b = start(cluster, 1)
    until(lambda: "world=2 epoch=3 restart=0" in b.out, "it is in the job again")
    until(lambda: is_pair(a) and is_pair(b), "both keep the records")
    a.kill()
    until(lambda: "world=1 epoch=4 restart=0" in b.out, lambda: "it goes on\n" + b.err)
    end_well(cluster, [b])


def a_host_that_is_told_to_end_leaves(cluster):
    a, b = launch(cluster)
    a.kill(signal.SIGTERM)
    expect(a, 143, "this node has left the job")
    until(lambda: "crun: node-1 hosts the rendezvous now\n" in b.err, lambda: b.err)
    touch(cluster, "fail")
    until(lambda: "epoch=3 restart=1" in b.out, lambda: b.err)
    if "world=1 epoch=2 restart=0" not in b.out or "was lost" in b.err:
        fail(b.out, b.err)
    end_well(cluster, [b])


def a_host_that_leaves_does_not_wait_for_one_that_dies(cluster):
    a, b = launch(cluster)
    touch(cluster, "slow")
    touch(cluster, "fail")
    until(lambda: "epoch=2" in a.out and "epoch=2" in b.out, "the workers save slowly")
    a.kill(signal.SIGTERM)
    until(lambda: os.path.exists(f"{cluster.directory}/saving"), "they save")
    b.kill()
    expect(a, 143, "this node has left the job")


def of_two_that_are_cut_apart_the_host_goes_on(cluster):
    a, b = launch(cluster, conf=",lease=2")
    cluster[1].cut()
    b.wait()
    if b.popen.returncode != 1 or "epoch=2" in b.out or "nothing proves that node-0" not in b.err:
        fail(b.popen.returncode, b.err)
    until(lambda: "world=1 epoch=2" in a.out, "the host goes on")
    cluster[1].mend()
    end_well(cluster, [a])


def a_host_that_has_gone_on_alone_is_not_replaced(cluster):
    """It dies while they are cut apart: the other one knows nothing of the second epoch."""
    a, b = launch(cluster, conf=",lease=4")
    cluster[1].cut()
    until(lambda: "world=1 epoch=2" in a.out or b.popen.poll() is not None, "the host goes on")
    a.kill()
    cluster[1].mend()
    b.wait()
    if "epoch=2" in b.out:
        fail("a second epoch of the same number:\n" + b.out, b.err)


def a_host_that_was_stopped_goes_on(cluster):
    a, b = launch(cluster, conf=",lease=2")
    a.popen.send_signal(signal.SIGSTOP)
    b.wait()
    if b.popen.returncode != 1 or "epoch=2" in b.out or "nothing proves that node-0" not in b.err:
        fail(b.popen.returncode, b.err)
    a.popen.send_signal(signal.SIGCONT)
    until(lambda: "world=1 epoch=2" in a.out, "the host goes on")
    end_well(cluster, [a])


def one_goes_on(ps, epoch):
    """Of two that have lost each other: at most one, and the other one ends with 75."""
    until(lambda: any(f"world=1 epoch={epoch}" in p.out for p in ps)
          and any(p.popen.poll() is not None for p in ps),
          lambda: f"one goes on\n{ps[0].err}\n{ps[1].err}")
    left = [p for p in ps if p.popen.poll() is None]
    if len(left) != 1:
        fail("none is left", ps[0].err, ps[1].err)
    gone = ps[1 - ps.index(left[0])]
    if f"epoch={epoch}" in gone.out:
        fail("both went on", ps[0].err, ps[1].err)
    if gone.popen.returncode != 75:
        fail("it ended with", gone.popen.returncode, gone.err)
    return left[0], gone


def with_a_witness_one_of_two_goes_on(cluster):
    conf = f",lease=2,witness=file:{cluster.directory}"
    for strict in ((), ("--fence=strict",)):
        ps = launch(cluster, conf=conf, flags=strict)
        cluster[1].cut()
        _, gone = one_goes_on(ps, 2)
        if not strict and "the other node has claimed the job, and goes on" not in gone.err:
            fail(gone.err)
        cluster[1].mend()
        end_well(cluster, [p for p in ps if p.popen.poll() is None])


def with_a_witness_a_silent_host_is_replaced(cluster):
    """Its machine answers nothing, and it comes back: it is not in the job any more."""
    a, b = launch(cluster, conf=f",lease=2,witness=file:{cluster.directory}")
    a.popen.send_signal(signal.SIGSTOP)
    until(lambda: "world=1 epoch=2" in b.out, lambda: "the other goes on\n" + b.err)
    a.popen.send_signal(signal.SIGCONT)
    expect(a, 75)
    if "epoch=2" in a.out:
        fail("both went on", a.err)
    again = start(cluster, 0, conf=f",lease=2,witness=file:{cluster.directory}")
    until(lambda: "world=2 epoch=3" in again.out, lambda: "it joins again\n" + again.err)
    until(lambda: is_pair(b) and is_pair(again), "both keep the records")
    b.kill()
    until(lambda: "world=1 epoch=4" in again.out, lambda: again.err)
    end_well(cluster, [again])


def a_witness_that_is_none_is_named(cluster):
    for conf, text in ((",witness=file:/not/there", "/not/there: No such file or directory"),
                       (",witness=here", '"here" is not file:DIRECTORY'),
                       (",alone=maybe", '"maybe" is not continue or end'),
                       (",alone=continue,witness=file:/tmp", "exclude each other")):
        p = start(cluster, 0, conf=conf)
        expect(p, 2, text)
    own = f"{cluster.directory}/own"
    os.mkdir(own)
    if os.path.exists(f"{cluster.directory}/end"):
        os.unlink(f"{cluster.directory}/end")
    a = start(cluster, 0, conf=f",witness=file:{own}")
    b = cluster[1].start(
        ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {own}; exec "$@"', "sh",
         CRUN, "--nnodes=1:2", f"--rdzv-endpoint={cluster[0].address}:{PORT}", "--rdzv-id=job",
         "--max-restarts=3", f"--rdzv-conf=last_call_timeout=60,witness=file:{own}",
         "sh", "-c", WORKER],
        env={"DIR": cluster.directory})
    until(lambda: f"{own} is not the directory of that name on the other node" in b.err,
          lambda: b.err)
    end_well(cluster, [a, b])


def who_knows_that_the_network_does_not_split_may_say_so(cluster):
    a, b = launch(cluster, conf=",lease=2,alone=continue")
    a.popen.send_signal(signal.SIGSTOP)
    until(lambda: "world=1 epoch=2" in b.out, lambda: "the other goes on\n" + b.err)
    a.kill()
    end_well(cluster, [b])


def a_job_ends_as_ever(cluster):
    ps = launch(cluster)
    touch(cluster, "end")
    for p in ps:
        expect(p, 0)
    ps = launch(cluster)
    ps[1].kill(signal.SIGINT)
    for p in ps:
        expect(p, 130)
        if "was lost" in p.err:
            fail(p.err)


TESTS = [
    the_host_dies_and_the_other_node_goes_on,
    each_host_in_turn_dies_and_comes_back,
    a_third_node_joins_while_the_host_dies,
    the_other_node_dies_and_comes_back,
    a_host_that_is_told_to_end_leaves,
    a_host_that_leaves_does_not_wait_for_one_that_dies,
    of_two_that_are_cut_apart_the_host_goes_on,
    a_host_that_has_gone_on_alone_is_not_replaced,
    a_host_that_was_stopped_goes_on,
    with_a_witness_one_of_two_goes_on,
    with_a_witness_a_silent_host_is_replaced,
    a_witness_that_is_none_is_named,
    who_knows_that_the_network_does_not_split_may_say_so,
    a_job_ends_as_ever,
]


def main():
    host.need()
    if not has_replicas():
        skip("this build has no libraft", "two nodes")
        sys.exit(77)
    with host.Cluster(3) as cluster:
        run(TESTS, cluster)


main()
