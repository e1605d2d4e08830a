#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 22 s
"""
What a daemon meets on a shared network: garbage, other protocols, port scans, silent and
slow peers, floods, thousands of idle connections, no descriptors. All of it is closed in
time and told in few words, memory stays bounded, and an agent's heartbeats are answered
as if nothing were there.
"""
import os
import random
import resource
import shutil
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (BEAT, Crund, END_OF_LIST, EVENT, EVENTS, HEADER, HEARTBEAT, HELLO,  # noqa: E402
                     JOB_STATUS, JOIN, JOINED, PREFACE, REFUSED, STATUS, Session, WELCOME,
                     closed_within, frame, hello, join)
from crowd import Agent, close_all, dial, dial_narrow  # noqa: E402
from process import SECONDS  # noqa: E402

SLOW = 4 if "san" in os.environ.get("BUILD", "") else 1
HELLO_DEADLINE, FRAME_DEADLINE = 5, 10
LATE = SECONDS  # a busy machine may be so late
RSS_MAX_KIB = 64 * 1024
FLOOD_MAX_KIB = 40 * 1024
EVENTS_KEPT, NODES_MAX = 1024, 16384
LOG_MAX = 800_000  # 1,000 lines at once from one address, and few more


def assert_closed(sockets, seconds, what):
    deadline = time.monotonic() + seconds
    late = [i for i, s in enumerate(sockets)
            if not closed_within(s, max(deadline - time.monotonic(), 0.01))]
    close_all(sockets)
    assert not late, f"of {len(sockets)} connections still open: {what} {late}"


def other_protocols(port):
    rng = random.Random(1)
    words = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-x\r\n", b"\n", b"\xff" * 70000,
             b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
             b"\x00\xce\xf7\x85\x3c", b"\x03\x05\x00\x00\x00init/", PREFACE[:4] + b"XXXX"]
    words += [rng.randbytes(rng.randrange(1, 4096)) for _ in range(100)]
    # a random first byte can be the beginning of something that is spoken here
    words = [w if w[0] in b"\x00\x03GS\n\xff\x16C" else b"\x80" + w for w in words]
    for _ in range(3):
        assert_closed([dial(port, w) for w in words], HELLO_DEADLINE + LATE, "other protocols")


def bad_frames(port):
    deep = b"[" * 4000 + b"]" * 4000
    bodies = [b'{"a":' + deep + b"}", b'{"version_min":1,"version_min":1}', b"{}x", b"{} {}",
              b'{"role":"\xff\xfe"}', b'{"version_min":1e999}', b"\0" * 40, b"[]", b"null",
              b'{"a":"\\ud800"}', b'{"role":"ctl","version_min":-1,"version_max":1}']
    streams = [frame(HELLO, b) for b in bodies if len(b) <= 512]
    streams += [HEADER.pack(size, HELLO, 0, 1, 0, bytes(16)) for size in
                (0, 1, 513, 16385, 2**31, 2**32 - 1)]
    streams += [HEADER.pack(2, HELLO, 1, 1, 0, bytes(16)) + b"{}",
                frame(0), frame(2), frame(65535), frame(HEARTBEAT), frame(STATUS),
                hello("agent") + hello("agent"),
                hello("ctl") + frame(STATUS, b'{"a":' + deep + b"}"),
                hello("ctl") + frame(STATUS, b'{"from":1,"from":1}')]
    assert_closed([dial(port, PREFACE + s) for s in streams], LATE, "bad frames")


def newer_version(port):
    s = Session(port)
    s.send(frame(HELLO, {"version_min": 8, "version_max": 9, "role": "agent"}))
    body, _ = s.expect(REFUSED)
    assert "1" in body["text"] and "8" in body["text"], body
    s.close()


def unreadable_join(port):
    s = Session(port)
    s.send(hello("agent"))
    s.expect(WELCOME)
    s.send(frame(JOIN, {"run_id": "job"}, sequence=9))
    body, _ = s.expect(REFUSED)
    assert body["why"] == "malformed" and "incarnation is missing" in body["text"], body
    assert closed_within(s.socket, LATE), "it is still there"
    s.close()


def byte_by_byte(port):
    ask_for_status(port, size=1)


def ask_for_status(port, size=4096):
    s = Session(port, preface=False, timeout=LATE)
    request = PREFACE + hello() + frame(STATUS, sequence=2)
    begun = time.monotonic()
    try:
        for at in range(0, len(request), size):
            s.send(request[at:at + size])
        s.expect(WELCOME)
    except (Session.Closed, BrokenPipeError):  # as it has said nothing in time, when its turn comes
        took = time.monotonic() - begun
        assert HELLO_DEADLINE - 1 < took < LATE, f"it was closed after {took:.1f} s"
        return ask_for_status(port, size)
    while s.receive()[0] != END_OF_LIST:
        pass
    s.close()


def port_scan(port):
    for _ in range(2000):
        dial(port).close()


class Slow:
    """Peers that take their time, opened now, to be looked at when they are due."""

    def __init__(self, port):
        self.begun = time.monotonic()
        self.silent = [dial(port) for _ in range(300)]
        self.silent += [dial(port, PREFACE[:n]) for n in range(1, 9)]
        self.silent += [dial(port, PREFACE + hello()[:n]) for n in (1, 39, 60)]
        self.silent += [dial(port, PREFACE + hello("agent"))]  # and never joins
        self.stalled = [dial(port, PREFACE + hello() + frame(STATUS)[:n]) for n in (1, 20, 41)]
        self.dripping = dial(port)
        threading.Thread(target=self.drip, daemon=True).start()

    def drip(self):
        try:
            for byte in PREFACE + hello():
                self.dripping.sendall(bytes([byte]))
                time.sleep(0.4)
        except OSError:
            pass

    def check(self):
        left = self.begun + HELLO_DEADLINE + LATE - time.monotonic()
        assert_closed(self.silent + [self.dripping], left, "silent peers")
        closed = closed_within(self.stalled[0], 0.01)
        assert not closed or time.monotonic() >= self.begun + FRAME_DEADLINE, \
            "a frame may take its time"
        left = self.begun + FRAME_DEADLINE + LATE - time.monotonic()
        assert_closed(self.stalled, left, "stalled frames")


def greedy(port):
    """Asks as fast as it can and reads the answers."""
    s = Session(port)
    s.send(hello())
    s.expect(WELCOME)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        s.send(frame(STATUS) * 100)
        answers = 0
        while answers < 100:
            answers += s.receive()[0] == END_OF_LIST
    s.close()


def deaf(port):
    """Sends requests and reads nothing, until crund stops reading from it."""
    s = Session(port, timeout=0.5)
    s.send(hello())
    end = time.monotonic() + LATE
    try:
        while time.monotonic() < end:
            s.send(frame(STATUS) * 200)
        raise AssertionError("a peer that reads nothing is still read")
    except (TimeoutError, socket.timeout):
        s.close()


def check_log(crund, seconds):
    lines = crund.log().splitlines()
    print(f"  {len(lines)} lines in {seconds:.1f} s")
    # two of the daemon at the start, and the job's events
    assert len(lines) <= seconds + 8, "\n".join(lines[:40])


def attack(directory):
    begun = time.monotonic()
    crund = Crund(directory, name="attacked")
    print(f"  idle: {crund.memory()} KiB PSS")
    assert SLOW > 1 or crund.memory() <= 6 * 1024, "idle crund over 6 MiB"
    agent = Agent(crund)
    before = crund.descriptors()
    slow = Slow(crund.port)
    agent.check("300 half-open peers")
    for fn in (other_protocols, bad_frames, newer_version, unreadable_join,
               byte_by_byte, port_scan, greedy, deaf):
        fn(crund.port)
        while agent.beats < 20:
            fn(crund.port)
        agent.check(fn.__name__)
    slow.check()
    agent.check("slow peers")
    byte_by_byte(crund.port)
    deadline = time.monotonic() + LATE
    while crund.descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert crund.descriptors() <= before, "descriptors leak"
    print(f"  peak {crund.memory('VmHWM')} KiB resident")
    assert SLOW > 1 or crund.memory("VmHWM") < RSS_MAX_KIB, "memory"
    check_log(crund, time.monotonic() - begun)
    agent.over = True
    agent.join()
    assert crund.stop() == 0, crund.log()


def idle_crowd(directory):
    """Thousands of idle connections: memory of each, no work for them, others served."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crund = Crund(directory, name="crowded")
    count = min(10000, hard - 200) // SLOW
    agent = Agent(crund)
    empty = crund.memory()
    crowd = []
    for _ in range(count):
        s = dial(crund.port, PREFACE + hello())
        crowd.append(s)
    agent.check(f"{count} connections made")
    for s in crowd:
        assert s.recv(HEADER.size), "an idle connection was closed"
    each = (crund.memory() - empty) / count
    agent.over = True
    agent.join()
    cpu = crund.cpu_seconds()
    time.sleep(2)
    cpu = (crund.cpu_seconds() - cpu) / 2
    print(f"  {count} idle: {each:.2f} KiB PSS each, {cpu * 100:.1f} % of a core")
    assert SLOW > 1 or each <= 8, f"{each:.2f} KiB for an idle connection"
    assert cpu < 0.02 * SLOW, f"{cpu:.3f} CPU seconds a second for idle connections"
    byte_by_byte(crund.port)
    close_all(crowd)
    assert crund.stop() == 0


def no_descriptors(directory):
    """With room for few connections: those that belong there keep theirs, no spinning."""
    crund = Crund(directory, name="short", prefix=("prlimit", "--nofile=64:64"))
    agent = Agent(crund)
    begun, cpu = time.monotonic(), crund.cpu_seconds()
    crowd = [dial(crund.port) for _ in range(300)]
    time.sleep(1)
    agent.check("300 connections where 64 descriptors are all")
    assert crund.descriptors() <= 64
    byte_by_byte(crund.port)  # a real client gets through: the oldest unidentified one is closed
    crowd += [dial(crund.port, PREFACE + hello()) for _ in range(100)]
    time.sleep(1)
    agent.check("100 that said hello")
    byte_by_byte(crund.port)
    used = (crund.cpu_seconds() - cpu) / (time.monotonic() - begun)
    assert used < 0.5, f"it spins: {used:.2f} of a core"
    check_log(crund, time.monotonic() - begun)
    close_all(crowd)
    agent.over = True
    agent.join()
    assert crund.stop() == 0


def flood_of_requests(directory):
    """Each of many connections asks for everything 195 times in one write."""
    crund = Crund(directory, name="flooded")
    agent = Agent(crund)
    for _ in range(2 * EVENTS_KEPT):
        s = Session(crund.port)
        s.send(hello("agent") + join("r" * 128, nodes=NODES_MAX, host="h" * 250))
        s.expect(WELCOME)
        s.expect(JOINED)
        s.close()
    agent.check("a list of events that is full")
    assert len(crund.log()) < LOG_MAX, f"{len(crund.log())} bytes of log"
    before = crund.memory("VmHWM")
    requests = hello() + frame(EVENTS) * 195
    begun = time.monotonic()
    crowd = [dial_narrow(crund.port, PREFACE + requests) for _ in range(400 // SLOW)]
    while time.monotonic() < begun + 5 or agent.beats < 20:
        for s in crowd:
            s.settimeout(0.001)
            try:
                s.recv(4096)  # slowly: nothing that waits for it is given up
            except (TimeoutError, socket.timeout, ConnectionResetError):
                pass
        ask_for_status(crund.port)
        if agent.failure or time.monotonic() > begun + LATE:
            break
    agent.check(f"{len(crowd)} connections with 195 requests each")
    grown = crund.memory("VmHWM") - before
    print(f"  peak {grown} KiB above what it was")
    assert SLOW > 1 or grown < FLOOD_MAX_KIB, f"{grown} KiB for what waits to go out"
    ask_for_status(crund.port)
    close_all(crowd)
    long_lists(crund)
    agent.check("lists that are longer than what may wait")
    agent.over = True
    agent.join()
    assert crund.stop() == 0


def long_lists(crund):
    """Lists that are longer than what may wait for a connection arrive whole and in order."""
    lists = 3
    session = Session(crund.port)
    session.send(hello() + frame(EVENTS) * lists + frame(STATUS, sequence=2))
    session.expect(WELCOME)
    for _ in range(lists):
        numbers = []
        while (answer := session.receive())[0] == EVENT:
            numbers.append(int(answer[1]["number"], 16))
        assert answer[0] == END_OF_LIST and int(answer[1]["next"], 16) == numbers[-1], answer
        assert numbers == list(range(numbers[0], numbers[0] + EVENTS_KEPT)), numbers
    while (answer := session.receive())[0] == JOB_STATUS:
        pass
    assert answer[0] == END_OF_LIST and answer[2][3] == 2, answer
    session.close()


def main():
    directory = tempfile.mkdtemp()
    try:
        for part in (attack, idle_crowd, no_descriptors, flood_of_requests):
            print(part.__name__)
            part(directory)
    finally:
        shutil.rmtree(directory)


main()
