#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# takes: 80 s
# sanitizers: no, it runs Python code only
"""
A worker out of a template cannot be told from one that is started as `python3 -u train.py`.

The programs of tests/lib/warm_programs.py run three times: by the interpreter alone, with the
bootstrap in front of its path, and out of a template. Those of UNDER_CRUN, or all with
CRUN_ALL_ROUNDS=1, are run by crun too, with --watch and with --warm, and by the newest interpreter
that there is. Standard output, standard error and the exit must be the same to the letter, rank by
rank. Only what WHAT_DIFFERS names is put aside.
"""
import glob
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

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, ROOT, fail  # noqa: E402
from template import Template, bootstrap_env  # noqa: E402
import warm_programs  # noqa: E402

SECONDS = 120
# what they print depends on what crun hands to a worker, on how it ends one, on the interpreter
UNDER_CRUN = re.compile("arguments|module(-package)?|run-path|exception|sys-exit-5|killed-SIGKILL|"
                        "process|descriptors|environment|own-sitecustomize|pythonpath")
RUN_PATH = ("import runpy, sys; sys.argv = sys.argv[1:]; "
            "runpy.run_path(sys.argv[0], run_name='__main__')")

# Pattern, replacement, reason.
WHAT_DIFFERS = (
    (rb"0x[0-9a-f]{6,}", b"0xN", "addresses are random"),
    (rb"((MASTER_PORT|JAX_COORDINATOR_ADDRESS|CRUN_(LAUNCH|INSTANCE|MEMORY|PROGRESS)|RUN_ID|ERROR_FILE"
     rb"|INFO_\w+_FILE)[^\w/@]+)[\w/.:@-]+", rb"\1N",
     "each launch has its own"),
    (rb"<class '(_crun.import_watch|sitecustomize).Finder'>, ", b"", "crun waits there for torch and jax"),
)


# -- one worker -------------------------------------------------------------------------


class Streams:
    """A worker's descriptors 0, 1 and 2, and what came out of them."""

    def __init__(self, kind, stdin):
        self.kind = kind
        self.out = self.err = b""
        if kind == "pty":
            self.master, slave = pty.openpty()
            os.write(self.master, stdin)
            self.fds = [slave, slave, slave]
            self.readers = {self.master: "out"}
        elif kind == "file":
            self.files = [tempfile.TemporaryFile() for _ in range(3)]
            self.files[0].write(stdin)
            self.files[0].seek(0)
            self.fds = [file.fileno() for file in self.files]
            self.readers = {}
        else:
            pipes = [os.pipe() for _ in range(3)]
            self.fds = [pipes[0][0], pipes[1][1], pipes[2][1]]
            self.feeder = os.fork()
            if self.feeder == 0:
                os.closerange(3, pipes[0][1])
                os.closerange(pipes[0][1] + 1, 256)
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                while stdin:
                    stdin = stdin[os.write(pipes[0][1], stdin):]
                os._exit(0)
            os.close(pipes[0][1])
            self.readers = {pipes[1][0]: "out", pipes[2][0]: "err"}

    def given(self):
        """The worker has them now."""
        if self.kind != "file":
            for fd in set(self.fds):
                os.close(fd)

    def read(self):
        """What there is; False at the end of all streams."""
        ready = select.select(list(self.readers), [], [], 0.005)[0] if self.readers else []
        for fd in ready:
            try:
                data = os.read(fd, 65536)
            except OSError:  # a terminal that its last process has closed
                data = b""
            if data:
                setattr(self, self.readers[fd], getattr(self, self.readers[fd]) + data)
            else:
                os.close(fd)
                del self.readers[fd]
        if self.kind == "file":
            self.out, self.err = (os.pread(file.fileno(), 1 << 20, 0) for file in self.files[1:])
        return bool(self.readers)

    def end(self):
        end = time.monotonic() + SECONDS
        while self.read():
            if time.monotonic() > end:
                fail("a process keeps the streams of a worker that has ended open")
        if self.kind == "file":
            for file in self.files:
                file.close()
        elif self.kind == "pipe":
            os.kill(self.feeder, signal.SIGKILL)
            os.waitpid(self.feeder, 0)


def attend(pid, streams, interrupt):
    """Reads the output until the worker ends, and interrupts it. Its exit code, or -N."""
    end = time.monotonic() + SECONDS
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        streams.read()
        if interrupt and b"ready\n" in streams.out:
            os.kill(pid, interrupt)
            interrupt = 0
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            fail(f"it still runs after {SECONDS} s: {streams.out} {streams.err}")
        time.sleep(0.001)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    streams.end()
    return code


# -- a program --------------------------------------------------------------------------


def without_differences(text):
    for pattern, replacement, _ in WHAT_DIFFERS:
        text = re.sub(pattern, replacement, text)
    return text


class Runs:
    """A program in a folder of its own, or in that of its place."""

    templates = {}  # of the places, by the interpreter, too

    def __init__(self, python, program, folder):
        self.python, self.program = python, program
        self.folder = os.path.join(folder, program.name.replace("/", "_"), "train")
        if program.place:
            self.folder = os.path.join(os.path.dirname(folder), program.place, "train")
        for name, text in program.files.items():
            path = os.path.join(self.folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)

    def script(self):
        """The program, or its folder."""
        is_folder = self.program.files["train.py"] == "app"
        return os.path.join(self.folder, "app" if is_folder else "train.py")

    def command(self, rank):
        p = self.program
        arguments = [a.replace("${local_rank}", str(rank)) for a in p.arguments]
        script = self.script()
        how = ["-m", p.module] if p.module else ["-c", RUN_PATH, script] if p.run_path else [script]
        return [self.python, "-u", *how, *arguments]

    def environment(self, **more):
        env = {name: value for name, value in os.environ.items()
               if not name.startswith(("PYTHON", "CRUN_", "OMP_", "LC_"))}
        env.update(DRIVER=str(os.getpid()), XDG_CACHE_HOME=os.path.dirname(self.folder),
                   PYTHONWARNINGS="ignore", **more)
        for name, value in self.program.env.items():
            env.pop(name, None)
            if value is not None:
                env[name] = value
        if "PYTHONPATH" in self.program.env:
            env["PYTHONPATH"] = ":".join(os.path.join(self.folder, part)
                                         for part in env["PYTHONPATH"].split(":"))
        return env

    def _before(self):
        import resource
        if self.program.before == "no core":
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.program.before == "ignore SIGHUP":
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_NOFILE, (777, 888))
            os.umask(0o27)

    def _result(self, pid, streams):
        code = attend(pid, streams, self.program.interrupt)
        return without_differences(streams.out), without_differences(streams.err), code

    def cold(self, rank, bootstrap):
        streams = Streams(self.program.streams, self.program.stdin)
        env = self.environment(RANK=str(rank))
        if bootstrap:
            env = bootstrap_env(env, CRUN_BOOTSTRAP="watch", CRUN_NOTE_MODULES=1)

        def start():
            self._before()
            if self.program.streams == "pty":
                import fcntl
                import termios
                fcntl.ioctl(1, termios.TIOCSCTTY, 0)
            # as crun does it: the worker dies with its parent
            import ctypes
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)

        p = subprocess.Popen(self.command(rank), env=env, cwd=self.folder, stdin=streams.fds[0],
                             stdout=streams.fds[1], stderr=streams.fds[2], preexec_fn=start,
                             start_new_session=True)
        streams.given()
        result = self._result(p.pid, streams)
        p.returncode = 0
        return result

    def _template(self):
        p = self.program
        if (self.python, p.place) in self.templates:
            return self.templates[self.python, p.place]
        template = Template([*self.command("${local_rank}")], self.environment(), p.modules,
                            cwd=self.folder, before=self._before)
        if not template.wait_ready():
            fail(f"{p.name}: no template: {template.said}")
        if p.place:
            self.templates[self.python, p.place] = template
        return template

    def warm(self):
        """All ranks' results."""
        p = self.program
        template = self._template()
        workers = []
        for rank in range(p.ranks):
            streams = Streams(p.streams, p.stdin)
            env = bootstrap_env(self.environment(RANK=str(rank)), CRUN_BOOTSTRAP="watch",
                                CRUN_NOTE_MODULES=1)
            worker = template.request(self.command(rank), env, streams.fds,
                                      is_tty=p.streams == "pty")
            if not worker.wait_pid():
                fail(f"{p.name}: no worker: {template.said}")
            streams.given()
            worker.go()
            workers.append(self._result(worker.pid, streams))
        if not p.place:
            template.end()
        return workers

    def crun(self, *flags):
        """All ranks' log files of a crun, with its exit code."""
        p = self.program
        logs = tempfile.mkdtemp(dir=os.path.dirname(self.folder))
        how = ["--module", p.module] if p.module else \
            ["--run-path", self.script()] if p.run_path else [self.script()]
        ended = subprocess.run(
            [BIN / "crun", f"--nproc-per-node={p.ranks}", f"--log-dir={logs}", "--redirects=3",
             *flags, *how, *p.arguments],
            env={**self.environment(), "PYTHON_EXEC": self.python}, cwd=self.folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=self._before, timeout=SECONDS)
        self.said = ended.stderr.decode()

        def log(rank, name):
            found = glob.glob(f"{logs}/latest-*/attempt_0/{rank}/{name}.log")
            with open(found[0], "rb") as file:
                return without_differences(file.read())

        return [(log(rank, "stdout"), log(rank, "stderr"), ended.returncode)
                for rank in range(p.ranks)]


def is_repeated(program):
    return os.environ.get("CRUN_ALL_ROUNDS") or UNDER_CRUN.fullmatch(program.name)


def compare_under_crun(python, program, folder):
    """As compare, but a crun starts the workers."""
    runs = Runs(python, program, folder)
    cold = runs.crun("--watch")  # it opens two descriptors and catches a signal
    warm = runs.crun(f"--warm={program.modules}", "-v")
    if runs.said.count("started warm") != program.ranks:
        return f"no worker is warm: {runs.said}"
    return "".join(f"  under crun, rank {rank}, {what}:\n    {a}\n    {b}\n"
                   for rank, (wanted, got) in enumerate(zip(cold, warm))
                   for what, a, b in zip(("stdout", "stderr", "exit"), wanted, got) if a != b)


def compare(python, program, folder):
    """What differs, as a text; "" if nothing does."""
    runs = Runs(python, program, folder)
    ranks = 1 if program.ranks_differ else program.ranks
    # two ranks out of a template are enough to differ, and an import of torch takes seconds
    plain = [] if program.ranks_differ and program.place else \
        [runs.cold(rank, bootstrap=False) for rank in range(ranks)]
    if program.needs:
        ranks = 0  # the bootstrap alone knows no library
    cold = [runs.cold(rank, bootstrap=True) for rank in range(ranks)]
    warm = runs.warm()
    if program.ranks_differ:
        all_words = [word for run in (plain, cold, warm) for rank in run for word in rank[0].split()]
        same = {word for word in all_words if all_words.count(word) > 1}
        bad = [run for run in (plain, cold, warm) for rank in run if rank[1] or rank[2]]
        return f"ranks or runs share {same}: {warm} {bad}" if same or bad else ""
    report = ""
    for name, run in (("with the bootstrap", cold), ("out of a template", warm)):
        for rank, (wanted, got) in enumerate(zip(plain, run)):
            for what, a, b in zip(("stdout", "stderr", "exit"), wanted, got):
                if a != b:
                    report += f"  {name}, rank {rank}, {what}:\n    {a}\n    {b}\n"
    return report


# -- the interpreters -------------------------------------------------------------------


def version_of(python):
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run([python, "-c", code], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True)
    major, _, minor = found.stdout.strip().partition(".")
    return (int(major), int(minor)) if found.returncode == 0 else (0, 0)


def interpreters():
    """python3 and the newest that there is."""
    found = {}
    names = [os.environ.get("PYTHON_EXEC"), shutil.which("python3")]
    names += sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")))
    for folder in os.environ["PATH"].split(":"):
        names += glob.glob(os.path.join(folder, "python3.[0-9]*[0-9]"))
    for name in filter(None, names):
        found.setdefault(version_of(name), name)
    if not found:
        fail("there is no python3")
    return [found[version] for version in sorted({version_of(next(filter(None, names))), max(found)})]


def torch_interpreter():
    """It runs only the programs that need a library; None if PyPI cannot be reached."""
    found = subprocess.run([ROOT / "scripts" / "torch-venv", "newest"], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True)
    return found.stdout.strip() + "/bin/python" if found.returncode == 0 else None


def selection(words):
    """[(interpreter, program)]: of those named on the command line, if any."""
    names = [word for word in words if not word.startswith("/")]
    programs = [p for p in warm_programs.PROGRAMS
                if not names or any(re.fullmatch(name, p.name) for name in names)]
    pythons = [word for word in words if word.startswith("/")]
    if pythons:
        return [(python, p) for python in pythons for p in programs]
    torch = torch_interpreter()
    if not torch:
        print("left out: all programs that need torch or numpy: PyPI cannot be reached")
    own, *others = interpreters()
    return [(own, p) for p in programs if not p.needs] + \
        [(python, p) for python in others for p in programs if not p.needs and is_repeated(p)] + \
        [(torch, p) for p in programs if p.needs and torch]


def main():
    folder = tempfile.mkdtemp(prefix="crun-warm-")
    failed = 0
    selected = selection(sys.argv[1:])
    first = selected[0][0]
    for number, (python, program) in enumerate(selected):
        begun = time.monotonic()
        report = compare(python, program, os.path.join(folder, str(number)))
        if python == first and program.is_plain() and is_repeated(program):
            report += compare_under_crun(python, program, os.path.join(folder, f"{number}-crun"))
        failed += bool(report)
        print(f"{'DIFFERS' if report else 'same'} {program.name} "
              f"({time.monotonic() - begun:.1f} s, {python})\n{report}", end="", flush=True)
    for template in Runs.templates.values():
        template.end()
    shutil.rmtree(folder)
    if failed:
        fail(f"{failed} programs differ")


main()
