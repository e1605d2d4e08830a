#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 8 s
"""
Strangers flood a daemon with few descriptors, as fast as a program in C can: silent ones, random
bytes, TLS hellos, half a hello, whole ones, requests whose answers are not read. No job is made
by them, a member's heartbeats are answered, a new node joins soon, and memory and log stay small.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (Crund, END_OF_LIST, JOB_STATUS, JOINED, STATUS, Session, WELCOME,  # noqa: E402
                     frame, hello, join)
from crowd import Agent, SLOW  # noqa: E402
from process import slowdown  # noqa: E402

FLOOD_S = 3
JOIN_MAX = 2 * SLOW  # of most: a busy machine may keep one of them waiting
MEMORY_MAX_KIB, LOG_MAX = 64 * 1024, 1_000_000


def joined(port, run_id):
    """A new node, whose connection may give way: it tries again."""
    begun = time.monotonic()
    while True:
        try:
            session = Session(port)
            session.send(hello("agent"))
            session.expect(WELCOME)
            session.send(join(run_id))
            session.expect(JOINED)
            return session
        except (Session.Closed, OSError):
            assert time.monotonic() - begun < 90, f"{run_id} cannot join"


def jobs(port):
    names = []
    while True:
        try:
            session = Session(port)
            session.send(hello() + frame(STATUS))
            session.expect(WELCOME)
            while (answer := session.receive())[0] == JOB_STATUS:
                names.append(answer[1]["run_id"])
            assert answer[0] == END_OF_LIST, answer
            session.close()
            return names
        except Session.Closed:
            names.clear()


def flood(crund, kind):
    agent, before = Agent(crund), crund.memory("VmHWM")
    nodes, took = [], []
    while len(nodes) < 2:  # on an idle machine many join in this time
        load = subprocess.Popen([os.path.join(os.environ.get("BUILD", "build"), "bin", "flood-load"),
                                 f"--port={crund.port}", f"--kind={kind}", f"--seconds={FLOOD_S}",
                                 "--open=2000"], stdout=subprocess.PIPE, text=True)
        while load.poll() is None:
            begun = time.monotonic()
            nodes.append(joined(crund.port, f"{kind}-{len(nodes)}"))
            took.append(time.monotonic() - begun)
            time.sleep(0.1)
    assert sorted(took)[len(took) // 2] < JOIN_MAX * slowdown(), f"seconds to join: {took}"
    agent.check(f"{load.stdout.read().strip()}: {kind}")
    honest = {"job", *(f"{kind}-{i}" for i in range(len(nodes)))}
    assert set(jobs(crund.port)) == honest, jobs(crund.port)
    grown = crund.memory("VmHWM") - before
    assert SLOW > 1 or grown < MEMORY_MAX_KIB, f"{grown} KiB for strangers"
    assert len(crund.log()) < LOG_MAX, f"{len(crund.log())} bytes of log"
    agent.over = True
    agent.join()
    for node in nodes:
        node.close()


def main():
    directory = tempfile.mkdtemp()
    try:
        for kind in ("mixed", "random"):
            crund = Crund(directory, name=kind, prefix=("prlimit", "--nofile=1024:1024"))
            flood(crund, kind)
            assert crund.stop() == 0
    finally:
        shutil.rmtree(directory)


main()
