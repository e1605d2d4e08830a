# SPDX-License-Identifier: MIT
"""The subjects of interop.py: the two servers, and stores that record the methods used."""
import datetime
import os
import re
import subprocess
import time

# a warning is written for each timeout, with a stack trace that takes a second to make
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch.distributed as dist

from process import SECONDS

HOST = "127.0.0.1"
PATIENCE = datetime.timedelta(seconds=SECONDS)


# -- servers ---------------------------------------------------------------------------


class OurServer:
    name = "store-server"

    def __init__(self, program):
        argv = ["setpriv", "--pdeathsig", "KILL", program, "--listen", f"{HOST}:0"]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        port = re.search(r"(\d+)\s*$", line)
        if not port:
            raise RuntimeError(f"{program} did not say its port: {line!r}")
        self.port = int(port.group(1))

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class TorchServer:
    name = "PyTorch's server"

    def __init__(self):
        self.store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self.port = self.store.port

    def stop(self):
        self.store = None


# -- stores ----------------------------------------------------------------------------

called = {"TCPStore": set(), "PrefixStore": set()}


class Recorded:
    """A store that records which of its methods were used."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        called[type(self._store).__name__].add(name)
        value = getattr(self._store, name)
        if name == "clone":
            return lambda: Recorded(value())
        return value


class Connections:
    """The argument of a check: makes stores of one class, connected to one server."""

    def __init__(self, server, kind):
        self.server = server
        self.kind = kind

    def tcp(self, timeout=PATIENCE, **options):
        return dist.TCPStore(HOST, self.server.port, timeout=timeout, **options)

    def __call__(self, timeout=PATIENCE, **options):
        store = self.tcp(timeout, **options)
        if self.kind == "PrefixStore":
            store = dist.PrefixStore("a/prefix", store)
        return Recorded(store)


def outcome(call, *arguments):
    """The result of a call or, if it raises, the error and its text."""
    try:
        return call(*arguments)
    except Exception as error:
        words = str(error).split("\n")[0]
        return type(error).__name__, re.sub(r"\d+", "N", words)


def error_type(call, *arguments):
    result = outcome(call, *arguments)
    assert isinstance(result, tuple), f"no error was raised but {result!r} came back"
    return result[0]


def assert_blocks(futures):
    """None of them is done, although it had the time."""
    time.sleep(0.05)
    done = [f for f in futures if f.done()]
    assert not done, f"{len(done)} of {len(futures)} did not wait"


def seconds_of(call, *arguments):
    start = time.monotonic()
    outcome(call, *arguments)
    return time.monotonic() - start
