#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 2 s
"""
Where the time of a job went is known to a crund that was killed and started again, in
whichever phase that happened: each phase is as long as the test knows it to be, all of
them together are the age of the job, and no step is counted twice. The time without a
crund belongs to the phase in which it went.
"""
import os
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (ACK, BEAT, Crund, DONE, FAILED, FINISHED, HEARTBEAT, JOB_STATUS, JOIN,  # noqa: E402
                     JOINED, NOTICE, RESUME, START, STATUS, STOP, STOPPED, STORE_READY, Session, WELCOME,
                     frame, hello)

PHASES = ("productive", "detect", "stop", "form", "start", "first_step", "rework")
CONFIG = {"min_nodes": 2, "max_nodes": 2, "max_restarts": 5, "lease_ms": 15000,
          "join_timeout_ms": 600000, "last_call_ms": 0, "shutdown_grace_ms": 25000,
          "failure_grace_ms": 5000, "scale": "now"}
PHASE_S = 0.03
AWAY_S = 0.03
ROUNDED_MS = 5  # at a restart, of the time until then


def sums(body, name):
    """What is 0 is not told."""
    return {**dict.fromkeys([phase + "_ms" for phase in PHASES] + ["steps_again"], 0),
            **{key: int(value, 16) for key, value in body.get(name, {}).items()}}


class Node:
    def __init__(self, test, number):
        self.test, self.number = test, number
        self.incarnation = os.urandom(16).hex()
        self.sequence, self.epoch, self.instance = 1, 0, bytes(16)
        self.told = []  # in the end
        self.stop_of = 0  # the epoch that STOP has named on this connection
        self.connect()
        _, header = self.ask(JOIN, {**self.name(), "host": f"node{number}", "pid": 1, "workers": 2,
                                    "node_rank": number, "config": CONFIG}, JOINED)
        self.instance = header[5]

    def name(self):
        return {"run_id": "job", "incarnation": self.incarnation}

    def connect(self):
        self.stop_of = 0
        self.session = Session(self.test.crund.port)
        self.session.send(hello("agent"))
        self.hear(WELCOME)

    def resume(self):
        self.session.close()
        self.connect()
        self.ask(RESUME, {**self.name(), "node": self.number}, JOINED)

    def hear(self, wanted):
        while True:
            kind, body, header = self.session.receive()
            if kind == STOP:
                self.stop_of = header[4]
            if kind == wanted:
                return body, header
            if kind == NOTICE and body["text"].startswith("productive for "):
                self.told.append(body["text"])

    def ask(self, kind, body, answer):
        self.sequence += 1
        self.session.send(frame(kind, body, self.sequence, self.epoch, self.instance))
        return self.hear(answer)

    def start(self):
        self.epoch = self.hear(START)[1][4]

    def stop(self):
        """STOP may have come before the answer to a request."""
        if self.stop_of != self.epoch:
            self.hear(STOP)
        assert self.stop_of == self.epoch, (self.stop_of, self.epoch)

    def report(self, kind, body=None):
        self.ask(kind, body, ACK)

    def beat(self, **progress):
        self.ask(HEARTBEAT, {key: f"{value:016x}" for key, value in progress.items()}, BEAT)


class Ledger:
    """The phases as the test knows them: when each began, at the earliest and latest."""

    def __init__(self):
        self.spans, self.restart, self.slack_ms = [], 0, 1
        self.reports_steps = False

    def begin(self, phase, act, *arguments, restarts=False):
        earliest = time.monotonic()
        act(*arguments)
        if restarts:
            self.restart = len(self.spans)
        self.spans.append((phase, earliest, time.monotonic()))

    def check(self, told, first, asked, answered):
        """The sums that were told, of the spans from the first on."""
        ends = [*self.spans[1:], (None, asked, answered)]
        for phase in PHASES:
            least = most = 0
            for (name, early, late), (_, next_early, next_late) in list(zip(self.spans, ends))[first:]:
                if phase == (name if self.reports_steps or name != "first_step" else "productive"):
                    least += 1000 * max(0, next_early - late)
                    most += 1000 * (next_late - early)
            ms = told[phase + "_ms"]
            assert least - self.slack_ms <= ms <= most + self.slack_ms, \
                f"{phase}: {ms} ms, not {least:.1f} to {most:.1f}; all: {told}"


class Test:
    def __init__(self, directory):
        self.directory, self.ledger, self.lives = directory, Ledger(), 0
        self.nodes, self.again = [], 0
        self.start()

    def start(self):
        self.lives += 1
        self.crund = Crund(self.directory, "--state-dir", self.directory + "/state",
                           name=f"crund-{self.lives}")

    def status(self):
        session = Session(self.crund.port)
        session.send(hello())
        session.expect(WELCOME)
        asked = time.monotonic()
        session.send(frame(STATUS))
        body, _ = session.expect(JOB_STATUS)
        answered = time.monotonic()
        session.close()
        return body, asked, answered

    def check(self):
        body, asked, answered = self.status()
        whole, last = sums(body, "time"), sums(body, "last_restart")
        self.ledger.check(whole, 0, asked, answered)
        if self.ledger.restart and body["state"] != "done" and int(body["epoch"], 16) > 1:
            self.ledger.check(last, self.ledger.restart, asked, answered)
        age = sum(whole[phase + "_ms"] for phase in PHASES)
        if body["state"] != "done":
            assert abs(int(body["age_ms"], 16) - age) <= 50 + self.ledger.slack_ms, body
        assert whole["steps_again"] == self.again, (whole, self.again)

    def kill(self):
        """While a phase goes on."""
        time.sleep(PHASE_S)
        self.check()
        self.crund.stop(9)
        time.sleep(AWAY_S)
        self.start()
        self.ledger.slack_ms += ROUNDED_MS
        self.check()
        for node in self.nodes:
            node.resume()
        self.check()

    def phase(self, name, act, *arguments, **more):
        self.ledger.begin(name, act, *arguments, **more)
        self.kill()

    # -- what happens ---------------------------------------------------------------

    def join(self):
        self.nodes.append(Node(self, len(self.nodes)))

    def form(self):
        self.join()
        self.nodes[0].start()

    def ready(self):
        self.nodes[0].report(STORE_READY, {"port": 29500})
        self.nodes[1].start()

    def fail(self, origin):
        self.nodes[0].report(FAILED, {"kind": "exit", "code": 1, "origin": origin})

    def stop(self):
        self.fail("own")
        for node in self.nodes:
            node.stop()

    def begin_again(self):
        for node in self.nodes:
            node.report(STOPPED)
        self.nodes[0].start()

    def steps(self, first, now):
        self.ledger.reports_steps = True
        self.nodes[0].beat(first_step=first, step=now)

    def finish(self):
        for node in self.nodes:
            node.report(FINISHED)
        for node in self.nodes:
            node.hear(DONE)

    def epoch_that_fails(self):
        self.phase("detect", self.fail, "peer", restarts=True)
        self.phase("stop", self.stop)
        self.phase("start", self.begin_again)
        self.phase("first_step", self.ready)
        self.again += 20 - 11 + 1
        self.phase("rework", self.steps, 11, 11)
        self.steps(11, 15)
        self.check()
        self.phase("productive", self.steps, 11, 20)
        self.steps(11, 20)
        self.check()


def main():
    with tempfile.TemporaryDirectory(prefix="crund-time-") as directory:
        os.mkdir(directory + "/state", 0o700)
        test = Test(directory)
        test.phase("form", test.join)
        test.phase("start", test.form)
        test.phase("first_step", test.ready)
        test.phase("productive", test.steps, 1, 1)
        test.steps(1, 20)
        for _ in range(2):
            test.epoch_that_fails()
        test.phase("over", test.finish)
        assert [len(node.told) for node in test.nodes] == [1, 0], [n.told for n in test.nodes]
        test.crund.stop(9)
    print(f"{test.lives} lives of crund")


main()
