#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 5 s
"""
What a job does about failures that come again and again, about spares, nodes that come
back, nodes that are refused, and a node that is drained: several nodes, each a network
namespace, and a crund.
"""
import pathlib
import signal
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, expect, fail, run, until  # noqa: E402
import host  # noqa: E402

DAEMON = 4  # the node that crund runs on
SHOW = ("echo rank=$RANK world=$WORLD_SIZE group=$GROUP_RANK epoch=$CRUN_EPOCH "
        "restart=$TORCHELASTIC_RESTART_COUNT;")


def said_of(p, text):
    until(lambda: text in p.err + p.out, f"{text!r} of {p}")


class Job:
    """A job with its own name; its nodes join the daemon one by one."""

    def __init__(self, cluster, name, nnodes, *flags):
        self.cluster, self.name = cluster, name
        self.flags = [f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-id={name}",
                      f"--rdzv-endpoint={cluster[DAEMON].address}", *flags]

    def start(self, index, *command, flags=()):
        return self.cluster[index].start([BIN / "crun", *self.flags, *flags, *command])

    def script(self, index, script, flags=()):
        return self.start(index, "sh", "-c", SHOW + script, flags=flags)

    def ctl(self, *words):
        p = self.cluster[DAEMON].start([BIN / "crunctl", "-e", "127.0.0.1:29400", words[0], "-j", self.name,
                                        *words[1:]])
        code = p.wait()
        return code, p.out + p.err

    def join(self, index, script):
        p = self.script(index, script)
        joined = f"node-{index} joined"
        until(lambda: joined in self.ctl("events")[1], joined)
        return p


def a_spare_takes_the_place_of_a_lost_node(cluster):
    job = Job(cluster, "spare", 2, "--spares=1")
    script = "[ $CRUN_EPOCH -gt 1 ] || exec sleep 1000"
    a, b = job.join(0, script), job.join(1, script)
    said_of(a, "epoch=1")
    said_of(b, "epoch=1")
    c = job.script(2, script)
    said_of(c, "this node waits as a spare of job \"spare\"")
    expect(job.script(3, script), 2, "has all its 2 nodes and the 1 spare of --spares")
    b.kill()
    expect(a, 0, "node node-1 was lost", "world=2 group=0 epoch=2 restart=0")
    expect(c, 0, "world=2 group=1 epoch=2")


def a_job_with_spares_waits_for_one(cluster):
    job = Job(cluster, "wait", 2, "--spares=1")
    script = "[ $CRUN_EPOCH -gt 1 ] || exec sleep 1000"
    a, b = job.join(0, script), job.join(1, script)
    said_of(b, "epoch=1")
    b.kill()
    until(lambda: "waiting for" in job.ctl("status")[1], "the job waits")
    expect(job.script(2, script), 0, "group=1 epoch=2")
    expect(a, 0)


def who_comes_back_has_its_old_place(cluster):
    job = Job(cluster, "back", "1:3")
    script = "[ $CRUN_EPOCH -gt 2 ] || exec sleep 1000"
    a, b, c = (job.join(i, script) for i in range(3))
    said_of(a, "group=0 epoch=1")
    a.kill()
    said_of(b, "group=0 epoch=2")
    said_of(c, "group=1 epoch=2")
    again = job.script(0, script)
    expect(again, 0, "world=3 group=0 epoch=3")
    expect(b, 0, "group=1 epoch=3")
    expect(c, 0, "group=2 epoch=3")


def a_crash_loop_slows_down_on_every_node(cluster):
    job = Job(cluster, "loop", 2, "--max-restarts=3", "--rdzv-conf=quarantine=0")
    script = "[ $GROUP_RANK = 0 ] && exec sleep 1000; exit 9"
    a, b = job.join(0, script), job.join(1, script)
    for p in (a, b):
        expect(p, 9, "restart 3 of 3 in 1 s: rank 1 on node-1 exited with code 9",
               "restarts        3 of 3 used")


def some_failures_are_final(cluster):
    job = Job(cluster, "final", 1, "--max-restarts=3", "--no-restart-on=7,137")
    expect(job.script(0, "exit 7"), 7, "code 7 (final by --no-restart-on)", "0 of 3 used")
    expect(job.script(0, "kill -9 $$"), 137, "SIGKILL (final by", "0 of 3 used")
    expect(job.script(0, "exit 78"), 78, "code 78 (final)", "0 of 3 used")
    expect(job.script(0, "exit 8", flags=["--restart-backoff=0"]), 8, "3 of 3 used")
    expect(job.script(0, "exit 8", flags=["--restart-min-uptime=60"]), 8, "0 of 3 used",
           "its epoch was younger than --restart-min-uptime (60 s)")


def who_fails_three_times_is_put_last(cluster):
    job = Job(cluster, "quarantine", "1:2", "--max-restarts=9", "--restart-backoff=0")
    hold = cluster.directory + "/hold"
    script = (f"[ $WORLD_SIZE = 1 ] && while [ ! -e {hold} ]; do sleep .05; done;"
              "[ $WORLD_SIZE = 1 ] && exit 0; [ $RANK = 0 ] && exec sleep 1000; exit 5")
    a, b = job.join(0, script), job.join(1, script)
    said_of(a, "node-1 is in quarantine: it was the root cause of 3 stops")
    said_of(b, "node-1 is in quarantine")
    said_of(a, "world=1 group=0 epoch=4 restart=3")
    if "quarantined" not in job.ctl("status")[1]:
        fail("the status says nothing of it:", job.ctl("status"))
    pathlib.Path(hold).touch()
    expect(a, 0)
    expect(b, 0)


def a_drain_says_what_becomes_of_the_node(cluster):
    job = Job(cluster, "drain", "1:2")
    script = "[ $CRUN_EPOCH -gt 1 ] || exec sleep 1000"
    a, b = job.join(0, script), job.join(1, script)
    said_of(a, "epoch=1")
    said_of(b, "epoch=1")
    code, said = job.ctl("drain", "1")
    if code != 0 or "node-1 (slot 1, rank 1) leaves when the workers have" not in said:
        fail("drain says", code, said)
    expect(b, 0)
    expect(a, 0, "world=1 group=0 epoch=2 restart=0")


def who_waits_learns_who_was_refused(cluster):
    job = Job(cluster, "refused", 2, "--rdzv-conf=lease=3")
    a = job.join(0, "exit 0")
    other = job.script(1, "exit 0", flags=["--max-restarts=3"])
    # from another machine, without a key: it learns no value of the job
    expect(other, 2, "runs with another configuration: --max-restarts differs; the node that hosts")
    said_of(a, f", {cluster[1].address}) was refused: job \"refused\" runs with another configuration: "
               "--max-restarts is 0 in the job and 3 here")
    if "node-1 (pid " not in job.ctl("events")[1]:
        fail("no event of it:", job.ctl("events"))
    expect(job.script(1, "exit 0"), 0)
    expect(a, 0)


def other_arguments_are_allowed_and_told(cluster):
    job = Job(cluster, "arguments", 2)
    a = job.join(0, "exit 0")
    b = job.script(1, "true; exit 0")
    told = "node-1 was started with other arguments for sh than node-0"
    expect(a, 0, told)
    expect(b, 0, told)


def a_running_job_says_on_its_host_who_was_refused(cluster):
    def node(index, *flags):
        return cluster[index].start(
            [BIN / "crun", "--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-id=runs",
             f"--rdzv-endpoint={cluster[0].address}:29555", *flags,
             "sh", "-c", "echo up; exec sleep 1000"])
    a = node(0, "--rdzv-conf=last_call_timeout=0")
    said_of(a, "up")
    expect(node(1, "--max-restarts=3", "--rdzv-conf=last_call_timeout=0"), 2,
           'job "runs" runs with another configuration: --max-restarts differs; the node that hosts')
    said_of(a, 'was refused: job "runs" runs with another configuration: '
               "--max-restarts is 0 in the job and 3 here")
    b = node(1, "--rdzv-conf=last_call_timeout=9")  # which is up to the first node
    said_of(b, "up")
    a.kill(signal.SIGINT)
    expect(a, 130)
    expect(b, 130)


TESTS = [
    a_running_job_says_on_its_host_who_was_refused,
    a_spare_takes_the_place_of_a_lost_node,
    a_job_with_spares_waits_for_one,
    who_comes_back_has_its_old_place,
    a_crash_loop_slows_down_on_every_node,
    some_failures_are_final,
    who_fails_three_times_is_put_last,
    a_drain_says_what_becomes_of_the_node,
    who_waits_learns_who_was_refused,
    other_arguments_are_allowed_and_told,
]


def main():
    host.need()
    with host.Cluster(DAEMON + 1) as cluster:
        crund = cluster[DAEMON].start([BIN / "crund", "--listen", ":29400"])
        until(lambda: "listening" in crund.err, "crund")
        run(TESTS, cluster)
        crund.kill(signal.SIGTERM)
        expect(crund, 0)


main()
