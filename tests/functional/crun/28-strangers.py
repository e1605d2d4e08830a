#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 6 s
"""
What other users and other programs of the machine do beside a launch: they take ports and
names, and have processes and cgroups of their own. Neither harms the other.
"""
import contextlib
import errno
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (DONE, HEADER, HELLO, JOIN, JOINED, PREFACE, START, WELCOME,  # noqa: E402
                     frame)
from launch import CRUN, CRUNCTL, TIMEOUT, Place, sh  # noqa: E402
from process import (children, free_port, free_ports, lives, read, same, stat_of,  # noqa: E402
                     until)

OTHER_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class Squatter(threading.Thread):
    """Tries to take a port of 127.0.0.1 until it has it, or is told to end."""

    def __init__(self, port):
        super().__init__()
        self.port, self.over, self.taken = port, threading.Event(), False

    def run(self):
        while not self.over.is_set() and not self.taken:
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    s.bind(("127.0.0.1", self.port))
                    s.listen()
                except OSError:
                    continue
                self.taken = True
                self.over.wait()


@contextlib.contextmanager
def squatter_from_the_first_epoch_on(p, port, c):
    """The first worker has said the port, and fails once it is told to."""
    squatter = Squatter(port)
    same(c.stdout.readline(), f"{port}\n".encode())
    squatter.start()
    with open(f"{p.path}/begin", "w") as begin:
        begin.write("\n")
    try:
        yield
    finally:
        squatter.over.set()
        squatter.join()


def fails_at_each_start(p, port):
    os.mkfifo(f"{p.path}/begin")
    return sh(f"[ -e again ] || {{ echo {port}; read line < begin; }}; : > again; exit 3")


def the_port_of_the_store_stays_taken_between_epochs(p):
    """Of a launch that fails at each start, all restarts are used."""
    port = free_port()
    c = p.start(CRUN, f"--master-port={port}", "--max-restarts=3",
                *fails_at_each_start(p, port), stdin=subprocess.DEVNULL)
    with squatter_from_the_first_epoch_on(p, port, c):
        p.end(c, 3, "3 of 3 used")


def the_port_of_a_tunnel_stays_taken_between_epochs(p):
    """On the node that does not host the store."""
    master, store, port = free_ports(3)
    key = f"{p.path}/key"
    subprocess.run([CRUNCTL, "keygen", key], check=True, capture_output=True)
    nodes = ["--nnodes=2", "--rdzv-id=job", f"--master-port={master}", "--store-tunnel",
             f"--key-file={key}", "--max-restarts=2"]
    first = p.start(CRUN, *nodes, "--node-rank=0", f"--store-port={store}",
                    *sh("exec sleep 1000"), stdin=subprocess.DEVNULL)
    c = p.start(CRUN, *nodes, "--node-rank=1", f"--store-port={port}",
                *fails_at_each_start(p, port), stdin=subprocess.DEVNULL)
    with squatter_from_the_first_epoch_on(p, port, c):
        p.end(c, 3, "2 of 2 used")
        p.end(first, 3)


def tag_of(p):
    """The tag of a launch without a cgroup, which other users see in words of a process."""
    def found():
        for pid in os.listdir("/proc"):
            words = read(f"/proc/{pid}/cmdline").split(b"\0") if pid.isdigit() else []
            if words and words[0] == b"warden" and p.tmp.encode() in read(
                    f"/proc/{pid}/environ"):
                return words[3].decode()
        return None
    return until(found, "the warden")


def the_folder_of_the_logs_is_made_before_its_name_is_seen(p):
    """While a node waits for the others, there is time to make things of known names."""
    os.chmod(p.path, 0o755)
    os.chmod(p.tmp, 0o1777)
    port = free_port()
    nodes = ["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "-r3"]
    first = p.start(CRUN, *nodes, "echo", "said", stdin=subprocess.DEVNULL,
                    env={**p.env, "CRUN_NO_CGROUP": "1"})
    folder = f"{p.tmp}/crun_{tag_of(p)}"
    made = subprocess.run([*OTHER_USER, "mkdir", folder], capture_output=True)
    same(made.returncode, 1)
    second = p.start(CRUN, *nodes, "echo", "said", stdin=subprocess.DEVNULL)
    p.end(first, 0)
    p.end(second, 0)
    same([read(f).decode() for f in sorted(glob.glob(f"{p.tmp}/*/*/*/0/stdout.log"))],
         ["said\n"] * 2)
    shutil.rmtree(p.tmp)
    os.mkdir(p.tmp)


def orders_of_a_false_rendezvous(s, words):
    """To the agent at the other end of a connection: the job forms, and has succeeded."""
    instance = os.urandom(16)
    same(s.recv(len(PREFACE), socket.MSG_WAITALL), PREFACE)
    answers = {HELLO: [(WELCOME, {"version": 3, "software": "test"}, 0)],
               JOIN: [(JOINED, {"node": 0, "slot": 0, "lease_ms": 15000}, 0),
                      (START, {"group_rank": 1, "group_size": 2, "first_rank": 1,
                               "world_size": 2, "workers": 1, "slot": 1, "restarts": 0,
                               "max_restarts": 0, "address": "127.0.0.1", "port": 1}, 1)]}
    while answers:
        length, kind = HEADER.unpack(s.recv(HEADER.size, socket.MSG_WAITALL))[:2]
        s.recv(length, socket.MSG_WAITALL)
        for order, body, epoch in answers.pop(kind, []):
            s.sendall(frame(order, body, sequence=epoch, epoch=epoch, instance=instance))
    same(open(words).readline(), "begun\n")
    s.sendall(frame(DONE, {"reason": "success", "exit_code": 0, "text": "", "restarts": 0,
                           "max_restarts": 0}, sequence=2, epoch=1, instance=instance))


def workers_that_run_have_not_succeeded(p):
    """Whatever the rendezvous says: crun does not end with 0 in the middle of its work."""
    os.mkfifo(f"{p.path}/words")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT)
        c = p.start(CRUN, "--nnodes=2", "--rdzv-conf=is_host=0",
                    f"--rdzv-endpoint=127.0.0.1:{listener.getsockname()[1]}",
                    *sh("echo begun > words; exec sleep 1000"), stdin=subprocess.DEVNULL)
        with listener.accept()[0] as s:
            s.settimeout(TIMEOUT)
            orders_of_a_false_rendezvous(s, f"{p.path}/words")
            p.end(c, 1, "the workers of this node have not ended")


class Neighbours:
    """Processes, cgroups and files that look like those of a launch, or nearly."""

    TAG = "abcdefgh"
    GROUPS = ("crun-bob", "crun-0123456789abcdef.scope", f"crun-1-{TAG}-wxyz.scope",
              f"crun-1-{TAG}-wxyz")

    def __init__(self, p):
        self.p, self.processes, self.groups, self.files = p, [], [], []
        own = [line.split(":", 2) for line in read("/proc/self/cgroup").decode().split()]
        mount = [line.split()[1] for line in read("/proc/mounts").decode().splitlines()
                 if line.split()[2] == "cgroup2"]
        path = next((path for number, _, path in own if number == "0"), None)
        for name in self.GROUPS if mount and path else ():
            self.add_group(f"{mount[0]}{path.rstrip('/')}/{name}")
        self.add_process(CRUN_LAUNCH=self.TAG)  # without a lock there is no launch
        self.add_process(*OTHER_USER, CRUN_LAUNCH="othersaa")
        self.add_process(*OTHER_USER)
        for name in (f"/dev/shm/crun-0-{self.TAG}", "/dev/shm/crun-65534-othersaa",
                     "/dev/shm/crun-0-othersaa", f"{p.tmp}/crun_othersaa"):
            self.add_file(name)

    def add_process(self, *before, **more):
        c = subprocess.Popen([*before, "sleep", "1000"], env={**os.environ, **more},
                             start_new_session=True)
        self.processes.append(c)
        return c

    def add_group(self, path):
        def made():
            """An empty group may be removed by a launch beside this test."""
            try:
                os.mkdir(path)
                with open(f"{path}/cgroup.procs", "w") as procs:
                    procs.write(str(pid))
            except OSError as error:
                return error.errno not in (errno.ENOENT, errno.ENODEV)
            self.groups.append(path)
            return True
        pid = self.add_process().pid
        until(made, path)

    def add_file(self, path):
        with contextlib.suppress(FileExistsError), open(path, "x"):
            self.files.append(path)
            os.chown(path, 65534, 65534)

    def expect_all(self):
        same([c.args for c in self.processes if c.poll() is not None], [])
        same([path for path in self.groups + self.files if not os.path.exists(path)], [])

    def close(self):
        for c in self.processes:
            c.kill()
            c.wait()
        for path in self.groups:
            until(lambda at=path: not read(f"{at}/cgroup.procs"), "an empty group")
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)
        for path in self.files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def kill_launch(c):
    """All of its own processes at once, so that the next launch finds its leftovers."""
    def family():
        wardens = [pid for pid in children(c.pid) if stat_of(pid).name == "warden"]
        guards = [pid for parent in wardens or [c.pid] for pid in children(parent)
                  if stat_of(pid).name == "crun-guard"]
        return (wardens, guards) if guards else None

    # a worker may run while the warden is still being executed
    wardens, guards = until(family, "the guard")
    same(len(guards), 1)
    pids = [c.pid, *wardens, *guards]
    for signo in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, signo)
    c.wait()
    until(lambda: not any(lives(pid) for pid in pids), "their end")


def what_crun_did_not_start_is_not_ended(p):
    """By launches that end, that fail, and that clear up after one that was killed."""
    with contextlib.closing(Neighbours(p)) as neighbours:
        for more in ({}, {"CRUN_NO_CGROUP": "1"}):
            env = {**p.env, **more}
            p.crun(["true"], 0, env=env)
            p.crun(["--max-restarts=2", "--nproc-per-node=2", *sh("exit 3")], 3, env=env)
            c = p.start(CRUN, *sh("setsid sleep 1000 & echo begun; exec sleep 1000"),
                        env=env, stdin=subprocess.DEVNULL)
            same(c.stdout.readline(), b"begun\n")
            kill_launch(c)
            p.crun(["true"], 0, env=env)
            until(lambda: not p.living(), lambda: f"alive: {p.living()}")
            neighbours.expect_all()
    shutil.rmtree(p.tmp)  # a launch of another TMPDIR may have cleared up
    os.mkdir(p.tmp)


def what_crun_writes_is_for_its_user(p):
    """Unless another mode is chosen; and no link of another user leads it elsewhere."""
    os.chmod(p.path, 0o1777)
    os.umask(0o022)
    for more, readable in (["--log-dir=logs"], False), (["--log-dir=open", "--log-mode=644"],
                                                        True):
        events = f"{more[0][10:]}.events"
        p.crun([*more, "-r3", f"--events-file={events}", "echo", "token"], 0)
        log, = glob.glob(f"{p.path}/{more[0][10:]}/*_*/*/0/stdout.log")
        for path in (log, f"{p.path}/{events}"):
            same((read(path) != b"", path), (True, path))
            got = subprocess.run([*OTHER_USER, "cat", path], capture_output=True)
            same((path, got.returncode), (path, 0 if readable else 1))
    p.file("mine", "text")
    subprocess.run([*OTHER_USER, "ln", "-s", f"{p.path}/mine", f"{p.path}/link"], check=True)
    p.crun(["--events-file=link", "true"], 0, "continuing without it")
    p.crun(["false"], 1, env={**p.env, "TORCHELASTIC_ERROR_FILE": f"{p.path}/link"})
    same(read(f"{p.path}/mine"), b"text")


CHECKS = [
    what_crun_writes_is_for_its_user,
    what_crun_did_not_start_is_not_ended,
    workers_that_run_have_not_succeeded,
    the_folder_of_the_logs_is_made_before_its_name_is_seen,
    the_port_of_the_store_stays_taken_between_epochs,
    the_port_of_a_tunnel_stays_taken_between_epochs,
]


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIPPED: only root can be another user too")
        sys.exit(77)
    for check in CHECKS:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        with contextlib.closing(Place()) as place:
            check(place)
            place.nothing_is_left()
        print(f"ok {check.__name__}", flush=True)
