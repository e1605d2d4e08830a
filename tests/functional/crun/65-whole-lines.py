#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 8 s
"""
Lines of several workers stay whole, wherever crun's output goes: into files, pipes and a
terminal. The workers write as python3 -u does: a text and its newline apart. Lines that
never end, lines that come late, long lines and progress bars do not mix with others.
"""
import collections
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("BUILD", "build")
CRUN = os.path.abspath(os.path.join(BUILD, "bin", "crun"))
SLOW = 10 if "san" in BUILD else 1
TIMEOUT = 90 * SLOW
WORKERS, LINES = 4, 3000 // SLOW

FLOOD = f"""
import os, sys
rank = os.environ["RANK"]
for i in range({LINES}):
    print(f"out {{rank}} {{i:04d}} " + "x" * 60)
    print(f"err {{rank}} {{i:04d}} " + "x" * 60, file=sys.stderr)
"""
LINE = re.compile(rb"(out|err) (\d) (\d{4}) x{60}")


class Folder:
    """A folder of its own for each check."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="crun-lines-")
        self.env = dict(os.environ, TMPDIR=self.path, TERM="xterm")

    def file(self, name, text=""):
        path = os.path.join(self.path, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def program(self, text):
        return [self.file("program.py", text)]


def shell(text):
    return ["--", "sh", "-c", text]


def is_same(got, wanted):
    if got != wanted:
        raise AssertionError(f"{got!r} is not {wanted!r}")


# -- where the output goes: each returns crun's exit code and all that came there ---------

def run(p, workers, words, **streams):
    return subprocess.run([CRUN, f"--nproc-per-node={workers}", *words], env=p.env,
                          timeout=TIMEOUT, check=False, stdin=subprocess.DEVNULL,
                          **streams)


def files(p, workers, words):
    with open(p.file("out"), "rb+") as out, open(p.file("err"), "rb+") as err:
        code = run(p, workers, words, stdout=out, stderr=err).returncode
        out.seek(0)
        err.seek(0)
        return code, [out.read(), err.read()]


def one_file(p, workers, words):
    with open(p.file("out"), "rb+") as out:
        code = run(p, workers, words, stdout=out, stderr=out).returncode
        out.seek(0)
        return code, [out.read()]


def appended_file(p, workers, words):
    with open(p.file("out"), "ab+") as out:
        code = run(p, workers, words, stdout=out, stderr=out).returncode
        out.seek(0)
        return code, [out.read()]


def pipes(p, workers, words):
    r = run(p, workers, words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return r.returncode, [r.stdout, r.stderr]


def one_pipe(p, workers, words):
    r = run(p, workers, words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return r.returncode, [r.stdout]


class Terminal:
    """A terminal with crun in it."""

    def __init__(self, p, workers, words):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(CRUN, [CRUN, f"--nproc-per-node={workers}", *words], p.env)

    def read_until(self, text):
        until = time.monotonic() + TIMEOUT
        while text is None or text not in self.seen:
            if not select.select([self.fd], [], [], max(0, until - time.monotonic()))[0]:
                raise AssertionError(f"{text!r} is not in {self.seen[-500:]!r}")
            try:
                got = os.read(self.fd, 65536)
            except OSError:
                got = b""
            if not got:
                break
            self.seen += got
        if text is not None and text not in self.seen:
            raise AssertionError(f"{text!r} is not in {self.seen[-500:]!r}")

    def end(self):
        self.read_until(None)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def terminal(p, workers, words):
    t = Terminal(p, workers, words)
    code = t.end()
    return code, [t.seen.replace(b"\r\n", b"\n")]


SINKS = [files, one_file, appended_file, pipes, one_pipe, terminal]

# -- checks -------------------------------------------------------------------------------

def check_lines(text, number):
    """Every line is whole, and those of a worker are in order; returns how many."""
    last = collections.Counter()
    for line in text.splitlines():
        m = LINE.fullmatch(line)
        if not m:
            raise AssertionError(f"a torn line: {line[:200]!r}")
        stream, index = m[1] + m[2], int(m[3])
        if index != last[stream]:
            raise AssertionError(f"{line[:20]!r} comes after {last[stream] - 1}")
        # both streams of a worker in one place: in the order in which they were written
        if number == 1 and m[1] == b"err" and last[b"out" + m[2]] != index + 1:
            raise AssertionError(f"{line[:20]!r} comes too early")
        last[stream] += 1
    return sum(last.values())


def flood(p, sink):
    code, texts = sink(p, WORKERS, p.program(FLOOD))
    is_same((code, sum(check_lines(t, len(texts)) for t in texts)),
            (0, 2 * WORKERS * LINES))


def late_ends(p, sink):
    """Rank 0 needs a while for a line; rank 1 writes many in the meantime."""
    code, texts = sink(p, 2, shell(
        "if test $RANK = 0; then touch $TMPDIR/begun; printf 'be'; "
        "until test -e $TMPDIR/enough; do sleep 0.02; done; printf 'gin\\n'; else "
        "until test -e $TMPDIR/begun; do sleep 0.02; done; "
        "for i in 1 2 3 4 5 6 7 8; do echo line; sleep 0.03; done; "
        "touch $TMPDIR/enough; fi"))
    is_same((code, sorted(texts[0].split())), (0, [b"begin"] + 8 * [b"line"]))


def partial_ends(p, sink):
    """The last lines of two workers have no end."""
    code, texts = sink(p, 2, shell("printf \"rank $RANK\""))
    is_same((code, sorted(texts[0].split(b"\n"))), (0, [b"rank 0", b"rank 1"]))


def long_lines(p, sink):
    size = 300000
    code, texts = sink(p, WORKERS, p.program(
        f"import os\nfor i in range(5): print(os.environ['RANK'] * {size})"))
    is_same((code, collections.Counter((t[:1], len(t), len(set(t)))
                                       for t in texts[0].splitlines())),
            (0, {(b"%d" % r, size, 1): 5 for r in range(WORKERS)}))


def bars(p, sink):
    """Each state of a progress bar is whole, and is there before the next newline."""
    code, texts = sink(p, WORKERS, p.program(
        "import os\nfor i in range(200): print('\\r' + os.environ['RANK'] * 40, end='')\n"
        "print()"))
    states = [t for t in re.split(rb"[\r\n]", texts[0]) if t]
    is_same((code, set((len(t), len(set(t))) for t in states), len(states)),
            (0, {(40, 1)}, 200 * WORKERS))


def a_bar_moves_in_a_pipe(p):
    child = subprocess.Popen(
        [CRUN, "--nproc-per-node=2",
         *shell("printf '\\r10%%'; printf '\\r20%%'; exec sleep 1000")],
        env=p.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        seen = b""
        while seen.count(b"\r10%") < 2:
            if not select.select([child.stdout], [], [], TIMEOUT)[0]:
                raise AssertionError(f"only {seen!r} is seen")
            seen += os.read(child.stdout.fileno(), 65536)
    finally:
        child.terminate()
        child.communicate(timeout=TIMEOUT)


def prompt_of_one_worker(p):
    child = subprocess.Popen(
        [CRUN, "--nproc-per-node=1", *shell("printf 'name? '; read name; echo hi $name")],
        env=p.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if not select.select([child.stdout], [], [], TIMEOUT)[0]:
        raise AssertionError("no prompt")
    is_same(os.read(child.stdout.fileno(), 100), b"name? ")
    is_same(child.communicate(b"you\n", timeout=TIMEOUT)[0], b"hi you\n")


def prompt_of_several_on_a_terminal(p):
    t = Terminal(p, 2, shell(
        "test $RANK = 0 || exec sleep 1000; printf 'name? '; read name; echo hi $name; exit 3"))
    t.read_until(b"name? ")
    os.write(t.fd, b"you\n")
    t.read_until(b"hi you\r\n")
    is_same(t.end(), 3)


def an_interrupted_line_ends_once(p):
    """A line that is shown without its end, and then ended, makes no empty line."""
    t = Terminal(p, 2, shell(
        "until_there() { until test -e $TMPDIR/$1; do sleep 0.02; done; }; "
        "if test $RANK = 0; then printf partial; until_there other; echo; echo second; "
        "else until_there shown; echo other; fi"))
    t.read_until(b"partial")
    p.file("shown")
    t.read_until(b"other")
    p.file("other")
    is_same((t.end(), t.seen), (0, b"partial\r\nother\r\nsecond\r\n"))


def messages_begin_on_a_new_line(p, sink):
    """Those of crun, after workers whose last line has no end."""
    for workers in 1, 2:
        code, texts = sink(p, workers, [
            "--max-restarts=1", *shell("printf partial >&2; sleep 0.1; exit 3")])
        text = re.sub(rb"\x1b\[\d*[a-zA-Z]", b"", texts[-1]).replace(b"\r", b"")
        messages = [t for t in text.split(b"\n") if b"crun:" in t]
        is_same((code, len(messages), [t for t in messages if not t.startswith(b"crun:")]),
                (3, 4, []))


def one_worker_writes_the_file_itself(p):
    code, texts = files(p, 1, shell(
        "test $(readlink /proc/$$/fd/1) = $TMPDIR/out && printf handed"))
    is_same((code, texts), (0, [b"handed", b""]))


CHECKS = [(flood, s) for s in SINKS] + [
    *[(late_ends, s) for s in SINKS if s is not terminal],
    *[(partial_ends, s) for s in SINKS],
    *[(long_lines, s) for s in (files, pipes)],
    *[(bars, s) for s in (files, pipes, terminal)],
    *[(messages_begin_on_a_new_line, s) for s in (one_file, pipes, terminal)],
    (a_bar_moves_in_a_pipe,), (prompt_of_one_worker,), (prompt_of_several_on_a_terminal,),
    (an_interrupted_line_ends_once,), (one_worker_writes_the_file_itself,)]


def main():
    failed = 0
    signal.alarm(len(CHECKS) * TIMEOUT)
    for check, *sink in CHECKS:
        name = " ".join(f.__name__ for f in (check, *sink))
        if len(sys.argv) > 1 and not any(a in name for a in sys.argv[1:]):
            continue
        p = Folder()
        began = time.monotonic()
        try:
            check(p, *sink)
            note = "ok"
        except (AssertionError, subprocess.SubprocessError, OSError) as e:
            note = f"FAILED: {str(e)[:2000]}"
            failed += 1
        finally:
            shutil.rmtree(p.path, ignore_errors=True)
        print(f"{name}: {note} ({time.monotonic() - began:.2f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
