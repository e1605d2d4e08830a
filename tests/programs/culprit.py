# SPDX-License-Identifier: MIT
"""
Ranks that call collectives until the rank CULPRIT (1) fails in the way that the first
argument names. It closes its connections first and ends when the other ranks, its victims,
have ended. CULPRIT_TRANSPORT: "torch" (gloo), or "socket" (the default),
which needs the standard library alone.
"""
import atexit
import contextlib
import faulthandler
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CULPRIT = int(os.environ.get("CULPRIT", "1"))
TORCH = os.environ.get("CULPRIT_TRANSPORT") == "torch"
FILES = f"{os.environ['CULPRIT_FILES']}-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
LATE_S = 0.2


def publish(name, number):
    with open(f"{FILES}-{name}.new", "w", encoding="ascii") as f:
        f.write(str(number))
    os.rename(f"{FILES}-{name}.new", f"{FILES}-{name}")


def read_published(name):
    while not os.path.exists(f"{FILES}-{name}"):
        time.sleep(0.005)
    with open(f"{FILES}-{name}", encoding="ascii") as f:
        return int(f.read())


class Sockets:
    """All ranks are connected to rank 0, whose port is in a file."""

    def __init__(self):
        self.peers = []
        if RANK == 0:
            server = socket.create_server(("127.0.0.1", 0))
            publish("port", server.getsockname()[1])
            self.peers = [server.accept()[0] for _ in range(WORLD - 1)]
        else:
            self.peers = [socket.create_connection(("127.0.0.1", read_published("port")))]

    def all_reduce(self):
        for peer in self.peers:
            peer.sendall(b"x")
        for peer in self.peers:
            if not peer.recv(1):
                raise RuntimeError("Connection closed by peer")

    def close(self):
        """With a reset, as a process that ends with unread data."""
        for peer in self.peers:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()


class Gloo:
    def __init__(self):
        import torch
        import torch.distributed
        self.distributed = torch.distributed
        self.tensor = torch.ones(4)
        torch.distributed.init_process_group("gloo")

    def all_reduce(self):
        self.distributed.all_reduce(self.tensor)

    def close(self):
        self.distributed.destroy_process_group()


# -- how the culprit fails -----------------------------------------------------------------


def hurry():
    """crun waits for no more than five seconds, also on a busy machine."""
    with contextlib.suppress(OSError):  # only root may
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        # where sessions share the CPUs, that counts within the session alone
        with open("/proc/self/autogroup", "w", encoding="ascii") as f:
            f.write("-20")


def outlive_victims():
    pids = [read_published(f"pid-{rank}") for rank in range(WORLD) if rank != RANK]
    hurry()
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        time.sleep(0.005)
    time.sleep(LATE_S)


def end_slowly(link):
    hurry()
    link.close()
    outlive_victims()


def fail_raise(link):
    try:
        raise ValueError("culprit: loss is NaN")
    finally:
        end_slowly(link)


def fail_atexit(link):
    atexit.register(end_slowly, link)
    print("culprit: the data set is empty", file=sys.stderr)
    sys.exit(3)


def fail_abort(link):
    faulthandler.enable()
    print("culprit: assertion failed: n > 0", file=sys.stderr)
    end_slowly(link)
    os.abort()


def fail_thread(link):
    def work():
        raise ValueError("culprit: no such file")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    end_slowly(link)
    sys.exit(5)


def fail_record(link):
    if TORCH:
        from torch.distributed.elastic.multiprocessing.errors import record
        atexit.register(end_slowly, link)

        @record
        def main():
            raise ValueError("culprit: recorded")
        main()
    text = "Traceback (most recent call last):\n  File \"x.py\", line 1\nValueError: culprit: recorded"
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w", encoding="ascii") as f:
        json.dump({"message": {"message": "ValueError: culprit: recorded", "extraInfo":
                               {"py_callstack": text, "timestamp": str(int(time.time()))}}}, f)
    end_slowly(link)
    sys.exit(1)


def fail_finally(link):
    try:
        sys.exit(7)
    finally:
        end_slowly(link)


def fail_loader(link):
    """The loader's threads and workers fail after the culprit, and say so after it."""
    def noise():
        outlive_victims()
        raise ConnectionResetError(104, "Connection reset by peer")

    threading.Thread(target=noise, name="pin memory").start()
    try:
        raise ValueError("culprit: bad sample")
    finally:
        link.close()


def fail_chain(link):
    """Its clean-up fails too, as a consequence of the peers' ends."""
    try:
        raise ValueError("culprit: first of a chain")
    except ValueError:
        end_slowly(link)
        raise ConnectionResetError(104, "Connection reset by peer")


def fail_quiet(link):
    """Without a word, so many seconds after its victims' words. They end after it."""
    link.close()
    for rank in range(WORLD):
        if rank != RANK:
            read_published(f"told-{rank}")
    time.sleep(float(sys.argv[4]))
    {"abort": os.abort, "exit": lambda: os._exit(3),
     "kill": lambda: os.kill(os.getpid(), signal.SIGKILL)}[sys.argv[3]]()


def start_loader():
    """Before the connections are made: its processes would inherit them, and keep them open."""
    from torch.utils.data import DataLoader
    loader = iter(DataLoader(list(range(10000)), num_workers=2, persistent_workers=True))
    next(loader)
    return loader


FAILURES = {name[5:]: f for name, f in list(globals().items()) if name.startswith("fail_")}


# -- its victims ---------------------------------------------------------------------------


def victim_deep(link, depth=60):
    """A long traceback of two errors, the first of which is the consequence."""
    if depth:
        victim_deep(link, depth - 1)
    try:
        while True:
            link.all_reduce()
    except Exception:
        raise RuntimeError("the step failed")


def victim_slow(link):
    """Its interpreter takes longer to end than the culprit's process."""
    try:
        while True:
            link.all_reduce()
    except Exception:
        traceback.print_exc()
        publish(f"told-{RANK}", 0)
        while os.path.exists(f"/proc/{read_published(f'pid-{CULPRIT}')}"):
            time.sleep(0.005)
        time.sleep(LATE_S)
        sys.exit(1)


def victim_silent(link):
    """No known text: only what the culprit has written before tells the order."""
    try:
        while True:
            link.all_reduce()
    except Exception:
        sys.exit("no more steps")


def main():
    publish(f"pid-{RANK}", os.getpid())
    loader = start_loader() if TORCH and sys.argv[1] == "loader" and RANK == CULPRIT else None
    link = Gloo() if TORCH else Sockets()
    victim = globals().get("victim_" + (sys.argv[2:] or [""])[0])
    for _ in range(3):
        link.all_reduce()
    if RANK == CULPRIT:
        FAILURES[sys.argv[1]](link)
        del loader  # which lives till then
    if victim:
        victim(link)
    while True:
        link.all_reduce()


main()
