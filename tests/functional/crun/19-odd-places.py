#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 3 s
# no root: nothing may be left behind without a cgroup either
"""
crun in odd places to start in: without descriptors, environment or working directory, with low
limits, as process 1, in a cgroup that was killed. After each, nothing of it is left.
"""
import glob
import os
import resource
import signal
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from launch import CRUN, DUTIFUL, TIMEOUT, Place, sh, with_place  # noqa: E402
from process import SANITIZED, own_cgroup, read, run, same, until  # noqa: E402


def closed_descriptors(p):
    c = p.start("sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", CRUN,
                *sh("ls /proc/self/fd > fds"))
    p.end(c, 0)
    same(read(os.path.join(p.path, "fds")).split(), [b"0", b"1", b"2", b"3"])


def long_words(p):
    env = dict(p.env, **{f"BIG{i}": "x" * 100000 for i in range(10)})
    out = p.crun(["sh", "-c", "echo $# ${#BIG9}", "sh", *["word"] * 10000], 0, env=env)
    same(out, "10000 100000\n")


def bare_environment(p):
    name, _, value = p.cookie.partition("=")
    p.crun(["/bin/true"], 0, env={name: value})


def no_working_directory(p):
    c = p.start("sh", "-c", 'mkdir g; cd g; rmdir ../g; exec "$@"', "sh", CRUN, "true",
                stdin=subprocess.DEVNULL)
    p.end(c, 0)


def few_descriptors(p):
    # those on their way to guards count for all processes of a user without privileges,
    # and crun keeps copies of what has to wait
    enough = (44, 64, 256) if os.getuid() == 0 else (64, 256)
    for limit in (12, 16, 24, 32, 36, *enough):
        def lower(limit=limit):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        c = p.start(CRUN, "--nproc-per-node=4", "true", preexec_fn=lower,
                    stdin=subprocess.DEVNULL)
        if limit < 40:
            p.end(c, 2, f"4 workers need 40 descriptors, the limit is {limit}; raise")
        else:
            p.end(c, 0)


def few_processes(p):
    if os.getuid() != 0 or SANITIZED:
        return  # the user's other processes count too, and ASan's threads
    os.chmod(p.path, 0o755)
    os.chmod(p.tmp, 0o777)
    user = 100000 + os.getpid()  # a user without other processes
    for most, code, words in ((5, 1, ("could not be started", "ulimit -u")),
                              (1, 2, ("start the guard: fork",))):
        c = p.start("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
                    "prlimit", f"--nproc={most}", CRUN, "--nproc-per-node=8", "sleep",
                    "100", stdin=subprocess.DEVNULL)
        p.end(c, code, *words)
        same(glob.glob(f"/dev/shm/crun-{user}*/*"), [])
    os.rmdir(f"/dev/shm/crun-{user}")


def process_one(p):
    if os.getuid() != 0:
        return  # there is no pid namespace to be had
    space = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", CRUN]
    c = p.start(*space, *sh("setsid sleep 0.01 & exit 3"), stdin=subprocess.DEVNULL)
    p.end(c, 3)


def process_one_is_ended(p):
    """The signal reaches crun as process 1, which has no default action for it."""
    if os.getuid() != 0:
        return
    c = p.start("unshare", "--pid", "--fork", "--mount-proc", CRUN, *sh(DUTIFUL),
                stdin=subprocess.DEVNULL)
    same(c.stdout.readline(), b"ready\n")
    inner, = read(f"/proc/{c.pid}/task/{c.pid}/children").split()
    os.kill(int(inner), signal.SIGTERM)
    p.end(c, 143, "got TERM")


def a_cgroup_that_was_killed(p):
    """Kernels from 6.14 on kill a process that is cloned from such a group into another one.
    Workers still start, in a separate group, also after a failure."""
    own = own_cgroup()
    if own is None:
        return
    # by a name that no other crun regards as a leftover of a crun
    path = os.path.join(own, "killed-" + os.path.basename(p.path))
    os.mkdir(path)
    try:
        with open(path + "/cgroup.kill", "w") as f:
            f.write("1")
        move = f'echo 0 > {path}/cgroup.procs && exec "$@"'
        c = p.start("sh", "-c", move, "sh", CRUN, "--nproc-per-node=2", "--max-restarts=1",
                    "--restart-backoff=0", *sh(
                        "grep ^0:: /proc/self/cgroup; exit $((1 - TORCHELASTIC_RESTART_COUNT))"),
                    stdin=subprocess.DEVNULL)
        groups = p.end(c, 0).split()
        if len(groups) < 3 or not all(f"/crun-{c.pid}-" in g for g in groups):
            raise AssertionError(f"workers were in {groups}")
        until(lambda: b"populated 0" in read(path + "/cgroup.events"), "the group is empty", TIMEOUT)
    finally:
        os.rmdir(path)


TESTS = [
    closed_descriptors,
    long_words,
    bare_environment,
    no_working_directory,
    few_descriptors,
    few_processes,
    process_one,
    process_one_is_ended,
    a_cgroup_that_was_killed,
]

run([with_place(Place, test) for test in TESTS])
