#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 18 s
"""
How jobs are stopped: the signals of schedulers and of people, and what each node of the job
says about it. Nodes of one machine, and a crund.
"""
import contextlib
import os
import pwd
import re
import signal
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import (BIN, PROGRAMS, ROOT, SANITIZED, SECONDS, Process, expect, fail,  # noqa: E402
                     free_port, matches, read, run, same, slowdown, stat_of, until)
from control import (ACK, BEAT, HEARTBEAT, HELLO, JOIN, JOINED, START, WELCOME,  # noqa: E402
                     Session, frame)
from launch import Place, Terminal  # noqa: E402

CRUN, CRUNCTL = BIN / "crun", BIN / "crunctl"
WRITER = PROGRAMS / "page_writer.py"
SLEEPER = "echo up $RANK; exec sleep 1000"


def sh(script):
    return ["sh", "-c", script]


class Rendezvous:
    """A crund, and nodes of its jobs."""

    def __init__(self, *flags):
        self.directory = tempfile.TemporaryDirectory(prefix="crun-stops-")
        self.started = []
        self.crund = self.start([BIN / "crund", "--allow-root", "--listen=127.0.0.1:0", *flags])
        listening = r"listening.*?(127\.0\.0\.1:\d+)"
        self.address = until(lambda: re.search(listening, self.crund.err), "crund")[1]

    def start(self, command, **env):
        p = Process(command, env={**os.environ, **env}, cwd=self.directory.name)
        self.started.append(p)
        return p

    def node(self, job, *words, nnodes="2", address=None, **env):
        return self.start([CRUN, f"--nnodes={nnodes}", "--rdzv-backend=c10d",
                           f"--rdzv-id={job}", f"--rdzv-endpoint={address or self.address}",
                           "--rdzv-conf=last_call_timeout=60", *words], **env)

    def nodes(self, job, *words, count=2, **options):
        """They run one worker each."""
        nodes = [self.node(job, *words, **options) for _ in range(count)]
        until(lambda: all("up" in p.out for p in nodes), lambda: [p.err for p in nodes])
        return nodes

    def ctl(self, *words):
        p = self.start([CRUNCTL, "-e", self.address, *words])
        p.wait()
        return p.out + p.err

    def end(self):
        for p in self.started:
            p.end()
        self.directory.cleanup()


# -- signals that come twice ----------------------------------------------------------

CHECKPOINT = ("trap 'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.1; done; echo saved;"
              " exit 0' TERM; echo up; while :; do sleep 0.02; done")


def one_wish_told_twice_takes_no_time_from_a_checkpoint(rendezvous):
    a, b = rendezvous.nodes("twice", "--failure-grace=0.2", *sh(CHECKPOINT), nnodes="1:2")
    for _ in range(2):  # as slurmd does: the job's step, and the job
        b.kill(signal.SIGTERM)
        time.sleep(0.01)
    expect(b, 143, "saved",
           f"this node has left the job: SIGTERM from pid {os.getpid()} (python3)")
    if "a second signal" in b.err:
        fail("two signals were two wishes:", b.err)
    a.kill(signal.SIGINT)
    expect(a, 130)


# -- who has stopped a job ------------------------------------------------------------


def every_node_is_told_of_a_signal_and_its_sender(rendezvous):
    a, b = rendezvous.nodes("signal", *sh(SLEEPER))
    b.kill(signal.SIGTERM)
    said = f'job "signal" was stopped by SIGTERM from pid {os.getpid()} (python3) on '
    expect(a, 143, said)
    expect(b, 143, said)
    events = rendezvous.ctl("events", "-j", "signal")
    if f"wants to leave: SIGTERM from pid {os.getpid()} (python3)" not in events:
        fail("the events say nothing of it:", events)


def every_node_is_told_of_crunctl(rendezvous):
    nodes = rendezvous.nodes("ctl", *sh(SLEEPER))
    rendezvous.ctl("stop", "-j", "ctl")
    user = pwd.getpwuid(os.getuid()).pw_name
    by = f"stopped by crunctl stop (user {user})"
    for p in nodes:
        expect(p, 143, f'crun: job "ctl" was {by}')
        if p.err.count("was stopped") != 1:
            fail("said again:", p.err)
    if by not in rendezvous.ctl("events", "-j", "ctl"):
        fail("the events say nothing of it:", rendezvous.ctl("events", "-j", "ctl"))


def nodes_that_wait_for_others_are_told_too(rendezvous):
    a, b = (rendezvous.node("waits", *sh(SLEEPER), nnodes="3") for _ in range(2))
    until(lambda: rendezvous.ctl("events", "-j", "waits").count(" joined (pid ") == 2, "joined")
    rendezvous.ctl("stop", "-j", "waits")
    for p in (a, b):
        expect(p, 143, 'crun: job "waits" was stopped by crunctl stop')
    alone = rendezvous.start([CRUN, "--nnodes=2", "--node-rank=1", "--rdzv-id=alone",
                              f"--master-port={free_port()}", *sh(SLEEPER)])
    until(lambda: stat_of(alone.pid).name == "crun" and
          int(re.search(rb"SigCgt:\s*(\w+)", read(f"/proc/{alone.pid}/status"))[1], 16)
          & 1 << signal.SIGTERM - 1, "crun catches SIGTERM")
    alone.kill(signal.SIGTERM)
    expect(alone, 143, f"crun: stopped by SIGTERM from pid {os.getpid()} (python3)")


def ctrl_c_is_told_to_the_others(rendezvous):
    place = Place()
    t = Terminal(place, "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=typed",
                 f"--rdzv-endpoint={rendezvous.address}",
                 "--rdzv-conf=last_call_timeout=60", *sh(SLEEPER))
    try:
        b = rendezvous.node("typed", *sh(SLEEPER))
        t.wait_for(b"up")
        until(lambda: "up" in b.out, "the other node's worker")
        t.type(b"\x03")
        t.end(130)
        expect(b, 130, 'crun: job "typed" was stopped by Ctrl-C on ')
        if b"was stopped" in t.said:
            fail("a person is told what they have typed:", t.said)
    finally:
        place.close()


# -- Slurm, which signals every process of a step -------------------------------------

STEP = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}


def workers_do_not_die_of_the_signal_for_crun(rendezvous):
    script = "trap 'echo got TERM; exit 0' TERM; echo up $$; while :; do sleep 0.02; done"
    a, b = rendezvous.nodes("usr1", *sh(script), nnodes="1:2", **STEP)
    worker = int(b.out.split()[1])
    for signo in (signal.SIGUSR1, signal.SIGUSR2):
        os.kill(worker, signo)
    b.kill(signal.SIGUSR1)
    expect(b, 143, "got TERM", "this node will be taken away soon")
    a.kill(signal.SIGINT)
    expect(a, 130)


def a_worker_that_gets_the_signal_of_crun_has_not_failed(rendezvous):
    script = "[ $CRUN_EPOCH -gt 1 ] && exit 0; echo up $$; exec sleep 1000"
    for job, order in (("worker-first", 1), ("crun-first", -1)):
        a, b = rendezvous.nodes(job, "--max-restarts=1", *sh(script), nnodes="1:2", **STEP)
        for pid in (int(b.out.split()[1]), b.pid)[::order]:
            with contextlib.suppress(ProcessLookupError):  # crun has ended it already
                os.kill(pid, signal.SIGTERM)
            time.sleep(0.1 * (order == 1))
        expect(b, 143)
        expect(a, 0, "re-formed (drain)")


def a_worker_that_ends_by_such_a_signal_alone_has_failed(rendezvous):
    node = rendezvous.node("alone-usr1", *sh("kill -TERM $$"), nnodes="1", **STEP)
    expect(node, 143, "killed by SIGTERM")


def all_nodes_are_taken_away_after_a_checkpoint(rendezvous):
    port = free_port()
    for order in (1, -1):
        nodes = [rendezvous.start([CRUN, "--nnodes=2", f"--node-rank={i}",
                                   f"--master-port={port}", "python3", WRITER,
                                   "--until=1000000"]) for i in range(2)]
        until(lambda: all("began" in p.out for p in nodes), lambda: [p.err for p in nodes])
        for p in nodes[::order]:
            p.kill(signal.SIGUSR1)
        for rank, p in enumerate(nodes):
            expect(p, 75, f"saved {rank} 1")


# -- the end of its time --------------------------------------------------------------


def a_job_ends_with_a_checkpoint_before_its_time_is_over(rendezvous):
    """Its limit is 1000 s, and it is asked so early that it has had the time to begin."""
    begins_s = round(1 + 2 * slowdown())
    margin = f"--time-limit-margin={1000 - begins_s}"
    end = {"SLURM_JOB_ID": "4711", "SLURM_JOB_END_TIME": str(int(time.time()) + 1000)}
    nodes = [rendezvous.node("limit", "--time-limit=1000", margin, "python3", WRITER,
                             "--until=1000000") for _ in range(2)]
    bare = rendezvous.node("bare", margin, *sh(
        "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.02; done"),
        nnodes="1", **end)
    expect(rendezvous.node("short", *sh("exit 0"), nnodes="1", **end), 0)
    for p in nodes:
        expect(p, 75, "saved", 'crun: job "limit" was stopped by the time limit, ',
               seconds=SECONDS + begins_s)
    expect(bare, 75, "saved", "(SLURM_JOB_END_TIME)")
    if bare.err.count("was stopped by") != 1:
        fail("the reason:", bare.err)


# -- jobs that do not get on ----------------------------------------------------------


def a_job_without_new_steps_ends(rendezvous):
    stuck = sh("for step in 1 2 3; do echo step $step; done; exit 5")
    flags = ["--max-restarts=9", "--restart-backoff=0", "--progress-pattern=step (\\d+)"]
    expect(rendezvous.node("stuck", "--max-no-progress=2", *flags, *stuck, nnodes="1"), 78,
           "2 of 9 used", "and 2 restarts brought no new step (--max-no-progress)",
           "exit code 78: do not start it again")
    moving = sh("echo step $CRUN_EPOCH; [ $CRUN_EPOCH = 5 ] || exit 5")
    expect(rendezvous.node("moving", "--max-no-progress=1", *flags, *moving, nnodes="1"), 0)
    # counted from 1 in each life, which ends before anybody looks: bytes 248 and 12 of the page
    write = "dd of=$CRUN_PROGRESS bs=1 conv=notrunc status=none seek="
    unplaced = sh("printf '\\377%.0s' 1 2 3 4 5 6 7 8 | " + write + "248; "
                  "printf '\\1\\0\\0\\0\\3' | " + write + "12; [ $CRUN_EPOCH = 4 ] || exit 5")
    expect(rendezvous.node("unplaced", "--max-no-progress=1", *flags, *unplaced, nnodes="1"), 0)


def sigterm_does_not_wait_for_the_checkpoint(rendezvous):
    """As when --signal comes too late, and the rendezvous is on no node of the job."""
    nodes = [rendezvous.node("late", "--shutdown-timeout=60", "python3", WRITER,
                             "--until=1000000", "silent@1") for _ in range(2)]
    until(lambda: all("began" in p.out for p in nodes), lambda: [p.err for p in nodes])
    until(lambda: rendezvous.ctl("status", "-j", "late").count(" running ") >= 2, "running")
    for p in nodes:
        p.kill(signal.SIGUSR1)
    until(lambda: "the workers are asked for a checkpoint" in nodes[0].err, "asked")
    for p in nodes:
        p.kill(signal.SIGTERM)
    for p in nodes:
        expect(p, 75)


def a_late_node_is_told_that_the_job_has_ended(rendezvous):
    expect(rendezvous.node("over", "--rdzv-conf=last_call_timeout=0", "true", nnodes="1:2"), 0)
    said = r'job "over" ended [\d.]+ s ago \(all workers have exited 0\); this starts it again'
    late = rendezvous.node("over", "--rdzv-conf=last_call_timeout=0", "true", nnodes="1:2")
    expect(late, 0)
    matches(late.err, said)


# -- a rendezvous that does not answer ------------------------------------------------

SILENT = "crun: the rendezvous does not answer: this node leaves the job without it"


class Served(Session):
    """The other end of such a connection."""

    def __init__(self, peer):
        self.socket, self.buffer = peer, b""
        peer.recv(8, socket.MSG_WAITALL)  # the preface


class Yes(threading.Thread):
    """A rendezvous that starts one node, and then only acknowledges what it hears."""

    ANSWERS = {HELLO: [(WELCOME, {"version": 3, "durable": True})],
               JOIN: [(JOINED, {"node": 0, "slot": 0, "lease_ms": 15000}),
                      (START, {"group_rank": 0, "group_size": 1, "first_rank": 0,
                               "world_size": 1, "workers": 1, "slot": 0, "restarts": 0,
                               "max_restarts": 0, "host_store": True})],
               HEARTBEAT: [(BEAT, {})]}

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            threading.Thread(target=self.serve, args=self.listener.accept()[:1],
                             daemon=True).start()

    def serve(self, peer):
        with contextlib.suppress(Session.Closed, OSError), peer:
            session = Served(peer)
            while True:
                kind, _, header = session.receive()
                for answer, body in self.ANSWERS.get(kind, [(ACK, {})]):
                    epoch = int(answer == START)
                    session.send(frame(answer, body, header[3], epoch, b"i" * 16))


def a_node_ends_when_its_rendezvous_does_not_answer(rendezvous):
    """It is killed, is stopped, or only says yes; each is asked to end in each way. The
    last one is in another node of the job."""
    port = f"--master-port={free_port()}"
    ways = {"TERM": 143, "INT": 130, "USR1": 75, "INT twice": 130}
    gone, frozen = (Rendezvous("--state-dir=st") for _ in range(2))
    yes = Yes()
    try:
        nodes = [(r, way, r.node(f"job{i}", "--outage-grace=300", "--rdzv-conf=lease=30,last_call_timeout=0",
                                 *sh(SLEEPER), nnodes="1:2")) for r in (gone, frozen)
                 for i, way in enumerate(ways)]
        nodes += [(yes, way, rendezvous.node("job", *sh(SLEEPER), nnodes="1:2",
                                             address=yes.address)) for way in ways]
        host, last = (rendezvous.start([CRUN, "--nnodes=2", f"--node-rank={rank}", port,
                                        "--rdzv-conf=lease=30", *sh(SLEEPER)]) for rank in range(2))
        nodes += [(host, "TERM", last)]
        until(lambda: all("up" in p.out for _, _, p in nodes), lambda: [p.err for *_, p in nodes])
        gone.crund.kill()
        until(lambda: all("is out of reach" in p.err for r, _, p in nodes if r is gone), "outage")
        frozen.crund.kill(signal.SIGSTOP)
        host.kill(signal.SIGSTOP)
        for _, way, p in nodes:
            p.kill(getattr(signal, "SIG" + way.split()[0]))
        until(lambda: all(SILENT in p.err for *_, p in nodes), lambda: [p.err for *_, p in nodes])
        for _, way, p in nodes:
            if "twice" in way:
                p.kill(signal.SIGINT)
        until(lambda: all(p.popen.poll() for _, way, p in nodes if "twice" in way), "at once")
        if all(p.popen.poll() for *_, p in nodes) and not SANITIZED:
            fail("a second SIGINT is not quicker than one")
        for _, way, p in nodes:
            expect(p, ways[way])
            if p.err.count("does not answer") > 1:
                fail("said again:", p.err)
        host.kill(signal.SIGCONT)
        host.kill(signal.SIGINT)
        host.wait()
    finally:
        for r in (gone, frozen):
            r.end()


# rank 1 dies once rank 0 is up, which ignores SIGTERM, and writes a checkpoint if it is told to
SURVIVOR = """import os, signal, sys, time
import crun
up, name, rank = sys.argv[1] + ".up", sys.argv[1] + ".saved", os.environ["RANK"]
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
    print("again", rank, time.monotonic(), os.path.exists(name), flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if rank == "0" and sys.argv[1].startswith("saves"):
    with crun.checkpointing():
        open(up, "w").close()
        time.sleep(1.5)
        open(name, "w").close()
if rank == "0":
    open(up, "w").close()
    time.sleep(1000)
while not os.path.exists(up):
    time.sleep(0.02)
print("dies", time.monotonic(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def a_survivor_ends_soon_but_for_its_checkpoint(rendezvous):
    """Before the 5 s of a last stop are over. The least of a few times counts."""
    def restart_s(what):
        p = rendezvous.start([CRUN, "--nproc-per-node=2", "--max-restarts=1", sys.executable, "-c",
                              SURVIVOR, what], PYTHONPATH=str(ROOT / "worker-lib" / "python"))
        expect(p, 0)
        died = float(re.search(r"^dies (.*)", p.out, re.M)[1])
        again = re.findall(r"^again \d (\S+) (\S+)", p.out, re.M)
        same({saved for _, saved in again}, {str(what.startswith("saves"))})
        return max(float(when) for when, _ in again) - died

    for what in ("waits", "saves"):
        took = [restart_s(f"{what}0")]
        while min(took) > 5 and len(took) < 5:
            took.append(restart_s(f"{what}{len(took)}"))
        if min(took) > 5:
            fail(what, took)


TESTS = [
    a_survivor_ends_soon_but_for_its_checkpoint,
    a_late_node_is_told_that_the_job_has_ended,
    a_node_ends_when_its_rendezvous_does_not_answer,
    sigterm_does_not_wait_for_the_checkpoint,
    a_job_without_new_steps_ends,
    a_job_ends_with_a_checkpoint_before_its_time_is_over,
    workers_do_not_die_of_the_signal_for_crun,
    a_worker_that_gets_the_signal_of_crun_has_not_failed,
    a_worker_that_ends_by_such_a_signal_alone_has_failed,
    all_nodes_are_taken_away_after_a_checkpoint,
    every_node_is_told_of_a_signal_and_its_sender,
    every_node_is_told_of_crunctl,
    nodes_that_wait_for_others_are_told_too,
    ctrl_c_is_told_to_the_others,
    one_wish_told_twice_takes_no_time_from_a_checkpoint,
]


def main():
    rendezvous = Rendezvous()
    try:
        run(TESTS, rendezvous)
    finally:
        rendezvous.end()


main()
