#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 14 s
# no root: without a cgroup the workers are stopped as well
"""Ctrl-Z in a shell suspends a job with its workers, and fg continues it."""
import contextlib
import os
import signal
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from launch import CRUN, TIMEOUT, Place, Terminal, sh  # noqa: E402
from process import PROGRAMS, free_port, lives, read, same, stat_of, until  # noqa: E402

# a worker whose child works; both write their pids, the child a letter again and again
WORK = ('echo $$ >>pids; (sh -c "echo \\$PPID" >>pids; while [ ! -e enough ]; do printf x '
        '>>work; sleep 0.02; done); exit 0')


class Shell(Terminal):
    """An interactive shell with job control, which starts crun."""

    program = ("bash", "--norc", "--noprofile", "--noediting", "-i")

    def __init__(self, place):
        place.env.update(PS1="> ", CRUN=CRUN)
        super().__init__(place)

    def command(self, *words):
        self.type(" ".join("'" + w.replace("'", "'\\''") + "'" for w in words).encode()
                  + b"\n")


def pids(p, count):
    def look():
        with contextlib.suppress(FileNotFoundError):
            with open(f"{p.path}/pids") as f:
                found = f.read().split()
            return found if len(found) == count else None
    return [int(pid) for pid in until(look, "the workers", TIMEOUT)]


def are_stopped(some):
    """A shell that has just called vfork waits for its child, which is stopped."""
    return {stat_of(pid).state for pid in some} <= {"T", "D"}


def are_running(some):
    return not {stat_of(pid).state for pid in some} & {"T"}


def crun_of(p):
    return next(pid for pid in p.living() if read(f"/proc/{pid}/cmdline").startswith(
        CRUN.encode() + b"\0"))


def size(p):
    return len(read(f"{p.path}/work"))


def suspend(p, shell, count):
    workers = pids(p, count)
    until(lambda: os.path.exists(f"{p.path}/work"), "work", TIMEOUT)
    shell.type(b"\x1a")
    shell.wait_for(b"Stopped")
    same(stat_of(crun_of(p)).state, "T")
    until(lambda: are_stopped(workers), lambda: f"{list(map(stat_of, workers))}", TIMEOUT)
    return workers


def ctrl_z_and_fg(p):
    shell = Shell(p)
    shell.command(CRUN, "--nproc-per-node=2", *sh(WORK))
    workers = suspend(p, shell, 4)
    done = size(p)
    time.sleep(0.2)
    same(size(p), done)
    shell.command("fg")
    until(lambda: size(p) > done, "more work", TIMEOUT)
    until(lambda: are_running([*workers, crun_of(p)]), "all that run", TIMEOUT)
    shell.type(b"\x1a")  # once more
    until(lambda: shell.read() and shell.said.count(b"Stopped") == 2, "Stopped", TIMEOUT)
    until(lambda: are_stopped(workers), "workers that stop", TIMEOUT)
    shell.command("bg")
    until(lambda: are_running(workers), "workers that run", TIMEOUT)
    p.file("enough")
    shell.command("wait")
    shell.command("echo", "code $?")
    shell.type(b"echo code $?; exit 0\n")
    shell.wait_for(b"code 0")
    shell.end(0)
    same(b"crun:" in shell.said, False)


def longer_than_the_lease(p):
    """The rendezvous is in the process that stops, so it is not said to be silent."""
    with contextlib.closing(Place()) as other:
        shells = []
        for place, flags in (p, ["--nproc-per-node=2"]), (other, [
                "--nnodes=1:2", f"--rdzv-endpoint=127.0.0.1:{free_port()}"]):
            shell = Shell(place)
            shell.command(CRUN, *flags, "--rdzv-conf=lease=3,last_call_timeout=0", *sh(
                'echo $$ >>pids; touch work; while [ ! -e enough ]; do sleep 0.02; done'))
            suspend(place, shell, 3 - len(flags))
            shells.append((place, shell))
        time.sleep(3.6)  # more than the lease and the time to come back
        for _, shell in shells:
            shell.type(b"fg; echo code $?; exit 0\n")
        time.sleep(3.1)  # more than a lease
        for place, shell in shells:
            place.file("enough")
            shell.wait_for(b"code 0")
            shell.end(0)
            same(b"out of reach" in shell.said or b"no answer" in shell.said, False)
        other.nothing_is_left()


def a_suspended_job_can_be_ended(p):
    for order in (b"kill %1; fg\n", b"kill -9 %1\n"):
        shell = Shell(p)
        shell.command(CRUN, "--nproc-per-node=2", *sh(WORK))
        job = [*suspend(p, shell, 4), crun_of(p)]
        shell.type(order)
        # the shell may reap its job only when it prompts again
        until(lambda: not any(map(lives, job)), "the job's end", TIMEOUT)
        shell.type(b"exit 0; exit 0\n")  # a shell that has not reaped it refuses once
        shell.end(0)
        os.unlink(f"{p.path}/pids")
        os.unlink(f"{p.path}/work")


def a_pause_is_no_hang(p):
    shell = Shell(p)
    writer = str(PROGRAMS / "page_writer.py")
    shell.command(CRUN, "--nproc-per-node=2", "--hang-timeout=1", *sh(
        f"echo $$ >>pids; touch work; exec python3 {writer} --until=100"))
    suspend(p, shell, 2)
    time.sleep(1.5)
    shell.type(b"fg; echo code $?; exit 0\n")
    shell.wait_for(b"code 0")
    shell.end(0)


def a_pause_is_no_silence(p):
    shell = Shell(p)
    shell.command(CRUN, "--silence-warning=2", *sh(
        "echo $$ >>pids; while [ ! -e enough ]; do echo on; printf x >>work; sleep 0.1; done"))
    suspend(p, shell, 1)
    done = size(p)
    time.sleep(4)  # longer than silence may last, and than two looks
    shell.type(b"fg; echo code $?; exit 0\n")
    until(lambda: size(p) > done + 10, "more work", TIMEOUT)
    p.file("enough")
    shell.wait_for(b"code 0")
    shell.end(0)
    same(b"nothing moves" in shell.said, False)


def continued_before_it_has_stopped(p):
    """By a program, which does not wait as a shell does."""
    shell = Shell(p)
    shell.command(CRUN, "--nproc-per-node=2", *sh(WORK))
    pids(p, 4)
    crun = crun_of(p)
    os.kill(crun, signal.SIGTSTP)
    time.sleep(0.01)  # it has handled that, if it is not late
    os.kill(crun, signal.SIGCONT)
    time.sleep(0.2)
    p.file("enough")
    until(lambda: not lives(crun), "the job's end", TIMEOUT)
    shell.type(b"exit 0; exit 0\n")
    shell.end(0)


def without_a_shell_nothing_is_suspended(p):
    """No shell could continue the job. The kernel treats every program like this."""
    t = Terminal(p, *sh(WORK))
    workers = pids(p, 2)
    t.type(b"\x1a")
    done = size(p)
    until(lambda: size(p) > done + 3, "more work", TIMEOUT)
    same(are_running(workers), True)
    p.file("enough")
    t.end(0)


def no_foot_line_under_srun(p):
    """srun writes over it; elsewhere it ends where it began, so that it can be erased."""
    for under_srun in False, True:
        if under_srun:
            p.env.update(SLURM_JOB_ID="1", SLURM_STEP_ID="0")
        t = Terminal(p, "--nnodes=1", *sh(
            "trap 'sleep 0.3; exit' INT; touch work; while :; do sleep 0.02; done"))
        until(lambda: os.path.exists(f"{p.path}/work"), "work", TIMEOUT)
        t.type(b"\x03")
        t.wait_for(b"stopping 1 worker, 25 s to finish" + (
            b"\r\n" if under_srun else b" (Ctrl-C again to kill)\r"))
        t.end(130)
        same(b"\x1b[J" in t.said, not under_srun)
        os.unlink(f"{p.path}/work")


def a_node_that_is_suspended(p):
    """Says for how long, and is lost after that; the other goes on."""
    flags = ["--nnodes=1:2", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-conf",
             "lease=3,last_call_timeout=10", "--rdzv-id=nodes"]
    script = ('echo "epoch $CRUN_EPOCH"; [ $WORLD_SIZE = 1 ] && exit 0; touch work; '
              'echo $$ >>pids; exec sleep 1000')
    host = p.start(CRUN, *flags, *sh(script), stdin=0)
    shell = Shell(p)
    shell.command(CRUN, *flags, "--rdzv-conf=lease=3,last_call_timeout=10,is_host=0",
                  *sh(script))
    until(lambda: len(pids(p, 2)) == 2, "both nodes", TIMEOUT)
    shell.type(b"\x1a")
    shell.wait_for(b"crun: suspended: the job loses this node if it is not continued "
                   b"within 3 s")
    shell.wait_for(b"Stopped")
    p.end(host, 0, "epoch 2", "was lost")
    shell.type(b"fg; echo code $?; exit 0\n")
    shell.wait_for(b"crun: continued after ")
    shell.end(0)


CHECKS = [ctrl_z_and_fg, longer_than_the_lease, a_suspended_job_can_be_ended, a_pause_is_no_hang,
          a_pause_is_no_silence, continued_before_it_has_stopped, without_a_shell_nothing_is_suspended,
          no_foot_line_under_srun, a_node_that_is_suspended]

if __name__ == "__main__":
    for check in CHECKS:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        with contextlib.closing(Place()) as place:
            check(place)
            place.nothing_is_left()
        print(f"ok {check.__name__}", flush=True)
