#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 4 s
"""
A crund that knows less than the nodes of its job: its state directory comes from a backup,
or its disk has lost what it was told to keep. The nodes know better, and the job goes on
above their epoch, with one line about it on each.
"""
import os
import re
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, fail, free_port, read, run, until  # noqa: E402

CRUN, CRUNCTL = BIN / "crun", BIN / "crunctl"
WORKER = "echo $$ >$PIDS/new.$$ && mv $PIDS/new.$$ $PIDS/$CRUN_EPOCH.$RANK; exec sleep 1000"
FORGOT = r"the rendezvous knows epoch 1, and \S+ is in epoch 2: what was decided since is lost"


class Test:
    """A crund with a state directory, and a job of two nodes."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="crund-forgets-")
        self.state, self.pids = (os.path.join(self.folder.name, name) for name in ("st", "pids"))
        os.mkdir(self.pids)
        self.port, self.started = free_port(), []
        self.start_crund()
        self.nodes = [self.start(
            CRUN, "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=job", "--max-restarts=5",
            "--rdzv-conf=lease=3",
            f"--rdzv-endpoint=127.0.0.1:{self.port}", "sh", "-c", WORKER) for _ in range(2)]
        self.workers(1)

    def start(self, *words):
        p = Process(words, env={**os.environ, "PIDS": self.pids})
        self.started.append(p)
        return p

    def start_crund(self):
        self.crund = self.start(BIN / "crund", "--allow-root", f"--listen=127.0.0.1:{self.port}",
                                f"--state-dir={self.state}")
        until(lambda: "listening on" in self.crund.err, lambda: self.crund.err)

    def kill_crund(self):
        self.crund.kill()
        self.crund.wait()

    def workers(self, epoch):
        """The pids of that epoch's workers, once both nodes have started theirs."""
        files = [os.path.join(self.pids, f"{epoch}.{rank}") for rank in range(2)]
        until(lambda: all(map(os.path.exists, files)),
              lambda: f"epoch {epoch}:\n" + "\n".join(p.err for p in self.started))
        return [int(read(f)) for f in files]

    def fail_worker(self, epoch):
        os.kill(self.workers(epoch)[1], signal.SIGKILL)

    def job(self):
        p = Process([CRUNCTL, "-e", f"127.0.0.1:{self.port}", "status", "job"])
        p.wait()
        return p.out + p.err

    def each_says_once(self, pattern):
        for p in self.nodes:
            until(lambda: re.search(pattern, p.err), lambda: f"{pattern!r} in:\n{p.err}")
            if len(re.findall(pattern, p.err)) > 1:
                fail(f"more than once: {pattern!r}\n{p.err}")

    def stop(self):
        """crunctl stop ends the job on all nodes."""
        Process([CRUNCTL, "-e", f"127.0.0.1:{self.port}", "stop", "job"]).expect(0)
        for p in self.nodes:
            p.expect(143, "stopped by crunctl")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.started:
            p.end()
        self.folder.cleanup()


def a_state_directory_from_a_backup():
    with Test() as t:
        t.kill_crund()
        shutil.copytree(t.state, t.state + ".old")
        t.start_crund()
        t.fail_worker(1)
        t.workers(2)
        t.kill_crund()
        shutil.rmtree(t.state)
        os.rename(t.state + ".old", t.state)
        t.start_crund()
        t.workers(3)
        t.each_says_once(FORGOT)
        until(lambda: "epoch 3" in t.job(), t.job)
        t.fail_worker(3)
        t.workers(4)
        t.stop()


def a_journal_that_has_lost_its_tail():
    """As after a power cut with a disk that lies about what it has synced."""
    with Test() as t:
        t.kill_crund()
        journal = os.path.join(t.state, "journal")
        known = os.path.getsize(journal)
        t.start_crund()
        t.fail_worker(1)
        t.workers(2)
        t.kill_crund()
        os.truncate(journal, known + 20)  # a part of the next record
        t.start_crund()
        until(lambda: "if the disk keeps what it was told" in t.crund.err, lambda: t.crund.err)
        t.workers(3)
        t.each_says_once(FORGOT)
        t.stop()


def a_lost_node_may_run_on():
    """A crund with a state directory cannot tell a node that is cut off from a dead one."""
    with Test() as t:
        t.nodes[1].kill()
        until(lambda: "was lost; if it is only cut off, its workers run until its --outage-grace"
              in t.nodes[0].err, lambda: t.nodes[0].err)


if __name__ == "__main__":
    run([a_state_directory_from_a_backup, a_journal_that_has_lost_its_tail,
         a_lost_node_may_run_on])
