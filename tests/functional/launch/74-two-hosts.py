#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 10 s
# sanitizers: no, 75-remote-hosts runs the same code with a fake ssh
"""
`crun -H` on a machine of its own, and two hosts with Debian's sshd: one of them dies, has no
power, or does not reach the other one any more. The other one goes on, because crun -H is the
witness. The cases run side by side, because they mostly wait.

    BUILD=build tests/functional/launch/74-two-hosts.py [TEST...]
"""
import os
import re
import signal
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, fail, read, skip, until  # noqa: E402
import host  # noqa: E402
import sshd  # noqa: E402

CRUN = BIN / "crun"
SSH_ARGS = "--ssh-args=-o ServerAliveInterval=1 -o ServerAliveCountMax=3"
# a worker ends well once the file is there that it is given
WORKER = ('echo "$(hostname) world=$WORLD_SIZE epoch=$CRUN_EPOCH restart='
          '$TORCHELASTIC_RESTART_COUNT"; while [ ! -e "$0" ]; do sleep 0.05; done')


class Job:
    def __init__(self, hosts, names, flags=(), nodes=None):
        self.hosts, self.names = hosts, names
        self.end_file = f"{hosts.directory}/end-{'-'.join(names)}"
        self.p = hosts.desk.start(
            [CRUN, "-v", "-H", ",".join(names), f"--nnodes={nodes or f'1:{len(names)}'}", SSH_ARGS,
             "--nproc-per-node=1", "--max-restarts=3", "--rdzv-conf=lease=2", *flags,
             "sh", "-c", WORKER, self.end_file])
        self.until_says("outlives the loss of one", len(names))

    def until_says(self, text, count=1, seconds=60):
        until(lambda: (self.p.out + self.p.err).count(text) >= count,
              lambda: f"{count} times {text!r}:\n{self.p.out}\n{self.p.err}", seconds)

    def kill_node(self, name):
        """The crun of that host, and not its far side."""
        found = [pid for pid, line in self.hosts[name].left().items()
                 if "--agent-stdin" in line and parent_is_far_side(pid)]
        if len(found) != 1:
            fail(found, self.hosts[name].left())
        os.kill(found[0], signal.SIGKILL)

    def end_well(self, epoch, left):
        with open(self.end_file, "w", encoding="utf-8"):
            pass
        if self.p.wait(60) != 0:
            fail(self.p.popen.returncode, self.p.out, self.p.err)
        worlds = re.findall(rf"(\w+) world=(\d+) epoch={epoch} restart=0", self.p.out)
        if sorted(worlds) != sorted((name, str(len(left))) for name in left) or \
                f"epoch={epoch + 1}" in self.p.out:
            fail(self.p.out, self.p.err)


def parent_is_far_side(pid):
    parent = int(re.search(r"PPid:\s+(\d+)", read(f"/proc/{pid}/status").decode())[1])
    return b"--agent-stdin" in read(f"/proc/{parent}/cmdline")


def apart(hosts, *names):
    """They reach the desk, and not each other."""
    for name in names:
        host.ip("link", "set", "dev", hosts[name]._peer, "type", "bridge_slave", "isolated", "on",
                ns=hosts.switch)


def the_first_host_dies(hosts):
    job = Job(hosts, ["a1", "a2"])
    job.kill_node("a1")
    job.until_says("a2 world=1 epoch=2")
    job.end_well(2, ["a2"])


def the_second_host_dies(hosts):
    job = Job(hosts, ["b1", "b2"])
    job.kill_node("b2")
    job.until_says("b1 world=1 epoch=2")
    job.end_well(2, ["b1"])


def the_first_of_three_hosts_dies(hosts):
    job = Job(hosts, ["c1", "c2", "c3"])
    job.kill_node("c1")
    job.until_says("world=2 epoch=2", 2)
    job.end_well(2, ["c2", "c3"])


def the_first_host_has_no_power(hosts):
    job = Job(hosts, ["d1", "d2"])
    hosts["d1"].cut()
    job.until_says("d2 world=1 epoch=2")
    job.end_well(2, ["d2"])


def the_second_host_has_no_power(hosts):
    """Or only no network: its workers end, too."""
    job = Job(hosts, ["e1", "e2"], flags=["--fence=strict"])
    hosts["e2"].cut()
    job.until_says("e1 world=1 epoch=2")
    until(lambda: not any(" -c " in line for line in hosts["e2"].left().values()),
          lambda: f"its worker ends: {hosts['e2'].left()}")
    job.end_well(2, ["e1"])


def they_do_not_reach_each_other(hosts):
    """Both reach crun -H: one goes on."""
    job = Job(hosts, ["f1", "f2"])
    apart(hosts, "f1", "f2")
    job.until_says("world=1 epoch=2")
    job.until_says("the other node has claimed the job")
    job.end_well(2, re.findall(r"(\w+) world=1 epoch=2", job.p.out))


CASES = [
    the_first_host_dies,
    the_second_host_dies,
    the_first_of_three_hosts_dies,
    the_first_host_has_no_power,
    the_second_host_has_no_power,
    they_do_not_reach_each_other,
]
HOSTS = ["a1", "a2", "b1", "b2", "c1", "c2", "c3", "d1", "d2", "e1", "e2", "f1", "f2"]


def main():
    if b"raft_apply" not in CRUN.read_bytes():
        skip("this build has no libraft", "two hosts")
        sys.exit(77)
    sshd.need()
    with sshd.Hosts({name: {} for name in HOSTS}) as hosts:
        sshd.run_cases(CASES, lambda: hosts, len(CASES))


main()
