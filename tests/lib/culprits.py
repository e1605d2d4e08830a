# SPDX-License-Identifier: MIT
"""
Jobs whose culprit, rank 1 or 0, ends after its victims: what crun must say of each. For the
functional tests, with sockets (tests/programs/culprit.py) and with PyTorch.
"""
import contextlib
import os
import subprocess
import sys

from process import BIN, PROGRAMS, SECONDS, Process, fail, free_port

PROGRAM = PROGRAMS / "culprit.py"
# name: the program's arguments, the culprit's exit code, what the report says of it
LATE = {
    "raise": (["raise"], 1, "ValueError: culprit: loss is NaN"),
    "atexit": (["atexit"], 3, "culprit: the data set is empty"),
    "abort": (["abort"], 134, "culprit: assertion failed"),
    "thread": (["thread"], 5, "ValueError: culprit: no such file"),
    "record": (["record"], 1, "exit code 1: ValueError: culprit: recorded"),
    "finally": (["finally"], 7, "exit code 7"),
    "loader": (["loader"], 1, "ValueError: culprit: bad sample"),
    "chain": (["chain"], 1, "ValueError: culprit: first of a chain"),
    "deep": (["raise", "deep"], 1, "ValueError: culprit: loss is NaN"),
    "silent": (["record", "silent"], 1, "exit code 1: ValueError: culprit: recorded"),
}
# how it ends: its exit code
QUIET = {"abort": 134, "exit": 3, "kill": 137}


@contextlib.contextmanager
def busy_cores(count):
    """So many processes that compute for nothing, to be in everybody's way."""
    loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for load in loads:
            load.kill()
            load.wait()


class Jobs:
    """
    Starts the program under crun; each job has files of its own for its ranks. The flags are
    for jobs of one node.
    """

    def __init__(self, directory, env, flags=()):
        self.directory, self.env, self.flags, self.count = directory, env, flags, 0
        self.started = []

    def start(self, *words, flags=(), nodes=1, culprit=1):
        """The crun of each node of one job."""
        self.count += 1
        env = {**os.environ, **self.env, "TMPDIR": self.directory, "CULPRIT": str(culprit),
               "CULPRIT_FILES": f"{self.directory}/job-{self.count}"}
        net = [f"--nnodes={nodes}", "--master-addr=127.0.0.1",
               f"--master-port={free_port()}"] if nodes > 1 else []
        cruns = [Process([BIN / "crun", *net, *([f"--node-rank={i}"] if net else []),
                          f"--nproc-per-node={1 if net else 2}", *([] if net else self.flags),
                          *flags, *words], env=env)
                 for i in range(nodes)]
        self.started += cruns
        return cruns

    def close(self):
        for p in self.started:
            p.end()


def report_of(p):
    return p.err[p.err.rfind("has failed: "):]


def check_named(cruns, rank, code, text):
    """The first one's report. All crun end with the culprit's code, and a report that names it before its victims."""
    for p in cruns:
        p.expect(code, "has failed: ", seconds=2 * SECONDS)
        first, _, others = report_of(p).partition("other ranks")
        if f"first failure   rank {rank} " not in first or text not in first:
            fail(f"{p}: not rank {rank} with {text!r}:\n{p.err}")
        if f"exit code {code}, as rank {rank}'s" not in others:
            fail(f"{p}: no victim beside rank {rank}:\n{p.err}")
    return report_of(cruns[0])


def late_culprits_are_named(jobs, names=tuple(LATE)):
    """All at once: they are in each other's way, too."""
    started = {name: jobs.start(PROGRAM, *LATE[name][0]) for name in names}
    for name, cruns in started.items():
        _, code, text = LATE[name]
        report = check_named(cruns, 1, code, text)
        if (": a consequence\n" in report) != (name != "silent"):
            fail(f"{name}: no consequence:\n{report}")


def quiet_culprits_are_named(jobs, late=("0", "0.3")):
    """Their victims, which the loss of a connection ends, tell of it before them."""
    started = {(end, s): jobs.start(PROGRAM, "quiet", "slow", end, s) for end in QUIET for s in late}
    for (end, _), cruns in started.items():
        p, = cruns
        p.expect(QUIET[end], "first failure   rank 1 ", seconds=2 * SECONDS)
        if f"exit code {QUIET[end]}, as rank 1's" not in p.err or " earlier" in report_of(p):
            fail(f"{p}: something was before the first failure:\n{p.err}")


def a_late_culprit_on_another_node_is_named(jobs, culprits=(1, 0)):
    for culprit in culprits:
        words, code, text = LATE["raise"]
        cruns = jobs.start(PROGRAM, *words, nodes=2, culprit=culprit)
        check_named(cruns, culprit, code, text)
        report = "".join(map(report_of, cruns))
        if " earlier" in report or report.count('exit code 1, "') != 2:
            fail(f"no line of a victim here, or none of one elsewhere:\n{report}")
