# SPDX-License-Identifier: MIT
"""
The guard's side of a template of workers, for tests of worker-lib/python/bootstrap: it starts
a template, sends requests, and adopts and reaps the workers.
"""
import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

from process import ROOT, SECONDS, fail

BOOTSTRAP = ROOT / "worker-lib" / "python" / "bootstrap"
PYTHON = os.environ.get("PYTHON_EXEC") or shutil.which("python3")
PROGRAM = "import sys\nprint(*sorted(m for m in sys.modules if m.startswith('lib')))\n"
PR_SET_CHILD_SUBREAPER = 36
READY_S = 240
REFUSAL = "import sys; sys.exit('no bootstrap')"  # template_argv of agent/workers/warm.c


def pack(argv, env):
    """The payload of a request: guard_payload_pack of agent/guard/guard_wire.c."""
    words = [os.fsencode(word) for word in argv]
    entries = [os.fsencode(f"{name}={value}") for name, value in env.items()]
    at = 8 * (len(words) + len(entries) + 2)
    offsets, text = [], b""
    for group in (words, entries):
        for string in group:
            offsets.append(at + len(text))
            text += string + b"\0"
        offsets.append(0)
    fd = os.memfd_create("payload")
    os.write(fd, struct.pack(f"={len(offsets)}Q", *offsets) + text)
    return fd


def bootstrap_env(env, bootstrap=BOOTSTRAP, **more):
    """The environment of a worker or template as crun sets it."""
    path = env.get("PYTHONPATH")
    if path == "":
        more["CRUN_EMPTY_PYTHONPATH"] = 1
    return {**env, "PYTHONPATH": f"{bootstrap}:{path}" if path else str(bootstrap),
            **{name: str(value) for name, value in more.items()}}


class Worker:
    def __init__(self, guard, channel):
        self.guard, self.channel, self.pid = guard, channel, 0

    def wait_pid(self, seconds=SECONDS):
        """The pid that it sends; 0 if it closes its channel without one."""
        self.channel.settimeout(seconds)
        self.pid = int(self.channel.recv(32) or 0)
        return self.pid

    def go(self):
        self.channel.send(b"go")
        self.channel.close()

    def wait(self, seconds=SECONDS):
        """Its exit code, or -N for signal N."""
        end = time.monotonic() + seconds
        while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                fail(f"worker {self.pid} still runs after {seconds} s")
            time.sleep(0.002)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Template:
    """`command` is the workers' command: [python, "-u", program, ...]."""

    def __init__(self, command, env, modules="", cwd=None, limit=0,
                 bootstrap=BOOTSTRAP, before=lambda: None):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.messages = tempfile.TemporaryFile()
        more = {"CRUN_TEMPLATE_LIMIT": limit} if limit else {}
        env = bootstrap_env(env, bootstrap, CRUN_BOOTSTRAP="watch", CRUN_TEMPLATE_FD=3,
                            CRUN_TEMPLATE_MODULES=modules, CRUN_TEMPLATE_PARENT=os.getpid(),
                            **more)
        their_fd = theirs.fileno()

        def put_socket():
            before()
            os.dup2(their_fd, 3)

        refusing = [command[0], "-c", REFUSAL, *command]
        self.popen = subprocess.Popen(refusing, env=env, cwd=cwd, stdin=subprocess.DEVNULL,
                                      stdout=self.messages, stderr=self.messages,
                                      preexec_fn=put_socket, pass_fds=(3, ),
                                      start_new_session=True)
        theirs.close()

    @property
    def said(self):
        fd = self.messages.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode()

    def wait_ready(self, seconds=READY_S):
        """False if it ends instead."""
        self.socket.settimeout(seconds)
        try:
            while packet := self.socket.recv(64):
                if packet == b"ready":
                    return True
        except ConnectionError:
            pass
        return False

    def request(self, argv, env, stdio, is_tty=False, numa_node=-1):
        """A worker on its way; its pid has not come yet."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        payload = pack(argv, env)
        socket.send_fds(self.socket, [struct.pack("=IIIi", len(argv), len(env), is_tty, numa_node)],
                        [*stdio, payload, theirs.fileno()])
        os.close(payload)
        theirs.close()
        return Worker(self, ours)

    def end(self):
        self.socket.close()
        try:
            return self.popen.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            fail("a template outlives its guard")


class Place:
    """A folder with a program, libraries and a cache."""

    def __init__(self, program=PROGRAM, **libraries):
        self.path = tempfile.mkdtemp(prefix="crun-template-")
        os.mkdir(self.path + "/app")
        os.mkdir(self.path + "/lib")
        self.program = self.write("app/train.py", program)
        for name, text in libraries.items():
            self.write(f"lib/{name}.py", text)
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith("PYTHON")}
        self.env.update(PYTHONPATH=self.path + "/lib", XDG_CACHE_HOME=self.path + "/cache")
        self.command = [PYTHON, "-u", self.program]
        self.templates = []

    def write(self, name, text):
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def cached(self, kind):
        folder = self.path + "/cache/crun"
        names = [name for name in os.listdir(folder) if name.endswith("." + kind)] \
            if os.path.isdir(folder) else []
        if not names:
            return None
        with open(os.path.join(folder, names[0])) as file:
            return file.read().splitlines()[1:]

    def template(self, modules="", **options):
        template = Template(self.command, self.env, modules, cwd=self.path + "/app", **options)
        self.templates.append(template)
        return template

    def worker(self, template, **env):
        """Its output and exit code."""
        with tempfile.TemporaryFile() as out, open(os.devnull) as null:
            w = template.request(self.command, bootstrap_env({**self.env, **env},
                                                             CRUN_BOOTSTRAP="watch"),
                                 [null.fileno(), out.fileno(), out.fileno()])
            if not w.wait_pid():
                return "no worker", None
            w.go()
            code = w.wait()
            out.seek(0)
            return out.read().decode(), code

    def close(self):
        for template in self.templates:
            template.end()
        shutil.rmtree(self.path)


def with_place(test):
    """A decorator: the test gets the function that makes its place."""
    def called():
        places = []

        def make(*arguments, **libraries):
            places.append(Place(*arguments, **libraries))
            return places[-1]

        try:
            test(make)
        finally:
            for place in places:
                place.close()
    called.__name__ = test.__name__
    return called
