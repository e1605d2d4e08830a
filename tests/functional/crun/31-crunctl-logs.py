#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 8 s
"""
crunctl logs shows the output of any rank, from any node: what is kept and what is in files, as
it comes, over a restart and to the end; and says what is lost and which node is.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, fail, free_port, run, same, until  # noqa: E402


class Job:
    """Some crun on this machine, a node each, whose workers run a shell script."""

    def __init__(self, script, nodes=1, flags=()):
        self.address = f"127.0.0.1:{free_port()}"
        self.crun = [Process([BIN / "crun", f"--nnodes={nodes}", "--nproc-per-node=2",
                              "--rdzv-backend=c10d", f"--rdzv-endpoint={self.address}",
                              "--rdzv-id=logs", "--max-restarts=1", *flags, "--no-python", "sh",
                              "-c", script]) for _ in range(nodes)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.crun:
            p.end()

    def command(self, *words):
        return [BIN / "crunctl", "-e", self.address, "logs", *words]

    def logs(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=60)


def lines(text):
    return sorted(text.splitlines())


def follows_two_nodes_over_a_restart():
    """Also the last lines, which are written just before the rendezvous ends."""
    script = ('echo begin $RANK $TORCHELASTIC_RESTART_COUNT; '
              'while [ ! -e $GO ]; do sleep 0.02; done; '
              'echo end $RANK $TORCHELASTIC_RESTART_COUNT; '
              'if [ $TORCHELASTIC_RESTART_COUNT.$RANK = 0.1 ]; then exit 3; fi; sleep 0.1; '
              'seq 1 5000; echo last $RANK; echo last $RANK >&2')
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GO"] = f"{folder}/go"
        with Job(script, nodes=2) as job:
            until(lambda: job.logs("0").stdout, "the first line")
            follower = Process(job.command("-f"))
            until(lambda: follower.out.count("begin") == 4, "the first lines")
            pathlib.Path(os.environ["GO"]).touch()
            for p in job.crun:
                p.expect(0)
            follower.expect(0)
    for rank in range(4):
        for count in range(2):
            if follower.out.count(f"[{rank}]:begin {rank} {count}\n") != 1:
                fail("rank", rank, "start", count, follower.out, follower.err)
        for output in follower.out, follower.err:
            same([line for line in output.splitlines() if line.startswith(f"[{rank}]:")][-1],
                 f"[{rank}]:last {rank}")
    if follower.out.count("epoch") or follower.err.count("epoch 2") != 1:
        fail("the restart is told once", follower.err)


def shows_what_is_kept_and_what_is_lost():
    script = "seq 1 50000; echo ready; sleep 60"
    with Job(script) as job:
        until(lambda: job.logs("--tail=1").stdout.count("ready") == 2, "the output")
        kept = job.logs("--stdout", "1")
        same(kept.stdout.splitlines()[-2:], ["50000", "ready"])
        if "bytes of standard output of rank 1 are not kept" not in kept.stderr:
            fail("a loss is not told:", kept.stderr)
        same(job.logs("--tail=2", "0").stdout, "50000\nready\n")
        row = json.loads(job.logs("--tail=1", "--json", "0").stdout)
        same((row["rank"], row["stream"], row["text"]), (0, "stdout", "ready"))


def shows_files_also_when_the_job_has_ended():
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"--log-dir={folder}", "--redirects=3"]
        script = "seq 1 50000; echo oops >&2; sleep ${REST:-2}"
        with Job(script, flags=flags) as job:
            until(lambda: job.logs("--stderr").stderr.count("oops") == 2, "the output")
            wanted = "".join(f"{i}\n" for i in range(1, 50001))
            same(job.logs("--stdout", "1").stdout, wanted)
            same(job.logs("--stdout", "--tail=20000", "1").stdout.splitlines()[0], "30001")
            for p in job.crun:
                p.expect(0)
        ended = subprocess.run([BIN / "crunctl", "logs", "-j", str(job.crun[0].pid), "--stdout",
                                "--tail=1"],
                               capture_output=True, text=True)
        same(lines(ended.stdout), ["[0]:50000", "[1]:50000"])


def names_a_lost_node():
    with Job("echo here $RANK; sleep 60", nodes=2, flags=["--rdzv-conf=lease=60"]) as job:
        until(lambda: job.logs().stdout.count("here") == 4, "the output")
        host = next(p for p in job.crun if "rendezvous" in p.err or p is job.crun[0])
        other = next(p for p in job.crun if p is not host)
        other.kill()
        other.wait()
        shown = job.logs()
        if shown.returncode == 0 and shown.stdout.count("here") < 2:
            fail("the other node is not shown", shown)


def slow_readers_cost_nothing():
    with Job("while :; do seq 1 2000; done") as job:
        slow = subprocess.Popen(job.command("-f", "0"), stdout=subprocess.PIPE)
        slow.stdout.read(1000)
        until(lambda: job.logs("--tail=1", "1").stdout, "another reader")
        slow.kill()
        slow.wait()
        slow.stdout.close()


run([follows_two_nodes_over_a_restart, shows_what_is_kept_and_what_is_lost,
     shows_files_also_when_the_job_has_ended, names_a_lost_node, slow_readers_cost_nothing])
