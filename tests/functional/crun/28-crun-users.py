#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 8 s
"""
Two users of one machine: what another user does to a job's rendezvous, its store, its
processes and files, and to a port that its rendezvous has left. Needs root.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, fail, free_port, living, run, skip, until  # noqa: E402
from control import (DONE, HEADER, HELLO, JOINED, PREFACE, STOP_JOB, WELCOME, frame,  # noqa: E402
                     hello, join)

ALICE, BOB, CAROL, SERVICE = 61001, 61002, 61003, 61004
LIBC = ctypes.CDLL(None)
SCRIPT = 'echo "at $MASTER_ADDR:$MASTER_PORT"; touch up.$RANK; while [ ! -e go ]; do sleep 0.05; done'


def number(value):
    return struct.pack("<Q", value)


STORE_HELLO = b"\x00" + struct.pack("<I", 0x3C85F7CE)
STORE_SET = STORE_HELLO + b"\x01" + number(1) + b"k" + number(1) + b"v"


class Folder:
    """A folder of ALICE's, programs that every user can run, and what was started."""

    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="crun-users-"))
        os.chmod(self.path, 0o711)
        self.bin = self.path / "bin"
        self.bin.mkdir()
        for name in ("crun", "crund", "crunctl"):
            shutil.copy2(BIN / name, self.bin / name)
        self.started = []
        self.cookie = f"CRUN_TEST_COOKIE={self.path.name}"

    def home(self, user):
        home = self.path / str(user)
        if not home.exists():
            home.mkdir(mode=0o700)
            os.chown(home, user, user)
        return home

    def start(self, user, *command, prefix=()):
        name, _, value = self.cookie.partition("=")
        env = {**os.environ, name: value, "HOME": str(self.home(user))}
        program, *rest = command
        p = Process([*prefix, self.bin / program, *rest], cwd=self.home(user), user=user,
                    group=user, extra_groups=[], env=env)
        self.started.append(p)
        return p

    def crun(self, user, port, *rest, nnodes=2, name="job", prefix=(), host="127.0.0.1"):
        return self.start(user, "crun", f"--nnodes={nnodes}", "--rdzv-backend=c10d",
                          f"--rdzv-endpoint={host}:{port}", f"--rdzv-id={name}",
                          "--no-python", *rest, "sh", "-c", SCRIPT, prefix=prefix)

    def crund(self, user, port):
        p = self.start(user, "crund", "--listen", f"127.0.0.1:{port}", "--state-dir",
                       self.home(user) / "state")
        until(lambda: "listening on" in p.err, lambda: f"crund: {p.err}")
        return p

    def crunctl(self, user, port, *words):
        p = self.start(user, "crunctl", f"--rdzv-endpoint=127.0.0.1:{port}", *words)
        p.wait()
        return p

    def wait_for_workers(self, user, count):
        until(lambda: len(list(self.home(user).glob("up.*"))) == count,
              lambda: "\n".join(p.err for p in self.started))

    def go(self, user):
        (self.home(user) / "go").touch()

    def close(self):
        for p in self.started:
            p.end()
        for pid in living(self.cookie.encode()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.path)
        for user in (ALICE, BOB, CAROL, SERVICE):  # users that are no more
            shutil.rmtree(f"/dev/shm/crun-{user}", ignore_errors=True)


def with_folder(test):
    def wrapped():
        folder = Folder()
        try:
            test(folder)
        finally:
            folder.close()
    wrapped.__name__ = test.__name__
    return wrapped


def as_user(user, what, *arguments):
    """What a process of that user gets from a function that returns JSON."""
    ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.write(ends[1], json.dumps(what(*arguments)).encode())
        finally:
            os._exit(0)
    os.close(ends[1])
    with os.fdopen(ends[0], "rb") as f:
        data = f.read()
    os.waitpid(pid, 0)
    return json.loads(data)


def connect_as(user, port, source=None, host="127.0.0.1"):
    """A socket belongs to the user whose process makes it."""
    LIBC.setfsuid(user)
    try:
        s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    finally:
        LIBC.setfsuid(0)
    s.settimeout(30)
    if source:
        s.bind((source, 0))
    s.connect((host, port))
    return s


def answer_to(user, port, data, **options):
    """All that comes until the connection is closed."""
    with connect_as(user, port, **options) as s:
        got = b""
        try:
            s.sendall(data)
            while more := s.recv(65536):
                got += more
        except (ConnectionResetError, BrokenPipeError):
            pass
        return got


def kinds_of(data):
    """The types of the messages in what an agent has sent."""
    kinds, data = [], data[len(PREFACE):]
    while len(data) >= HEADER.size:
        size, kind = HEADER.unpack_from(data)[:2]
        kinds.append(kind)
        data = data[HEADER.size + size:]
    return kinds


# -- a port that its rendezvous has left ----------------------------------------------


class Impostor:
    """A process of BOB that listens on a port, says that the job is done, and notes what
    it is told."""

    def __init__(self, port):
        self.notes = tempfile.TemporaryFile()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setresuid(BOB, BOB, BOB)
                self.serve(port)
            finally:
                os._exit(1)

    def serve(self, port):
        listener = socket.create_server(("127.0.0.1", port))
        while True:
            s, _ = listener.accept()
            data = b""
            try:
                while HELLO not in kinds_of(data):
                    data += s.recv(65536)
                s.sendall(frame(WELCOME, {"version": 3, "software": "crund"}) +
                          frame(JOINED, {"node": 0, "slot": 0}, 2) +
                          frame(DONE, {"reason": "success", "exit_code": 0}, 3))
                while more := s.recv(65536):
                    data += more
            except OSError:
                pass
            os.write(self.notes.fileno(), json.dumps(kinds_of(data)).encode() + b"\n")

    def told(self):
        size = os.fstat(self.notes.fileno()).st_size
        return [json.loads(line) for line in os.pread(self.notes.fileno(), size, 0).split(b"\n")
                if line]

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@with_folder
def an_impostor_on_the_port_of_a_dead_crund_is_an_outage(folder):
    port = free_port()
    crund = folder.crund(ALICE, port)
    agent = folder.crun(ALICE, port, "--rdzv-conf=is_host=0", nnodes=1)
    folder.wait_for_workers(ALICE, 1)
    crund.kill()
    crund.wait()
    impostor = Impostor(port)
    try:
        until(lambda: re.search(rf"127\.0\.0\.1:{port}: the port is held by uid {BOB}, not by "
                                rf"you, uid {ALICE}", agent.err), lambda: agent.err)
        until(lambda: len(impostor.told()) >= 2, lambda: agent.err)
    finally:
        impostor.end()
    for kinds in impostor.told():
        if kinds != [HELLO]:
            fail("the impostor was told", kinds)
    if agent.popen.poll() is not None:
        fail("the job has ended:", agent.err)
    folder.crund(ALICE, port)
    until(lambda: "is back" in agent.err or "again" in agent.err, lambda: agent.err)
    folder.go(ALICE)
    agent.expect(0)


@with_folder
def crunctl_believes_no_impostor(folder):
    port = free_port()
    impostor = Impostor(port)
    try:
        def ask():
            p = folder.crunctl(ALICE, port, "status")
            return p if "Connection refused" not in p.err else None
        p = until(ask, "the impostor")
        p.expect(69, f"the port is held by uid {BOB}, not by you, uid {ALICE}")
        if p.out:
            fail("crunctl has printed", p.out)
    finally:
        impostor.end()


# -- a running job --------------------------------------------------------------------


def what_opens(paths):
    """The paths that this user can open, or lock."""
    opened = []
    for path in paths:
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            try:
                os.close(os.open(path, flags | os.O_NONBLOCK))
                opened.append(f"{path} {flags}")
            except OSError:
                pass
    return opened


def what_can_be_signalled(pids):
    reached = []
    for pid in pids:
        try:
            os.kill(pid, 0)
            reached.append(pid)
        except (PermissionError, ProcessLookupError):  # it may have ended
            pass
    return reached


def paths_of(pids):
    paths = []
    for pid in pids:
        for name in ("environ", "maps", "mem"):
            paths.append(f"/proc/{pid}/{name}")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            paths += [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    return paths


def files_of(user):
    found = []
    for top in ("/dev/shm", "/tmp"):
        for entry in os.scandir(top):
            if entry.name.startswith("crun") and "crun-users-" not in entry.name and \
                    entry.stat(follow_symlinks=False).st_uid == user:
                found.append(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    found += [os.path.join(d, f) for d, _, files in os.walk(entry.path)
                              for f in files]
    return found


def attack_ports(rendezvous, store):
    """As BOB: nothing is answered, and what is left behind on a closed connection is not
    obeyed."""
    asks = PREFACE + hello() + frame(STOP_JOB, {"run_id": "job", "now": True}, 2)
    joins = PREFACE + hello("agent") + join()
    attempts = [(rendezvous, asks), (rendezvous, joins), (store, STORE_SET)]
    for port, data in attempts:
        for source in (None, "127.9.9.9"):
            got = answer_to(BOB, port, data, source=source)
            if got:
                fail("another user was answered", got)
        for _ in range(20):
            with connect_as(BOB, port) as s:
                s.sendall(data)
    return [connect_as(BOB, port) for port in (rendezvous, store) for _ in range(150)]


@with_folder
def another_user_gets_nothing_of_a_running_job(folder):
    port = free_port()
    agents = [folder.crun(ALICE, port, "--log-dir=logs", "--redirects=3") for _ in range(2)]
    folder.wait_for_workers(ALICE, 2)
    logs = folder.home(ALICE) / "logs"

    def address():
        text = "".join(f.read_text() for f in logs.rglob("stdout.log"))
        return re.search(r"at 127\.0\.0\.1:(\d+)", text)

    until(address, "no worker has printed the store's address")  # its log is written later
    store = int(address()[1])
    with connect_as(ALICE, store) as s:
        s.sendall(STORE_HELLO + b"\x0d1234")
        if s.recv(4) != b"1234":
            fail("the store does not serve its own user")
    pids = living(folder.cookie.encode())
    files = files_of(ALICE) + [str(f) for f in logs.rglob("*")] + [str(logs)]
    if len(pids) < 4:
        fail("processes of the job:", pids)
    opened = as_user(BOB, what_opens, paths_of(pids) + files)
    if opened:
        fail("another user can open", opened)
    if reached := as_user(BOB, what_can_be_signalled, pids):
        fail("another user can signal", reached)
    held = attack_ports(port, store)
    folder.crunctl(BOB, port, "status").expect(69)
    folder.crunctl(BOB, port, "stop", "--rdzv-id=job").expect(69)
    folder.crunctl(ALICE, port, "status").expect(0, "job")
    folder.crunctl(0, port, "status", f"--rendezvous-user={ALICE}").expect(0, "job")
    folder.go(ALICE)
    for agent in agents:
        agent.expect(0)
    for s in held:
        s.close()
    if f"refused: it is of uid {BOB}, and this is of uid {ALICE}" not in \
            agents[0].err + agents[1].err:
        fail("no line names the other user:", agents[0].err, agents[1].err)


@with_folder
def another_user_is_refused_over_ipv6(folder):
    if not os.path.exists("/proc/net/if_inet6"):
        print("skipped: no IPv6 here")
        return
    port = free_port()
    agents = [folder.crun(ALICE, port, host="[::1]") for _ in range(2)]
    folder.wait_for_workers(ALICE, 2)
    for data in (PREFACE + hello(), STORE_SET):
        if got := answer_to(BOB, port, data, host="::1"):
            fail("another user was answered", got)
    with connect_as(ALICE, port, host="::1") as s:
        s.sendall(PREFACE + hello())
        if not s.recv(100):
            fail("the own user was not answered")
    folder.go(ALICE)
    for agent in agents:
        agent.expect(0)


# -- one crund for several users ------------------------------------------------------


def jobs_seen(folder, user, port):
    p = folder.crunctl(user, port, f"--rendezvous-user={SERVICE}", "status", "--json")
    p.expect(0)
    return len(json.loads(p.out))


@with_folder
def users_of_one_crund_do_not_see_each_other(folder):
    port = free_port()
    folder.crund(SERVICE, port)
    trust = f"--rendezvous-user={SERVICE}"
    agents = {}
    for user in (ALICE, BOB):
        agents[user] = folder.crun(user, port, trust, "--rdzv-conf=is_host=0", nnodes=1,
                                   name="train")
        folder.wait_for_workers(user, 1)
    for user, count in ((ALICE, 1), (BOB, 1), (CAROL, 0), (0, 2), (SERVICE, 2)):
        if jobs_seen(folder, user, port) != count:
            fail(user, "sees", jobs_seen(folder, user, port), "jobs, not", count)
    folder.crunctl(CAROL, port, trust, "stop", "--rdzv-id=train").expect(
        1, 'there is no job "train" here')
    folder.crunctl(BOB, port, trust, "stop", "--rdzv-id=train").expect(0)
    agents[BOB].expect(143)
    if agents[ALICE].popen.poll() is not None:
        fail("the other user's job has ended:", agents[ALICE].err)
    folder.go(ALICE)
    agents[ALICE].expect(0)


@with_folder
def an_agent_that_names_no_user_does_not_join_another_ones_crund(folder):
    port = free_port()
    folder.crund(SERVICE, port)
    agent = folder.crun(ALICE, port, "--rdzv-conf=is_host=0,join_timeout=2", nnodes=1)
    if agent.wait() == 0:
        fail("it has joined:", agent.err)
    agent.expect(agent.wait(), f"the port is held by uid {SERVICE}, not by you, uid {ALICE}: "
                               "see --rendezvous-user")


# -- honest use -----------------------------------------------------------------------


@with_folder
def a_job_runs_in_a_user_namespace(folder):
    if subprocess.run(["unshare", "-r", "true"], user=ALICE, group=ALICE, extra_groups=[],
                      capture_output=True).returncode:
        print("skipped: no user namespaces here")
        return
    port = free_port()
    agents = [folder.crun(ALICE, port, prefix=["unshare", "-r"]) for _ in range(2)]
    folder.wait_for_workers(ALICE, 2)
    folder.crunctl(ALICE, port, "status").expect(0, "job")
    folder.go(ALICE)
    for agent in agents:
        agent.expect(0)


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("not root", "what users of one machine can do to each other's jobs")
    run([an_impostor_on_the_port_of_a_dead_crund_is_an_outage,
         crunctl_believes_no_impostor,
         another_user_gets_nothing_of_a_running_job,
         another_user_is_refused_over_ipv6,
         users_of_one_crund_do_not_see_each_other,
         an_agent_that_names_no_user_does_not_join_another_ones_crund,
         a_job_runs_in_a_user_namespace])
