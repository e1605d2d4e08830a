# SPDX-License-Identifier: MIT
"""A member of a job that measures how fast it is answered, and strangers beside it."""
import glob
import os
import socket
import threading
import time

from control import BEAT, HEARTBEAT, JOINED, Session, WELCOME, frame, hello, join
from process import read

SLOW = 4 if "san" in os.environ.get("BUILD", "") else 1
LATENCY_MAX = 0.5 * SLOW


def waited_for_a_core(*pids):
    """Seconds that these processes were ready to run and did not."""
    return sum(int(stat.split()[1]) for pid in pids for task in glob.glob(f"/proc/{pid}/task/*")
               if (stat := read(task + "/schedstat"))) / 1e9


class Agent(threading.Thread):
    """A member of a job that waits for a second node, and how fast it is answered; what either
    side waits for a core does not count."""

    def __init__(self, crund):
        super().__init__(daemon=True)
        self.pids = crund.pid, os.getpid()
        self.session = Session(crund.port)
        self.session.send(hello("agent"))
        self.session.expect(WELCOME)
        self.session.send(join(nodes=2))
        self.instance = self.session.expect(JOINED)[1][5]
        self.worst, self.beats, self.failure, self.over = 0.0, 0, None, False
        self.start()

    def run(self):
        try:
            while not self.over:
                waited, sent = waited_for_a_core(*self.pids), time.monotonic()
                self.session.send(frame(HEARTBEAT, instance=self.instance))
                self.session.expect(BEAT)
                took = time.monotonic() - sent
                if took > self.worst:
                    took -= waited_for_a_core(*self.pids) - waited
                self.worst = max(self.worst, took)
                self.beats += 1
                time.sleep(0.01)
        except Exception as e:  # told by check()
            self.failure = repr(e)

    def check(self, after):
        print(f"  heartbeats {self.beats}, slowest answer {self.worst * 1000:.1f} ms: {after}")
        assert self.failure is None, f"{after}: the agent's session: {self.failure}"
        assert self.worst < LATENCY_MAX, f"{after}: {self.worst:.3f} s for a heartbeat"
        self.worst, self.beats = 0.0, 0


def dial(port, data=b""):
    s = socket.create_connection(("127.0.0.1", port), timeout=60)
    if data:
        try:
            s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # closed while we were still talking
    return s


def dial_narrow(port, data):
    """What is sent to it waits at the sender: little fits into its own buffer."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(5)
    s.connect(("127.0.0.1", port))
    s.sendall(data)
    return s


def close_all(sockets):
    for s in sockets:
        s.close()


class Flood(threading.Thread):
    """Strangers that connect without end, each with the next of some words. They stay until
    `most` newer ones have come, and read nothing."""

    def __init__(self, port, words, most=1500):
        super().__init__(daemon=True)
        self.port, self.words, self.most = port, words, most
        self.over, self.made = threading.Event(), 0
        self.start()

    def run(self):
        held = []
        while not self.over.is_set():
            try:
                held.append(dial(self.port, self.words[self.made % len(self.words)]))
                self.made += 1
            except OSError:
                pass
            if len(held) > self.most:
                held.pop(0).close()
        close_all(held)

    def stop(self):
        self.over.set()
        self.join()
