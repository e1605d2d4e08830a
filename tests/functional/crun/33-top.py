#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 15 s
# sanitizers: yes
"""
crunctl top on a terminal, with real jobs: what has a fault is on top, keys do what users
expect, a hang names the rank that all wait for, and the terminal is restored in each way out.
"""
import atexit
import codecs
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, fail, run, same, stat_of, until  # noqa: E402

WORKER = """
import mmap, os, struct, sys, time
sys.path.insert(0, sys.argv[1])
from torch.distributed.distributed_c10d import all_reduce
rank, page = int(os.environ["RANK"]), mmap.mmap(os.open(os.environ["CRUN_PROGRESS"], os.O_RDWR), 4096)

def load_image():
    time.sleep(1000)

for step in range(1, 1000000):
    page[8:12] = struct.pack("I", 2 * step + 1)
    page[12:24] = struct.pack("=IQ", 1, step)
    page[8:12] = struct.pack("I", 2 * step + 2)
    print(f"step {step} of rank {rank}", flush=True)
    if len(sys.argv) > 2 and os.path.exists(sys.argv[2]):
        load_image() if rank == 2 else all_reduce()
    time.sleep(0.05)
"""

# As a shell: top is a job of its own, which can be stopped and continued.
SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
with open(sys.argv[1], "w") as f:
    f.write(str(child))
status = os.waitpid(child, os.WUNTRACED)[1]
while os.WIFSTOPPED(status):
    status = os.waitpid(child, os.WUNTRACED)[1]
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
"""


class Top:
    """crunctl top in a terminal, which is drawn as far as top uses it."""

    def __init__(self, directory, *flags, size=(24, 80), **environment):
        self.size, self.lines, self.modes, self.bytes = size, {}, set(), 0
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, size)
        self.before = termios.tcgetattr(self.slave)
        pid = pathlib.Path(directory, "pid")
        pid.unlink(missing_ok=True)
        self.shell = subprocess.Popen(
            [sys.executable, "-c", SHELL, pid, BIN / "crunctl", *flags],
            stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
        self.pid = int(until(lambda: pid.exists() and pid.read_text(), "its pid"))
        self.rest, self.decoder = "", codecs.getincrementaldecoder("utf-8")()

    def read(self, seconds=0):
        while select.select([self.master], [], [], seconds)[0]:
            got = os.read(self.master, 65536)
            self.bytes += len(got)
            self.rest += self.decoder.decode(got)
            seconds = 0
        self.draw()

    def draw(self):
        pattern = r"\x1b\[(\??[0-9;]*)([A-Za-z])|[^\x1b]+"
        for m in iter(lambda: re.match(pattern, self.rest), None):
            self.rest = self.rest[m.end():]
            if m[2] == "H":
                self.row = int(m[1].split(";")[0])
                self.lines[self.row] = ""
            elif m[2] == "J":
                self.lines = {} if m[1] else {k: v for k, v in self.lines.items() if k < self.row}
            elif m[2] == "l" or m[2] == "h":
                (self.modes.add if m[2] == "h" else self.modes.discard)(m[1])
            elif not m[2] and "?1049" in self.modes:
                self.lines[self.row] += m[0]

    @property
    def text(self):
        self.read()
        return "\n".join(self.lines.get(i + 1, "") for i in range(self.size[0]))

    def press(self, keys):
        os.write(self.master, keys.encode())

    def shows(self, pattern):
        until(lambda: self.read(0.05) or re.search(pattern, self.text, re.M),
              lambda: f"nothing like {pattern!r} in:\n{self.text}")
        if len(self.lines) > self.size[0] or max(map(len, self.lines.values())) > self.size[1]:
            fail(f"more than {self.size}:\n{self.text}")

    def rows(self):
        """The names of what is listed, without the title, heading and the last two lines."""
        return [line.split()[0 if not line.startswith("  ! ") else 1]
                for line in self.text.split("\n")[2:-2] if line.startswith(("    ", "  ! "))]

    def ends(self, code=0):
        """And the terminal is as it was."""
        until(lambda: self.read(0.05) or self.shell.poll() is not None, "its end")
        self.read()
        same(self.shell.returncode, code)
        same("?1049" in self.modes or "?7" not in self.modes or "?25" not in self.modes, False)
        same(termios.tcgetattr(self.slave), self.before)
        os.close(self.master)
        os.close(self.slave)


def thirty_nodes(directory):
    """Of a crund: two of them are slow."""
    crund = Process([BIN / "crund", "--listen", "127.0.0.1:0"])
    atexit.register(crund.end)
    endpoint = until(lambda: re.search(r"listening on (127\S+?:\d+)", crund.err), "crund")[1]
    load = Process([BIN / "agent-load", "--endpoint", endpoint, "--run-id", "resnet",
                    "--agents", "30", "--hold", "agents", "--progress"])
    atexit.register(load.end)
    until(lambda: "ready" in load.out, lambda: load.out + load.err)
    top = Top(directory, "-e", endpoint, "top", "-n", "0.3")
    top.shows(r"^  ! node-00007 +slow 1\.8x")
    top.shows(r"resnet-0 +\d faults? +240 ")
    top.shows("[█▏▎▍▌▋▊▉·]{4}  9[0-9]%")  # a bar
    top.shows(r"q quit  \? help  Enter open")
    first = top.rows()
    same(first[0], "node-00007")
    top.shows(r"rows 1-20 of 3\d")
    same(len(first) < 30, True)
    top.press("G")
    until(lambda: top.read(0.05) or top.rows()[-1] not in first, "the end of the list")
    top.press("\x1b[5~\x1b[5~")
    until(lambda: top.read(0.05) or top.rows()[0] == first[0], "the beginning of the list")
    top.press("/00012\r")
    until(lambda: top.read(0.05) or top.rows() == ["node-00012"], "what is filtered")
    top.press("\x1b")
    until(lambda: top.read(0.05) or len(top.rows()) == len(first), "all of them")
    top.press("s")
    until(lambda: top.read(0.05) or top.rows()[:2] == ["node-00000", "node-00001"], "by name")
    top.press("?")
    top.shows("sort by the next column")
    top.press("\x1b")
    top.size, top.lines = (9, 60), {}
    termios.tcsetwinsize(top.slave, top.size)
    top.shows("node-00001")
    crund.end()
    top.shows("no rendezvous answers|cannot|closed|refused")  # what is known stays
    same(top.rows()[0], "node-00000")
    top.press("q")
    top.ends()
    load.end()


def job_on_this_machine(directory):
    """It runs, loses a rank, hangs and is stopped; meanwhile, top is suspended and continued."""
    folder = pathlib.Path(directory)
    package = folder / "site-packages" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "distributed_c10d.py").write_text(
        "import time\ndef all_reduce(tensor=None, async_op=False):\n    time.sleep(1000)\n")
    script, hang = folder / "train.py", folder / "hang"
    script.write_text(WORKER)
    environment = {"CRUN_RUNTIME_DIR": str(folder / "run"), "XDG_CACHE_HOME": str(folder)}
    os.mkdir(environment["CRUN_RUNTIME_DIR"], 0o700)
    top = Top(directory, "top", "-n", "0.3", **environment)
    top.shows("no job runs")
    job = Process([BIN / "crun", "--nproc-per-node=3", "--max-restarts=1", "--hang-timeout=600",
                   script, folder / "site-packages", hang], start_new_session=True,
                  env={**os.environ, **environment})
    atexit.register(job.end)
    top.shows(r"train +running +3 +\d+ ")
    top.press("\r")
    top.shows(r"^ranks?( \d,?)+(-\d)?:? ")
    top.press("\x1bj\r")
    top.shows(r"^ +rank 2")
    top.shows(r"^\[2\]: step \d+ of rank 2")
    top.press("\x1b")
    top.shows("NAME +STATE")

    victim = next(int(p) for p in os.listdir("/proc") if p.isdigit() and
                  b"\0RANK=1\0" in b"\0" + environ(p) and str(folder).encode() in environ(p))
    os.kill(victim, signal.SIGKILL)
    top.shows(r"last failure: .*rank 1.*SIGKILL")
    until(lambda: top.read(0.05) or re.search(r"train +running +3 +[1-9]", top.text), "a restart")

    hang.touch()
    begun = time.monotonic()
    top.press("\x1a")  # Ctrl-Z, while the job comes to be a hang
    until(lambda: top.read(0.02) or stat_of(top.pid).state == "T", "a stop")
    top.read(0.05)
    same("?1049" in top.modes, False)
    same(termios.tcgetattr(top.slave), top.before)
    os.kill(top.pid, signal.SIGCONT)
    top.shows("train +(running|1 fault)")
    top.shows(r"no new step for \S+ s: all other ranks wait for rank 2")
    top.shows(r"^  ! \S+ +awaited +0-2")
    print(f"a hang is named after {time.monotonic() - begun:.1f} s")

    job.kill(signal.SIGTERM)
    top.shows("no job runs")  # then those that have ended are open
    top.shows("▾ 1 ended: 1 stopped")
    job.popen.wait(60)  # while it answers, the last row is its node
    top.shows(r"^  train +stopped +\S+ s ago, ran for")
    top.press("G\r")
    top.shows("^by SIGTERM from pid")
    os.kill(top.pid, signal.SIGTERM)
    top.ends()
    job.end()

    plain = Top(directory, "top", LC_ALL="C", NO_COLOR="1", **environment)
    plain.shows(r"^  train +stopped +\d.* ago, ran for")
    plain.press(" ")
    plain.shows(r"^\+ 1 ended: 1 stopped")
    same(plain.text.isascii(), True)
    plain.press("\x03")
    plain.ends()


def environ(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def main():
    with tempfile.TemporaryDirectory() as directory:
        run([thirty_nodes, job_on_this_machine], directory)


if __name__ == "__main__":
    main()
