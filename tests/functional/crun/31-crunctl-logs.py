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
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, SANITIZED, SECONDS, Process, fail, free_port, read, run, same, until  # noqa: E402


# what the scripts begin with: `await NAME` waits until the test has made that file
AWAIT = 'await() { while [ ! -e "${GO%go}$1" ]; do sleep 0.02; done; }; '


class Job:
    """
    Some crun on this machine, a node each, whose workers run a shell script. The first hosts
    the rendezvous, unless a crund does. Each node has a run folder of its own.
    """

    def __init__(self, script, nodes=1, flags=(), address=None):
        self.folder = tempfile.TemporaryDirectory()
        self.address = address or f"127.0.0.1:{free_port()}"
        self.go = pathlib.Path(self.folder.name, "go")
        self.crun = []
        for rank in range(nodes):
            env = {**self.of_node(rank), "GO": str(self.go)}
            self.crun.append(Process(
                [BIN / "crun", f"--nnodes={nodes}", f"--node-rank={rank}", "--nproc-per-node=2",
                 "--rdzv-backend=c10d", f"--rdzv-endpoint={self.address}", "--rdzv-id=logs",
                 "--max-restarts=1", *flags, "--no-python", "sh", "-c", AWAIT + script], env=env))
            if not address:
                until(self.is_open, "the rendezvous")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.crun:
            p.end()
        self.folder.cleanup()

    def of_node(self, rank):
        return {**os.environ, "CRUN_RUNTIME_DIR": f"{self.folder.name}/run{rank}"}

    def is_open(self):
        status = subprocess.run([BIN / "crunctl", "-e", self.address, "status"],
                                capture_output=True)
        return status.returncode == 0

    def is_recorded(self):
        """What ends before has no record."""
        return os.path.exists(f"{self.folder.name}/run0/{self.crun[0].pid}.json")

    def command(self, *words):
        return [BIN / "crunctl", "-e", self.address, "logs", *words]

    def logs(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=SECONDS)

    def await_last(self, rank, line):
        """What a worker writes to its standard error later may come before that."""
        until(lambda: self.logs("--stdout", "--tail=1", rank).stdout == f"{line}\n", line)

    def end(self):
        """The workers go on, to their end."""
        self.go.touch()
        for p in self.crun:
            p.expect(0)


def lines(text):
    return sorted(text.splitlines())


def lines_of(rank, text):
    return [line for line in text.splitlines() if line.startswith(f"[{rank}]:")]


def follows_two_nodes_over_a_restart():
    """Also the last lines, which are written just before the rendezvous ends."""
    script = ('echo begin $RANK $TORCHELASTIC_RESTART_COUNT; await go; '
              'echo end $RANK $TORCHELASTIC_RESTART_COUNT; '
              'if [ $TORCHELASTIC_RESTART_COUNT.$RANK = 0.1 ]; then exit 3; fi; sleep 0.1; '
              'seq 1 5000; echo last $RANK; echo last $RANK >&2')
    with Job(script, nodes=2) as job:
        until(lambda: job.logs("0").stdout, "the first line")
        record = f"{job.folder.name}/run1/{job.crun[1].pid}.json"
        until(lambda: os.path.exists(record), "the record of the second node")
        # the other one is relayed by the node that does not host the rendezvous
        followers = [Process(job.command("-f")),
                     Process([BIN / "crunctl", "logs", "-f"], env=job.of_node(1))]
        for f in followers:
            until(lambda f=f: f.out.count("begin") == 4,
                  lambda f=f: f"the first lines: {f.out}{f.err}")
        job.end()
        for f in followers:
            f.expect(0)
    for f in followers:
        for rank in range(4):
            for count in range(2):
                if f.out.count(f"[{rank}]:begin {rank} {count}\n") != 1:
                    fail("rank", rank, "start", count, f.out, f.err)
            for output in (f.out, f.err):
                if lines_of(rank, output)[-1:] != [f"[{rank}]:last {rank}"]:
                    fail(f, "rank", rank, "ends with", lines_of(rank, output)[-1:], f.err)
        if f.out.count("epoch") or f.err.count("epoch 2") != 1:
            fail("the restart is told once", f.err)


def tells_that_it_comes_too_late():
    """The job's end waits for a follower, but not without a limit."""
    with Job("echo begin; await go; echo end") as job:
        late = Process(job.command("-f"))
        until(lambda: late.out.count("begin") == 2, "the first lines")
        os.kill(late.pid, signal.SIGSTOP)
        job.end()
        os.kill(late.pid, signal.SIGCONT)
        late.expect(0)
    # a question that waits is answered at the end of the first rank
    if not re.search("the last output of (1 rank|2 ranks) may be missing", late.err):
        fail("a loss is not told:", late.out, late.err)


def goes_on_after_a_lost_connection():
    """The rendezvous is killed and started again: each line is shown once."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"127.0.0.1:{free_port()}"
        command = [BIN / "crund", "--listen", address, "--state-dir", folder]
        daemon = Process(command)
        script = 'echo before; await go; echo during; await on; echo after'
        with Job(script, address=address) as job:
            until(lambda: job.logs().stdout.count("before") == 2, "the output")
            follower = Process(job.command("-f"))
            until(lambda: follower.out.count("before") == 2, "the first lines")
            # it takes a rendezvous that is gone for 2 s for one that has ended
            os.kill(follower.pid, signal.SIGSTOP)
            daemon.kill()
            daemon.wait()
            job.go.touch()
            until(lambda: job.crun[0].out.count("during") == 2, "lines that nobody asks for")
            daemon = Process(command)
            until(job.is_open, "the rendezvous again")
            os.kill(follower.pid, signal.SIGCONT)
            until(lambda: follower.out.count("during") == 2,
                  lambda: f"the lines of meanwhile: {follower.out}{follower.err}")
            job.go.with_name("on").touch()
            job.end()
            follower.expect(0)
        daemon.end()
        for rank in range(2):
            same(lines_of(rank, follower.out),
                 [f"[{rank}]:{what}" for what in ("before", "during", "after")])


def shows_what_is_kept_and_what_is_lost():
    script = "seq 1 50000; echo ready; sleep 1000"
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
        script = "seq 1 50000; echo oops >&2; await go"
        with Job(script, flags=flags) as job:
            until(lambda: job.logs("--stderr").stderr.count("oops") == 2, "the output")
            job.await_last("1", "50000")
            wanted = "".join(f"{i}\n" for i in range(1, 50001))
            same(job.logs("--stdout", "1").stdout, wanted)
            same(job.logs("--stdout", "--tail=20000", "1").stdout.splitlines()[0], "30001")
            until(job.is_recorded, "the record")
            job.end()
            ended = subprocess.run([BIN / "crunctl", "logs", "-j", str(job.crun[0].pid),
                                    "--stdout", "--tail=1"],
                                   capture_output=True, text=True, env=job.of_node(0))
        same(lines(ended.stdout), ["[0]:50000", "[1]:50000"])


def shows_both_files_of_a_bounded_log():
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"--log-dir={folder}", "--redirects=3", "--log-max-size=96K"]
        wanted = "".join(f"{i}\n" for i in range(100000, 150000))
        with Job("seq 100000 149999; await go", flags=flags) as job:
            job.await_last("1", "149999")
            kept = job.logs("--stdout", "1")
            told, = kept.stderr.splitlines()
            lost = int(re.search(r"(\d+) bytes of standard output of rank 1 are not", told)[1])
            same(kept.stdout, wanted[lost:])
            same(len(kept.stdout) > 96 << 10, True)
            same(job.logs("--stdout", "--tail=10", "1").stdout, wanted[-70:])
            until(job.is_recorded, "the record")
            job.end()
            command = [BIN / "crunctl", "logs", "-j", str(job.crun[0].pid), "--stdout", "1"]
            ended, tail = (subprocess.run([*command, *more], capture_output=True, text=True,
                                          env=job.of_node(0)) for more in ([], ["--tail=14500"]))
        same((ended.stderr, tail.stderr), ("", ""))
        first, *rest = ended.stdout.splitlines(True)
        same(tail.stdout, "".join(rest[-14500:]))  # of both files
        same(first, f"[crun: {lost} bytes came before: the last of them are in stdout.log.1]\n")
        same("".join(line for line in rest if line[0] != "["), wanted[lost:])


def says_where_a_tail_is_shorter():
    """Of a file that is searched no further, and of a ring: whole lines, and how many."""
    script = "seq 1000001 1300000; await go"
    with tempfile.TemporaryDirectory() as folder:
        for flags in ([f"--log-dir={folder}", "--redirects=3"], []):
            with Job(script, flags=flags) as job:
                job.await_last("0", "1300000")
                shown = job.logs("--stdout", "--tail=200000", "0")
                count = len(shown.stdout.splitlines())
                same(lines(shown.stdout), [f"{1300001 - i}" for i in range(count, 0, -1)])
                same(re.findall(r"only (\d+) lines of standard output of rank 0", shown.stderr),
                     [str(count)])
                same("only" in job.logs("--stdout", f"--tail={count}", "0").stderr, False)
                job.end()


def cuts_no_character():
    """A line that is too long is shown in parts."""
    script = ("awk 'BEGIN { printf \"x\"; while (i++ < 50000) printf \"\u20ac\"; print \"\" }'; "
              "await go")
    with tempfile.TemporaryDirectory() as folder:
        with Job(script, flags=[f"--log-dir={folder}", "--redirects=3"]) as job:
            def shown():
                parts = map(json.loads, job.logs("--json", "--stdout", "0").stdout.splitlines())
                return "".join(part["text"] for part in parts)

            until(lambda: len(shown()) >= 50001, "the line")
            same(shown(), "x" + 50000 * "\u20ac")
            job.end()


def follows_files():
    """Over rotations, over a file that is emptied, and over a restart that removes the files."""
    script = ('i=0; while [ $i -lt 6000 ]; do i=$((i + 1)); echo line $i of $RANK; '
              '[ $((i % 300)) -ne 0 ] || sleep 0.05; done; await emptied; echo more of $RANK; await go; '
              'echo end $TORCHELASTIC_RESTART_COUNT of $RANK; '
              'if [ $TORCHELASTIC_RESTART_COUNT.$RANK = 0.1 ]; then sleep 0.2; exit 3; fi')
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"--log-dir={folder}", "--redirects=3", "--log-max-size=64K", "--log-keep=1",
                 "--max-restarts=2"]
        with Job(script, flags=flags) as job:
            follower = Process(job.command("-f"))
            until(lambda: follower.out.count("line 6000 of") == 2,
                  lambda: f"the last lines: {follower.out[-200:]} {follower.err}")
            logs = list(pathlib.Path(folder).glob("logs_*/attempt_0/?/stdout.log"))
            same(len(logs), 2)
            for path in logs:
                os.truncate(path, 0)
            job.go.with_name("emptied").touch()
            until(lambda: follower.out.count("more of") == 2, "lines in emptied files")
            same([path.read_text() for path in sorted(logs)], ["more of 0\n", "more of 1\n"])
            job.end()
            follower.expect(0)
    for rank in range(2):
        once = [f"[{rank}]:line {i} of {rank}" for i in range(1, 6001)] + [f"[{rank}]:more of {rank}"]
        same(lines_of(rank, follower.out),
             [*once, f"[{rank}]:end 0 of {rank}", *once, f"[{rank}]:end 1 of {rank}"])
    if "not kept" in follower.err:
        fail("lost:", follower.err)


def a_file_that_was_moved_is_reported_twice():
    """At once, and at the end with what else was lost."""
    script = "echo begin; await go; echo 1; await rest; seq 2 8"
    with tempfile.TemporaryDirectory() as folder:
        with Job(script, flags=[f"--log-dir={folder}", "--redirects=3"]) as job:
            follower = Process(job.command("-f", "0"))
            until(lambda: "begin" in follower.out, "the first line")
            path, = pathlib.Path(folder).glob("logs_*/attempt_0/0/stdout.log")
            path.rename(path.with_name("moved"))
            path.touch()
            job.go.touch()
            until(lambda: "not kept" in follower.err, "the first report")
            job.go.with_name("rest").touch()
            job.end()
            follower.expect(0)
    lost = re.findall(r"(\d+) bytes of standard output of rank 0 are not kept", follower.err)
    same((len(lost), sum(map(int, lost))), (2, 16))


def follows_an_attempt_that_fails_at_once():
    """The one in the middle is over before a follower hears of it."""
    script = ('echo begin $TORCHELASTIC_RESTART_COUNT; case $TORCHELASTIC_RESTART_COUNT.$RANK in '
              '0.1) await go; exit 3;; 1.1) exit 4;; esac; await end')
    with Job(script, flags=["--max-restarts=2"]) as job:
        follower = Process(job.command("-f", "1"))
        until(lambda: "begin 0" in follower.out, "the first line")
        job.go.touch()
        until(lambda: "begin 2" in follower.out, "the last line")
        job.go.with_name("end").touch()
        job.end()
        follower.expect(0)
    same(follower.out.splitlines(), ["begin 0", "begin 1", "begin 2"])


def a_follower_that_is_gone_is_not_waited_for():
    """Not for the 2 s that one has between its questions: the end takes no longer than without
    any. The least of a few times counts."""
    took, without = [end_s(follow=True)], [end_s(follow=False)]
    while min(took) >= min(without) + 1.5 and len(took) < 5:
        took.append(end_s(follow=True))
        without.append(end_s(follow=False))
    if min(took) >= min(without) + 1.5:
        fail("the end took", took, "and without a follower", without)


def end_s(follow):
    with Job("echo begin; await go; echo end") as job:
        until(lambda: job.logs().stdout.count("begin") == 2, "the first lines")
        if follow:
            follower = Process(job.command("-f"))
            until(lambda: follower.out.count("begin") == 2, "the first lines again")
            follower.kill()
            follower.wait()
        begun = time.monotonic()
        job.end()
        return time.monotonic() - begun


def names_a_lost_node():
    with Job("echo here $RANK; sleep 1000", nodes=2, flags=["--rdzv-conf=lease=60"]) as job:
        until(lambda: job.logs().stdout.count("here") == 4, "the output")
        status = subprocess.run([BIN / "crunctl", "-e", job.address, "status", "--json"],
                                capture_output=True, text=True)
        lost = next(n for n in json.loads(status.stdout)[0]["nodes"]
                    if n["pid"] == job.crun[1].pid)
        job.crun[1].kill()
        job.crun[1].wait()
        shown = job.logs()
        same(lines(shown.stdout), ["[0]:here 0", "[1]:here 1"])
        same(lost["first_rank"], 2)
        same(shown.stderr.count(f"{lost['host']} does not show its output: not connected"), 1)


def peak_kib(pid):
    """The most memory that the process has had."""
    return int(re.search(r"^VmHWM:\s+(\d+)", read(f"/proc/{pid}/status").decode(), re.M)[1])


def slow_readers_cost_nothing():
    """The workers write on, and crun keeps no more for a reader that takes nothing."""
    with Job("while [ ! -e $GO ]; do seq 1 2000; done", flags=["--ignore-closed-output"]) as job:
        def offset():
            rows = job.logs("--tail=1", "--stdout", "--json", "0").stdout.splitlines()
            return json.loads(rows[0])["offset"] if rows else 0

        until(offset, "the output")
        before = peak_kib(job.crun[0].pid)
        slow = [subprocess.Popen(job.command("-f", "0"), stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)
                for _ in range(4)]
        for reader in slow:
            reader.stdout.read(1000)
        begun = offset()
        until(lambda: offset() > begun + 1.5e6, "more output")
        for reader in slow:
            reader.kill()
            reader.wait()
            reader.stdout.close()
        cost = peak_kib(job.crun[0].pid) - before
        if cost > 3072 and not SANITIZED:
            fail("slow readers cost", cost, "KiB")
        job.end()


run([follows_two_nodes_over_a_restart, tells_that_it_comes_too_late,
     goes_on_after_a_lost_connection, shows_what_is_kept_and_what_is_lost,
     shows_files_also_when_the_job_has_ended, shows_both_files_of_a_bounded_log, cuts_no_character,
     says_where_a_tail_is_shorter, follows_files, a_file_that_was_moved_is_reported_twice,
     follows_an_attempt_that_fails_at_once,
     a_follower_that_is_gone_is_not_waited_for, names_a_lost_node, slow_readers_cost_nothing])
