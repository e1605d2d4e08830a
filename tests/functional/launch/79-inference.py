#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 5 s
# sanitizers: no, 18 has crun do the same
"""
The commands of launcher/man/inference.md, on two nodes that are network namespaces. vLLM and SGLang are
programs that take their flags (vllm/engine/arg_utils.py and vllm/entrypoints/cli/serve.py,
sglang/srt/server_args.py, November 2026) and meet at the address in them. After a failure the ports are
others, and no process of the attempt before is left. The newest Ray of PyPI, a minute on an idle
machine, runs if it is asked for; where cores are busy, Ray gives up by itself at times, and is restarted:

    tests/functional/launch/79-inference.py ray_symmetric_run
"""
import contextlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
import host  # noqa: E402
from process import BIN, ROOT, Process, fail, same, skip, until  # noqa: E402

SECONDS, RAY_SECONDS = 240, 600
CRUN = str(BIN / "crun")
PAGE = (ROOT / "launcher/man/inference.md").read_text()

# Each meets the others at the address that it was given, as PyTorch before 2.15 does under a
# launcher: as a client. Then node 1 fails once.
SERVER = """
import argparse, json, os, pathlib, socket, subprocess, sys, time
def serve(parser, address):
    a = parser.parse_args()
    host, port = address(a)
    socket.create_connection((host, port), 10).close()
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    epoch = int(os.environ["CRUN_EPOCH"])
    pathlib.Path(f"{os.environ['SAID']}/{epoch}.{a.node_rank}").write_text(json.dumps(
        [epoch, a.nnodes, a.node_rank, f"{host}:{port}", getattr(a, "headless", None), child.pid]))
    while not os.path.exists(f"{os.environ['SAID']}/{epoch}.{1 - a.node_rank}"):
        time.sleep(0.05)
    time.sleep(0.2)
    sys.exit(epoch == 1 and a.node_rank == 1)
"""
VLLM = """#!{python}
from servers import *
p = argparse.ArgumentParser(prog="vllm")
p.add_argument("command", choices=["serve"])
p.add_argument("model_tag", nargs="?")
p.add_argument("--headless", action="store_true")
p.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
p.add_argument("--master-addr", default="127.0.0.1")
p.add_argument("--master-port", type=int, default=29501)
p.add_argument("--nnodes", "-n", type=int, default=1)
p.add_argument("--node-rank", "-r", type=int, default=0)
serve(p, lambda a: (a.master_addr, a.master_port))
"""
SGLANG = """
from servers import *
p = argparse.ArgumentParser(prog="launch_server")
p.add_argument("--model-path", "--model", required=True)
p.add_argument("--tensor-parallel-size", "--tp-size", "--tp", type=int, default=1)
p.add_argument("--dist-init-addr", "--nccl-init-addr")
p.add_argument("--nnodes", type=int, default=1)
p.add_argument("--node-rank", type=int, default=0)
serve(p, lambda a: (a.dist_init_addr.rpartition(":")[0], int(a.dist_init_addr.rpartition(":")[2])))
"""
# as of Ray 2.60: the program runs on the first node, and if Ray does not start, the code is 0;
# the end of Ray is slow
RAY = """#!/bin/sh
[ "$*" != "${*#symmetric-run --address 127.0.0.1:* --min-nodes 1 -- sh}" ] || exit 9
[ -z "$RANK$WORLD_SIZE$LOCAL_RANK$MASTER_ADDR$TORCHELASTIC_USE_AGENT_STORE$JAX_PROCESS_ID" ] || exit 9
[ -z "$RAY_FAILS" ] || exit 0
while [ "$1" != -- ]; do shift; done
shift
"$@"
code=$?
[ $code = 0 ] || exec sleep 1000
exit $code
"""
# of verl/trainer/main_ppo.py: overrides of Hydra, and ray.init() in the cluster that is there
VERL = """
import json, os, sys, time
import ray
assert all("=" in word for word in sys.argv[1:]), sys.argv
ray.init(logging_level="error")
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def node():
    time.sleep(1)
    return ray.get_runtime_context().get_node_id()
nodes = set()
while len(nodes) < 2:
    nodes |= set(ray.get([node.remote() for _ in range(4)]))
print(json.dumps([os.environ["CRUN_EPOCH"], len(nodes), ray.get_runtime_context().gcs_address,
                  sys.argv[1:]]), flush=True)
time.sleep(1000)
"""


def blocks_of(section):
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"((?:^    .*\n)+)", text, re.M)


def command_of(section):
    """What stands after "srun crun" in a section of the page."""
    words = shlex.split(blocks_of(section)[-1].replace("\\\n", " "))
    same(words[:2], ["srun", "crun"])
    return words[2:]


class Place:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        for name, text in (("servers.py", SERVER), ("vllm", VLLM.format(python=sys.executable)),
                           ("sglang/launch_server.py", SGLANG), ("sglang/__init__.py", ""),
                           ("verl/__init__.py", ""), ("verl/trainer/__init__.py", ""),
                           ("verl/trainer/main_ppo.py", VERL), ("fake/ray", RAY),
                           ("ray-job", textwrap.dedent(blocks_of("Ray")[0]))):
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name in ("vllm", "fake/ray", "ray-job"):
            (self.directory / name).chmod(0o755)
        self.env = dict(os.environ, PYTHONPATH=directory, TMPDIR=directory)

    @contextlib.contextmanager
    def nodes(self, words, path, **env):
        """The command on two nodes, which see no processes of each other."""
        with host.Cluster(2) as cluster:
            own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", CRUN, "--nnodes=2",
                   f"--rdzv-endpoint={cluster[0].address}:29400"]
            yield [node.start([*own, *words], cwd=self.directory, env=dict(
                self.env, PATH=f"{path}:{os.environ['PATH']}", RAY_TMPDIR=f"{self.directory}/ray{i}",
                **env)) for i, node in enumerate(cluster.nodes)]


def processes():
    return subprocess.run(["ps", "-eo", "args"], stdout=subprocess.PIPE, text=True).stdout


def server_restarts(place, section, has_headless):
    said = place.directory / section
    said.mkdir()
    with place.nodes(command_of(section), place.directory, SAID=str(said)) as nodes:
        for p in nodes:
            p.expect(0, seconds=SECONDS)
    lines = sorted(json.loads(file.read_text()) for file in said.iterdir())
    same([line[:3] for line in lines], [[1, 2, 0], [1, 2, 1], [2, 2, 0], [2, 2, 1]])
    same([line[4] for line in lines], [False, True] * 2 if has_headless else [None] * 4)
    first, second = {line[3] for line in lines[:2]}, {line[3] for line in lines[2:]}
    same((len(first), len(second)), (1, 1))
    same("sleep 1000" in processes(), False)


def vllm_serve(place):
    server_restarts(place, "vLLM", True)


def sglang_launch_server(place):
    server_restarts(place, "SGLang", False)


def ray_that_does_not_start_is_a_failure(place):
    words = command_of("Ray")
    words = ["--max-restarts=0", *words[2:words.index("python")]]
    same(words[1], "./ray-job")
    for program, fails, wanted in (("exit 0", "", 0), ("exit 7", "", 7), ("exit 99", "", 99),
                                   ("kill -9 $$", "", 137), ("exit 0", "1", 1)):
        p = Process([CRUN, *words, "sh", "-c", program], cwd=place.directory, env=dict(
            place.env, RAY_FAILS=fails, PATH=f"{place.directory}/fake:{os.environ['PATH']}"))
        p.expect(wanted, *["ray-job: Ray ended before it had run the program"] * bool(fails))
        same(("ray-job:" in p.err, "/ended" in p.err), (bool(fails), False))


def said_by_verl(p):
    return [json.loads(line) for line in p.out.splitlines() if line.startswith('["')]


def ray_symmetric_run(place):
    found = subprocess.run([ROOT / "scripts" / "pypi-venv", "ray", "newest", "ray[default]"], stdout=subprocess.PIPE, text=True)
    if found.returncode == 77:
        print("ray_symmetric_run is left out: PyPI cannot be reached")
        return
    if found.returncode:
        fail("scripts/pypi-venv")
    script = place.directory / "ray-job"
    script.write_text(script.read_text().replace("--min-nodes", "--num-cpus=1 --min-nodes"))
    for i in range(2):
        (place.directory / f"ray{i}").mkdir()
    words = command_of("verl, OpenRLHF, slime")
    words[words.index("--max-restarts=3")] = "--max-restarts=9"
    with place.nodes(words, found.stdout.strip() + "/bin",
                     RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT="90") as nodes:
        until(lambda: len(said_by_verl(nodes[0])) == 1, lambda: f"{nodes[0]}\n{nodes[1]}", RAY_SECONDS)
        workers = subprocess.run(["pgrep", "-f", "/ray symmetric-run"], stdout=subprocess.PIPE,
                                 text=True).stdout.split()
        for pid in workers:
            if "NODE_RANK=1" in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0"):
                os.kill(int(pid), 9)
        until(lambda: len(said_by_verl(nodes[0])) == 2, lambda: f"{nodes[0]}\n{nodes[1]}", RAY_SECONDS)
        first, second = said_by_verl(nodes[0])
        # what Ray gives up by itself, on a busy machine, is an epoch more
        same((first[1], second[1], first[0] < second[0]), (2, 2, True))
        print(f"epochs {first[0]}, {second[0]}")
        same(first[2] != second[2], True)
        same(first[3][:2], ["trainer.nnodes=2", "trainer.n_gpus_per_node=8"])
        alive = processes()  # each of Ray has --gcs-address in its arguments
        same((first[2] in alive, second[2] in alive), (False, True))


CHECKS = [vllm_serve, sglang_launch_server, ray_that_does_not_start_is_a_failure]

if __name__ == "__main__":
    if host.available():
        skip("two nodes are network namespaces", host.available())
    host.enclose()
    with tempfile.TemporaryDirectory(prefix="crun-") as directory:
        here = Place(directory)
        for check in [ray_symmetric_run] if "ray_symmetric_run" in sys.argv[1:] else CHECKS:
            check(here)
            print(f"ok {check.__name__}", flush=True)
