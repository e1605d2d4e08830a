#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 6 s
"""
What other users and other programs of the machine do beside a launch: they take ports and
names, and have processes and cgroups of their own. Neither harms the other.
"""
import contextlib
import glob
import os
import shutil
import socket
import subprocess
import sys
import threading

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (DONE, HEADER, HELLO, JOIN, JOINED, PREFACE, START, WELCOME,  # noqa: E402
                     frame)
from launch import CRUN, TIMEOUT, Place, sh  # noqa: E402
from process import free_port, read, same, until  # noqa: E402

OTHER_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class Squatter(threading.Thread):
    """Tries to take a port of 127.0.0.1 until it has it, or is told to end."""

    def __init__(self, port):
        super().__init__()
        self.port, self.over, self.taken = port, threading.Event(), False

    def run(self):
        while not self.over.is_set() and not self.taken:
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    s.bind(("127.0.0.1", self.port))
                    s.listen()
                except OSError:
                    continue
                self.taken = True
                self.over.wait()


def the_port_of_the_store_stays_taken_between_epochs(p):
    """Of a launch that fails at each start, all restarts are used."""
    port = free_port()
    fails = f"[ -e again ] || {{ echo {port}; read line < begin; }}; : > again; exit 3"
    os.mkfifo(f"{p.path}/begin")
    c = p.start(CRUN, f"--master-port={port}", "--max-restarts=3", *sh(fails),
                stdin=subprocess.DEVNULL)
    squatter = Squatter(port)
    same(c.stdout.readline(), f"{port}\n".encode())
    squatter.start()
    with open(f"{p.path}/begin", "w") as begin:
        begin.write("\n")
    try:
        p.end(c, 3, "3 of 3 used")
    finally:
        squatter.over.set()
        squatter.join()


def tag_of(p, c):
    """The tag of a launch, which other users see in the words of its guard."""
    def found():
        for pid in os.listdir("/proc"):
            words = read(f"/proc/{pid}/cmdline").split(b"\0") if pid.isdigit() else []
            if words and words[0] == b"crun-guard" and p.cookie.encode() in read(
                    f"/proc/{pid}/environ"):
                return words[2].decode()
        return None
    return until(found, "the guard")


def the_folder_of_the_logs_is_made_before_its_name_is_seen(p):
    """While a node waits for the others, there is time to make things of known names."""
    os.chmod(p.path, 0o755)
    os.chmod(p.tmp, 0o1777)
    port = free_port()
    nodes = ["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "-r3"]
    first = p.start(CRUN, *nodes, "echo", "said", stdin=subprocess.DEVNULL)
    folder = f"{p.tmp}/crun_{tag_of(p, first)}"
    made = subprocess.run([*OTHER_USER, "mkdir", folder], capture_output=True)
    same(made.returncode, 1)
    second = p.start(CRUN, *nodes, "echo", "said", stdin=subprocess.DEVNULL)
    p.end(first, 0)
    p.end(second, 0)
    same([read(f).decode() for f in sorted(glob.glob(f"{p.tmp}/*/*/*/0/stdout.log"))],
         ["said\n"] * 2)
    shutil.rmtree(p.tmp)
    os.mkdir(p.tmp)


def orders_of_a_false_rendezvous(s, words):
    """To the agent at the other end of a connection: the job forms, and has succeeded."""
    instance = os.urandom(16)
    same(s.recv(len(PREFACE), socket.MSG_WAITALL), PREFACE)
    answers = {HELLO: [(WELCOME, {"version": 1, "software": "test"}, 0)],
               JOIN: [(JOINED, {"node": 0, "slot": 0, "lease_ms": 15000}, 0),
                      (START, {"group_rank": 1, "group_size": 2, "first_rank": 1,
                               "world_size": 2, "workers": 1, "slot": 1, "restarts": 0,
                               "max_restarts": 0, "address": "127.0.0.1", "port": 1}, 1)]}
    while answers:
        length, kind = HEADER.unpack(s.recv(HEADER.size, socket.MSG_WAITALL))[:2]
        s.recv(length, socket.MSG_WAITALL)
        for order, body, epoch in answers.pop(kind, []):
            s.sendall(frame(order, body, sequence=epoch, epoch=epoch, instance=instance))
    same(open(words).readline(), "begun\n")
    s.sendall(frame(DONE, {"reason": "success", "exit_code": 0, "text": "", "restarts": 0,
                           "max_restarts": 0}, sequence=2, epoch=1, instance=instance))


def workers_that_run_have_not_succeeded(p):
    """Whatever the rendezvous says: crun does not end with 0 in the middle of its work."""
    os.mkfifo(f"{p.path}/words")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT)
        c = p.start(CRUN, "--nnodes=2", "--rdzv-conf=is_host=0",
                    f"--rdzv-endpoint=127.0.0.1:{listener.getsockname()[1]}",
                    *sh("echo begun > words; exec sleep 1000"), stdin=subprocess.DEVNULL)
        with listener.accept()[0] as s:
            s.settimeout(TIMEOUT)
            orders_of_a_false_rendezvous(s, f"{p.path}/words")
            p.end(c, 1, "the workers of this node have not ended")


CHECKS = [
    workers_that_run_have_not_succeeded,
    the_folder_of_the_logs_is_made_before_its_name_is_seen,
    the_port_of_the_store_stays_taken_between_epochs,
]


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIPPED: only root can be another user too")
        sys.exit(77)
    for check in CHECKS:
        with contextlib.closing(Place()) as place:
            check(place)
            place.nothing_is_left()
        print(f"ok {check.__name__}", flush=True)
