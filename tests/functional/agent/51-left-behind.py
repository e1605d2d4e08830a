#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Where agent, guard and warden are killed in one moment, and no cgroup holds what a worker
has started as a daemon, the next crun of that user ends it; and nothing else.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BUILD, children, fail, lives, read, stat_of, until  # noqa: E402

CRUN = str(BUILD / "bin" / "crun")
# a worker that leaves a daemon behind: in a separate session, and without a parent
DAEMON = 'setsid sh -c "echo \\$\\$ > $0.new; mv $0.new $0; exec sleep 1000" & exec sleep 1000'
NOBODY = 65534


def be_alone():
    """With a /dev/shm of our own, lest a crun of another test does what is looked at here."""
    how = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    mount = "mount -t tmpfs tmpfs /dev/shm"
    if subprocess.run([*how, "sh", "-c", mount], capture_output=True).returncode != 0:
        print("SKIPPED: there can be no mount namespace here")
        sys.exit(77)
    os.environ["ALONE"] = str(os.geteuid())
    os.execvp("unshare", [*how, "sh", "-c", mount + ' && chmod 1777 /dev/shm && exec "$@"', "sh",
                          sys.executable, os.path.abspath(__file__)])


def env(mode):
    return {**os.environ, **({} if mode == "cgroup" else {"CRUN_NO_CGROUP": "1"})}


def tag_of(pid):
    words = read(f"/proc/{pid}/environ").split(b"\0")
    return next((w[12:].decode() for w in words if w.startswith(b"CRUN_LAUNCH=")), None)


class Launch:
    """A crun with one worker, and the daemon of that."""

    all = []

    def __init__(self, folder, name, mode="session", user=None):
        path = os.path.join(folder, name)
        self.process = subprocess.Popen(
            [CRUN, "--standalone", "sh", "-c", DAEMON, path], env=env(mode),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, user=user)
        Launch.all.append(self)
        until(lambda: os.path.exists(path), f"the daemon of {name}")
        self.daemon = int(pathlib.Path(path).read_text())
        # in the middle of its exec it has none
        self.tag = until(lambda: tag_of(self.daemon), f"the tag of {name}")
        self.claim = f"/dev/shm/crun-{user or os.geteuid()}/{self.tag}"
        if not os.path.exists(self.claim):
            fail(f"there is no {self.claim}")

    def own(self):
        """Agent, reaper and guard, or agent and guard in a cgroup. A probe of the GPUs may be
        among the agent's children for a moment."""
        def found():
            named = {p: stat_of(p).name for p in children(self.process.pid)}
            reapers = [p for p, name in named.items() if name == "warden"]
            guards = [p for parent in reapers or [self.process.pid] for p in children(parent)
                      if stat_of(p).name == "crun-guard"]
            return guards and [self.process.pid, *reapers, *guards]
        return until(found, "the guard")

    def kill_all(self):
        pids = self.own()
        for signo in (signal.SIGSTOP, signal.SIGKILL):  # none of them sees the others' end
            for pid in pids:
                os.kill(pid, signo)
        self.process.wait()
        until(lambda: not any(lives(p) for p in pids), "the end of crun")

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def run(mode="session", user=None, **more):
    done = subprocess.run([CRUN, "--standalone", "true"], env={**env(mode), **more},
                          capture_output=True, text=True, timeout=60, user=user)
    if done.returncode != 0:
        fail(f"crun true: {done}")
    return done.stderr


def what_is_left_behind_is_ended(folder):
    live, dead = Launch(folder, "live"), Launch(folder, "dead")
    dead.kill_all()
    if not lives(dead.daemon):
        fail("the daemon has died by itself: nothing is tested")
    forged = subprocess.Popen(["sleep", "1000"], env={**os.environ, "CRUN_LAUNCH": "a" * 8})
    try:
        run(CRUN_LAUNCH=dead.tag)  # it may be below that launch itself
        if not lives(dead.daemon):
            fail("crun has ended those that it lives among")
        said = run()
        if "killed 1 process that a killed crun had left behind\n" not in said:
            fail(f"it says {said!r}")
        until(lambda: not lives(dead.daemon), "the end of the daemon")
        if os.path.exists(dead.claim):
            fail(f"{dead.claim} is left")
        if run():
            fail("it is said again")
        if not lives(live.daemon) or forged.poll() is not None:
            fail("others were hit")
    finally:
        forged.kill()
        forged.wait()
        live.end()
    until(lambda: not lives(live.daemon), "the end of the other launch")
    if os.path.exists(live.claim):
        fail(f"{live.claim} is left of a launch that ended")


def one_of_them_is_enough_to_clear_up(folder):
    """The claim goes with what the last one of them ends."""
    for victims in ([0], [0, 2], [1, 2]):  # agent; agent and guard; warden and guard
        launch = Launch(folder, f"part{len(victims)}{victims[0]}")
        pids = launch.own()
        for signo in (signal.SIGSTOP, signal.SIGKILL):
            for i in victims:
                with contextlib.suppress(ProcessLookupError):  # the others were quicker
                    os.kill(pids[i], signo)
        if 0 not in victims:
            launch.process.wait(60)
        until(lambda: not lives(launch.daemon), f"the end of the daemon, {victims}")
        until(lambda: not any(lives(p) for p in pids), f"the end of all, {victims}")
        launch.process.wait(60)
        run()  # what is left of the claim is removed by the next one at the latest
        if os.path.exists(launch.claim):
            fail(f"{launch.claim} is left, {victims}")


def another_users_are_left_alone(folder):
    if os.environ["ALONE"] != "0":
        return
    os.chmod(folder, 0o777)
    global CRUN  # where they can reach it
    CRUN = shutil.copy(CRUN, folder)
    theirs = Launch(folder, "theirs", user=NOBODY)
    theirs.kill_all()
    run()
    if not lives(theirs.daemon) or not os.path.exists(theirs.claim):
        fail("another user's daemon was ended")
    run(user=NOBODY)
    until(lambda: not lives(theirs.daemon), "the end of the daemon")


def in_a_cgroup_it_is_ended_all_the_same(folder):
    dead = Launch(folder, "held", mode="cgroup")
    dead.kill_all()
    run("cgroup")
    until(lambda: not lives(dead.daemon), "the end of the daemon")
    if os.path.exists(dead.claim):
        fail(f"{dead.claim} is left")


def main():
    with tempfile.TemporaryDirectory() as directory:
        for test in (what_is_left_behind_is_ended, one_of_them_is_enough_to_clear_up,
                     another_users_are_left_alone, in_a_cgroup_it_is_ended_all_the_same):
            test(directory)
            print(f"ok: {test.__name__}", flush=True)


if "ALONE" not in os.environ:
    be_alone()
try:
    main()
finally:
    for launch in Launch.all:
        launch.process.kill()
