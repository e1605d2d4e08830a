#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 5 s
"""
TF_CONFIG under crun: TensorFlow's cluster resolver reads it when a strategy is made. Here a package
of the same names reads it, with what tfconfig_cluster_resolver.py of TensorFlow 2.21 does; the real
one takes minutes to install. With it:

    TENSORFLOW_PYTHON=venv/bin/python tests/functional/torch/64-tf-config.py
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
import host  # noqa: E402
from process import BIN, Process, same, until  # noqa: E402

CRUN = str(BIN / "crun")
REAL = os.environ.get("TENSORFLOW_PYTHON")
RESOLVER = """
import json, os
def _load_tf_config():
    return json.loads(os.environ.get('TF_CONFIG', '{}'))
class TFConfigClusterResolver:
    task_id = property(lambda self: _load_tf_config().get('task', {}).get('index'))
    def cluster_spec(self):
        return _load_tf_config().get('cluster', {})
"""
# as TensorFlow's server, each worker listens at its own address, and connects to the others'
PROGRAM = """
import json, os, socket, sys
before = os.environ.get("TF_CONFIG")
from tensorflow.python.distribute.cluster_resolver import tfconfig_cluster_resolver
resolver = tfconfig_cluster_resolver.TFConfigClusterResolver()
spec = resolver.cluster_spec()
workers = (spec if isinstance(spec, dict) else spec.as_dict()).get("worker", [])
if workers and "own" not in sys.argv:
    server = socket.create_server(("", int(workers[resolver.task_id].rpartition(":")[2])))
    for worker in workers:
        at = worker.rpartition(":")
        while True:
            try:
                socket.create_connection((at[0], int(at[2]))).close()
                break
            except ConnectionRefusedError:
                pass
    for _ in workers:
        server.accept()
epoch, rank = os.environ["CRUN_EPOCH"], os.environ["RANK"]
print(json.dumps([epoch, rank, before, workers, resolver.task_id, os.getpid()]), flush=True)
while epoch == "1" and "wait" in sys.argv:
    pass
"""


class Place:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        modules = self.directory / "modules"
        if not REAL:
            package = modules / "tensorflow/python/distribute/cluster_resolver"
            package.mkdir(parents=True)
            for folder in (package, *package.parents[:3]):
                (folder / "__init__.py").touch()
            (package / "tfconfig_cluster_resolver.py").write_text(RESOLVER)
        (self.directory / "program.py").write_text(PROGRAM)
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith(("TF_", "PYTHON"))}
        self.env.update(PYTHON_EXEC=REAL or sys.executable, XDG_CACHE_HOME=directory,
                        TF_CPP_MIN_LOG_LEVEL="3", PYTHONPATH=str(modules))
        self.program = str(self.directory / "program.py")

    def crun(self, *words, **env):
        return Process([CRUN, *words], env={**self.env, **env}, start_new_session=True)


def said(text, epoch="1"):
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("[")]
    return [line[1:] for line in lines if line[0] == epoch]


def is_one_cluster(lines, count, before=None):
    """All workers have the same addresses, each its own place in them. Returns the addresses."""
    same(sorted(int(rank) for rank, *_ in lines), list(range(count)))
    for rank, given, workers, index, _ in lines:
        same((given, index, workers), (before, int(rank), lines[0][2]))
    workers = lines[0][2]
    same((len(workers), len(set(workers))), (count, count))
    return workers


def workers_of_a_node_are_one_cluster(place):
    for words in ([], ["--watch"], ["--warm=tensorflow"]):
        p = place.crun("--nproc-per-node=3", *words, place.program)
        p.expect(0)
        is_one_cluster(said(p.out), 3)


def each_attempt_has_addresses_of_its_own(place):
    p = place.crun("--nproc-per-node=2", "--max-restarts=1", place.program, "wait")
    until(lambda: len(said(p.out)) == 2, lambda: p.out)
    os.kill(said(p.out)[0][-1], 9)
    p.expect(0)
    first, second = (is_one_cluster(said(p.out, epoch), 2) for epoch in "12")
    same(set(first) & set(second), set())


def nodes_are_one_cluster(place):
    why_not = host.available()
    if why_not:
        print(f"nodes_are_one_cluster is left out: {why_not}")
        return
    key = place.directory / "key"
    subprocess.run([BIN / "crunctl", "keygen", key], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    with host.Cluster(2) as cluster:
        # in a tunnel, the store is at a loopback address, which is no worker's
        for keyed in ([], [f"--key-file={key}"], [f"--key-file={key}", "--store-tunnel"]):
            words = ["--nnodes=2", f"--rdzv-endpoint={cluster[0].address}:29400",
                     "--nproc-per-node=2", *keyed, place.program]
            nodes = [node.start([CRUN, *words], env=place.env) for node in cluster.nodes]
            for p in nodes:
                p.expect(0)
            workers = is_one_cluster(said("".join(p.out for p in nodes)), 4)
            same(sorted(worker.rpartition(":")[0] for worker in workers),
                 [node.address for node in cluster.nodes for _ in range(2)])


def what_is_set_stays(place):
    own = json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 7}})
    p = place.crun("--nproc-per-node=2", place.program, "own", TF_CONFIG=own)
    p.expect(0)
    same([line[1:4] for line in said(p.out)], [[own, ["a:1"], 7]] * 2)
    p = place.crun("--nproc-per-node=1", place.program)
    p.expect(0)
    same([line[1:4] for line in said(p.out)], [[None, [], None]])


CHECKS = [workers_of_a_node_are_one_cluster, each_attempt_has_addresses_of_its_own,
          nodes_are_one_cluster, what_is_set_stays]

if __name__ == "__main__":
    if not host.available():
        host.enclose()
    with tempfile.TemporaryDirectory() as directory:
        here = Place(directory)
        for check in CHECKS:
            check(here)
            print(f"ok {check.__name__}", flush=True)
