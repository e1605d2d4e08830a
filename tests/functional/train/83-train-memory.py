#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 16 s
# sanitizers: no, the unit tests of checkpoints run the same code
"""
The trainer with checkpoints in memory: a worker that is killed right after a step was saved costs
at most one step, and the result has the bits of an undisturbed training.
"""
import functools
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, ROOT, Process, free_port  # noqa: E402
from train import Run, finished, main  # noqa: E402

SHORT = ["--model=mlp", "--batch=8", "--train-limit=640", "--passes=2"]
WHOLE = 2  # enum memory_state


@functools.cache
def undisturbed(ranks):
    return finished(*SHORT, ranks=ranks).sha


def newest_in_memory(pid):
    """By rank: (epoch, step), of what the agent holds."""
    newest = {}
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            if "crun-memory" not in os.readlink(fd):
                continue
            header = fd.open("rb").read(40)
        except OSError:  # closed meanwhile
            continue
        state, rank, epoch, step = struct.unpack("<8xIIQQ", header[:32])
        if state == WHOLE:
            newest[rank] = max(newest.get(rank, (0, 0)), (epoch, step))
    return newest


def kill_after_save(run, rank, epoch, step):
    """As soon as that rank has saved so many steps in that epoch."""
    while newest_in_memory(run.popen.pid).get(rank, (0, 0)) < (epoch, step):
        assert run.popen.poll() is None, f"ended before step {step} of epoch {epoch}: {run}"
        time.sleep(0.001)
    os.kill(run.workers()[rank], signal.SIGKILL)


def killed(folder, ranks, *flags, kills):
    with Run(*SHORT, *flags, f"--ckpt-dir={folder}", "--memory-every=1", ranks=ranks,
             crun=["--max-restarts=9", "--restart-backoff=0"]) as run:
        for epoch, (rank, step) in enumerate(kills, 1):
            kill_after_save(run, rank, epoch, step)
        run.ends_with(0)
    resumed = re.findall(r"^train: resumed after step (\d+), .* from memory$", run.out, re.M)
    assert len(resumed) == len(kills), f"{resumed}: {run}"
    for (rank, step), at in zip(kills, resumed):
        assert int(at) >= step - 1, f"rank {rank} had saved {step}: {resumed}: {run}"
    # an epoch of few steps is over before its agent has seen one
    again = re.findall(r"resumed at step \d+ from memory, (\d+) steps? to be done again", run.err)
    assert again and set(again) <= {"0", "1"}, f"{again}: {run}"
    assert run.sha == undisturbed(ranks), f"{undisturbed(ranks)} undisturbed: {run}"


def killed_ranks_cost_a_step_at_most(folder):
    killed(folder, 4, kills=[(2, 1), (0, 9), (3, 10), (1, 20)])  # 20: the end of a pass


def each_rank_has_its_own_state(folder):
    """Rank 0 gets the other node's part from that one's crun."""
    flags = [*SHORT, "--zero=2", f"--ckpt-dir={folder}", "--memory-every=1"]
    crun = ["--nnodes=2", "--max-restarts=2", "--restart-backoff=0", "--master-addr=127.0.0.1",
            f"--master-port={free_port()}"]
    with Run(*flags, ranks=1, crun=[*crun, "--node-rank=0"]) as first, \
            Run(*flags, ranks=1, crun=[*crun, "--node-rank=1"]) as second:
        kill_after_save(second, 1, 1, 7)
        kill_after_save(first, 0, 2, 15)
        first.ends_with(0)
        second.ends_with(0)
    resumed = re.findall(r"^train: resumed after step (\d+), .* from memory$", first.out, re.M)
    assert len(resumed) == 2 and int(resumed[0]) >= 6 and int(resumed[1]) >= 14, f"{resumed}: {first}"
    assert first.sha == undisturbed(2), f"{undisturbed(2)} undisturbed: {first}"


def stages_of_zero_resume_each_other(folder):
    for first, then in (("--zero", "--zero=2"), ("--zero=2", "--zero")):
        ckpt = f"--ckpt-dir={folder}/{first}"
        with Run(*SHORT, first, ckpt, "--ckpt-every=3", ranks=2) as run:
            run.until(lambda: any(pathlib.Path(folder, first).glob("*-s000006-*")), "a file of step 6")
        run = finished(*SHORT, then, ckpt, ranks=2).says(r"^train: resumed after step \d+", "out")
        assert run.sha == undisturbed(2), f"{undisturbed(2)} undisturbed: {run}"


def newer_files_come_first(folder):
    """Step 100 is in memory here, and step 102 in a file."""
    with Run(*SHORT, "--passes=40", f"--ckpt-dir={folder}", "--ckpt-every=3", "--memory-every=100",
             ranks=2, crun=["--max-restarts=1", "--restart-backoff=0"]) as run:
        run.until(lambda: any("-s000102-" in f for f in os.listdir(folder)), "a file of step 102")
        assert newest_in_memory(run.popen.pid) == {0: (1, 100), 1: (1, 100)}, run
        os.kill(run.workers()[1], signal.SIGKILL)
        run.until(lambda: "train: resumed after step 1" in run.out, "the restart")
        run.says(rf"^train: resumed after step 1\d\d, .* from {folder}$", "out")


def without_memory_it_is_off(folder):
    run = Process([BIN / "crun", "--nproc-per-node=2", "env", "-u", "CRUN_MEMORY", BIN / "train",
                   *SHORT, f"--ckpt-dir={folder}", "--memory-every=1"])
    assert run.wait() == 0 and not run.err, run.out + run.err
    assert undisturbed(2) in run.out and "files only" not in run.out, run.out


def random_kills(_):
    subprocess.run([ROOT / "scripts" / "checks" / "memory-kills", "--kills=10", "zero"], check=True)


if __name__ == "__main__":
    main({t.__name__: t for t in (killed_ranks_cost_a_step_at_most, each_rank_has_its_own_state,
                                  stages_of_zero_resume_each_other,
                                  newer_files_come_first, without_memory_it_is_off,
                                  *([random_kills] if os.environ.get("CRUN_ALL_ROUNDS") == "1" else []))})
