#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 4 s
# sanitizers: no, the unit tests of checkpoints run under them
"""
Random sequences of saves, loads, rollbacks, changes of the program and of the number of ranks,
deaths and damages, against the model in tests/lib/checkpoint_model.py.

    82-checkpoints.py [--sequences N] [--seed FIRST] [--count]    --count: each kind once
"""
import argparse
import collections
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
import checkpoint_model  # noqa: E402
from process import BIN  # noqa: E402
from worker import PLAIN  # noqa: E402

SAMPLE, ALL = 60, 4000


class Driver:
    def __init__(self, folder):
        self.folder, self.jobs = pathlib.Path(folder), itertools.count()
        self.store = subprocess.Popen([BIN / "store-server"], stdout=subprocess.PIPE, text=True)
        port = self.store.stdout.readline().strip()
        self.process = subprocess.Popen([BIN / "checkpoint-ranks", port, folder], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=PLAIN)

    def __call__(self, lines, ends, config=None):
        if config:
            lines = [config.line(f"life-{next(self.jobs)}"), *lines[1:]]
        self.process.stdin.write("\n".join(lines) + "\n")
        self.process.stdin.flush()
        text = ""
        while True:
            line = self.process.stdout.readline()
            if not line or line.strip() in ends:
                return text + line if len(ends) > 1 else text
            text += line

    def try_out(self, lives):
        for name in os.listdir(self.folder):
            shutil.rmtree(self.folder / name)
        for name in [f"{f}{rank}" for f in "01" for rank in ("", "-1", "-2", "-3")]:
            os.mkdir(self.folder / name)
        self.process.stdin.write("new\n")
        try:
            checkpoint_model.play(self, lives)
        except checkpoint_model.Wrong as wrong:
            return wrong
        return None

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.store.terminate()
        self.store.wait()


def show(seed, wrong, lives):
    print(f"seed {seed}: {wrong}")
    for life in lives:
        print("   ", life if life[0] == "damage" else life[0])
        for op in [] if life[0] == "damage" else life[1]:
            print("       ", *op)
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sequences", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", action="store_true")
    flags = parser.parse_args()
    count = flags.sequences or (ALL if os.environ.get("CRUN_ALL_ROUNDS") == "1" else SAMPLE)
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    kinds = collections.Counter()
    with tempfile.TemporaryDirectory(dir=place, prefix="crun-checkpoints-") as folder:
        driver = Driver(folder)
        for seed in range(flags.seed - 1, flags.seed + count):
            lives = (checkpoint_model.random_sequence(seed) if seed >= flags.seed
                     else checkpoint_model.REOPENED)
            wrong = driver.try_out(lives)
            if not wrong:
                continue
            kinds[wrong.kind] += 1
            if kinds[wrong.kind] == 1 or not flags.count:
                show(seed, wrong, checkpoint_model.smallest(driver.try_out, lives, wrong.kind))
            if sum(kinds.values()) >= 5 and not flags.count:
                break
        driver.end()
    for kind, times in kinds.most_common():
        print(f"{times:6} {kind}")
    print(f"{count} sequences, {sum(kinds.values())} wrong")
    sys.exit(len(kinds) > 0)


if __name__ == "__main__":
    main()
