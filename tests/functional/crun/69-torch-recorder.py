#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 40 s
# sanitizers: no, it waits most of the time; test_stuck runs the code
"""
PyTorch's flight recorder is asked when a job hangs, and what it writes is named. A thread of
the workers stands for torch's own, which runs with a GPU only. It does what DumpPipe in
torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, HeartbeatMonitor::runLoop in
ProcessGroupNCCL.cpp and DebugInfoWriter in FlightRecorder.cpp of torch 2.9 do: without both
variables there is no pipe; it is looked at once a second, and never waited for.
"""
import os
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, fail  # noqa: E402

WORKER = """
import mmap, os, struct, sys, threading, time

rank = os.environ["RANK"]
env = os.environ.get

def monitor(reads):
    prefix = env("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "")
    entries = int(env("TORCH_FR_BUFFER_SIZE") or env("TORCH_NCCL_TRACE_BUFFER_SIZE") or 0)
    if not prefix or entries <= 0:
        return
    name = f"{prefix}{rank}.pipe"
    if os.path.exists(name):
        os.unlink(name)
    os.mkfifo(name, 0o666)
    fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    while True:
        time.sleep(1)
        if reads and os.read(fd, 128):
            dump = env("TORCH_FR_DUMP_TEMP_FILE") or env("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
            with open(f"{dump}{rank}", "w") as f:
                f.write(f"{entries} collectives of rank {rank}")

for name in sorted(os.environ):
    if "_FR_" in name or "NCCL" in name:
        print(rank, name, os.environ[name], flush=True)
if sys.argv[1] != "none":
    threading.Thread(target=monitor, args=(f"{rank} does not" not in sys.argv[1],),
                     daemon=True).start()
page = mmap.mmap(os.open(os.environ["CRUN_PROGRESS"], os.O_RDWR), 4096)
page[8:12] = struct.pack("I", 11)
page[12:24] = struct.pack("=IQ", 1, 1)
page[8:12] = struct.pack("I", 12)
time.sleep(1000)
"""


class Here:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.script = self.directory / "train.py"
        self.script.write_text(WORKER)

    def run(self, *flags, mode="all", env=None):
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        p = Process([str(w) for w in (BIN / "crun", "--nproc-per-node=2", "--hang-timeout=2",
                                      *flags, self.script, mode)],
                    start_new_session=True, env={**os.environ, "TMPDIR": str(temporary),
                                                 **(env or {})})
        if p.wait(60) != 1 or "hangs: no progress" not in p.err:
            fail("no hang", p, p.err)
        pipes = [*self.directory.rglob("*.pipe")]
        if pipes:
            fail("pipes are left:", pipes)
        return p

    def dumps(self):
        return {f.name: f.read_text() for f in self.directory.rglob("*trace_rank_*")}


def named(p):
    found = re.findall(r"^crun: (PyTorch's flight recorder: .*)$", p.err, re.MULTILINE)
    return found[0] if len(found) == 1 else found


def what_all_ranks_did_is_kept(here):
    logs = here.directory / "logs"
    p = here.run(f"--log-dir={logs}")
    prefix = re.fullmatch(r"PyTorch's flight recorder: 2 of 2 ranks in (.*/attempt_0/"
                          r"nccl_trace_rank_)\*", named(p) or "")
    if not prefix or not prefix[1].startswith(f"{logs}/"):
        fail("not named:", p.err)
    for rank in (0, 1):
        text = pathlib.Path(f"{prefix[1]}{rank}").read_text()
        if text != f"2000 collectives of rank {rank}":
            fail(f"rank {rank}:", text)


def they_are_kept_without_a_log_dir(here):
    p = here.run()
    if "2 of 2 ranks" not in named(p) or len(here.dumps()) < 2:
        fail(p.err, here.dumps())


def a_rank_that_does_not_answer_is_not_waited_for_long(here):
    p = here.run(mode="1 does not")
    if "1 of 2 ranks" not in named(p):
        fail(p.err)


def the_user_chooses(here):
    (here.directory / "own").mkdir()
    env = {"TORCH_FR_BUFFER_SIZE": "7",
           "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(here.directory / "own" / "trace_rank_")}
    p = here.run(env=env)
    if f"2 of 2 ranks in {here.directory}/own/trace_rank_*" not in named(p) or \
            here.dumps()["trace_rank_1"] != "7 collectives of rank 1":
        fail(p.err, here.dumps())
    if "TRACE_BUFFER_SIZE" in p.out:
        fail("two sizes:", p.out)


def nothing_is_said_without_a_recorder(here):
    for mode, env in ("none", {}), ("all", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}):
        p = here.run(mode=mode, env=env)
        if named(p):
            fail(mode, p.err)
    if any((here.directory / "tmp").iterdir()):
        left = [*(here.directory / "tmp").rglob("*")]
        if any(f.is_fifo() for f in left):
            fail("left:", left)


def a_program_that_is_not_watched_has_no_variable_of_it(here):
    p = here.run("--no-python", sys.executable)
    if named(p) or {line.split()[1] for line in p.out.splitlines()} != {
            "TORCH_NCCL_ASYNC_ERROR_HANDLING"}:
        fail(p.out, p.err)


def main():
    for test in (what_all_ranks_did_is_kept, they_are_kept_without_a_log_dir,
                 a_rank_that_does_not_answer_is_not_waited_for_long, the_user_chooses,
                 nothing_is_said_without_a_recorder, a_program_that_is_not_watched_has_no_variable_of_it):
        with tempfile.TemporaryDirectory(prefix="crun-recorder-") as directory:
            test(Here(directory))
        print("ok", test.__name__)


main()
