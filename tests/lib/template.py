# SPDX-License-Identifier: MIT
"""
The guard's side of a template of workers, for tests of worker-lib/python/bootstrap: it starts
a template, sends requests, and adopts and reaps the workers.
"""
import ctypes
import os
import signal
import socket
import struct
import subprocess

import tempfile
import time

from process import ROOT, SECONDS, fail

BOOTSTRAP = ROOT / "worker-lib" / "python" / "bootstrap"
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
