#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 15 s
# sanitizers: no, AddressSanitizer turns cores off
"""
The wire, the journal, the logs and the cores of a whole job with a key hold no key and no secret
of the store; the wire shows neither its hosts nor its name.
"""
import glob
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import hkdf  # noqa: E402
from process import BIN, children, fail, lives, read, run, stat_of, until  # noqa: E402
import host  # noqa: E402

ALL_REDUCE = BIN / "example-all-reduce"
ARGUMENT, VARIABLE, RUN = "argument-of-a-worker", "variable-of-a-worker", "name-of-the-run"
# what a job without a key shows on the wire; with one, none of it
IN_CLEAR = {"a name of a host": "node-1", "the name of the run": RUN,
            "an incarnation": '"incarnation"', "a key of the store": "rank/1/who"}
# its collective is over before it is seen to run
WORKER = f'"$0" && : > "$END.$RANK" && while [ ! -e "$END" ]; do sleep 0.05; done # {ARGUMENT}'


def may_dump():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)


def family(pid):
    return [pid] + [p for child in children(pid) for p in family(child)]


class Job:
    """Two nodes of worker-library ranks and a crund, captured from join to end."""

    def __init__(self, cluster, name, keyed, program=("sh", "-c", WORKER, ALL_REDUCE)):
        self.cluster, self.folder = cluster, pathlib.Path(cluster.directory) / name
        self.folder.mkdir()
        self.end = self.folder / "end"
        self.key = self.folder / "key"
        flags = [f"--key-file={self.key}"] if keyed else []
        if keyed:
            subprocess.run([BIN / "crunctl", "keygen", self.key], check=True, capture_output=True)
        self.sniffer = cluster[1].start([sys.executable, "-c", host.SNIFFER, cluster[1].interface,
                                         self.folder / "wire"])
        until(lambda: "ready" in self.sniffer.out, "the capture")
        self.crund = self.start(0, "crund", "--allow-root", "-v", f"--state-dir={self.folder}/state",
                                f"--listen={cluster[0].address}:0", *flags)
        port = until(lambda: re.search(r"listening on \S+:(\d+)", self.crund.err),
                     lambda: self.crund.err)[1]
        self.agents = [self.start(
            i, "crun", "-v", "--nnodes=2", f"--rdzv-endpoint={cluster[0].address}:{port}",
            f"--rdzv-id={RUN}", f"--log-dir={self.folder}/logs-{i}", "--max-restarts=0", *flags,
            *program) for i in range(2)]

    def has_met(self):
        until(lambda: len(glob.glob(f"{self.end}.?")) == 2,
              lambda: f"the ranks have met: {[a.err for a in self.agents]}")
        return self

    def start(self, i, program, *words):
        return self.cluster[i].start([BIN / program, *words], cwd=self.folder,
                                     preexec_fn=may_dump,
                                     env={"END": str(self.end), "VARIABLE": VARIABLE})

    def store_secret(self):
        """What the worker library gets from the agent of the node that has not the store."""
        for pid in family(self.agents[1].pid) + family(self.agents[0].pid):
            path = re.search(rb"CRUN_PROGRESS=(/[^\0]+)", read(f"/proc/{pid}/environ"))
            page = read(path[1].decode()) if path else b""
            at = page.find(b"crun1-store:")
            if at > 0:
                return page[at + 128:at + 160]
        return fail("no worker has a secret of the store")

    def wire(self):
        return (self.folder / "wire").read_bytes()

    def finish(self):
        self.end.touch()
        for a in self.agents:
            a.expect(0)
        self.crund.end()

    def loot(self):
        """(where, bytes) of all that is left in files and on terminals."""
        yield "the capture", self.wire()
        for path in [*self.folder.glob("state/*"), *self.folder.glob("logs-*/**/*"),
                     *self.folder.glob("dump-*")]:
            if path.is_file():
                yield str(path), path.read_bytes()
        for p in [self.crund, *self.agents]:
            yield f"what {p.command[0]} logs", p.err.encode()


def secrets_of(job):
    key = bytes.fromhex(job.key.read_text().strip().split(":")[4])
    plain = {"the key": key, "the PSK": hkdf(key, b"crun tls"),
             "the secret of the store": job.store_secret()}
    return {**plain, **{f"{name} in hex": value.hex().encode() for name, value in plain.items()}}


def force_cores(job):
    """Of the agents and their ranks, in a collective; not where cores are a program's."""
    if read("/proc/sys/kernel/core_pattern").strip() != b"core":
        return print("no cores: core_pattern is another program's")
    pids = []
    for agent in job.agents:
        pids += [p for p in family(agent.pid) if stat_of(p).name == "coll-bench"] + [agent.pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)  # or it would end when another has
    for pid in pids:
        os.kill(pid, signal.SIGABRT)
        os.kill(pid, signal.SIGCONT)
        until(lambda: not lives(pid), "a core")
        cores = [core for core in job.folder.glob("core*") if core.stat().st_size]
        if not cores:
            fail("there is no core of", stat_of(pid))
        cores[0].rename(job.folder / f"dump-{pid}")
    if len(pids) != 4:
        fail("these are not all processes:", pids)


def search(job, secrets, words):
    for where, data in job.loot():
        for name, secret in secrets.items():
            if secret in data:
                fail(name, "is in", where)
        for name, word in words.items():
            if "/dump-" not in where and word.encode() in data:
                fail(name, "is in", where)


def a_capture_of_a_job_without_a_key_shows_all(cluster):
    """So what is looked for in those with a key can be found. The journal has no incarnation."""
    job = Job(cluster, "plain", keyed=False).has_met()
    job.finish()
    for name, word in IN_CLEAR.items():
        if word.encode() not in job.wire():
            fail(name, "is not in the capture")
    incarnation = re.search(rb'"incarnation":\s*"([0-9a-f]{32})"', job.wire())[1]
    for where, data in job.loot():
        if where != "the capture" and bytes.fromhex(incarnation.decode()) in data:
            fail("an incarnation is in", where)
        if where != "the capture" and incarnation in data:
            fail("an incarnation in hex is in", where)


def what_is_stolen_of_a_job_with_a_key_is_of_no_use(cluster):
    job = Job(cluster, "keyed", keyed=True).has_met()
    secrets = secrets_of(job)
    job.finish()
    wire = job.wire()
    for name, word in IN_CLEAR.items():
        if word.encode() in wire:
            fail(name, "is in the capture")
    if b"crun1-store:" not in wire:
        fail("the capture does not have the store's connections")
    search(job, secrets, {"an argument": ARGUMENT, "a variable": VARIABLE})


def a_core_has_no_secret(cluster):
    job = Job(cluster, "cores", keyed=True,
              program=(BIN / "coll-bench", "--bytes=64K", "--iterations=1000000"))
    until(lambda: (job.folder / "wire").stat().st_size > 1 << 20, "a collective")
    secrets = secrets_of(job)
    force_cores(job)
    search(job, secrets, {})


if __name__ == "__main__":
    host.need()
    with host.Cluster(2) as both:
        run([a_capture_of_a_job_without_a_key_shows_all,
             what_is_stolen_of_a_job_with_a_key_is_of_no_use, a_core_has_no_secret], both)
