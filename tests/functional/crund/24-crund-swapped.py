#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 4 s
"""
Another crund with the same key in the place of the one that a node has joined, such as one
with another state directory: the node does not obey it and tells it nothing. It waits for its
own, and goes on with it.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, fail, free_port, until  # noqa: E402


class Place:
    """A folder with a key, and a port that one crund after another has."""

    def __init__(self, folder, with_key):
        self.folder, self.port = pathlib.Path(folder), free_port()
        self.key = []
        if with_key:
            subprocess.run([BIN / "crunctl", "keygen", self.folder / "key"], check=True,
                           stdout=subprocess.DEVNULL)
            self.key = ["--key-file", str(self.folder / "key")]

    def crund(self, state):
        p = Process([BIN / "crund", "--listen", f"127.0.0.1:{self.port}", *self.key,
                     "--state-dir", str(self.folder / state)],
                    env={**os.environ, "CRUND_ALLOW_ROOT": "1"})
        until(lambda: "listening on" in p.err, lambda: p.err)
        return p

    def ctl(self, *words):
        return subprocess.run([BIN / "crunctl", *words, "-e", f"127.0.0.1:{self.port}", *self.key],
                              stdout=subprocess.PIPE, text=True, check=True).stdout


def swap(place):
    script = f"echo ran $CRUN_EPOCH; until [ -e {place.folder}/end ]; do sleep 0.05; done"
    own = place.crund("own")
    node = Process([BIN / "crun", "--rdzv-backend=c10d", "--nnodes=1",
                    f"--rdzv-endpoint=127.0.0.1:{place.port}", "--rdzv-id=swapped", *place.key,
                    "sh", "-c", script])
    until(lambda: "ran 1" in node.out, lambda: node.err)
    own.kill()
    own.popen.wait()
    other = place.crund("other")
    until(lambda: "another rendezvous answers in its place" in node.err, lambda: node.err)
    if "no jobs" not in place.ctl("status"):
        fail("the other knows a job:", place.ctl("status"))
    other.kill()
    other.popen.wait()
    own = place.crund("own")
    until(lambda: "the rendezvous is back" in node.err, lambda: node.err)
    if "swapped" not in place.ctl("status"):
        fail("its own has forgotten the job")
    (place.folder / "end").touch()
    if node.wait() != 0 or node.out.count("ran") != 1:
        fail("the job:", node.out, node.err)
    own.kill()
    own.popen.wait()


def main():
    for with_key in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            swap(Place(folder, with_key))
        print("ok", "with a key" if with_key else "without")


main()
