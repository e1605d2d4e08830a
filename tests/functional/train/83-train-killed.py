#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 18 s
# sanitizers: no, 82-train and the unit tests of checkpoints run the same code
"""
The trainer when it is killed, stopped or told to end: what comes back is, to the
last bit, what would have been without. Workers are killed at random moments, which
SEED=N repeats as far as moments can be.
"""
import functools
import os
import pathlib
import random
import re
import signal
import struct
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN  # noqa: E402
from train import Run, finished, main, metrics  # noqa: E402

SEED = int(os.environ.get("SEED") or random.randrange(10**6))
KILLS, SAMPLES = (5, 6400) if os.environ.get("CRUN_ALL_ROUNDS") else (3, 3840)
LONG = ["--model=mlp", "--batch=8", f"--train-limit={SAMPLES}", "--passes=3"]


@functools.cache
def undisturbed():
    return finished(*LONG, ranks=4).sha


def saved(folder):
    return [name for name in os.listdir(folder) if name.endswith(".safetensors")]


def random_kills(folder):
    rng = random.Random(SEED)
    whole = undisturbed()
    with Run(*LONG, f"--ckpt-dir={folder}", "--ckpt-every=20", ranks=4,
             crun=["--max-restarts=20", "--restart-backoff=0"]) as run:
        for _ in range(KILLS):
            run.until(lambda: len(run.workers()) == 4, "four workers")
            time.sleep(rng.uniform(0, 0.5))  # the random moment
            workers = set(run.workers().values())
            os.kill(rng.choice(sorted(workers)), signal.SIGKILL)
            run.until(lambda: not workers & set(run.workers().values()), "the others' end")
        run.ends_with(0).says(f"restart {KILLS} of 20")
        assert run.sha == whole, f"SEED={SEED}: {whole} without kills: {run}"


def told_to_end(folder):
    """SIGTERM leaves a checkpoint, from which other numbers of ranks can resume, too."""
    whole = undisturbed()
    with Run(*LONG, f"--ckpt-dir={folder}", "--ckpt-every=10", ranks=4) as run:
        run.until(lambda: saved(folder), "a checkpoint")
        run.popen.send_signal(signal.SIGTERM)
        run.ends_with(143).says(r"^train: checkpoint of step \d+ is written$", "out")
    with Run(*LONG, f"--ckpt-dir={folder}", ranks=4) as run:
        run.ends_with(0).says(r"^train: resumed after step \d+, \d+% of pass \d/3, from ", "out")
        assert run.sha == whole, f"{whole} without SIGTERM: {run}"
    again = finished(*LONG, f"--ckpt-dir={folder}", ranks=4)
    again.says("^train: all passes are done already", "out")
    assert again.sha == whole, again


def another_world(folder):
    flags = [*LONG, f"--ckpt-dir={folder}"]
    with Run(*flags, "--ckpt-every=10", ranks=4) as run:
        run.until(lambda: saved(folder), "a checkpoint")
        run.popen.send_signal(signal.SIGTERM)
        run.ends_with(143)
    run = finished(*flags, "--batch=32")  # one rank, without a launcher
    run.says("^train: resumed after step", "out").says("^pass 3 ", "out")


def interrupted(folder):
    with Run(*LONG, f"--ckpt-dir={folder}", "--ckpt-every=10") as run:
        run.until(lambda: saved(folder), "a checkpoint")
        run.popen.send_signal(signal.SIGINT)
        run.ends_with(130).says("^train: checkpoint of step", "out")


class Page:
    """What a worker and its launcher share."""

    def __init__(self, path):
        self.path, self.env = path, {"CRUN_PROGRESS": path}
        with open(path, "wb") as f:  # magic, version
            f.write(struct.pack("<II", 0x67707263, 1).ljust(4096, b"\0"))

    def number(self, offset, size="I"):
        with open(self.path, "rb") as f:
            return struct.unpack_from("<" + size, f.read(), offset)[0]


def on_demand(folder):
    """The launcher asks for a checkpoint on the page it shares with the worker."""
    page = Page(os.path.join(folder, "page"))
    with Run(*LONG, "--passes=40", f"--ckpt-dir={folder}/saves", env=page.env) as run:
        run.until(lambda: page.number(16, "Q") >= 3, "three steps on the page")
        assert page.number(24, "Q") == SAMPLES // 8 * 40 and 0 < page.number(48, "Q"), run
        with open(page.path, "r+b") as f:
            f.seek(64)
            f.write(struct.pack("<II", 1, 5000))  # save, within so many ms
        run.until(lambda: page.number(56) == 1, "the word that it is saved")
        assert saved(folder + "/saves"), run
        run.says(r"^train: checkpoint of step \d+ is written$", "out")


def goes_on(folder):
    """After a resume each step is in one line of metrics, and the number of all steps is right, also
    for another number of ranks and with other settings."""
    path, saves = f"{folder}/metrics", f"{folder}/saves"
    flags = ["--model=mlp", "--train-limit=416", f"--ckpt-dir={saves}", "--ckpt-every=3",
             f"--metrics={path}", "--metrics-every=5"]
    first = finished(*flags, "--passes=1", ranks=2)  # 7 steps
    last, = (name for name in saved(saves) if "-s000007-" in name)
    os.unlink(f"{saves}/{last}")  # as if it had been killed before it wrote that one
    again = finished(*flags, "--passes=1", ranks=2)
    again.says("^train: resumed after step 6, ", "out")
    assert again.sha == first.sha, again
    page = Page(f"{folder}/page")
    with Run(*flags, "--passes=40", "--lr=0.002", "--optimizer=adamw", env=page.env) as run:
        run.until(lambda: page.number(16, "Q") > 10, "steps of one rank")
        run.until(lambda: page.number(24, "Q") == 7 + 39 * 13, "all steps")  # 0 while it saves
        run.until(lambda: len(metrics(path, "after")) > 1, "a line about steps")
    lines = metrics(path, "after")
    assert [line["after"] for line in lines] == [0] + [line["step"] for line in lines[:-1]], lines


def two_jobs_in_one_folder(folder):
    """The newer start has it. The other job ends without a restart, and says why once."""
    flags = [*LONG[:-1], "--passes=1000", f"--ckpt-dir={folder}", "--ckpt-every=10"]
    with Run(*flags, ranks=2, crun=["--max-restarts=3"]) as first:
        first.until(lambda: saved(folder), "a checkpoint")
        with Run(*flags, ranks=2, crun=["--max-restarts=3"]) as second:
            first.ends_with(78).says(r"exited with code 78 \(final\)").says("0 of 3 used")
            said = re.findall(r"^train: rank .*another job, or a later start", first.err, re.M)
            assert len(said) == 1, first
            second.popen.send_signal(signal.SIGTERM)
            second.ends_with(143)


def other_model(folder):
    finished(*LONG, "--passes=1", "--train-limit=64", f"--ckpt-dir={folder}")
    with Run(*LONG, "--model=cnn", "--train-limit=64", f"--ckpt-dir={folder}") as run:
        run.ends_with(1).says("^train: rank 0: cannot resume from " + folder)
        assert run.err.count("\n") == 1, run


def read_in_python(folder):
    """By the lines that crun-worker(3) has for it."""
    manual = pathlib.Path(__file__).resolve().parents[3] / "worker-lib/man/crun-worker.3"
    lines = re.search(r"^import array, json.*?^\.Ed$", manual.read_text(), re.M | re.S)[0]
    reader = {}
    exec(lines.removesuffix(".Ed"), reader)
    run = finished(*LONG, "--passes=1", "--train-limit=64", "--zero", f"--ckpt-dir={folder}", ranks=2)
    parts = [reader["read_checkpoint"](f"{folder}/{name}") for name in sorted(saved(folder))]
    assert [words["part"] for words, _ in parts] == ["1of2", "2of2"], run
    assert parts[0][0]["step"] == "4" and len(parts[0][1]["fc1.weight"]) == 784 * 512, run
    assert any(name.startswith("optimizer.m@") for name in parts[1][1]), parts[1][1].keys()


def parts_alone(folder):
    """As if a rank had been killed in its first save."""
    flags = [*LONG, "--passes=1", "--train-limit=64", "--zero", f"--ckpt-dir={folder}"]
    run = finished(*flags, ranks=2)
    for name in saved(folder):
        if "2of2" in name:
            os.remove(f"{folder}/{name}")
    again = finished(*flags, ranks=2)
    again.says("step 4: 1 of 2 parts$", "out").says("^train: begins at step 0: ", "out")
    assert again.sha == run.sha, again


def own_folders(folder):
    """As on nodes that share no folder."""
    with Run("-c", 'mkdir "$0/$RANK"; cd "$0/$RANK"; exec "$@"', folder, BIN / "train", *LONG,
             "--ckpt-dir=saves", ranks=2, crun=["--no-python"], program="/bin/sh") as run:
        run.ends_with(1).says("directory saves is not the one of rank 0")


main({"random_kills": random_kills, "told_to_end": told_to_end, "another_world": another_world,
      "two_jobs_in_one_folder": two_jobs_in_one_folder,
      "interrupted": interrupted, "on_demand": on_demand, "goes_on": goes_on, "other_model": other_model,
      "read_in_python": read_in_python, "parts_alone": parts_alone, "own_folders": own_folders})
