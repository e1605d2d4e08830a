#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 12 s
# emulated GPU: NCCL is its stand-in
"""
The nccl backend in real processes, over the stand-in for NCCL on the emulated GPU: if a call of
NCCL fails, never returns or is slow, all ranks end with the documented result, and no process is
left.
"""
import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
import worker  # noqa: E402
from process import BUILD, living, matches, until  # noqa: E402
from worker import CALLS, CRUN, PATIENCE  # noqa: E402

STUCK = 76
NCCL = {"CRUN_BACKEND": "nccl"}
EMULATED = os.path.exists(os.path.join(BUILD, "lib", "libnccl-standin.so"))
turn = iter(range(1 << 30))


class Store:
    """One that is there before and after all ranks, as a launcher's is."""

    def __enter__(self):
        server = os.path.join(BUILD, "bin", "store-server")
        self.process = subprocess.Popen([server], stdout=subprocess.PIPE, text=True)
        Store.port = self.process.stdout.readline().strip()

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


class Ranks(worker.Ranks):
    """Ranks that no launcher ends."""

    def __init__(self, scenario, size, each=None, **more):
        job = f"nccl-{os.getpid()}-{next(turn)}"

        def variables(rank, size):
            return {**NCCL, "RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank,
                    "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": Store.port, "TORCHELASTIC_USE_AGENT_STORE": "True",
                    "TORCHELASTIC_RUN_ID": job, **more, **(each(rank) if each else {})}

        super().__init__(scenario, size, variables)


def crun(*args, **env):
    return subprocess.run([CRUN, *args], env={**worker.PLAIN, **NCCL, **env},
                          capture_output=True, text=True, timeout=PATIENCE, check=False)


def nothing_is_left(cookie):
    """No process has this text in its environment."""
    until(lambda: not living(cookie.encode()), lambda: f"still there: {living(cookie.encode())}",
          PATIENCE)


# -- every call, every fault -----------------------------------------------------------

# name, and which one of its calls is meant: none is the first of meeting
MEETING = [("ncclGetUniqueId", 1), ("ncclCommInitRankConfig", 1), ("ncclCommGetAsyncError", 1),
           ("ncclAllReduce", 1), ("ncclAllReduce", 2)]
WORKING = [("ncclMemAlloc", 1), ("ncclCommRegister", 1), ("ncclCommWindowRegister", 1),
           ("ncclAllReduce", 3), ("ncclAllReduce", 4), ("ncclAllReduce", 5), ("ncclBroadcast", 1),
           ("ncclReduceScatter", 1), ("ncclAllGather", 1), ("ncclGroupStart", 1),
           ("ncclSend", 1), ("ncclRecv", 2), ("ncclGroupEnd", 1)]
FREEING = [("ncclCommDeregister", 1), ("ncclCommWindowDeregister", 1), ("ncclMemFree", 1)]
LEAVING = [("ncclCommFinalize", 1), ("ncclCommDestroy", 1)]
# before it meets another rank
OPENING = [("ncclGetVersion", 1)]
ALL = OPENING + MEETING + WORKING + FREEING + LEAVING


def with_fault(call, kind, nth, expected, also=""):
    """expected: for the rank that has the fault and for the other, code and words."""
    # the rank that has the id alone: rank 0 makes it
    faulty = 0 if call == "ncclGetUniqueId" else 1
    fault = f"{call}:{kind}:{faulty}:{nth}{also}"
    # short only where it is waited for: the machine may be busy with others
    ends = not {"hang", "stall", "deaf"} & set(fault.replace(",", ":").split(":"))
    timeout, meet = ("60", "60") if ends else ("0.7", "3")
    try:
        # windows are used only since that version
        with Ranks("every", 2, CRUN_STANDIN_FAULT=fault, CALLS_TIMEOUT=timeout, CALLS_MEET=meet,
                   CRUN_STANDIN_VERSION="22907" if "Window" in call else "22809") as ranks:
            ranks.ends(faulty, *expected[0])
            ranks.ends(1 - faulty, *expected[1])
    except AssertionError as e:
        raise AssertionError(f"{fault}: {e}") from None


DONE = (0, "done")


def all_cases():
    for call, nth in ALL:
        yield call, "late", nth, (DONE, DONE)
    yield "ncclGetVersion", "error", 1, ((3, "unsupported: .*ncclGetVersion failed"),
                                         (3, "unsupported: rank 1: "))
    for call, nth in MEETING + WORKING:
        failed = (3, f"system error: (rank 0: )?{call}: unhandled system error .*: injected"
                     if call != "ncclCommGetAsyncError" else "system error: ")
        yield call, "error", nth, (failed, (3, r"system error: rank [01]: "))
    for call, nth in FREEING + LEAVING:
        yield call, "error", nth, (DONE, DONE)
    for call, nth in OPENING + MEETING + WORKING + FREEING:
        hangs = (STUCK, f'timeout: (rank 0: |backend "nccl" on \S+: )?({call} has not returned for|waited) '
                 ".* s in ")
        yield call, "hang", nth, (hangs, (3, "timeout: "))
    for call, nth in LEAVING:
        yield call, "hang", nth, ((STUCK, "done"), DONE)
    yield "ncclAllReduce", "remote", 4, ((3, "peer lost: ncclAllReduce: remote process exited"),
                                         (3, "peer lost: rank 1: "))
    yield "ncclAllReduce", "async", 4, ((3, "peer lost: (NCCL|ncclAllReduce): remote process exited"),
                                        (3, "peer lost: rank 1: "))
    # what was launched does not end; and does not even end when it is aborted
    yield "ncclAllReduce", "stall", 4, ((3, "timeout: "), (3, "timeout: "))
    yield "ncclAllReduce", "deaf", 4, ((STUCK, "timeout: .*cannot be aborted"), (3, "timeout: "))
    yield "ncclAllReduce", "error", 4, ((STUCK, "system error: .*cannot be aborted"),
                                        (3, "system error: ")), ",ncclCommAbort:hang:1"
    yield "ncclAllReduce", "error", 4, ((3, "system error: "), (3, "system error: ")), \
        ",ncclCommAbort:error:1"
    yield "ncclAllReduce", "error", 4, ((3, "system error: "), (3, "system error: ")), \
        ",ncclCommAbort:late:1"


def every_fault_of_every_call_ends_as_documented():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(with_fault, *case) for case in all_cases()]
        failed = [str(run.exception()) for run in runs if run.exception()]
    if failed:
        raise AssertionError("\n".join(failed))


# -- jobs ------------------------------------------------------------------------------


def right_under_crun():
    for size in (1, 2, 4):
        run = crun(f"--nproc_per_node={size}", CALLS, "check")
        if run.returncode != 0 or run.stdout.count(": right\n") != size:
            raise AssertionError(f"{size} ranks: {run}")


def every_call_under_crun():
    run = crun("--nproc_per_node=3", CALLS, "every", CRUN_CHECK="1")
    if run.returncode != 0 or run.stdout.count(": done\n") != 3:
        raise AssertionError(run)


# NCCL's behaviour changes: before 2.22 it connects everything at the start, before 2.24 a single
# message returns early, 2.27 has windows, and from 2.29.7 on the library uses them
VERSIONS = ("21903", "22304", "22707", "22907", "23007")


def every_version_of_nccl_is_right():
    for version in VERSIONS:
        for scenario, words in (("check", ": right\n"), ("every", ": done\n")):
            run = crun("--nproc_per_node=2", CALLS, scenario, CRUN_STANDIN_VERSION=version)
            if run.returncode != 0 or run.stdout.count(words) != 2:
                raise AssertionError(f"{version}: {run}")


def a_blocking_communicator_is_right():
    for version in VERSIONS:
        run = crun("--nproc_per_node=3", CALLS, "every", CRUN_STANDIN_VERSION=version,
                   CRUN_NCCL_BLOCKING="1")
        if run.returncode != 0 or run.stdout.count(": done\n") != 3:
            raise AssertionError(f"{version}: {run}")


def several_hosts_have_no_windows():
    def on_a_host_of_its_own(rank):
        return {"NCCL_HOSTID": rank, "CRUN_DEVICE": 0}

    with Ranks("every", 3, on_a_host_of_its_own, CRUN_STANDIN_VERSION="23007") as ranks:
        for rank in range(3):
            ranks.ends(rank, 0, "done")


def refusals_of_nccl_are_reported():
    with Ranks("who", 2, CRUN_DEVICE=0) as ranks:
        for rank in range(2):
            ranks.ends(rank, 3, "ranks . and . both use GPU 0 .*each needs a GPU of its own")
    with Ranks("who", 2, lambda rank: {"CRUN_STANDIN_VERSION": 22809 + 98 * rank}) as ranks:
        for rank in range(2):
            ranks.ends(rank, 3, "has NCCL 2.29.7, .* has NCCL 2.28.9: all ranks need the same")


def the_preflight_sums_up_by_nccl():
    for fault, code, words in (
            ("", 0, r"all-reduce of 1 MiB over 2 ranks \(nccl\): .*\n"),
            ("ncclAllReduce:hang:1", 69, "preflight: .*: ncclAllReduce has not returned for"),
            ("ncclCommInitRankConfig:error:0", 69, "preflight: .*: (ncclCommInitRankConfig|NCCL): ")):
        run = crun("--preflight", "--nproc_per_node=2", "echo", "it runs", CRUN_STANDIN_FAULT=fault,
                   CRUN_PREFLIGHT_TIMEOUT="4" if "hang" in fault else "60")
        if run.returncode != code or run.stdout.count("it runs\n") != (0 if fault else 2):
            raise AssertionError(run)
        matches(run.stderr, words)


def a_killed_rank_is_lost_and_named():
    with Ranks("loop", 3) as ranks:
        for rank in range(3):
            ranks.until_said(rank, "ready")
        pid = ranks.processes[1].pid
        ranks.processes[1].send_signal(signal.SIGKILL)
        start = time.monotonic()
        for rank in (0, 2):
            ranks.ends(rank, 3, rf"peer lost: (rank \d: )?rank 1 \(pid {pid}\) is gone")
        print(f"   survivors were out after {time.monotonic() - start:.2f} s")


def a_failure_ends_groups_that_do_not_need_the_rank():
    """Rank 2 waits in a group with rank 3, which never comes."""
    for dead in (0, 1):
        with Ranks("halves", 4) as ranks:
            for rank in range(4):
                ranks.until_said(rank, "ready")
            pid = ranks.processes[dead].pid
            ranks.processes[dead].send_signal(signal.SIGKILL)
            for rank in (1 - dead, 2):
                ranks.ends(rank, 3, rf"peer lost: (rank \d: )?rank {dead} \(pid {pid}\) is gone")
    # a sum of rank 1 in its group; rank 3 has the number 1 in the other one, but never adds
    with Ranks("halves", 4, CRUN_STANDIN_FAULT="ncclAllReduce:error:1:12") as ranks:
        ranks.ends(1, 3, "system error: ncclAllReduce: .*: injected")
        for rank in (0, 2):
            ranks.ends(rank, 3, "system error: rank 1: ncclAllReduce: ")


def crun_brings_the_group_back():
    for kind in ("kill", "stall", "hang", "error"):
        cookie = f"NCCL_TEST_COOKIE={os.getpid()}-{kind}"
        name, value = cookie.split("=")
        run = crun("--nproc_per_node=3", "--max-restarts=1", CALLS, "every",
                   CRUN_STANDIN_FAULT=f"ncclBroadcast:{kind}:1", CALLS_TIMEOUT="0.5", **{name: value})
        if run.returncode != 0 or run.stdout.count(": done\n") != 3:
            raise AssertionError(f"{kind}: {run}")
        nothing_is_left(cookie)


def an_abort_reaches_all():
    with Ranks("abort", 3) as ranks:
        ranks.ends(1, 3, "aborted: the loss is NaN")
        ranks.ends(0, 3, "aborted: rank 1: the loss is NaN")
        ranks.ends(2, 3, "aborted: rank 1: the loss is NaN")
    with Ranks("crash", 2) as ranks:
        ranks.ends(1, 4)
        ranks.ends(0, 3, r"rank 1( \(pid \d+\) is gone|: crun_abort_signal)")


def different_calls_are_told_apart():
    with Ranks("differ", 2, CRUN_CHECK="1") as ranks:
        words = "mismatch: .*ranks call different things: rank 1 all_reduce 2 x f32 sum, rank 0 all_reduce 1 x"
        ranks.ends(1, 3, words)
        ranks.ends(0, 3, words)


def auto_takes_gpus_where_all_have_one():
    def one_without(rank):
        return {"CRUN_STANDIN_GPUS": "0"} if rank == 1 else {}

    with Ranks("who", 3, CRUN_BACKEND="auto", CALLS_DEVICE="auto") as ranks:
        for rank in range(3):
            ranks.ends(rank, 0, "nccl$")
    with Ranks("who", 3, one_without, CRUN_BACKEND="auto", CALLS_DEVICE="auto") as ranks:
        for rank in range(3):
            ranks.ends(rank, 0, "shm$")
    # a program that computes on the host
    with Ranks("who", 2, CRUN_BACKEND="auto") as ranks:
        ranks.ends(0, 0, "shm$")


def without_a_gpu_it_says_so_in_one_line():
    there_is_none = {"CUDA_VISIBLE_DEVICES": ""}
    words = r'^rank -1: unsupported: backend "nccl" on \S+: (this build is without GPUs|there is no NVIDIA' \
            r"|the NVIDIA driver is too old|CUDA_VISIBLE_DEVICES is .*: that leaves no GPU).*\n$"
    with Ranks("who", 1, **there_is_none) as ranks:
        ranks.ends(0, 3, words)
    with Ranks("who", 2, CRUN_BACKEND="auto", CALLS_DEVICE="auto", **there_is_none) as ranks:
        ranks.ends(0, 0, "shm$")


def the_last_operations_are_written_down():
    flight = tempfile.mkdtemp(prefix="crun-flight-")
    try:
        with Ranks("every", 2, CRUN_STANDIN_FAULT="ncclBroadcast:stall:1", CALLS_TIMEOUT="0.5",
                   CRUN_FLIGHT_DIR=flight) as ranks:
            ranks.ends(0, 3)
            ranks.ends(1, 3)
        with open(os.path.join(flight, "flight-rank-1.txt"), encoding="utf-8") as f:
            text = f.read()
        matches(text, r"waited 0.5 s in (broadcast 1000 x f32 from rank 0 #3|"
                      r"reduce_scatter 5 x f32 max #4: GPU .* before it)")
        matches(text, r"all_reduce \d+ x f32 sum  ok \d+ us\n")
        matches(text, r"broadcast \d+ x f32 from rank 0  under way\n")
    finally:
        shutil.rmtree(flight)


CHECKS = [
    right_under_crun,
    every_call_under_crun,
    every_version_of_nccl_is_right,
    a_blocking_communicator_is_right,
    several_hosts_have_no_windows,
    refusals_of_nccl_are_reported,
    the_preflight_sums_up_by_nccl,
    a_killed_rank_is_lost_and_named,
    a_failure_ends_groups_that_do_not_need_the_rank,
    crun_brings_the_group_back,
    an_abort_reaches_all,
    different_calls_are_told_apart,
    auto_takes_gpus_where_all_have_one,
    without_a_gpu_it_says_so_in_one_line,
    the_last_operations_are_written_down,
]


if not EMULATED:
    with Store():
        worker.run([without_a_gpu_it_says_so_in_one_line])
    sys.exit(0)
# the faults wait for their timeouts at the same time
with Store(), concurrent.futures.ThreadPoolExecutor(1) as pool:
    faults = pool.submit(worker.run, [every_fault_of_every_call_ends_as_documented])
    worker.run(CHECKS)
    faults.result()
