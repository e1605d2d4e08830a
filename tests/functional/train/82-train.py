#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 8 s
"""
The trainer as a person meets it: flags and their mistakes, files that are not
what they should be, lines and metrics, a terminal; the same bits on every run, about the
same numbers however many ranks share the work.
"""
import contextlib
import fcntl
import gzip
import math
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from train import BIN, Run, SMALL, finished, main, metrics  # noqa: E402

# for the larger net, which takes its time under a sanitizer
SANITIZED = "san" in os.environ.get("BUILD", "")
FEW = 64 if SANITIZED else 320
SLOW_S = 0.05  # how long a slow rank stops at a time


def mistakes(_):
    for flags, code, words in (
            (["--modle=cnn"], 2, "unknown flag --modle; did you mean --model?"),
            (["--model=vgg"], 2, '--model: "vgg" is not mlp or cnn'),
            (["--batch=0"], 2, '--batch: "0" is not a whole number from 1 to 4096'),
            (["--lr=fast"], 2, '--lr: "fast" is not a learning rate, such as 0.001'),
            (["--optimizer=lion"], 2, '"lion" is not sgd, adam or adamw'),
            (["--precision=f8"], 2, '"f8" is not f32, bf16 or f16'),
            (["--ckpt-every=5"], 2, "--ckpt-every needs --ckpt-dir"),
            (["--metrics-every=5"], 2, "--metrics-every needs --metrics"),
            (["mnist"], 2, 'unexpected argument "mnist"'),
            (["--data=/nowhere"], 1, "there is no train-images-idx3-ubyte or "
                                     "train-images-idx3-ubyte.gz in /nowhere"),
            (["--metrics=/nowhere/m"], 1, "--metrics: /nowhere/m: No such file")):
        with Run(*flags) as run:
            run.ends_with(code).says("^train: .*" + re.escape(words))
            assert run.err.count("\n") == 1 and not run.out, run
    with Run("--data=/nowhere", ranks=3) as run:  # one line of three workers, and crun's
        run.ends_with(1)
        assert len(re.findall("^train: .*no train-images", run.err, re.M)) == 1, run


def write_set(folder, name, count, labels=None, magic=0x803):
    with gzip.open(f"{folder}/{name}-images-idx3-ubyte.gz", "wb") as f:
        f.write(struct.pack(">IIII", magic, count, 28, 28))
        f.write(bytes(i * 7 % 256 for i in range(784)) * count)
    with open(f"{folder}/{name}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">II", 0x801, count) + bytes(labels or [i % 10 for i in range(count)]))


def files(folder):
    write_set(folder, "train", 64)
    write_set(folder, "t10k", 40)
    run = finished(f"--data={folder}", "--model=mlp", "--passes=1")
    run.says("64 samples of " + folder, "out")
    for spoil, words in (
            (lambda: write_set(folder, "t10k", 40, labels=[11] * 40), "label 11 of item 0"),
            (lambda: write_set(folder, "t10k", 40, labels=[1] * 39), "cut short"),
            (lambda: write_set(folder, "t10k", 40, magic=0x801), "begins with 00000801")):
        spoil()
        with Run(f"--data={folder}", "--passes=1") as run:
            run.ends_with(1).says(words)
            assert run.err.count("\n") == 1, run


def lines(folder):
    path = f"{folder}/metrics"
    with open(path, "w") as f:
        f.write('{"pass":0}\n')  # lines are appended
    run = finished(*SMALL, f"--metrics={path}", ranks=2)
    run.says(r"^train: mlp, 669,706 parameters · 2 ranks on 1 node · shm · f32 · batch 2×32 ",
             "out")
    run.says(r"^pass 2   loss 0\.\d{4}   test accuracy \d\d\.\d\d%   \d+\.\d s$", "out")
    assert run.out.splitlines()[-1] == "parameters sha256 " + run.sha, run
    assert "\r" not in run.out and "\033" not in run.out, run
    first, last = metrics(path)[1:]
    assert (first["pass"], last["pass"], last["step"], last["ranks"]) == (1, 2, 50, 2), last
    assert last["train_loss"] < first["train_loss"] and 0.6 < last["test_accuracy"] <= 1, last
    assert last["samples_per_s"] > 0, last
    for one in first, last:  # each of its own pass
        assert 0 < one["communication_s"] < one["seconds"], one
        assert 0 < one["exposed_s"] + one["skew_s"] < one["seconds"], one


def steps(folder):
    """--metrics-every: the losses of some steps, which together are those of the pass."""
    path = f"{folder}/metrics"
    run = finished(*SMALL, f"--metrics={path}", "--metrics-every=5", ranks=2)
    lines, (one, *_) = metrics(path, "after"), metrics(path)
    ends = [line["step"] for line in lines]
    assert [line["after"] for line in lines] == [0, *ends[:-1]], lines
    assert ends == list(range(5, ends[-1] + 1, 5)), ends
    of_pass = [line["train_loss"] for line in lines if line["step"] <= one["step"]]
    assert abs(sum(of_pass) / len(of_pass) - one["train_loss"]) < 0.2 * one["train_loss"], lines
    end, = metrics(path, "parameters_sha256")
    assert end["parameters_sha256"] == run.sha, end


def straggler(folder):
    """The time that rank 0 waits for a slow rank is separated from the time it waits for data."""
    path = f"{folder}/metrics"
    stops = 0
    with Run("--model=mlp", "--passes=1", f"--train-limit={40 * FEW}",
             f"--metrics={path}", ranks=2) as run:
        run.until(lambda: len(run.workers()) == 2, "two workers")
        pid = run.workers()[1]
        with contextlib.suppress(ProcessLookupError):  # it has ended
            for stops in range(100):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(SLOW_S)
                os.kill(pid, signal.SIGCONT)
                time.sleep(SLOW_S)
        run.ends_with(0)
    one, = metrics(path)
    # some of the stops come while it waits itself, or before the pass, or after it
    assert one["skew_s"] > stops * SLOW_S / 5, (stops, one)


def on_terminal(columns):
    """All that is written to a terminal of that width, without colours."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    run = subprocess.Popen([BIN / "train", *SMALL], stdin=slave, stdout=slave, stderr=slave,
                           env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"})
    os.close(slave)
    text = b""
    while True:
        try:
            some = os.read(master, 65536)
        except OSError:  # a pty that no process has open any more
            break
        text += some
    os.close(master)
    assert run.wait() == 0, text
    return re.sub("\033\\[[0-9]*m", "", text.decode())


def terminal(_):
    text = on_terminal(80)
    assert re.search("\r\033\\[Kpass 2 .*test accuracy", text), text
    assert re.search(r"pass 1/2 +\d+%  loss \d\.\d{4}  \d+:\d\d left  acc \d+\.\d%  \d+ img/s", text), text


def narrow_terminal(_):
    """What does not fit into one line is left out: more than a line cannot be erased."""
    text = on_terminal(40)
    bars = re.findall(r"pass 1/2 [^\r\n]*", text)
    assert bars and all(len(bar) < 40 for bar in bars), text
    assert re.search(r"^pass 1/2 .*\d%  loss \d\.\d{4}  \d+:\d\d left$", bars[0]), text


WAYS = (["--model=mlp"], ["--model=cnn", f"--train-limit={FEW // 2}", "--passes=1"],
        ["--zero"], ["--precision=bf16"])


def all_ways(_):
    for flags in *WAYS, ["--precision=f16"]:
        finished(*SMALL, *flags, ranks=2)


def same_bits(_):
    for flags in WAYS:
        first, second = (finished(*SMALL, *flags, ranks=2) for _ in range(2))
        assert first.sha == second.sha, f"{first}\n{second}"


def same_numbers(folder):
    """Of a step's 32 samples each rank takes its part."""
    seen = {}
    for ranks, batch, more in (1, 32, []), (2, 16, []), (4, 8, []), (2, 16, ["--zero"]):
        path = f"{folder}/{ranks}-{batch}-{len(more)}-{len(seen)}"
        finished("--model=cnn", f"--train-limit={FEW}", "--passes=1", f"--batch={batch}",
                 f"--metrics={path}", *more, ranks=ranks)
        seen[path] = metrics(path)[-1]
    losses = [m["train_loss"] for m in seen.values()]
    assert all(math.isclose(loss, losses[0], rel_tol=1e-3) for loss in losses), seen
    assert all(m["step"] == FEW // 32 for m in seen.values()), seen


def other_precisions(folder):
    """f16 has its loss scaled, and gets as far."""
    for precision in ("f32", "bf16", "f16"):
        path = f"{folder}/{precision}"
        finished(*SMALL, f"--precision={precision}", f"--metrics={path}", ranks=2)
        assert metrics(path)[-1]["test_accuracy"] > 0.6, (precision, metrics(path))


def no_number(_):
    with Run(*SMALL, "--optimizer=sgd", "--lr=1000") as run:
        run.ends_with(1).says("^train: rank 0: the loss is not a number after step .*--lr")


# a sanitizer finds nothing in figures: there each way to train is gone once
FIGURES = {"straggler": straggler, "steps": steps, "same_bits": same_bits, "same_numbers": same_numbers,
           "other_precisions": other_precisions}
main({"mistakes": mistakes, "files": files, "lines": lines, "terminal": terminal,
      "narrow_terminal": narrow_terminal, "no_number": no_number,
      **({"all_ways": all_ways} if SANITIZED else FIGURES)})
