# SPDX-License-Identifier: MIT
"""A crun on this machine, with its own folder, environment and terminal."""
import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import tempfile

from process import BIN, SECONDS, living, read, same, shell_code, until

CRUN, CRUNCTL = str(BIN / "crun"), str(BIN / "crunctl")
TIMEOUT = SECONDS


class Place:
    """A folder, an environment with a cookie, and all processes started there."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="crun-behaviour-")
        self.tmp = os.path.join(self.path, "tmp")
        os.mkdir(self.tmp)
        self.cookie = f"CRUN_TEST_COOKIE={os.path.basename(self.path)}"
        name, _, value = self.cookie.partition("=")
        self.env = dict(os.environ, TMPDIR=self.tmp, **{name: value})
        self.started = []

    def file(self, name, text="", mode=0o755):
        path = os.path.join(self.path, name)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def start(self, *words, **options):
        out = options.pop("stdout", subprocess.PIPE)
        err = options.pop("stderr", subprocess.PIPE)
        env = options.pop("env", self.env)
        p = subprocess.Popen(words, stdout=out, stderr=err, env=env, cwd=self.path,
                             **options)
        self.started.append(p)
        return p

    def end(self, p, code, *said):
        out, err = p.communicate(timeout=TIMEOUT)
        out, err = (out or b"").decode(), (err or b"").decode()
        if shell_code(p.returncode) != code:
            raise AssertionError(f"exit code {p.returncode}, not {code}:\n{out}{err}")
        for text in said:
            if text not in out + err:
                raise AssertionError(f"{text!r} is not in:\n{out}{err}")
        return out

    def crun(self, words, code, *said, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        return self.end(self.start(CRUN, *words, **options), code, *said)

    def living(self):
        return living(self.cookie.encode())

    def cgroups(self):
        mounts = [line.split()[1] for line in read("/proc/mounts").decode().splitlines()
                  if line.split()[2] == "cgroup2"]
        return [d for m in mounts for d in os.listdir(m)
                if any(d.startswith(f"crun-{p.pid}-") for p in self.started)]

    def nothing_is_left(self):
        until(lambda: not self.living(), lambda: f"alive: {self.living()}", TIMEOUT)
        until(lambda: not self.cgroups(), lambda: f"cgroups: {self.cgroups()}", TIMEOUT)
        same(os.listdir(self.tmp), [])

    def close(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
                p.wait()
        shutil.rmtree(self.path)


def sh(script):
    return ["sh", "-c", script]


# says which signal it got, after it has said that it is ready
DUTIFUL = ("for s in INT TERM HUP QUIT; do trap \"echo got $s; exit 0\" $s; done;"
           "echo ready; while :; do sleep 0.02; done")


class Terminal:
    """crun as a separate session on a terminal."""

    program = (CRUN,)

    def __init__(self, place, *words, term="xterm"):
        self.place, self.said = place, b""
        self.master, slave = pty.openpty()
        self.p = place.start("setsid", "--ctty", *self.program, *words, stdin=slave,
                             stdout=slave, stderr=slave, env={**place.env, "TERM": term})
        os.close(slave)

    def read(self):
        """All that it has said until now."""
        if self.master >= 0 and select.select([self.master], [], [], 0)[0]:
            try:
                self.said += os.read(self.master, 65536)
            except OSError:
                pass
        return self.said

    def wait_for(self, text):
        until(lambda: text in self.read(), lambda: f"{text} in {self.said}", TIMEOUT)

    def type(self, keys):
        os.write(self.master, keys)

    def hang_up(self):
        os.close(self.master)
        self.master = -1

    def end(self, code):
        def over():
            self.read()
            return self.p.poll() is not None
        until(over, lambda: f"crun's end after {self.said}", TIMEOUT)
        if self.master >= 0:
            os.close(self.master)
        if shell_code(self.p.returncode) != code:
            raise AssertionError(f"{self.p.returncode} is not {code}: {self.said}")


def with_place(make_place, test):
    """The test with a place of its own, in which it leaves no process."""
    def whole(*_):
        p = make_place()
        try:
            test(p)
            p.nothing_is_left()
        finally:
            for pid in p.living():  # after a failure
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            until(lambda: not p.living(), "the end of all processes", TIMEOUT)
            p.close()
    whole.__name__ = test.__name__
    return whole
