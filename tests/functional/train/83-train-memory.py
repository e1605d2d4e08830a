#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 25 s
# sanitizers: no, the unit tests of checkpoints run the same code
"""
The trainer with checkpoints in memory: a worker that is killed right after a step was saved costs
at most one step, and the result has the bits of an undisturbed training.
"""
import contextlib
import functools
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, ROOT, Process, free_port, until  # noqa: E402
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
        if len(header) < 40:  # it has no size yet
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


# -- to files, without the workers -----------------------------------------------------


def written_after(folder, step, *runs):
    """What the job had in memory when it failed is in a file, from which the next one goes on."""
    for run in runs:
        run.ends_with(137)
        run.says(r"step \d+, which was in memory, was written to files in ")
    at = int(re.search(r" step (\d+), which was in memory", runs[0].err)[1])
    assert at >= step - 1, f"a rank had saved {step}: {runs[0]}"
    files = os.listdir(folder)
    assert any(f"-s{at:06}-" in f for f in files) and not any(f.endswith(".new") for f in files), files
    return at


def last_failure_writes_files(folder):
    flags = [*SHORT, f"--ckpt-dir={folder}", "--memory-every=1"]
    with Run(*flags, ranks=2, crun=["--max-restarts=1", "--restart-backoff=0"]) as run:
        kill_after_save(run, 1, 1, 5)
        kill_after_save(run, 0, 2, 15)
        at = written_after(folder, 15, run)
    run = finished(*flags, ranks=2).says(rf"^train: resumed after step {at}, .* from {folder}$", "out")
    assert run.sha == undisturbed(2), f"{undisturbed(2)} undisturbed: {run}"


def each_node_writes_its_part(folder):
    flags = [*SHORT, "--zero=2", f"--ckpt-dir={folder}", "--memory-every=1"]
    crun = ["--nnodes=2", "--max-restarts=0", "--master-addr=127.0.0.1",
            f"--master-port={free_port()}"]
    with Run(*flags, ranks=1, crun=[*crun, "--node-rank=0"]) as first, \
            Run(*flags, ranks=1, crun=[*crun, "--node-rank=1"]) as second:
        kill_after_save(second, 1, 1, 7)
        at = written_after(folder, 7, first, second)
    run = finished(*flags, ranks=2).says(rf"^train: resumed after step {at}, .* from {folder}$", "out")
    assert run.sha == undisturbed(2), f"{undisturbed(2)} undisturbed: {run}"


def parts_of_a_stopped_job(folder):
    """The slots of its two ranks with the same step, which each has itself a part of."""
    with Run(*SHORT, "--zero=2", f"--ckpt-dir={folder}/saved", "--memory-every=1", ranks=2) as run:
        run.until(lambda: {s for _, s in newest_in_memory(run.popen.pid).values()} - {0, 1, 2}, "step 3")
        for pid in run.workers().values():
            os.kill(pid, signal.SIGSTOP)
        parts = {}
        for fd in pathlib.Path(f"/proc/{run.popen.pid}/fd").iterdir():
            if "crun-memory" in os.readlink(fd):
                part = fd.read_bytes()
                state, rank, epoch, step, world = struct.unpack("<8xIIQQI", part[:36])
                if state == WHOLE:
                    parts.setdefault((epoch, step, world), {})[rank] = part
        run.popen.kill()
    whole = max(of for of, ranks in parts.items() if len(ranks) == 2)
    for rank, part in parts[whole].items():
        pathlib.Path(folder, str(rank)).write_bytes(part)
    return whole


class Flush:
    """The command that the agents run, with those parts, on a folder of its own."""

    def __init__(self, folder, of, case):
        self.folder = pathlib.Path(shutil.copytree(f"{folder}/saved", f"{folder}/{case.replace(' ', '-')}"))
        self.of, self.case = dict(zip(("EPOCH", "STEP", "WORLD"), of)), case
        self.of["PARTS"] = f"0:{folder}/0:shared 1:{folder}/1"
        self.claim = (self.folder / "generation-1").read_text()

    def begin(self, **limits):
        env = {f"CRUN_MEMORY_{name}": str(value) for name, value in self.of.items()}
        command = [BIN / "crun-preflight", "--write-checkpoint", self.folder, "1", self.claim]
        return subprocess.Popen(command, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True, **limits)

    def gives(self, code, line, files, process=None, **limits):
        process = process or self.begin(**limits)
        err = process.communicate(timeout=60)[1]
        now = sorted(f.name for f in self.folder.iterdir() if f.suffix != ".safetensors" and "generation" not in f.name)
        kept = sorted(f.name[-10 - len(".safetensors"):-len(".safetensors")][-4:]
                      for f in self.folder.glob(f"*-s{self.of['STEP']:06}-*"))
        assert (process.returncode, kept, now) == (code, files, []) and re.search(line, err), \
            f"{self.case}: {process.returncode} {kept} {now}: {err}"


def only_the_whole_set_is_written(folder):
    of = parts_of_a_stopped_job(folder)
    whole = ["1of2", "2of2"]

    flush = Flush(folder, of, "twice at once")
    both = [flush.begin(), flush.begin()]
    codes = [process.wait(60) for process in both]  # before a look: what one still writes is not left over
    for process, code in zip(both, codes):
        assert code in (0, 114), codes
        flush.gives(code, "^$", whole, process)
    assert 0 in codes, codes
    flush.gives(114, "^$", whole)
    run = Run(*SHORT, "--zero=2", f"--ckpt-dir={flush.folder}", ranks=2)
    run.ends_with(0).says(rf"^train: resumed after step {of[1]}, .* from {flush.folder}$", "out")
    assert run.sha == undisturbed(2), f"{undisturbed(2)} undisturbed: {run}"

    for name, add in (("EPOCH", 1), ("STEP", 1), ("WORLD", 1)):
        flush = Flush(folder, of, f"another {name}")
        flush.of[name] += add
        flush.gives(1, "^crun: a part in memory is of another checkpoint$", [])

    flush = Flush(folder, of, "swapped ranks")
    flush.of["PARTS"] = f"1:{folder}/0:shared 0:{folder}/1"
    flush.gives(1, "^crun: a part in memory is of another checkpoint$", [])

    flush = Flush(folder, of, "no rank 1")
    flush.of["PARTS"] = f"0:{folder}/0:shared"
    process = flush.begin()
    deadline = time.monotonic() + 60
    while not list(flush.folder.glob("*-1of2.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    assert process.poll() is None, "it has not waited for rank 1's part"
    flush.of.update(PARTS="", COPIES=f"1:{folder}/1")  # what the neighbour of its node has
    flush.gives(0, "^$", whole)
    assert process.wait(60) == 0
    process.stderr.close()

    flush = Flush(folder, of, "no shared section")
    flush.of["PARTS"] = f"0:{folder}/0 1:{folder}/1"
    flush.gives(1, "^crun: what all ranks share is not here$", [])

    flush = Flush(folder, of, "a flipped bit")
    part = bytearray(pathlib.Path(folder, "0").read_bytes())
    part[-len(part) // 3] ^= 4
    pathlib.Path(flush.folder, "generation-damaged").write_bytes(part)
    flush.of["PARTS"] = f"0:{flush.folder}/generation-damaged:shared"
    flush.gives(1, "damaged$", [])

    flush = Flush(folder, of, "a later start")
    (flush.folder / "generation-2").write_text("0" * 32)
    flush.gives(1, ": another job, or a later start of this one, now writes its checkpoints to ", [])

    flush = Flush(folder, of, "another folder")
    (flush.folder / "generation-1").unlink()
    flush.gives(1, "is another folder than that of this job$", [])
    (flush.folder / "generation-1").write_text("0" * 32)
    flush.gives(1, "which was replaced", [])

    for save, step in ((2, 1), (1, of[1])):  # a later save, though of an earlier step; the same step
        flush = Flush(folder, of, f"a newer file {save}")
        (flush.folder / f"checkpoint-g1.{save:06}-s{step:06}-1of1.safetensors").touch()
        flush.gives(114, "^$", [] if step != of[1] else ["1of1"])

    flush = Flush(folder, of, "a full disk")
    flush.gives(1, "cannot write: File too large$", [], restore_signals=False, preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (4096, 4096)))


def stages_of_zero_resume_each_other(folder):
    for first, then in (("--zero", "--zero=2"), ("--zero=2", "--zero")):
        ckpt = f"--ckpt-dir={folder}/{first}"
        with Run(*SHORT, first, ckpt, "--ckpt-every=3", ranks=2) as run:
            run.until(lambda: any(pathlib.Path(folder, first).glob("*-s000006-*")), "a file of step 6")
        run = finished(*SHORT, then, ckpt, ranks=2).says(r"^train: resumed after step \d+", "out")
        assert run.sha == undisturbed(2), f"{undisturbed(2)} undisturbed: {run}"


# -- to files, while the ranks train ---------------------------------------------------


def crunctl(*words):
    return subprocess.run([BIN / "crunctl", *words], capture_output=True, text=True, check=False)


def checkpoint(job, code=0):
    """What crunctl says of it: of the step and folder, or why there is none."""
    until(lambda: crunctl("status", job).returncode == 0, f"crunctl status {job}")
    p = crunctl("checkpoint", job)
    assert p.returncode == code, f"{p}"
    text = p.stderr if code else p.stdout
    assert text.count("\n") == 1, text
    return text


def step_in(folder, text):
    found = re.search(rf"^\S+: step (\d+), which was in memory, is in {folder} \(", text)
    assert found, text
    return int(found[1])


def copied(folder, step):
    """The files of this step alone."""
    alone = f"{folder}/alone-{step}"
    os.mkdir(alone)
    for name in os.listdir(folder):
        if f"-s{step:06}-" in name:
            shutil.copy(f"{folder}/{name}", alone)
    assert os.listdir(alone), f"no step {step}: {os.listdir(folder)}"
    return alone


def goes_on_from(alone, step, *flags, ranks):
    """To the end."""
    run = finished(*flags, f"--ckpt-dir={alone}", ranks=ranks)
    run.says(rf"^train: resumed after step {step}, .* from {alone}$", "out")
    return run.sha


LIVE = ["--model=mlp", "--batch=8", "--train-limit=4800", "--passes=2"]  # 600 steps of two ranks
LONG = [*LIVE, "--passes=4"]


def crunctl_writes_what_ranks_overwrite(folder):
    """With a step each millisecond or two: as fast as crunctl can, beside the program's own files."""
    job = f"live-{os.getpid()}"
    with Run(*LONG, f"--ckpt-dir={folder}", "--memory-every=1", "--ckpt-every=50",
             ranks=2, crun=[f"--rdzv-id={job}"]) as run:
        run.until(lambda: len(newest_in_memory(run.popen.pid)) == 2, "a step in memory")
        checkpoint(job)
        steps = {}
        while len(steps) < 6:
            p = crunctl("checkpoint", job)
            if p.returncode:  # the job has ended
                break
            if " already, or a newer one" not in p.stdout:
                step = step_in(folder, p.stdout)
                assert step >= max(steps, default=0), f"{step} after {steps}: {run}"
                if step not in steps:
                    steps[step] = copied(folder, step)
        run.ends_with(0)
    assert len(steps) >= 2, f"{steps}, {p}: {run}"
    assert not any(f.endswith(".new") for f in os.listdir(folder)), os.listdir(folder)
    for step in min(steps), max(steps):
        sha = goes_on_from(steps[step], step, *LONG, ranks=2)
        assert sha == run.sha, f"step {step}: {sha}, {run.sha} undisturbed"


def nodes_write_one_step(folder):
    """Of sharded states, as often as they can (--memory-flush), until one of the nodes is lost."""
    port, job = free_port(), f"nodes-{os.getpid()}"
    flags = [*LIVE, "--zero=2", f"--ckpt-dir={folder}", "--memory-every=1"]
    crun = ["--nnodes=2", "--max-restarts=1", "--restart-backoff=0", "--master-addr=127.0.0.1",
            f"--master-port={port}", f"--rdzv-id={job}", "--memory-flush=0.05"]
    said = r"^crun: step (\d+), which was in memory, is in "
    with Run(*flags, ranks=1, crun=[*crun, "--node-rank=0"]) as first, \
            Run(*flags, ranks=1, crun=[*crun, "--node-rank=1"]) as second:
        first.until(lambda: len(re.findall(said, first.err, re.M)) >= 3, "three flushes")
        second.kill(signal.SIGKILL)
        first.until(lambda: "was lost" in first.err, "the loss")
        # once its own workers are stopped, the job waits for a node
        first.until(lambda: "no step is there with the parts of all ranks" in checkpoint(job, 1), "the answer")
        first.popen.send_signal(signal.SIGTERM)
        first.ends_with(143)
        assert not re.search(said, second.err, re.M), f"{second}"
    steps = [int(step) for step in re.findall(said, first.err, re.M)]
    assert steps == sorted(set(steps)), steps
    sha = goes_on_from(copied(folder, steps[-1]), steps[-1], *LIVE, "--zero=2", ranks=2)
    assert sha == finished(*LIVE, "--zero=2", ranks=2).sha, sha


def a_step_is_written_once(folder):
    """Though --memory-flush is due more often than a step is kept, also as the job ends."""
    run = finished(*LIVE, f"--ckpt-dir={folder}", "--memory-every=100", ranks=2, crun=["--memory-flush=0.01"])
    steps = re.findall(r"^crun: step (\d+), which was in memory, is in ", run.err, re.M)
    assert steps and len(steps) == len(set(steps)) and "was not written" not in run.err, run


def what_crunctl_has_written(folder):
    """crunctl says so where it is asked again, and a failed job writes and says nothing."""
    for stage in 0, 2:  # one file of rank 0, and one of each node
        job, ckpt = f"again-{stage}-{os.getpid()}", f"{folder}/{stage}"
        flags = [*LIVE, "--passes=1000", f"--ckpt-dir={ckpt}", "--memory-every=1", *([f"--zero={stage}"] if stage else [])]
        crun = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}", f"--rdzv-id={job}",
                "--max-restarts=0"]
        with Run(*flags, ranks=1, crun=[*crun, "--node-rank=0"]) as first, \
                Run(*flags, ranks=1, crun=[*crun, "--node-rank=1"]) as second:
            for run in first, second:
                run.until(lambda run=run: newest_in_memory(run.popen.pid), "a step in memory")
            workers = {**first.workers(), **second.workers()}.values()
            for pid in workers:
                os.kill(pid, signal.SIGSTOP)
            step = step_in(ckpt, checkpoint(job))
            assert checkpoint(job) == f"{job}: step {step} is in {ckpt} already, or a newer one\n"
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            for run in first, second:
                run.ends_with(137)
                assert "which was in memory, was" not in run.err, run


def what_crunctl_cannot_write(folder):
    job = f"none-{os.getpid()}"
    with Run(*LIVE, "--passes=1000", f"--ckpt-dir={folder}", ranks=2, crun=[f"--rdzv-id={job}", "--memory-flush=0.1"]) as run:
        run.until(lambda: "--memory-flush writes nothing" in run.err, "one warning")
        text = checkpoint(job, 1)
        assert "the program keeps none, or has not saved its first" in text, text
    assert run.err.count("--memory-flush writes nothing") == 1, run


def crun_alone_names_what_is_missing(folder):
    job = f"alone-{os.getpid()}"
    shutil.copy(BIN / "crun", folder)
    run = Process([f"{folder}/crun", f"--rdzv-id={job}", "--nproc-per-node=2", BIN / "train", *LIVE, "--passes=1000",
                   f"--ckpt-dir={folder}", "--memory-every=1"])
    try:
        until(lambda: len(newest_in_memory(run.popen.pid)) == 2, lambda: str(run))
        text = checkpoint(job, 1)
        assert text.endswith(" was not written to files: crun-preflight is neither beside crun nor in PATH\n"), text
    finally:
        run.end()


def a_full_disk_leaves_older_files(folder):
    job = f"full-{os.getpid()}"
    if os.geteuid():
        print("SKIPPED: a file system of its own needs root")
        return
    mount = f"mount -t tmpfs -o size=32m full {folder} && exec \"$@\""
    with Run("--model=mlp", "--batch=8", "--passes=1000", f"--ckpt-dir={folder}", "--memory-every=1",
             ranks=2, crun=[f"--rdzv-id={job}"], before=["unshare", "-m", "sh", "-c", mount, "sh"]) as run:
        inside = pathlib.Path(f"/proc/{run.popen.pid}/root{folder}")
        run.until(lambda: len(newest_in_memory(run.popen.pid)) == 2, "a step in memory")
        first = step_in(folder, checkpoint(job))
        with open(inside / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))
        text = checkpoint(job, 1)
        assert "was not written to files: " in text and "No space left on device" in text, text
        names = os.listdir(inside)
        assert {n for n in names if n.endswith(".safetensors")} == {n for n in names if f"-s{first:06}-" in n}, names
        os.unlink(inside / "filler")
        assert step_in(folder, checkpoint(job)) > first
        run.popen.send_signal(signal.SIGTERM)
        run.ends_with(143)


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
    main({t.__name__: t for t in (killed_ranks_cost_a_step_at_most, each_rank_has_its_own_state, last_failure_writes_files,
                                  each_node_writes_its_part, only_the_whole_set_is_written,
                                  stages_of_zero_resume_each_other,
                                  crunctl_writes_what_ranks_overwrite, nodes_write_one_step,
                                  a_step_is_written_once, what_crunctl_has_written,
                                  what_crunctl_cannot_write, crun_alone_names_what_is_missing, a_full_disk_leaves_older_files,
                                  newer_files_come_first, without_memory_it_is_off,
                                  *([random_kills] if os.environ.get("CRUN_ALL_ROUNDS") == "1" else []))})
