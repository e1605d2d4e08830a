#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
A state directory without room: new jobs are refused in words, those that run go on, and
all is well again when there is room. Snapshots give back the room of the past, so that
this lasts. Where the present is too large for that crund ends, saying why, and has lost
nothing; it starts again on the disk that is full.

On a tmpfs of its own, in a mount namespace of its own.
"""
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (ACK, Crund, FAILED, JOB_STATUS, JOINED, REFUSED, START, STATUS,  # noqa: E402
                     STOP, STOPPED, STORE_READY, Session, WELCOME, frame, hello, join)
from process import SECONDS  # noqa: E402

ROOM_KIB = 6 * 1024
CYCLES_MAX = 3000
ENDED_JOBS = 250  # some 4 KiB each to be remembered: more than half of the reserve
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


class Agent:
    """The one node of a job that fails and restarts for as long as it is asked to."""

    def __init__(self, port, run_id):
        self.run_id, self.sequence, self.cycles = run_id, 1, 0
        kind, until = None, time.monotonic() + SECONDS
        while kind != JOINED:  # a snapshot that is being written may leave no room for a moment
            self.session = Session(port)
            self.session.send(hello("agent") + join(run_id, 1, max_restarts=1000000))
            self.session.expect(WELCOME)
            kind, body, header = self.session.receive()
            assert kind == JOINED or body["retry"] and time.monotonic() < until, (kind, body)
        self.instance, self.epoch = header[5], 0
        self.start()

    def report(self, kind, body=None):
        self.sequence += 1
        self.session.send(frame(kind, body, self.sequence, self.epoch, self.instance))
        assert self.session.expect(ACK)[1][3] == self.sequence

    def start(self):
        self.epoch = self.session.expect(START)[1][4]
        self.report(STORE_READY, {"port": 29500})

    def cycle(self):
        """One epoch: some 5 KiB of journal."""
        self.fail()
        self.session.expect(STOP)
        self.report(STOPPED)
        self.cycles += 1
        self.start()

    def fail(self, final=False):
        self.report(FAILED, {"kind": "exit", "code": 1, "said": "x" * 4000, "final": final})


def mount(directory, option, kib):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"{option}={kib}k", "none", directory],
                   check=True)


def join_or_refusal(port, run_id):
    """None if it may join, else the refusal."""
    s = Session(port)
    s.send(hello("agent") + join(run_id, 2))
    s.expect(WELCOME)
    kind, body, _ = s.receive()
    s.close()
    assert kind in (JOINED, REFUSED), (kind, body)
    return body if kind == REFUSED else None


def fill(path):
    with open(path, "wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError:
            pass


def status(port, run_id):
    s = Session(port)
    s.send(hello() + frame(STATUS, {"run_id": run_id}, 2))
    s.expect(WELCOME)
    body, _ = s.expect(JOB_STATUS)
    s.close()
    return body


def new_jobs_are_refused_while_others_go_on(crund, agent, filler):
    assert join_or_refusal(crund.port, "early") is None
    fill(filler)
    refusal = None
    while not refusal and agent.cycles < CYCLES_MAX:
        agent.cycle()
        refusal = join_or_refusal(crund.port, f"late{agent.cycles}")
    assert refusal and refusal["why"] == "no-space" and "full" in refusal["text"], refusal
    for _ in range(50):
        agent.cycle()
    assert join_or_refusal(crund.port, "later")["why"] == "no-space"
    os.remove(filler)
    assert join_or_refusal(crund.port, "again") is None


def it_goes_on_for_much_longer_than_the_reserve(crund, agent, filler):
    fill(filler)
    for _ in range(ROOM_KIB * 2 // 5):
        agent.cycle()
    assert crund.process.poll() is None, crund.log()
    os.remove(filler)


def without_room_for_the_present_it_ends(crund, agent, filler):
    for i in range(ENDED_JOBS):
        Agent(crund.port, f"ended{i}").fail(final=True)
    try:
        while agent.cycles < 10 * CYCLES_MAX:
            fill(filler)
            agent.cycle()
    except (Session.Closed, BrokenPipeError):
        pass
    assert crund.process.wait(SECONDS) == 74, crund.log()
    assert "No space left on device" in crund.log().splitlines()[-1], crund.log()


def it_starts_again_on_a_full_disk(crund, agent, filler):
    assert int(status(crund.port, agent.run_id)["epoch"], 16) >= agent.epoch
    assert join_or_refusal(crund.port, "refused")["why"] == "no-space"
    os.remove(filler)
    mount(os.path.dirname(filler), "remount,size", 2 * ROOM_KIB)
    assert join_or_refusal(crund.port, "welcome") is None


def inside(directory):
    disk = os.path.join(directory, "disk")
    os.mkdir(disk)
    mount(disk, "size", ROOM_KIB)
    state, filler = os.path.join(disk, "state"), os.path.join(disk, "filler")
    crund = Crund(directory, "--state-dir", state)
    try:
        agent = Agent(crund.port, "runs")
        new_jobs_are_refused_while_others_go_on(crund, agent, filler)
        it_goes_on_for_much_longer_than_the_reserve(crund, agent, filler)
        without_room_for_the_present_it_ends(crund, agent, filler)
        crund = Crund(directory, "--state-dir", state, name="again")
        it_starts_again_on_a_full_disk(crund, agent, filler)
        assert crund.stop() == 0
    finally:
        crund.stop(9)


def main():
    if len(sys.argv) > 1:
        return inside(sys.argv[1])
    probe = "mount -t tmpfs none /mnt"
    if subprocess.run([*NAMESPACE, "sh", "-c", probe], stderr=subprocess.DEVNULL,
                      check=False).returncode:
        print("skipped: no mount namespaces here")
        return 77
    with tempfile.TemporaryDirectory() as directory:
        return subprocess.run([*NAMESPACE, sys.executable, __file__, directory],
                              check=False).returncode


sys.exit(main())
