#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 7 s
"""
The GPUs of the workers, with a stand-in for the driver's library: their load and their
troubles in the status, the events and the reports; and a driver that hangs costs nothing.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import fail, until  # noqa: E402
import control  # noqa: E402

BUILD = pathlib.Path(os.environ["BUILD"]).resolve()
CRUN, CRUNCTL = BUILD / "bin" / "crun", BUILD / "bin" / "crunctl"
WELL = "GPU-a percent=90 used=71000 total=81920\nGPU-b percent=100 used=1000 total=81920\n"


class Node:
    """A crun with the GPUs of its state file; without one it has no driver."""

    def __init__(self, world, *words, state=WELL, workers=2):
        self.base = tempfile.mkdtemp(dir=world.directory)
        self.state_path = self.base + "/state"
        env = dict(os.environ)
        if state is not None:
            self.set(state)
            env.update(LD_PRELOAD=str(BUILD / "lib" / "nvml_preload.so"),
                       NVML_GPUS="1b:GPU-a 5e:GPU-b", NVML_STATE=self.state_path,
                       ASAN_OPTIONS="verify_asan_link_order=0:" +
                       os.environ.get("ASAN_OPTIONS", ""))
        command = [str(w) for w in (
            CRUN, f"--rdzv-endpoint=127.0.0.1:{world.crund.port}", "--rdzv-id=job",
            f"--nproc-per-node={workers}", *words)]
        with open(self.base + "/err", "wb") as err:
            self.popen = subprocess.Popen(command, stdout=err, stderr=err, env=env,
                                          stdin=subprocess.DEVNULL)

    def set(self, text):
        with open(self.state_path + ".new", "w") as f:
            f.write(text)
        os.rename(self.state_path + ".new", self.state_path)

    @property
    def said(self):
        with open(self.base + "/err", errors="replace") as f:
            return f.read()

    def expect(self, code, *patterns):
        try:
            got = self.popen.wait(60)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            got = "none"
        if got != code:
            fail(f"exit code {got}, not {code}:\n{self.said}")
        for pattern in patterns:
            if not re.search(pattern, self.said):
                fail(f"nothing matches {pattern!r} in:\n{self.said}")


class World:
    """A crund, and what crunctl says of the job."""

    def __init__(self, directory):
        self.directory = tempfile.mkdtemp(dir=directory)
        self.crund = control.Crund(self.directory)
        self.go = self.directory + "/go"

    def ctl(self, *words):
        return subprocess.run([CRUNCTL, "-e", f"127.0.0.1:{self.crund.port}", *words],
                              capture_output=True, text=True, check=True).stdout

    def nodes(self):
        jobs = json.loads(self.ctl("status", "--json"))
        return jobs[0]["nodes"] if jobs else []

    def events(self):
        return [json.loads(line) for line in self.ctl("events", "--json").splitlines()]

    def until_go(self):
        """A program that waits for leave to end."""
        return ["sh", "-c", f"until [ -e {self.go} ]; do sleep 0.05; done"]

    def let_go(self):
        with open(self.go, "w"):
            pass


def the_status_shows_them(world):
    conf = "--rdzv-conf=lease=3"
    with_gpus = Node(world, "--nnodes=2", conf, *world.until_go(),
                     state=WELL.replace("GPU-b", "GPU-b slowed=64"))
    without = Node(world, "--nnodes=2", conf, *world.until_go(), state=None)
    until(lambda: any(n.get("gpus") for n in world.nodes()), with_gpus.__str__)
    until(lambda: re.search(r" GPU +MEM +PID", world.ctl("status")),
          lambda: world.ctl("status"))
    table = world.ctl("status")
    if not re.search(r"\s95% +69G +\d+ .*GPU 1 hot\n", table):
        fail("no load in:\n", table)
    if not re.search(r"\s- +- +\d+ +127.0.0.1(  -)?\n", table):
        fail("no node without GPUs in:\n", table)
    gpus = [n.get("gpus") for n in world.nodes()]
    expected = {"count": 2, "percent": 95, "used_mib": 71000, "total_mib": 81920,
                "celsius": 0, "watts": 0}
    if sorted(gpus, key=bool) != [None, expected]:
        fail("--json says", gpus)
    world.let_go()
    for node in (with_gpus, without):
        node.expect(0)


def troubles_are_told_once_and_explain_a_failure(world):
    """Rank 1 fails when it is let go, after its GPU has."""
    node = Node(world, "--rdzv-conf=lease=3", "sh", "-c",
                f"until [ -e {world.go} ]; do sleep 0.05; done; [ $RANK = 0 ] || exit 7; "
                "exec sleep 1000")
    until(lambda: any(n.get("gpus") for n in world.nodes()), "the first look")
    node.set(WELL.replace("GPU-b", "GPU-b errors=1 xid=79"))
    until(lambda: {"xid", "ecc"} <= {e["kind"] for e in world.events()}, "events")
    until(lambda: world.nodes()[0]["note"] == "GPU 1 XID 79", world.nodes)
    world.let_go()
    node.expect(7, r"what +exit code 7; GPU 1 \(0000:5e:00.0\) had XID 79 \S+ s before: "
                   "it has fallen off the bus")
    told = sorted(e["text"] for e in world.events() if e["kind"] in ("xid", "ecc"))
    if told != ["rank 1: GPU 1 (0000:5e:00.0) had 1 uncorrected memory error",
                "rank 1: GPU 1 (0000:5e:00.0) had XID 79: it has fallen off the bus"]:
        fail("events:", told)


def a_driver_that_hangs_does_not_cost_the_lease(world):
    node = Node(world, "--rdzv-conf=lease=3", *world.until_go())
    until(lambda: any(n.get("gpus") for n in world.nodes()), "the first look")
    node.set(WELL.replace("GPU-a", "GPU-a hang=1"))
    until(lambda: "GPU driver does not answer" in world.nodes()[0]["note"], world.nodes)
    if world.nodes()[0]["gpus"]:
        fail("old numbers are shown:", world.nodes())
    world.let_go()
    node.expect(0, "the driver of this node's GPUs does not answer")
    kinds = [e["kind"] for e in world.events()]
    if kinds.count("formed") != 1 or "lost" in kinds or "away" in kinds:
        fail("events:", world.events())


def a_sick_node_is_kept_out_and_named(world):
    """The others continue without it, whether it joins first, while they wait, or later."""
    flags = "--preflight", "--nnodes=1:2", "--rdzv-conf=lease=3,last_call_timeout=30"
    idle = "GPU-a percent=0\nGPU-b percent=0\n"
    sick = idle.replace("GPU-b", "GPU-b rows=1")
    what = r"GPU 1 \(0000:5e:00.0\) has faulty memory that waits to be remapped"
    Node(world, *flags, "true", state=sick, workers=2).expect(69, f"^crun: {what}.*\n$")
    well = Node(world, *flags, *world.until_go(), state=sick, workers=1)  # not its GPU
    until(lambda: len(world.nodes()) == 1, world.nodes)
    Node(world, *flags, "true", state=sick).expect(69, what)
    until(lambda: re.search(r"\S+ was refused: " + what, well.said), lambda: well.said)
    other = Node(world, *flags, *world.until_go(), state=idle, workers=1)
    until(lambda: "formed: 2 nodes" in well.said, lambda: well.said)
    Node(world, *flags, "true", state=sick).expect(69, what)
    until(lambda: len(re.findall(r"\S+ was refused: " + what, well.said)) == 2 and
          "was refused: " in other.said, lambda: well.said + other.said)
    world.let_go()
    for node in (well, other):
        node.expect(0)
    if sum(e["kind"] == "refused" for e in world.events()) != 2:
        fail("events:", world.events())


def a_sick_node_that_hosts_the_rendezvous_goes_on_with_that(world):
    world.crund.stop()
    flags = "--preflight", "--nnodes=1:2", "--rdzv-backend=c10d"
    idle = "GPU-a percent=0\nGPU-b percent=0\n"
    what = r"GPU 1 \(0000:5e:00.0\) has faulty memory that waits to be remapped"
    host = Node(world, *flags, "--rdzv-conf=is_host=1,last_call_timeout=0", "true",
                state=idle.replace("GPU-b", "GPU-b rows=1"))
    until(lambda: "as the host of the rendezvous" in host.said, lambda: host.said)
    Node(world, *flags, "--rdzv-conf=is_host=0,last_call_timeout=0", "true", state=idle).expect(0)
    host.expect(69, what)


def main():
    with tempfile.TemporaryDirectory() as directory:
        for case in (the_status_shows_them, troubles_are_told_once_and_explain_a_failure,
                     a_driver_that_hangs_does_not_cost_the_lease,
                     a_sick_node_is_kept_out_and_named,
                     a_sick_node_that_hosts_the_rendezvous_goes_on_with_that):
            world = World(directory)
            case(world)
            world.crund.stop()


if __name__ == "__main__":
    main()
