#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 8 s
"""
What workers write, from end to end: into files and to the console, with prefixes and
filters, for all ranks and for some; through terminals; in floods, in lines of 10 MB, with
NULs. A full disk, a terminal that was stopped, a reader that went away cost output,
which is told, and never a worker.
"""
import contextlib
import ctypes
import fcntl
import glob
import os
import pty
import resource
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

BUILD = os.environ.get("BUILD", "build")
CRUN = os.path.abspath(os.path.join(BUILD, "bin", "crun"))
SLOW = 10 if "san" in BUILD else 1
TIMEOUT = 90 * SLOW
FLOOD_CPU_S = 10
CLONE_NEWNS, MS_REC_PRIVATE = 0x00020000, 0x4000 | 0x40000


class Place:
    """A separate folder for each check, and crun in it."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="crun-logs-")
        self.logs = os.path.join(self.path, "logs")
        self.tmp = os.path.join(self.path, "tmp")
        os.mkdir(self.tmp)
        self.env = dict(os.environ, TMPDIR=self.tmp)

    def command(self, flags, shell, workers=2):
        return [CRUN, f"--nproc-per-node={workers}", *flags, "--", "sh", "-c", shell]

    def crun(self, flags, shell, workers=2, **options):
        return subprocess.run(self.command(flags, shell, workers), env=self.env,
                              capture_output=True, timeout=TIMEOUT, **options)

    def start(self, flags, shell, workers=2, **options):
        return subprocess.Popen(self.command(flags, shell, workers), env=self.env,
                                **options)

    def read(self, name, attempt=0):
        run, = [p for p in glob.glob(f"{self.logs}/*") if not os.path.islink(p)]
        with open(f"{run}/attempt_{attempt}/{name}", "rb") as f:
            return f.read()

    def files(self):
        return sorted("/".join(p.split("/")[-3:]) for p in
                      glob.glob(f"{self.logs}/*_*/attempt_*/*/*.log"))


def same(got, wanted):
    if got != wanted:
        raise AssertionError(f"{got!r} is not {wanted!r}")


def is_in(part, whole):
    if part not in whole:
        raise AssertionError(f"{part!r} is not in {whole!r}")


def lines(text):
    return sorted(text.splitlines())


SAY = "echo out $RANK; echo err $RANK >&2"


def plain(p):
    r = p.crun([], SAY)
    same((r.returncode, lines(r.stdout), lines(r.stderr)),
         (0, [b"out 0", b"out 1"], [b"err 0", b"err 1"]))
    same(os.listdir(p.tmp), [])


def redirected(p):
    r = p.crun(["--log-dir", p.logs, "-r", "3"], SAY)
    same((r.returncode, r.stdout, r.stderr), (0, b"", b""))
    for rank in b"0", b"1":
        same(p.read(f"{rank.decode()}/stdout.log"), b"out " + rank + b"\n")
        same(p.read(f"{rank.decode()}/stderr.log"), b"err " + rank + b"\n")
    link, = glob.glob(f"{p.logs}/latest-*")
    same(os.path.realpath(link), os.path.realpath(glob.glob(f"{p.logs}/[!l]*_*")[0]))


def teed(p):
    r = p.crun(["--log-dir", p.logs, "--tee", "3", "--role", "trainer"], SAY)
    same((r.returncode, lines(r.stdout), lines(r.stderr)),
         (0, [b"[trainer0]:out 0", b"[trainer1]:out 1"],
          [b"[trainer0]:err 0", b"[trainer1]:err 1"]))
    same(p.read("1/stdout.log"), b"out 1\n")


def prefix_from_template(p):
    p.env["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = "${role_name}/$local_rank of $$$rank> "
    r = p.crun(["--log-dir", p.logs, "--tee", "1"], SAY, workers=1)
    same(r.stdout, b"default/0 of $0> out 0\n")


def for_some_ranks(p):
    r = p.crun(["--log-dir", p.logs, "-r", "1:1,2:3", "-t", "11:2"], SAY, workers=12)
    same(r.returncode, 0)
    same(p.files(), sorted(["attempt_0/1/stdout.log", "attempt_0/2/stdout.log",
                            "attempt_0/2/stderr.log", "attempt_0/11/stderr.log"]))
    same(len(lines(r.stdout)), 10)
    is_in(b"[default11]:err 11\n", r.stderr)


def shown_ranks(p):
    r = p.crun(["--log-dir", p.logs, "--local-ranks-filter", "1", "--tee", "2"], SAY)
    same((r.returncode, r.stdout, r.stderr), (0, b"out 1\n", b"[default1]:err 1\n"))
    same(p.read("0/stderr.log"), b"err 0\n")


def filtered(p):
    r = p.crun(["--log-dir", p.logs, "--duplicate-stdout-filters", "loss,a,,b",
                "--duplicate-stderr-filters", "WARN"],
               'echo "the loss is 1"; echo nothing; echo a,b; echo WARN >&2')
    same((r.returncode, len(lines(r.stdout))), (0, 6))
    same(lines(p.read("filtered_stdout.log")),
         lines(b"[default0]:a,b\n[default1]:a,b\n"
               b"[default0]:the loss is 1\n[default1]:the loss is 1\n"))
    same(lines(p.read("filtered_stderr.log")), [b"[default0]:WARN", b"[default1]:WARN"])


def no_logs(p):
    r = p.crun(["--log-dir", "/dev/null", "--tee", "3"],
               'echo "file <$TORCHELASTIC_ERROR_FILE>"', workers=1)
    same((r.returncode, r.stdout), (0, b"[default0]:file <>\n"))


def a_folder_that_cannot_be_is_told_first(p):
    for folder, why in (("/proc/nope/logs", b"cannot make folder /proc/nope"),
                        (p.tmp + "/file", b"Not a directory")):
        open(p.tmp + "/file", "w").close()
        r = p.crun(["--log-dir", folder, "-r", "3"], SAY, workers=1)
        same((r.returncode, r.stdout, r.stderr.count(b"\n")), (2, b"", 1))
        same(why in r.stderr, True)


def restart_keeps_what_was_written(p):
    r = p.crun(["--log-dir", p.logs, "-r", "1", "--max-restarts", "2"],
               "echo attempt $TORCHELASTIC_RESTART_COUNT; "
               "echo '{}' > $TORCHELASTIC_ERROR_FILE; "
               "exit $((2 - TORCHELASTIC_RESTART_COUNT))", workers=1)
    same(r.returncode, 0)
    for i in 0, 1, 2:
        same(p.read("0/stdout.log", i), b"attempt %d\n" % i)
        same(p.read("0/error.json", i), b"{}\n")


def a_file_that_cannot_be_at_a_restart_ends_no_job(p):
    done = p.crun([f"--log-dir={p.logs}", "--redirects=3", "--max-restarts=1"],
                  '[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; '
                  'd=${TORCHELASTIC_ERROR_FILE%/*}; '
                  'mkdir -p ${d%/attempt_0/*}/attempt_1/0/stdout.log; exit 3', workers=1)
    assert done.returncode == 0, done.stderr
    assert b"no log is kept: " in done.stderr, done.stderr


def temporary_logs_stay_if_written(p):
    """And where they are is told, once."""
    r = p.crun(["-r", "1", "--max-restarts=1"],
               f"{SAY}; exit $((1 - TORCHELASTIC_RESTART_COUNT))", workers=1)
    folder, = glob.glob(f"{p.tmp}/crun_*/*_*")
    with open(f"{folder}/attempt_0/0/stdout.log", "rb") as f:
        same(f.read(), b"out 0\n")
    same((r.returncode, r.stderr.splitlines()[0], r.stderr.count(b"logs: ")),
         (0, b"crun: logs: " + folder.encode(), 1))


def stderr_ends_in_the_report(p):
    r = p.crun(["-r", "2", "--log-dir", p.logs],
               "echo early >&2; echo 'it broke' >&2; exit 3", workers=1)
    same(r.returncode, 3)
    is_in(b"it broke", r.stderr)
    is_in(b"0/stderr.log", r.stderr)


def order_is_kept(p):
    """Where both streams go to one file, as a batch system has it."""
    command = p.command([], "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; "
                        "done", 1)
    with open(f"{p.path}/both", "wb+") as both:
        subprocess.run(command, stdout=both, stderr=both, env=p.env, timeout=TIMEOUT,
                       check=True)
        both.seek(0)
        same(both.read(), b"".join(b"out %d\nerr %d\n" % (i, i) for i in range(1, 10)))


def strange_bytes(p):
    text = r"a\000b\377c\r\n\000\000no newline"
    r = p.crun(["--log-dir", p.logs, "--tee", "3"], f"printf '{text}'", workers=1)
    wanted = b"a\0b\377c\r\n\0\0no newline"
    same(p.read("0/stdout.log"), wanted)
    same(r.stdout, b"[default0]:a\0b\377c\r\n[default0]:\0\0no newline")


def line_of_10_mb(p):
    size = 10 << 20
    r = p.crun(["--log-dir", p.logs, "--tee", "1"],
               f"head -c {size} /dev/zero | tr '\\0' x; echo; echo end", workers=1)
    same(r.returncode, 0)
    same(p.read("0/stdout.log"), b"x" * size + b"\nend\n")
    same(r.stdout, b"[default0]:" + b"x" * size + b"\n[default0]:end\n")


def flood(p):
    size = (1 << 30) // SLOW // 4
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open("/dev/null", "wb") as nowhere:
        child = p.start(["--log-dir", p.logs, "--tee", "1"],
                        f"head -c {size} /dev/zero; echo $RANK >&2", workers=2,
                        stdout=nowhere, stderr=subprocess.PIPE)
        err = child.communicate(timeout=TIMEOUT)[1]
    same((child.returncode, lines(err)), (0, [b"0", b"1"]))
    for path in glob.glob(f"{p.logs}/*_*/attempt_0/*/stdout.log"):
        same(os.path.getsize(path), size)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime
    print(f"flood: {used:.1f} s of CPU")
    if SLOW == 1 and used > FLOOD_CPU_S:
        raise AssertionError(f"it took {used:.1f} s of CPU")


def slow_reader_gets_the_end(p):
    """It needs seconds for what is left when the workers have ended."""
    size = 300000
    child = p.start([], f"head -c {size} /dev/zero; touch $TMPDIR/ended", workers=1,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not os.path.exists(p.tmp + "/ended"):
        time.sleep(0.02)
    got = 0
    while part := os.read(child.stdout.fileno(), 2048):
        got += len(part)
        time.sleep(0.02)
    same((child.communicate(timeout=TIMEOUT)[1], child.returncode, got), (b"", 0, size))


def reader_goes_away(p):
    child = p.start(["--log-dir", p.logs, "--tee", "1"],
                    "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i; done",
                    workers=1, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.read(1)
    child.stdout.close()
    child.stdout = None
    err = child.communicate(timeout=TIMEOUT)[1]
    same(len(p.read("0/stdout.log").splitlines()), 2000)
    same(child.returncode, 74 if err else 0)  # it may all have fitted into the pipe
    if err:
        is_in(b"bytes of output lost: Broken pipe", err)


def reader_goes_away_early(p):
    """It is said at once, the job continues, and only its success has another exit code."""
    for code in 0, 3:
        child = p.start(["--ignore-closed-output"], "echo begin; until test -e $TMPDIR/gone; do sleep 0.02; done; "
                        "echo more; until test -e $TMPDIR/said; do sleep 0.02; done; "
                        f"echo on > $TMPDIR/on; exit {code}",
                        workers=1, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        same(child.stdout.readline(), b"begin\n")
        child.stdout.close()
        child.stdout = None
        open(p.tmp + "/gone", "w").close()
        same(child.stderr.readline(), b"crun: standard output: Broken pipe; the job "
             b"continues, this output is lost\n")
        open(p.tmp + "/said", "w").close()
        err = child.communicate(timeout=TIMEOUT)[1]
        same(child.returncode, code or 74)
        is_in(b"crun: standard output: 5 bytes of output lost: Broken pipe\n", err)
        same(err.endswith(b"crun: exit code 74, because output was lost\n"), code == 0)
        same(b"failed" in err, code != 0)
        for name in "gone", "said", "on":
            os.unlink(f"{p.tmp}/{name}")


def job_without_a_reader_ends(p):
    """crun ... | head: one line says so, and the workers get SIGTERM."""
    child = p.start([], "trap 'echo got TERM >$TMPDIR/got; exit 3' TERM; echo begin; until "
                    "test -e $TMPDIR/gone; do sleep 0.02; done; echo more; sleep 1000 & wait",
                    workers=1, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    same(child.stdout.readline(), b"begin\n")
    child.stdout.close()
    child.stdout = None
    open(p.tmp + "/gone", "w").close()
    err = child.communicate(timeout=TIMEOUT)[1].split(b"\n")
    same(err[:2], [b"crun: standard output: Broken pipe; the job ends "
                   b"(--ignore-closed-output lets it continue)",
                   b"crun: the job was stopped by its closed standard output"])
    same(child.returncode, 141)
    with open(p.tmp + "/got") as f:
        same(f.read(), "got TERM\n")


def file_of_a_size(p):
    """Of whole lines: the newest, twice the size at most, and how much came before is told."""
    for flag in "-r", "-t":
        shutil.rmtree(p.logs, ignore_errors=True)
        p.crun(["--log-dir", p.logs, flag, "1", "--log-max-size", "64K", "--log-mode=0640"],
               "seq 100000 199999", workers=1, check=True)
        path, = glob.glob(f"{p.logs}/*_*/attempt_0/0/stdout.log")
        kept = []
        for name in f"{path}.1", path:
            with open(name, "rb") as f:
                header, *got = f.read().splitlines()
            before = int(re.fullmatch(rb"\[crun: (\d+) bytes came before: the last of them are "
                                      rb"in stdout.log.1\]", header)[1])
            same(int(got[0]), 100000 + before // 7)
            same(os.stat(name).st_mode & 0o777, 0o640)
            is_in(os.path.getsize(name), range(65536 + 8))
            kept += got
        same(os.path.getsize(path + ".1") >= 65536, True)
        same(kept, [b"%d" % i for i in range(200000 - len(kept), 200000)])
        same(sorted(os.listdir(os.path.dirname(path))), ["stdout.log", "stdout.log.1"])


def mount_small_disk(path):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or \
            libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None) or \
            libc.mount(b"tmpfs", path.encode(), b"tmpfs", 0, b"size=1m"):
        os._exit(77)


def full_disk_is_told_once(p):
    """For all streams of all workers and attempts, with the exact sum of what is missing."""
    os.mkdir(p.logs)
    x = "head -c 200000 /dev/zero | tr '\\0' x"
    job = p.command(["--log-dir", p.logs, "-r", "3", "--max-restarts=1"],
                    f"{x}; {x} >&2; : >$TMPDIR/$RANK; until set -- $TMPDIR/[0-5]; test $# = 6; "
                    "do sleep 0.02; done; exit $((1 - TORCHELASTIC_RESTART_COUNT))", 6)
    r = subprocess.run(["sh", "-c", f'"$@"; code=$?; cat {p.logs}/*_*/*/*/*.log | tr -dc x | '
                        "wc -c; exit $code", "sh", *job], env=p.env, capture_output=True,
                       timeout=TIMEOUT, preexec_fn=lambda: mount_small_disk(p.logs))
    if r.returncode == 77:
        return "skipped: it takes root"
    same(r.returncode, 74)
    told = [line for line in r.stderr.splitlines() if b"No space left" in line]
    is_in([b" so far: " in line for line in told], ([True, False], [False]))
    lost = int(re.search(rb"std(?:out|err)\.log and \d+ other files: (\d+) bytes", told[-1])[1])
    same(lost + int(r.stdout), 2 * 2 * 6 * 200000)
    return None


def full_disk(p):
    os.mkdir(p.logs)
    r = p.crun(["--log-dir", p.logs, "--tee", "1"],
               "head -c 3000000 /dev/zero | tr '\\0' 'x'; echo; "
               "echo \"it is $(wc -c < $(dirname $TORCHELASTIC_ERROR_FILE)/stdout.log)\"",
               workers=1, preexec_fn=lambda: mount_small_disk(p.logs))
    if r.returncode == 77:
        return "skipped: it takes root"
    same(r.returncode, 74)
    is_in(b"bytes of output lost: No space left on device", r.stderr)
    same(len(r.stdout.splitlines()[0]), len("[default0]:") + 3000000)
    is_in(b"[default0]:it is 1", r.stdout)
    return None


class Terminal:
    """A terminal with crun in it."""

    def __init__(self, p, flags, shell, workers):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(p.env, TERM="xterm")
            os.execv(CRUN, p.command(flags, shell, workers))
        self.resize(30, 100)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, text):
        until = time.monotonic() + TIMEOUT
        while text is None or text not in self.seen:
            if not select.select([self.fd], [], [], max(0, until - time.monotonic()))[0]:
                raise AssertionError(f"{text!r} did not come, but {self.seen[-500:]!r}")
            got = b""
            for _ in range(2):  # EIO may come before the last bytes (see log_stream.c)
                with contextlib.suppress(OSError):
                    got = got or os.read(self.fd, 65536)
            if not got:
                break
            self.seen += got
        if text is not None:
            is_in(text, self.seen)

    def exit_code(self):
        self.read_until(None)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def terminal(p):
    t = Terminal(p, [], "test -t 1 && test -t 2 && echo terminal; "
                 "until test \"$(stty size <&2)\" = '50 123'; do sleep 0.05; done; "
                 "echo resized; printf '\\r10%%'; printf '\\r20%%'; printf '\\nend'", 1)
    t.read_until(b"terminal\r\n")
    t.resize(50, 123)
    t.read_until(b"resized\r\n")
    same(t.exit_code(), 0)
    same(t.seen, b"terminal\r\nresized\r\n\r10%\r20%\r\nend")


def terminal_with_prefix(p):
    t = Terminal(p, ["--log-dir", p.logs, "--tee", "3"],
                 "until test \"$(stty size <&2)\" = '30 89'; do sleep 0.05; done; "
                 "echo narrower", 1)
    same(t.exit_code(), 0)
    same(t.seen, b"[default0]:narrower\r\n")
    same(p.read("0/stdout.log"), b"narrower\n")


def redirected_is_no_terminal(p):
    t = Terminal(p, ["--log-dir", p.logs, "-r", "1"],
                 "test -t 1 || echo no; test -t 2 && echo yes >&2", 1)
    same((t.exit_code(), t.seen), (0, b"yes\r\n"))
    same(p.read("0/stdout.log"), b"no\n")


def stopped_terminal(p):
    """As after ^S: nothing is taken. The worker ends all the same, and its file is whole."""
    t = Terminal(p, ["--log-dir", p.logs, "--tee", "1"],
                 "echo begin; head -c 8000000 /dev/zero | tr '\\0' 'x'; echo; "
                 f"touch {p.path}/worker-done", 1)
    t.read_until(b"begin")
    termios.tcflow(t.fd, termios.TCOOFF)
    until = time.monotonic() + TIMEOUT
    while not os.path.exists(f"{p.path}/worker-done"):
        if time.monotonic() > until:
            raise AssertionError("the worker hangs with the terminal")
        time.sleep(0.02)
    termios.tcflow(t.fd, termios.TCOON)
    same(t.exit_code(), 74)
    same(len(p.read("0/stdout.log")), 6 + 8000001)
    is_in(b"bytes of output lost", t.seen)


CHECKS = [plain, redirected, teed, prefix_from_template, for_some_ranks, shown_ranks,
          filtered, no_logs, a_folder_that_cannot_be_is_told_first,
          restart_keeps_what_was_written, a_file_that_cannot_be_at_a_restart_ends_no_job,
          temporary_logs_stay_if_written,
          stderr_ends_in_the_report, order_is_kept,
          strange_bytes, line_of_10_mb, flood, slow_reader_gets_the_end, reader_goes_away,
          reader_goes_away_early, job_without_a_reader_ends, file_of_a_size, full_disk, full_disk_is_told_once, terminal,
          terminal_with_prefix, redirected_is_no_terminal, stopped_terminal]


def main():
    failed = 0
    signal.alarm(len(CHECKS) * TIMEOUT)
    for check in CHECKS:
        if len(sys.argv) > 1 and check.__name__ not in sys.argv[1:]:
            continue
        place = Place()
        began = time.monotonic()
        try:
            note = check(place) or "ok"
        except (AssertionError, subprocess.SubprocessError, OSError, ValueError) as e:
            note = f"FAILED: {str(e)[:2000]}"
            failed += 1
        finally:
            shutil.rmtree(place.path, ignore_errors=True)
        print(f"{check.__name__}: {note} ({time.monotonic() - began:.2f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
