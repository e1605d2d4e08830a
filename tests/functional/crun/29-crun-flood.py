#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 12 s
"""
Strangers flood the port of a running job: connections that say nothing, random bytes, half a
hello, and requests whose answers they do not read. The job runs on and restarts meanwhile.
"""
import os
import random
import socket
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import EVENTS, PREFACE, Session, WELCOME, frame, hello  # noqa: E402
from crowd import Flood, close_all, dial_narrow  # noqa: E402
from launch import CRUN, Place, sh  # noqa: E402
from process import SANITIZED, SECONDS, free_port, read, until  # noqa: E402

SLOW = 4 if SANITIZED else 1
# rank 0 fails once, when it is told to; no other worker ends before
WORKER = """
[ $TORCHELASTIC_RESTART_COUNT = 1 ] && { : > again.$RANK; exit 0; }
: > up.$RANK
[ $RANK = 0 ] || exec sleep 1000
read line < go
exit 7
"""


def words():
    """What strangers say first."""
    rng = random.Random(14)
    whole = PREFACE + hello("agent")
    return [b"", PREFACE + hello("ctl"), rng.randbytes(200), whole[:20], whole, PREFACE[:3],
            PREFACE + hello("ctl") + frame(EVENTS) * 195, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"]


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def started(p, limit, workers, *flags):
    """A job of two nodes. The first one hosts the rendezvous, with few descriptors."""
    port = free_port()
    os.mkfifo(f"{p.path}/go")
    nodes = ["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--max-restarts=1", *flags]
    first = p.start("prlimit", f"--nofile={limit}:{limit}", CRUN, *nodes,
                    f"--nproc-per-node={workers}", *sh(WORKER), stdin=subprocess.DEVNULL,
                    stderr=open(f"{p.path}/err", "wb"))
    until(lambda: listens(port), "the rendezvous")
    second = p.start(CRUN, *nodes, *sh(WORKER), stdin=subprocess.DEVNULL)
    until(lambda: all(os.path.exists(f"{p.path}/up.{r}") for r in range(workers + 1)),
          "all workers run")
    return port, first, second


def restarted(p, first, second):
    with open(f"{p.path}/go", "w") as go:
        go.write("\n")
    p.end(second, 0)
    code, said = first.wait(SECONDS), read(f"{p.path}/err").decode()
    assert code == 0, f"exit code {code}:\n{said}"
    assert len(said) < 100_000, f"{len(said)} bytes were said"
    return said


def is_welcomed(port):
    """An agent's connection may be the one that gives way: it tries again."""
    try:
        session = Session(port)
        session.send(hello("agent"))
        session.expect(WELCOME)
        session.close()
    except (Session.Closed, OSError):
        return False
    return True


def descriptors_for_a_restart_are_set_aside(p):
    """32 workers need most of 256 descriptors: strangers get only what is left over."""
    port, first, second = started(p, 256, 32, "-r3", f"--log-dir={p.path}/logs")
    floods = [Flood(port, words()) for _ in range(2)]
    try:
        until(lambda: sum(f.made for f in floods) > 600, "the flood")
        said = restarted(p, first, second)
    finally:
        for f in floods:
            f.stop()
    assert "Too many open files" not in said, said


def requests_do_not_take_the_lease(p):
    """200 connections ask for everything 195 times, for longer than the job's lease."""
    port, first, second = started(p, 1024, 1, "--rdzv-conf=lease=3")
    begun = time.monotonic()
    asking = [dial_narrow(port, PREFACE + hello() + frame(EVENTS) * 195) for _ in range(200)]
    flood = Flood(port, words())
    try:
        while time.monotonic() < begun + 4:
            until(lambda: is_welcomed(port), "a node is welcomed")
            time.sleep(0.1)
        said = restarted(p, first, second)
    finally:
        flood.stop()
        close_all(asking)
    assert "lost" not in said and "silent" not in said, said


def main():
    for case in (descriptors_for_a_restart_are_set_aside, requests_do_not_take_the_lease):
        p = Place()
        try:
            case(p)
            p.nothing_is_left()
        finally:
            p.close()
        print(case.__name__)


main()
