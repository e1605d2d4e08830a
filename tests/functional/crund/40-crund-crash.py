#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 3 s
"""
A daemon under load, killed with -9 at random moments, over files that lose whatever was
not synced; a new one on the same directory must know all that was acknowledged: every
member with its place, no epoch that goes back, the restarts spent, every report, every
result. Members do not repeat what was acknowledged, so that a report that is forgotten
leaves a job that never ends, and that is seen too.

  40-crund-crash.py [KILLS] [SEED]        20 kills; by hand: 200 and more
"""
import os
import random
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (Crund, DONE, END_OF_LIST, FAILED, FINISHED, BYE, JOB_STATUS,  # noqa: E402
                     JOINED, REFUSED, START, STATUS, STOP, STOPPED, STORE_READY, ACK, JOIN,
                     RESUME, Session, WELCOME, frame, hello)

KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
JOBS, NODES, RESTARTS = 4, 3, 3
ALIVE_S = 0.25
STEP_S = 0.005
BEGINS_S = 0.02
STUCK_S = 90
LOST = (Session.Closed, OSError)


def outcome(body):
    return body.get("reason"), body.get("exit_code", 0), body.get("restarts", 0)


class Daemon:
    """The crund that runs now. A caller that finds it dead waits for the next."""

    def __init__(self, directory, rng):
        self.directory, self.rng = directory, rng
        self.state = os.path.join(directory, "state")
        self.changed = threading.Condition()
        self.lives, self.port, self.crund, self.over = 0, None, None, False
        os.mkdir(self.state, 0o700)

    def environment(self):
        library = os.path.join(os.path.abspath(os.environ.get("BUILD", "build")), "lib",
                               "lossydisk_preload.so")
        env = {**os.environ, "LD_PRELOAD": library, "LOSSYDISK_DIR": self.state,
               "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}
        if self.rng.random() < 0.8:
            env["LOSSYDISK_SEED"] = str(self.rng.randrange(1 << 60))
        return env

    def start(self, lies=False):
        env = {**self.environment(), **({"LOSSYDISK_LIES": "1"} if lies else {})}
        self.crund = Crund(self.directory, "--state-dir", self.state, env=env,
                           name=f"crund-{self.lives}")
        with self.changed:
            self.lives += 1
            self.port = self.crund.port
            self.changed.notify_all()

    def kill(self):
        with self.changed:
            self.port = None
        self.crund.stop(9)

    def start_and_kill(self):
        """A life that ends while it begins."""
        program = os.path.join(os.environ.get("BUILD", "build"), "bin", "crund")
        with open(os.path.join(self.directory, "stillborn.log"), "w", encoding="utf-8") as log, \
                subprocess.Popen([program, "--listen", "127.0.0.1:0", "--state-dir", self.state],
                                 stderr=log, env=self.environment()) as process:
            time.sleep(self.rng.random() * BEGINS_S)
            process.kill()

    def wait_for(self, life):
        """The port of a life after that one, and its number."""
        with self.changed:
            assert self.changed.wait_for(
                lambda: self.over or self.port and self.lives > life, STUCK_S)
            return self.port, self.lives

    def end(self):
        with self.changed:
            self.over = True
            self.changed.notify_all()


class Member:
    """One agent of a job, and what it was promised."""

    def __init__(self, job, number):
        self.job, self.number = job, number
        self.incarnation = os.urandom(16)
        self.session, self.node, self.slot = None, None, None
        self.sequence, self.unanswered = 1, {}  # reports by sequence
        self.epoch = 0  # nothing older may be heard on this connection
        self.started, self.done, self.gone = 0, None, False

    def send(self, kind, body=None):
        self.sequence += 1
        data = frame(kind, body, self.sequence, self.epoch, self.job.instance)
        self.unanswered[self.sequence] = (kind, data)
        self.session.send(data)

    def connect(self, port):
        if self.session:
            self.session.close()
        self.epoch = self.job.epoch
        self.session = Session(port)
        self.session.send(hello("agent"))
        self.session.expect(WELCOME)
        who = {"run_id": self.job.name, "incarnation": self.incarnation.hex()}
        if self.node is None:
            self.session.send(frame(JOIN, {
                **who, "host": f"node{self.number}", "pid": 1, "workers": 2,
                "node_rank": -1, "config": self.job.config}))
        else:
            self.session.send(frame(RESUME, {**who, "node": self.node}, 1, self.epoch,
                                    self.job.instance))
            for _, data in self.unanswered.values():
                self.session.send(data)

    def know_epoch(self, epoch):
        assert epoch >= self.epoch, f"{self.job.name}: epoch {epoch} after {self.epoch}"
        self.epoch = epoch
        self.job.epoch = max(self.job.epoch, epoch)

    def on_joined(self, body, header):
        if self.node is None:
            self.node = body["node"]
            self.job.instance = self.job.instance or header[5]
        if self.slot is None and body["slot"] >= 0:
            self.slot = body["slot"]
        assert (body["node"], header[5]) == (self.node, self.job.instance), (body, header)
        assert self.slot is None or body["slot"] == self.slot, (body, self.slot)
        self.know_epoch(header[4])

    def on_start(self, body, header):
        self.know_epoch(header[4])
        spent = sum(1 for epoch in self.job.failed if epoch < header[4])
        assert body["restarts"] >= spent, (body, self.job.failed)
        self.job.restarts = max(self.job.restarts, body["restarts"])
        if self.started == header[4]:
            return
        self.slot, self.started = body["slot"], header[4]
        if body.get("host_store"):
            self.send(STORE_READY, {"port": 29500})
        self.job.on_started(self, body["restarts"])

    def on_stop(self, _, header):
        self.know_epoch(header[4])
        if not any(kind == STOPPED for kind, _ in self.unanswered.values()) \
                and self.job.stopped.get(self) != header[4]:
            self.send(STOPPED)

    def on_done(self, body, _):
        result = outcome(body)
        self.job.result = self.job.result or result
        assert self.job.result == result, (self.job.result, result)
        self.done = True

    def on_ack(self, _, header):
        kind, data = self.unanswered.pop(header[3])
        epoch = int.from_bytes(data[16:24], "little")
        if kind == FAILED:
            self.job.failed.add(epoch)
        elif kind == STOPPED:
            self.job.stopped[self] = epoch

    def on_refused(self, body, _):
        raise AssertionError(f"{self.job.name} node{self.number}: {body}")

    HANDLERS = {JOINED: on_joined, START: on_start, STOP: on_stop, DONE: on_done,
                ACK: on_ack, REFUSED: on_refused}

    def take(self):
        kind, body, header = self.session.receive()
        handler = self.HANDLERS.get(kind)
        if handler:
            handler(self, body, header)


class Job:
    """Joins, fails as often as it may, and fails once more or succeeds."""

    def __init__(self, name, rng):
        self.name, self.rng = name, rng
        self.config = {"min_nodes": NODES, "max_nodes": NODES, "max_restarts": RESTARTS,
                       "lease_ms": 60000, "join_timeout_ms": 600000, "last_call_ms": 30000,
                       "shutdown_grace_ms": 25000, "failure_grace_ms": 5000, "scale": "now"}
        self.instance, self.epoch, self.restarts = None, 0, 0
        self.failed, self.stopped, self.result = set(), {}, None
        self.succeeds = rng.random() < 0.5
        self.members = [Member(self, i) for i in range(NODES)]
        self.culprit = rng.choice(self.members)

    def on_started(self, member, restarts):
        time.sleep(self.rng.random() * STEP_S)
        if restarts < RESTARTS or not self.succeeds:
            if member is self.culprit:
                member.send(FAILED, {"kind": "exit", "code": 3, "rank": 1,
                                     "what": "exited with code 3", "said": "x" * 4000})
        else:
            member.send(FINISHED)

    def run(self, daemon):
        """Until its end is known to all, or the test is over."""
        life = 0
        while not all(m.gone for m in self.members):
            port, life = daemon.wait_for(life)
            if daemon.over:
                return
            try:
                for m in self.members:
                    if not m.gone:
                        m.connect(port)
                self.talk()
            except LOST:
                pass

    def talk(self):
        with selectors.DefaultSelector() as ready:
            for m in self.members:
                if not m.gone:
                    ready.register(m.session.socket, selectors.EVENT_READ, m)
            while not all(m.gone for m in self.members):
                events = ready.select(STUCK_S)
                assert events, f"{self.name} is stuck in epoch {self.epoch}"
                for key, _ in events:
                    m = key.data
                    m.take()
                    while m.session.buffer and not m.done:
                        m.take()
                    if m.done and not m.gone:
                        m.session.send(frame(BYE, None, 9, m.epoch, self.instance))
                        m.gone = True
                        ready.unregister(m.session.socket)


class Load(threading.Thread):
    """One job after the other."""

    def __init__(self, daemon, number, seed):
        super().__init__(daemon=True)
        self.daemon_, self.number, self.rng = daemon, number, random.Random(seed)
        self.jobs, self.failure = [], None
        self.start()

    def run(self):
        try:
            while not self.daemon_.over:
                job = Job(f"job-{self.number}-{len(self.jobs)}", self.rng)
                self.jobs.append(job)
                job.run(self.daemon_)
        except Exception:  # told by main
            self.failure = traceback.format_exc()


class Status:
    """Asks for one job at a time: all at once may be more than a connection holds."""

    def __init__(self, port):
        self.session = Session(port)
        self.session.send(hello("ctl"))
        self.session.expect(WELCOME)

    def of(self, name):
        """Its JOB_STATUS, or None."""
        self.session.send(frame(STATUS, {"run_id": name}, 2))
        job = None
        while True:
            kind, body, _ = self.session.receive()
            if kind in (END_OF_LIST, REFUSED):
                return job
            job = body if kind == JOB_STATUS else job


def promises(loads, last=0):
    """What is known of the last jobs: a copy, taken before the daemon is killed."""
    return [(j.name, j.instance, j.epoch, max(j.restarts, len(j.failed) if not j.result else 0),
             j.result) for load in loads for j in load.jobs[-last:] if j.instance]


def check(known, port):
    status = Status(port)
    for name, instance, epoch, restarts, result in known:
        job = status.of(name)
        assert job, f"{name} is forgotten"
        assert job["instance"] == instance.hex(), (name, job)
        assert int(job.get("epoch", "0"), 16) >= epoch, (name, epoch, job)
        assert job.get("restarts", 0) >= min(restarts, RESTARTS), (name, restarts, job)
        if result:
            assert outcome(job) == result, (name, result, job)
    status.session.close()


def a_disk_that_lies_is_seen(directory):
    """Without it a layer that loses nothing would prove nothing."""
    daemon = Daemon(directory, random.Random(1))
    daemon.start(lies=True)
    job = Job("lost", random.Random(2))
    job.members[0].connect(daemon.port)
    job.members[0].take()
    assert job.instance
    daemon.kill()
    try:
        daemon.start()
    except AssertionError as e:
        assert "journal" in str(e), e
        return
    assert not Status(daemon.port).of("lost")
    daemon.crund.stop()


def kill_and_check(daemon, rng, loads):
    time.sleep(rng.random() ** 2 * ALIVE_S)
    known = promises(loads, 10)
    daemon.kill()
    while rng.random() < 0.3:
        daemon.start_and_kill()
    daemon.start()
    check(known, daemon.port)
    for load in loads:
        assert load.failure is None, load.failure


def main():
    directory = tempfile.mkdtemp(prefix="crund-crash-")
    daemon = None
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    try:
        lying = os.path.join(directory, "lying")
        os.mkdir(lying)
        a_disk_that_lies_is_seen(lying)
        daemon = Daemon(directory, rng)
        daemon.start()
        loads = [Load(daemon, i, rng.random()) for i in range(JOBS)]
        for _ in range(KILLS):
            kill_and_check(daemon, rng, loads)
        jobs = sum(len(load.jobs) for load in loads)
        done = sum(1 for load in loads for j in load.jobs if j.result)
        print(f"{KILLS} kills, {jobs} jobs begun, {done} ended")
        assert done >= 1
        daemon.end()
        for load in loads:
            load.join(STUCK_S)
        check(promises(loads), daemon.port)
        assert daemon.crund.stop() == 0
        shutil.rmtree(directory)
    except BaseException:
        print(f"kept: {directory}")
        raise
    finally:
        if daemon and daemon.crund:
            daemon.crund.stop(9)


if __name__ == "__main__":
    main()
