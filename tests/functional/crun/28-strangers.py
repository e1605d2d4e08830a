#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 6 s
"""
What other users and other programs of the machine do beside a launch: they take ports and
names, and have processes and cgroups of their own. Neither harms the other.
"""
import contextlib
import os
import socket
import subprocess
import sys
import threading

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from launch import CRUN, Place, sh  # noqa: E402
from process import free_port, same  # noqa: E402


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


CHECKS = [
    the_port_of_the_store_stays_taken_between_epochs,
]


if __name__ == "__main__":
    for check in CHECKS:
        with contextlib.closing(Place()) as place:
            check(place)
            place.nothing_is_left()
        print(f"ok {check.__name__}", flush=True)
