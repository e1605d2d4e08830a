#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 60 s
"""
crun on several nodes, each a network namespace: the one that
hosts the rendezvous dies, is cut off, or dies twice, and the job goes on with its epoch and
its budget.
"""
import base64
import os
import re
import signal
import struct
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, expect, fail, run, skip, until  # noqa: E402
import control  # noqa: E402
import host  # noqa: E402

CRUN, CRUNCTL = BIN / "crun", BIN / "crunctl"
PORT = 29400

# a worker ends well once its stop file is there, and fails once with the other one
WORKER = ('[ ! -e "$DIR/slow" ] || trap \'sleep 1; : > "$DIR/saved-$RANK"; exit 143\' TERM; '
          'trap "echo asked for a checkpoint" USR1; '
          'echo "rank=$RANK world=$WORLD_SIZE epoch=$CRUN_EPOCH restart='
          '$TORCHELASTIC_RESTART_COUNT"; '
          'while [ ! -e "$DIR/end" ]; do [ "$RANK" != 1 ] || ! rm "$DIR/fail" 2> /dev/null '
          '|| exit 3; sleep 0.05; done')


def has_replicas():
    """A build without libraft has none."""
    return b"raft_apply" in (BIN / "crun").read_bytes()


def start(cluster, index, conf="", nodes="2:3", flags=(), endpoints=(0,), name=None):
    """name: it has the addresses of all nodes."""
    node, before = cluster[index], []
    there = ",".join(f"{cluster[i].address}:{PORT}" for i in endpoints)
    if name:
        there, hosts = f"{name}:{PORT}", f"{cluster.directory}/hosts"
        with open(hosts, "w") as f:
            f.writelines(f"{n.address} {name}\n" for n in reversed(cluster.nodes))
        before = ["unshare", "--mount", "sh", "-c", f'mount --bind {hosts} /etc/hosts; exec "$@"', "sh"]
    return node.start(
        [*before, CRUN, "-v", f"--nnodes={nodes}", f"--rdzv-endpoint={there}",
         "--rdzv-id=job", "--nproc-per-node=1", "--max-restarts=3",
         f"--rdzv-conf=last_call_timeout=60{conf}", *flags, "sh", "-c", WORKER],
        env={"DIR": cluster.directory})


def kept_by(p):
    return re.findall(r"the records of the rendezvous are on (.*): it outlives", p.err)


def forget_last(cluster):
    for name in ("end", "fail", "slow", "saved-0", "saved-1", "saved-2"):
        if os.path.exists(f"{cluster.directory}/{name}"):
            os.unlink(f"{cluster.directory}/{name}")


def launch(cluster, count, **options):
    forget_last(cluster)
    ps = [start(cluster, i, **options) for i in range(count)]
    until(lambda: all("epoch=1" in p.out for p in ps), "the job runs")
    until(lambda: all(kept_by(p) and kept_by(p)[-1].count(",") == 2 for p in ps),
          "three nodes keep the records")
    return ps


def touch(cluster, name):
    open(f"{cluster.directory}/{name}", "w").close()


def epoch_of(p):
    return int(re.findall(r"epoch=(\d+)", p.out)[-1])


def end_well(cluster, ps):
    touch(cluster, "end")
    for p in ps:
        expect(p, 0)


def the_host_dies_and_the_job_goes_on(cluster):
    a, b, c = launch(cluster, 3)
    touch(cluster, "fail")  # one restart is spent before
    until(lambda: "epoch=2" in c.out, "the workers have been restarted")
    a.kill()
    until(lambda: "epoch=3" in b.out and "epoch=3" in c.out, "an epoch without the host")
    for p in (b, c):
        if not re.search(r"crun: node-0 was lost; node-[12] hosts the rendezvous now\n", p.err):
            fail(p.err)
        if "world=2 epoch=3 restart=1" not in p.out:
            fail("the budget was not kept:\n" + p.out)
    touch(cluster, "fail")  # the restart is decided by the new host
    until(lambda: "epoch=4 restart=2" in b.out, "the new host restarts the workers")
    end_well(cluster, (b, c))


def a_host_that_is_told_to_end_leaves(cluster):
    """As any other node does; the others do not stop when the rendezvous moves."""
    a, b, c = launch(cluster, 3)
    a.kill(signal.SIGTERM)
    expect(a, 143, "this node has left the job")
    until(lambda: all(re.search("crun: node-[12] hosts the rendezvous now\n", p.err) for p in (b, c)),
          lambda: b.err)
    touch(cluster, "fail")
    until(lambda: "epoch=3 restart=1" in b.out and "epoch=3 restart=1" in c.out, lambda: b.err)
    if "world=2 epoch=2 restart=0" not in b.out or "was lost" in b.err:
        fail(b.out, b.err)
    b.kill(signal.SIGTERM)  # too few are left
    expect(b, 143)
    expect(c, 143)


def a_host_that_leaves_waits_for_a_node_in_place_of_a_lost_one(cluster):
    """Of the three that keep the records, one is lost just before."""
    ps = launch(cluster, 4, nodes="2:4")
    touch(cluster, "fail")  # all three have votes once the workers have been restarted
    until(lambda: all("epoch=2 restart=1" in p.out for p in ps), "the workers have been restarted")
    lost = int(kept_by(ps[0])[-1].split(", ")[1][-1])
    ps[lost].kill()
    ps[0].kill(signal.SIGTERM)
    expect(ps[0], 143)
    left = [p for i, p in enumerate(ps) if i not in (0, lost)]
    until(lambda: all(re.search("crun: node-[123] hosts the rendezvous now\n", p.err) for p in left),
          lambda: left[0].err)
    end_well(cluster, left)


def nodes_that_keep_the_records_leave_together(cluster):
    """Two of three: the votes of those that are left decide nothing before they are replaced."""
    for host_too in (False, True):
        ps = launch(cluster, 4, conf=",lease=3", nodes="1:4")
        keepers = [int(name[-1]) for name in kept_by(ps[0])[-1].split(", ")]
        leave = keepers[:2] if host_too else keepers[1:]
        for i in leave:
            ps[i].kill(signal.SIGTERM)
            if host_too:  # the other one as soon as it may be needed
                expect(ps[i], 143, "this node has left the job")
        left = [p for i, p in enumerate(ps) if i not in leave]
        for i in leave:
            expect(ps[i], 143, "this node has left the job")
        until(lambda: all("world=2 epoch=" in p.out for p in left), "an epoch without both")
        touch(cluster, "fail")
        until(lambda: all("world=2" in p.out and "restart=1" in p.out for p in left),
              lambda: f"the workers are restarted\n{left[0].err}\n{left[1].err}")
        end_well(cluster, left)


def beside_a_silent_node_the_others_end_in_time(cluster):
    """Their workers get the signal of a node that leaves long before that one is lost."""
    ps = launch(cluster, 3, conf=",lease=10")
    touch(cluster, "slow")
    touch(cluster, "fail")
    until(lambda: all("epoch=2" in p.out for p in ps), "the workers save slowly")
    ranks = [int(re.findall(r"rank=(\d)", p.out)[-1]) for p in ps]
    ps[2].popen.send_signal(signal.SIGSTOP)
    ps[1].kill(signal.SIGTERM)
    until(lambda: all(os.path.exists(f"{cluster.directory}/saved-{r}") for r in ranks[:2]),
          lambda: ps[0].err)
    if "was lost" in ps[0].err:
        fail("the workers were signalled after the silent node's end", ps[0].err)
    for p in ps:
        p.kill()


def a_host_that_is_cut_off_gives_the_job_up(cluster):
    ps = launch(cluster, 3, conf=",lease=2,outage_grace=8", nodes="2:3")
    a, b, c = ps
    cluster[0].cut()
    until(lambda: "hosts the rendezvous no more" in a.err, "the host steps down")
    until(lambda: "epoch=2" in b.out and "epoch=2" in c.out, "the others go on")
    if not re.search("node-0 does not answer; node-[12] hosts the rendezvous now", b.err):
        fail(f"a node that is only cut off was lost\n{b.err}")
    if "epoch=2" in a.out:
        fail("the node that was cut off runs the new epoch")
    cluster[0].mend()
    until(lambda: a.popen.poll() is not None, "it learns that it was declared lost")
    if a.wait() != 75:
        fail("it ended with", a.wait(), a.err)
    if epoch_of(b) != 2 or epoch_of(c) != 2:
        fail("it has disturbed the others:\n" + b.out + c.out)
    end_well(cluster, (b, c))


def of_a_deaf_host_the_others_are_not_fenced(cluster):
    """It ends all connections, and cannot be reached: they find the next host in time."""
    first, *others = launch(cluster, 4, nodes="2:4", conf=",lease=3,outage_grace=8",
                            flags=("--fence=strict",))
    cluster[0].deafen()
    until(lambda: all("epoch=2" in p.out or p.popen.poll() is not None for p in others),
          "the others go on")
    for p in others:
        if "fenced itself" in p.err or "is out of reach" in p.err:
            fail("it has found the next host too late:\n" + p.err)
    expect(first, 75)
    cluster[0].hear()
    end_well(cluster, others)


def the_next_host_dies_too(cluster):
    """As soon as another node keeps the records: before the first one counts as lost."""
    ps = launch(cluster, 4, conf=",lease=3", nodes="2:4", flags=("--fence=strict",))
    ps[0].kill()
    until(lambda: all(len(set(kept_by(p)[-1].split(", "))) == 3 and "node-0" not in kept_by(p)[-1]
                      for p in ps[1:]), "the fourth node keeps the records too")
    if any("epoch=2" in p.out for p in ps[1:]):
        fail("another node keeps them only after the epoch's end")
    second = kept_by(ps[1])[-1].split(", ")[0]
    gone = int(second[-1])
    ps[gone].kill()
    left = [p for i, p in enumerate(ps) if i not in (0, gone)]
    until(lambda: all("world=2 epoch=" in p.out for p in left), lambda: "an epoch without both hosts\n" + left[0].err + "\n" + left[1].err)
    for p in left:
        if f"crun: {second} was lost; node-" not in p.err:
            fail(p.err)
    end_well(cluster, left)


def without_a_majority_the_others_save_and_end(cluster):
    ps = launch(cluster, 4, nodes="2:4", conf=",lease=3",
                flags=("--outage-grace=3", "--checkpoint-signal=USR1"))
    dead = [int(name[-1]) for name in kept_by(ps[0])[-1].split(", ")][:2]
    for i in dead:
        ps[i].kill()
    for p in [p for i, p in enumerate(ps) if i not in dead]:
        expect(p, 1, "the job ends here: too few are left of the nodes that keep")
        if "out of reach for 3.0 s" not in p.err or "asked for a checkpoint" not in p.out:
            fail("it has not waited, or not asked its worker to save:", p.out, p.err)


def status(cluster, index, *flags):
    r = subprocess.run(["ip", "netns", "exec", cluster[index].ns, CRUNCTL, *flags, "status"],
                       capture_output=True, text=True)
    return r.stdout + r.stderr


def crunctl_shows_where_the_rendezvous_is(cluster):
    ps = launch(cluster, 3)
    line = "rendezvous: node-0, also kept by node-[12], node-[12]\n"
    until(lambda: re.search(line, status(cluster, 2)), lambda: status(cluster, 2))
    for i in (1, 2):  # those that only keep the records name the host, and crunctl asks that
        shown = status(cluster, 3, "-e", f"{cluster[i].address}:{PORT}")
        if not re.search(line, shown):
            fail("asked at", cluster[i].address, shown)
    ps[0].kill()
    until(lambda: re.search("rendezvous: node-[12], also kept by node-[12]\n",
                            status(cluster, 1)), lambda: status(cluster, 1))
    until(lambda: "epoch=2" in ps[1].out, "an epoch without the host")
    end_well(cluster, ps[1:])


def crunctl_warns_while_one_node_keeps_the_records(cluster):
    """The other one is lost, and the job goes on with one node."""
    forget_last(cluster)
    ps = [start(cluster, i, nodes="1:2", conf=",lease=3,last_call_timeout=2") for i in range(2)]
    until(lambda: "also kept by node-1" in crunctl_at(cluster, 0, "status", "job"), lambda: crunctl_at(cluster, 0, "status", "job"), 30)
    ps[1].kill()
    line = "rendezvous: node-0; the job ends if that node is lost\n"
    until(lambda: line in crunctl_at(cluster, 0, "status", "job"), lambda: crunctl_at(cluster, 0, "status", "job"), 30)
    end_well(cluster, ps[:1])


def a_stop_and_its_reason_outlive_the_host(cluster):
    a, b, c = launch(cluster, 3)
    touch(cluster, "slow")
    touch(cluster, "fail")
    until(lambda: all("epoch=2" in p.out for p in (a, b, c)), "the workers have been restarted")
    if "stopping" not in crunctl_at(cluster, 1, "stop", "job"):
        fail("it is not stopped")
    a.kill()  # while the workers end
    until(lambda: "hosts the rendezvous now" in b.err, "another host")
    for p in (b, c):
        expect(p, 143, r"stopped by crunctl")


def crunctl_at(cluster, index, *words):
    r = subprocess.run(["ip", "netns", "exec", cluster[3].ns, CRUNCTL, *words,
                        "-e", f"{cluster[index].address}:{PORT}"], capture_output=True, text=True)
    return r.stdout + r.stderr


# of a replica that claims to lead in a later term than any other
FORGED = base64.b64encode(struct.pack("<10Q", 1, 1, 0, 7, 3, 1 << 40, 0, 0, 0, 0)).decode()

# sends what it is given, garbage, and the same many times, and prints what comes back
STRANGER = """import os, socket, sys
data = bytes.fromhex(sys.argv[3])
for what in (data, os.urandom(100000), data[:8] + os.urandom(100000), data + 300 * data[8:]):
    for _ in range(20):
        s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
        try:
            s.sendall(what)
            print("got", s.recv(65536), s.recv(65536))
        except OSError as e:
            print("got", e)
        s.close()
"""


def strangers_are_no_replicas(cluster, ps):
    """Of the node that hosts the rendezvous, and of one that keeps its records."""
    data = control.PREFACE + control.hello("replica") + control.frame(
        control.REPLICATE, {"last": True, "text": FORGED})
    for node in (0, 1):
        p = cluster[3].start(["python3", "-c", STRANGER, cluster[node].address, str(PORT),
                              data.hex()])
        if p.wait(60) != 0 or p.out.count("got") != 80:
            fail("not all was sent:", p.out[:300], p.err)
        if "WELCOME" in p.out or "version" in p.out:
            fail("a stranger was taken for a replica:", p.out)
    if [p for p in ps if p.popen.poll() is not None]:
        fail("a node has ended")


def a_lost_one_is_not_counted(cluster):
    """It stays on the list for a while, and then two are a pair."""
    ps = launch(cluster, 3)
    seen = len(ps[0].err)
    ps[2].kill()
    until(lambda: "it outlives" in ps[0].err[seen:], "two of them are a pair")
    first = re.search(r"the records of the rendezvous are on ([^:\n]*)(.*)", ps[0].err[seen:])
    if first[1].count(",") != 2 or first[2]:
        fail("it outlives the loss of another one at once:", first[0])
    end_well(cluster, ps[:2])


# through OpenSSL's own client, with a key: says HELLO as a replica of some job, then what is forged,
# garbage, the forged one many times, and unfinished pieces without end; prints what comes back
HOSTILE = """import os, subprocess, sys
hello, forged, piece = (bytes.fromhex(word) for word in sys.argv[1:4])
for what in (forged, os.urandom(100000), 1000 * forged, 10000 * piece):
    p = subprocess.run(["openssl", "s_client", "-quiet", "-tls1_3", *sys.argv[4:]],
                       input=hello + what, capture_output=True, timeout=60)
    print("got", p.stdout, p.stderr)
"""


def other_jobs_are_no_replicas(cluster, ps, key, instance, refusal):
    """With that key, and as of that job: of the node that hosts the rendezvous, and of one that
    keeps its records."""
    identity, _, secret = key.rpartition(":")
    psk = control.hkdf(bytes.fromhex(secret), b"crun tls").hex()
    hello = control.PREFACE + control.hello("replica", instance)
    pieces = [control.frame(control.REPLICATE, {"last": last, "text": text}, instance=instance)
              for last, text in ((True, FORGED), (False, FORGED * 80))]
    for node in (0, 1):
        p = cluster[3].start(["python3", "-c", HOSTILE, hello.hex(), *[x.hex() for x in pieces],
                              "-connect", f"{cluster[node].address}:{PORT}", "-psk", psk,
                              "-psk_identity", identity])
        if p.wait(200) != 0 or p.out.count("got") != 4 or p.out.count(refusal) < 3:
            fail("not all was refused:", p.out[:1000], p.err)
        if "version" in p.out:
            fail("another job's node was taken for a replica:", p.out)
    for p in ps:
        if p.popen.poll() is not None or "hosts the rendezvous now" in p.err:
            fail("the rendezvous has moved", p.err)


def under_keys_a_stranger_has_no_vote(cluster):
    keys = [f"{cluster.directory}/key", f"{cluster.directory}/other-key"]
    for name in keys:
        subprocess.run([CRUNCTL, "keygen", name], check=True, capture_output=True)
    ps = launch(cluster, 3, flags=(f"--key-file={keys[0]}",))
    strangers_are_no_replicas(cluster, ps)
    for name, refusal in zip(keys, ("no replica of this job", "alert")):
        with open(name, encoding="ascii") as f:
            other_jobs_are_no_replicas(cluster, ps, f.read().strip(), os.urandom(16), refusal)
    for i in (0, 1):  # with the key of another job
        shown = status(cluster, 3, "-e", f"{cluster[i].address}:{PORT}", f"--key-file={keys[1]}")
        if "does not accept" not in shown:
            fail(shown)
    ps[0].kill()
    until(lambda: "epoch=2" in ps[1].out and "epoch=2" in ps[2].out, "an epoch without the host")
    end_well(cluster, ps[1:])


def a_host_that_starts_again_joins_its_job(cluster):
    """Also if it could be a job by itself, at once, and before it counts as lost: that takes a
    lease here."""
    options = {"nodes": "1:3", "flags": ("--fence=strict",)}
    ps = launch(cluster, 3, conf=",lease=3", **options)
    strangers_are_no_replicas(cluster, ps)
    ps[0].kill()
    again = start(cluster, 0, conf=",lease=3,last_call_timeout=0", **options)
    until(lambda: "job \"job\" runs already: this node joins it at" in again.err,
          lambda: "it learns where its job is:\n" + again.err)
    until(lambda: "world=3" in again.out and
          all(epoch_of(p) == epoch_of(again) for p in ps[1:]), "it is in the job")
    end_well(cluster, (again, *ps[1:]))


LISTENER = ("import signal, socket, sys; s = socket.create_server((sys.argv[1], int(sys.argv[2]))); "
            "print('listens', flush=True); signal.pause()")


def a_host_that_starts_again_too_early_joins_its_job(cluster):
    """While the one that leaves has the port, which is gone when it is asked."""
    ps = launch(cluster, 3)
    ps[0].kill(signal.SIGTERM)
    expect(ps[0], 143)
    old = cluster[0].start(["python3", "-c", LISTENER, cluster[0].address, str(PORT)])
    until(lambda: "listens" in old.out, "the port is taken")
    again = start(cluster, 0)
    until(lambda: "another rendezvous seems to listen" in again.err, lambda: again.err)
    old.kill()
    until(lambda: all("world=3 epoch=3" in p.out for p in (again, *ps[1:])),
          lambda: "it is in the job\n" + again.err)
    end_well(cluster, (again, *ps[1:]))


def a_second_job_ends_where_it_meets_the_first(cluster):
    ps = launch(cluster, 3, conf=",lease=2")
    cluster[0].cut()
    ps[0].kill()
    until(lambda: "epoch=2" in ps[1].out and "epoch=2" in ps[2].out, "an epoch without the host")
    again = start(cluster, 0, conf=",last_call_timeout=0", nodes="1:3")
    until(lambda: "epoch=1" in again.out, "a second job, since no keeper answers")
    cluster[0].mend()
    expect(again, 75, "it runs already at")
    end_well(cluster, ps[1:])


def a_late_node_finds_its_job_by_any_that_keeps_it(cluster):
    ps = launch(cluster, 3)
    ps[0].kill()
    until(lambda: "epoch=2" in ps[1].out and "epoch=2" in ps[2].out, "an epoch without the host")
    host_at = int(re.search(r"node-([12]) hosts the rendezvous now", ps[1].err)[1])
    late = start(cluster, 3, endpoints=(0, 3 - host_at))
    until(lambda: all("world=3 epoch=3" in p.out for p in (late, *ps[1:])), "it is in the job")
    end_well(cluster, (late, *ps[1:]))


def a_spare_is_a_third_node(cluster):
    """And the first node, which comes back with its rank, is a spare meanwhile."""
    forget_last(cluster)
    flags = [("--spares=1", f"--node-rank={i}") for i in (0, 1)] + [("--spares=1",)]
    ps = []
    for i in range(3):
        ps.append(start(cluster, i, nodes="2", flags=flags[i], name="job.test"))
        until(lambda: f"node-{i} joined" in ps[0].err, lambda: ps[0].err)
    until(lambda: all(kept_by(p) and kept_by(p)[-1].count(",") == 2 for p in ps),
          "three nodes keep the records")
    ps[0].kill()
    until(lambda: "rank=0 world=2 epoch=2" in ps[2].out, "the spare is in the job")
    again = start(cluster, 0, nodes="2", flags=flags[0], name="job.test")
    until(lambda: "waits as a spare" in again.err, lambda: "it waits\n" + again.err)
    ps[1].kill()
    until(lambda: "rank=0 world=2 epoch=3" in again.out, "it has its rank again")
    end_well(cluster, (again, ps[2]))


def two_first_nodes_are_told_apart(cluster):
    """A wrong command line: the second one would be a job of its own."""
    forget_last(cluster)
    a, b = [start(cluster, i, nodes="1:2", flags=("--node-rank=0",)) for i in range(2)]
    expect(b, 2, "node rank 0 is taken by node-0")
    b.kill()
    a.kill(signal.SIGINT)
    a.wait()


def a_job_ends_as_ever(cluster):
    ps = launch(cluster, 3)
    touch(cluster, "end")
    for p in ps:
        expect(p, 0)
    ps = launch(cluster, 3)
    ps[1].kill(signal.SIGINT)
    for p in ps:
        expect(p, 130)
    for p in ps:
        if "was lost" in p.err:
            fail(p.err)


TESTS = [
    the_host_dies_and_the_job_goes_on,
    a_host_that_is_told_to_end_leaves,
    a_host_that_leaves_waits_for_a_node_in_place_of_a_lost_one,
    nodes_that_keep_the_records_leave_together,
    beside_a_silent_node_the_others_end_in_time,
    a_host_that_is_cut_off_gives_the_job_up,
    of_a_deaf_host_the_others_are_not_fenced,
    the_next_host_dies_too,
    without_a_majority_the_others_save_and_end,
    crunctl_shows_where_the_rendezvous_is,
    crunctl_warns_while_one_node_keeps_the_records,
    a_stop_and_its_reason_outlive_the_host,
    a_lost_one_is_not_counted,
    under_keys_a_stranger_has_no_vote,
    a_host_that_starts_again_joins_its_job,
    a_host_that_starts_again_too_early_joins_its_job,
    a_second_job_ends_where_it_meets_the_first,
    a_late_node_finds_its_job_by_any_that_keeps_it,
    a_spare_is_a_third_node,
    two_first_nodes_are_told_apart,
    a_job_ends_as_ever,
]


def main():
    host.need()
    if not has_replicas():
        skip("this build has no libraft", "replicas of the rendezvous")
        sys.exit(77)
    with host.Cluster(4) as cluster:
        run(TESTS, cluster)


main()
