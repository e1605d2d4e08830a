#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 25 s
# sanitizers: no, 22 and 70-chaos have crun do the same
"""
An unmodified PyTorch program (tests/programs/ddp_train.py, gloo) on two to three nodes with a
key, in one training from the first test to the last: the rendezvous dies and comes back, and no
worker notices; a node is lost, by the death of its agent and by a link that is cut, the
others go on from the checkpoint with a smaller world, and with the old one when it is back;
in the end all is well. Nodes are network namespaces, and the rendezvous is a crund on one
more. What cannot be had is said loudly, and the exit code is 77.

    BUILD=build tests/functional/torch/63-torch-elastic.py [TEST...]
"""
import signal
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, fail, run, until  # noqa: E402
import host  # noqa: E402
from pytorch import SECONDS, TRAIN, lives, said, skip, torch_env  # noqa: E402

WORLD = 3
FENCED = 75


class Daemon:
    """A crund on the last node, which may die and come back."""

    def __init__(self, cluster):
        self.node = cluster[WORLD]
        self.address = self.node.address + ":29400"
        self.state = cluster.directory + "/state"
        self.key = f"--key-file={cluster.directory}/key"
        subprocess.run([BIN / "crunctl", "keygen", cluster.directory + "/key"], check=True,
                       capture_output=True)
        self.start()

    def start(self):
        self.process = self.node.start([BIN / "crund", "--listen", ":29400", "--state-dir",
                                        self.state, self.key])
        until(lambda: "listening" in self.process.err, "crund listens", SECONDS)

    def kill(self):
        self.process.kill(signal.SIGKILL)
        self.process.wait()


class Job:
    """A training with one rank on each node; nodes are counted as at its beginning."""

    def __init__(self, cluster, env, daemon):
        self.env, self.daemon = env, daemon
        self.checkpoint = cluster.directory + "/checkpoint.pt"
        self.over = cluster.directory + "/over"
        started = [(node, self.crun(node)) for node in cluster.nodes[:WORLD]]
        for node, p in started:
            until(lambda: self.newest(p), f"the worker of {node.name}", SECONDS)
        started.sort(key=lambda pair: self.rank(pair[1]))
        self.nodes = [node for node, _ in started]
        self.cruns = [p for _, p in started]
        self.worlds = [[WORLD] for _ in started]  # that the crun on a node has had
        self.goes_on(range(WORLD))

    def crun(self, node):
        return node.start([BIN / "crun", "--nnodes=2:3", "--nproc-per-node=1",
                           "--max-restarts=0", "--rdzv-backend=c10d", "--rdzv-id=training",
                           f"--rdzv-endpoint={self.daemon.address}", "--rdzv-conf=lease=3",
                           self.daemon.key,
                           "--warm=torch",  # 13 workers, but 5 imports
                           TRAIN, "--epochs=1000000", "--batch-seconds=0.01", "--new-groups", "--by-hand",
                           f"--checkpoint={self.checkpoint}", f"--until={self.over}"],
                          env={**self.env, "GLOO_SOCKET_IFNAME": node.interface})

    @staticmethod
    def newest(p):
        """(environment, numbers of the training's epochs) of its newest worker, or None."""
        return (lives(p) or [None])[-1]

    def rank(self, p):
        return int(self.newest(p)[0]["RANK"])

    def epoch(self):
        """The newest of the training that any of the nodes has been through."""
        return max((e for p in self.cruns for _, epochs in lives(p) for e in epochs), default=-1)

    def passed(self, p, epoch, world):
        env, epochs = self.newest(p) or ({}, [])
        return env.get("WORLD_SIZE") == str(world) and epochs and epochs[-1] > epoch

    def goes_on(self, on, epochs=2):
        """These nodes go through some more epochs together, their ranks in the nodes' order."""
        epoch = self.epoch() + epochs - 1
        for i in on:
            end = time.monotonic() + SECONDS
            while not self.passed(self.cruns[i], epoch, len(on)):
                if time.monotonic() > end or self.cruns[i].popen.poll() is not None:
                    fail(f"epoch {epoch} with {len(on)} ranks:", *map(self.story, self.cruns))
                time.sleep(0.05)
        if [self.rank(self.cruns[i]) for i in on] != list(range(len(on))):
            fail("ranks:", [self.newest(p) for p in self.cruns])
        self.check_lives(on)

    def check_lives(self, on):
        """No start but those that were called for, no epoch twice, none left out."""
        for i in on:
            found = lives(self.cruns[i])
            worlds = [int(env["WORLD_SIZE"]) for env, _ in found]
            epochs = [e for _, epochs in found for e in epochs]
            if worlds != self.worlds[i]:
                fail(f"worlds of node {i}: {worlds}, not {self.worlds[i]}",
                     *map(self.story, self.cruns))
            # the last before a stop may have been saved and not told
            if not {b - a for a, b in zip(epochs, epochs[1:])} <= {1, 2}:
                fail("epochs of the training:", epochs)
            if {env["GROUP_RANK"] for env, _ in found if env["RANK"] != env["GROUP_RANK"]}:
                fail("GROUP_RANK:", found)

    @staticmethod
    def story(p):
        return f"\n-- {p}: exit code {p.popen.poll()}\n{p.out[-3000:]}{p.err}"

    def loses(self, lost):
        """That node is lost: the others continue without it."""
        on = [i for i in range(WORLD) if i != lost]
        for i in on:
            self.worlds[i].append(WORLD - 1)
        self.goes_on(on)

    def gets_back(self, lost):
        """It gets its old rank, and the training continues where the others were."""
        epoch = self.epoch()
        self.cruns[lost] = self.crun(self.nodes[lost])
        self.worlds[lost] = []
        for worlds in self.worlds:
            worlds.append(WORLD)
        self.goes_on(range(WORLD))
        if lives(self.cruns[lost])[0][1][0] <= epoch:
            fail("not from the checkpoint:", self.story(self.cruns[lost]))

    def exits(self, i, code):
        if self.cruns[i].wait(SECONDS) != code:
            fail(f"exit code, not {code}:", self.story(self.cruns[i]))


def the_rendezvous_dies_and_comes_back(job):
    job.daemon.kill()
    job.goes_on(range(WORLD), epochs=5)
    job.daemon.start()
    job.goes_on(range(WORLD), epochs=5)


def an_agent_dies(job):
    job.cruns[0].kill(signal.SIGKILL)  # with the store of all ranks
    job.exits(0, -signal.SIGKILL)
    job.loses(0)
    job.gets_back(0)


def a_link_is_cut(job):
    job.nodes[1].cut()
    job.loses(1)
    job.nodes[1].mend()
    job.exits(1, FENCED)
    job.gets_back(1)


def all_ends_well(job):
    open(job.over, "w").close()
    for i in range(WORLD):
        job.exits(i, 0)
    done = said("done", *job.cruns)
    if sorted(f["rank"] for f in done) != list("012") or len({f["sum"] for f in done}) != 1:
        fail("at the end:", done)


TESTS = [the_rendezvous_dies_and_comes_back, an_agent_dies, a_link_is_cut, all_ends_well]


def main():
    env = torch_env()
    why = host.available()
    if why:
        skip(why, "PyTorch was not run on nodes that are lost")
    with host.Cluster(WORLD + 1) as cluster:
        job = Job(cluster, env, Daemon(cluster))
        run(TESTS, job)


main()
