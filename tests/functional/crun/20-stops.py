#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 8 s
"""
How jobs are stopped: the signals of schedulers and of people, and what each node of the job
says about it. Nodes of one machine, and a crund.
"""
import os
import re
import signal
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, expect, fail, run, until  # noqa: E402

CRUN, CRUNCTL = BIN / "crun", BIN / "crunctl"
SLEEPER = "echo up $RANK; exec sleep 100"


def sh(script):
    return ["sh", "-c", script]


class Rendezvous:
    """A crund, and nodes of its jobs."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="crun-stops-")
        self.started = []
        self.crund = self.start([BIN / "crund", "--allow-root", "--listen=127.0.0.1:0"])
        listening = r"listening.*?(127\.0\.0\.1:\d+)"
        self.address = until(lambda: re.search(listening, self.crund.err), "crund")[1]

    def start(self, command, **env):
        p = Process(command, env={**os.environ, **env}, cwd=self.directory.name)
        self.started.append(p)
        return p

    def node(self, job, *words, nnodes="2", **env):
        return self.start([CRUN, f"--nnodes={nnodes}", "--rdzv-backend=c10d",
                           f"--rdzv-id={job}", f"--rdzv-endpoint={self.address}",
                           "--rdzv-conf=last_call_timeout=60", *words], **env)

    def nodes(self, job, *words, count=2, **options):
        """They run one worker each."""
        nodes = [self.node(job, *words, **options) for _ in range(count)]
        until(lambda: all("up" in p.out for p in nodes), lambda: [p.err for p in nodes])
        return nodes

    def ctl(self, *words):
        p = self.start([CRUNCTL, "-e", self.address, *words])
        expect(p, 0)
        return p.out

    def end(self):
        for p in self.started:
            p.end()
        self.directory.cleanup()


# -- signals that come twice ----------------------------------------------------------

CHECKPOINT = ("trap 'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.1; done; echo saved;"
              " exit 0' TERM; echo up; while :; do sleep 0.02; done")


def one_wish_told_twice_takes_no_time_from_a_checkpoint(rendezvous):
    a, b = rendezvous.nodes("twice", "--failure-grace=0.2", *sh(CHECKPOINT), nnodes="1:2")
    for _ in range(2):  # as slurmd does: the job's step, and the job
        b.kill(signal.SIGTERM)
        time.sleep(0.01)
    expect(b, 143, "saved")
    if "a second signal" in b.err:
        fail("two signals were two wishes:", b.err)
    a.kill(signal.SIGINT)
    expect(a, 130)


TESTS = [
    one_wish_told_twice_takes_no_time_from_a_checkpoint,
]


def main():
    rendezvous = Rendezvous()
    try:
        run(TESTS, rendezvous)
    finally:
        rendezvous.end()


main()
