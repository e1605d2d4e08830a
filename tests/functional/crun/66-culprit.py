#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 20 s
# sanitizers: no, its workers are Python; 19, 22 and the unit tests of failures run the code
"""
The rank that caused a failure is named, though its victims end first: programs whose ranks
are connected by sockets or by the worker library, on one node and on two, while all cores are
busy. And a rank that ends first, and is the cause, is named at once.
"""
import contextlib
import json
import os
import signal
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from culprits import (LATE, PROGRAM, Jobs, a_late_culprit_on_another_node_is_named,  # noqa: E402
                      busy_cores, check_named, late_culprits_are_named,
                      quiet_culprits_are_named, report_of)
from process import BIN, Process, fail, free_port, run, until  # noqa: E402

WAIT_S = 5  # that crun waits for the cause of a consequence


def a_late_worker_of_the_library_is_named(jobs):
    check_named(jobs.start(BIN / "worker-calls", "late"), 1, 9, "| worker-calls: loss is NaN")


def no_restart_on_means_the_culprits_code(jobs):
    words, code, text = LATE["atexit"]
    check_named(jobs.start(PROGRAM, *words, flags=["--max-restarts=3", f"--no-restart-on={code}"]),
                1, code, text)
    again, = jobs.start(PROGRAM, *words, flags=["--max-restarts=1", "--no-restart-on=1",
                                                "--restart-backoff=0"])
    check_named([again], 1, code, text)
    if "restarts        1 of 1 used" not in again.err:
        fail(f"the victim's code ended the job:\n{again.err}")


def events_name_the_culprit(jobs):
    port, path = free_port(), f"{jobs.directory}/events-{jobs.count}"
    daemon = Process([BIN / "crund", "--listen", f"127.0.0.1:{port}"])
    try:
        until(lambda: "listening" in daemon.err, "crund listens")
        words, code, text = LATE["raise"]
        check_named(jobs.start(PROGRAM, *words, flags=[
            f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d", "--rdzv-id=blame",
            f"--events-file={path}"]), 1, code, text)
        ctl = Process([BIN / "crunctl", "-e", f"127.0.0.1:{port}", "events", "-j", "blame"])
        ctl.expect(0)
    finally:
        daemon.end()
    failed = [line for line in ctl.out.splitlines() if " failed " in line]
    if len(failed) != 1 or "rank 1 " not in failed[0]:
        fail(f"not one event of rank 1's failure:\n{ctl.out}")
    with open(path, encoding="utf-8") as f:
        events = [json.loads(line) for line in f]
    texts = {e["text"] for e in events if e["kind"] == "failed"}
    if sum(": a consequence" in text for text in texts) != 1 or not any(
            "rank 1 " in e["text"] for e in events if e["kind"] == "stopping"):
        fail("the events' file:", events)


def a_cause_that_ends_first_is_named_at_once(jobs):
    """Not after WAIT_S. The least of a few times counts: the machine is busy."""
    took = []
    for _ in range(5):
        p, = jobs.start("sh", "-c", 'echo $$; [ $RANK = 0 ] || exec sleep 1000; read x <"$0"',
                        jobs.directory + "/fifo")
        until(lambda: len(p.out.split()) == 2, "the workers")
        until(lambda: os.path.exists("/proc/" + p.out.split()[0]), "a worker")
        begun = time.monotonic()
        os.kill(int(p.out.split()[0]), signal.SIGKILL)
        p.expect(137, "was killed by SIGKILL")
        took.append(time.monotonic() - begun)
    if min(took) > WAIT_S:
        fail("a kill -9 was waited with:", took)


def a_job_whose_workers_have_all_ended_is_not_waited_for(jobs):
    took = []
    for _ in range(5):
        begun = time.monotonic()
        p, = jobs.start("sh", "-c", "echo Connection reset by peer >&2; exit 4",
                        flags=["--nproc-per-node=1"])
        p.expect(4, "as rank 0's")
        took.append(time.monotonic() - begun)
    if min(took) > WAIT_S:
        fail("no rank is left, and it was waited:", took)


def a_rank_that_succeeded_too_early_is_named(jobs):
    took = []
    for _ in range(3):
        begun = time.monotonic()
        p, = jobs.start("sh", "-c", 'if [ $RANK = 1 ]; then echo >>"$0"; exit 0; fi; read x <"$0"; '
                        "sleep 0.2; echo Connection reset by peer >&2; exit 4",
                        jobs.directory + "/fifo")
        p.expect(4, "ended before    rank 1, with exit code 0: others see closed connections\n")
        took.append(time.monotonic() - begun)
    if min(took) > WAIT_S:
        fail("no rank is left, and it was waited:", took)


def a_rank_that_succeeds_after_a_consequence_is_named(jobs):
    """As it closes its connections before it has ended, at its own node or another."""
    for nodes in (1, 2):
        took = []
        for _ in range(3):
            begun = time.monotonic()
            cruns = jobs.start("sh", "-c", 'if [ $RANK = 1 ]; then read x <"$0"; sleep 0.3; exit 0; fi; '
                               'echo >>"$0"; echo Connection reset by peer >&2; exit 4',
                               jobs.directory + "/fifo", nodes=nodes)
            for p in cruns:
                p.expect(4, "has failed: rank 0 ")
            if nodes == 1 and "also ended      rank 1, with exit code 0" not in cruns[0].err:
                fail("rank 1 is not named:", cruns[0].err)
            took.append(time.monotonic() - begun)
        if min(took) > WAIT_S:
            fail("no rank is left, and it was waited:", nodes, took)


def the_first_of_consequences_alone_is_named(jobs):
    """The cause never ends: after the wait the job ends."""
    p, = jobs.start("sh", "-c", "[ $RANK = 1 ] && exec sleep 1000; "
                    "echo Connection reset by peer >&2; exit 4")
    p.expect(4, "has failed: rank 0 ")
    if ": a consequence" in report_of(p):
        fail(f"the root cause is a consequence:\n{p.err}")


def main():
    rounds = int(os.environ.get("CULPRIT_ROUNDS", "1"))
    tests = [late_culprits_are_named, quiet_culprits_are_named, a_late_culprit_on_another_node_is_named,
             a_late_worker_of_the_library_is_named, no_restart_on_means_the_culprits_code,
             events_name_the_culprit, a_cause_that_ends_first_is_named_at_once,
             a_job_whose_workers_have_all_ended_is_not_waited_for,
             a_rank_that_succeeded_too_early_is_named,
             a_rank_that_succeeds_after_a_consequence_is_named,
             the_first_of_consequences_alone_is_named]
    with tempfile.TemporaryDirectory() as directory, busy_cores(os.cpu_count()), \
            contextlib.ExitStack() as stack:
        os.mkfifo(directory + "/fifo")
        jobs = stack.enter_context(contextlib.closing(Jobs(directory, {})))
        for _ in range(rounds):
            run(tests, jobs)


if __name__ == "__main__":
    main()
