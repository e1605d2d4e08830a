# SPDX-License-Identifier: MIT
"""
A worker that writes its status page and does what its words say, for each step from 1 on:

    page_writer.py [--until N] [--step SECONDS] [DEED ...]

A deed is KIND@STEP, KIND@STEP:RANK or KIND@STEP:RANK:SECONDS, done in the job's first
life only; RANK may be "all".
    stop      SIGSTOP itself       spin      loop for ever, not writing
    wait      communicate for ever evaluate  say so, and be silent for SECONDS
    silent    be silent for SECONDS while training
A rank given by --mute RANK never writes. Ranks wait for nobody, so a job in which one
hangs must also say what the others do. A checkpoint that is asked for is acknowledged,
and "saved RANK N" is said; so is "signalled RANK" after a SIGUSR1.
"""
import argparse
import math
import mmap
import os
import signal
import struct
import sys
import time

TRAINING, EVALUATING, CHECKPOINTING, COMMUNICATING, LOADING, DONE = 1, 2, 3, 4, 5, 6

RANK = int(os.environ["RANK"])
LIFE = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def say(*words):
    """In one piece, whoever else writes there."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Page:
    def __init__(self, mute):
        with open(os.environ["CRUN_PROGRESS"], "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 4096)
        assert self.map[:4] == b"crpg" and self.map[4:8] == b"\1\0\0\0", "no page"
        assert self.map[12:60] == bytes(48), "not new"  # the bootstrap sets the flags
        self.mute = mute
        self.writing = 0
        self.saved = 0

    def write(self, phase, step, loss=math.nan):
        if self.mute:
            return
        self.map[8:12] = struct.pack("=I", self.writing + 1)
        self.map[12:60] = struct.pack("=IQQQdQI", phase, step, 0, 32 * step, loss,
                                      time.monotonic_ns(), self.saved)
        self.writing += 2
        self.map[8:12] = struct.pack("=I", self.writing)

    def save_asked(self):
        wanted, within_ms = struct.unpack("=II", self.map[64:72])
        if wanted == self.saved or self.mute:
            return False
        assert within_ms > 0, within_ms
        self.saved = wanted
        return True


def do(deed, page, step, seconds):
    if deed == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif deed == "spin":
        while True:
            pass
    elif deed == "wait":
        page.write(COMMUNICATING, step)
        time.sleep(1000)
    elif deed in ("evaluate", "silent"):
        page.write(EVALUATING if deed == "evaluate" else TRAINING, step)
        time.sleep(seconds)
    else:
        sys.exit(f"page_writer: what is {deed!r}?")


def deeds_at(words, step):
    for word in words:
        kind, _, rest = word.partition("@")
        when, rank, seconds = (rest.split(":") + ["all", "1000"][rest.count(":"):])[:3]
        if int(when) == step and LIFE == 0 and rank in ("all", str(RANK)):
            yield kind, float(seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=int, default=20)
    parser.add_argument("--step", type=float, default=0.01)
    parser.add_argument("--mute", type=int, default=-1)
    parser.add_argument("deeds", nargs="*")
    args = parser.parse_args()
    signal.signal(signal.SIGUSR1, lambda *_: say("signalled", RANK))
    page = Page(args.mute == RANK)
    page.write(LOADING, 0)
    say("began", RANK, LIFE, os.getpid())  # from now on it can be asked for a checkpoint
    for step in range(1, args.until + 1):
        page.write(TRAINING, step, 1 / step)
        time.sleep(args.step)
        for deed, seconds in deeds_at(args.deeds, step):
            do(deed, page, step, seconds)
        page.write(COMMUNICATING, step, 1 / step)
        if page.save_asked():
            page.write(CHECKPOINTING, step, 1 / step)
            say("saved", RANK, page.saved)
    page.write(DONE, args.until)


main()
