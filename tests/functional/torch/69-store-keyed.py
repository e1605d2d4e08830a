#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 25 s
# sanitizers: no, 29-store-owners has crun do the same
"""
An unmodified PyTorch program (gloo) on two hosts with a key: its store's connections are
vouched for, and carried in a tunnel with --store-tunnel. Every rank's environment is what
torchrun would give it.

    BUILD=build tests/functional/torch/69-store-keyed.py [TEST...]
"""
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, expect, fail, run  # noqa: E402
import host  # noqa: E402
from pytorch import SECONDS, TRAIN, check_world, said, torch_env  # noqa: E402


def train(cluster, env, directory, name, *flags):
    """The environments of all ranks, two on each node."""
    key = f"{directory}/key-{name}"
    subprocess.run([BIN / "crunctl", "keygen", key], check=True, capture_output=True)
    nodes = [cluster[i].start(
        [BIN / "crun", "--nnodes=2", f"--node-rank={i}", "--nproc-per-node=2",
         f"--master-addr={cluster[0].address}", f"--key-file={key}", "--warm=torch", *flags,
         TRAIN, "--epochs", "2", "--by-hand", "--checkpoint", f"{directory}/{name}.pt"],
        env={**env, "GLOO_SOCKET_IFNAME": cluster[i].interface, "TMPDIR": directory})
        for i in range(2)]
    for p in nodes:
        expect(p, 0, seconds=SECONDS)
    done = said("done", *nodes)
    if sorted(int(facts["rank"]) for facts in done) != list(range(4)):
        fail("ranks that are done:", done)
    if len({facts["sum"] for facts in done}) != 1:
        fail("the ranks differ:", done)
    found = said("env", *nodes)
    check_world(found, 2, 2)
    return {facts["MASTER_ADDR"] for facts in found}


def with_vouching(cluster, env, directory):
    found = train(cluster, env, directory, "vouching")
    if found != {cluster[0].address}:
        fail("MASTER_ADDR:", found)


def in_a_tunnel(cluster, env, directory):
    found = train(cluster, env, directory, "tunnel", "--store-tunnel")
    if found != {"127.0.0.1"}:
        fail("MASTER_ADDR:", found)


if __name__ == "__main__":
    host.need()
    with tempfile.TemporaryDirectory(prefix="crun-pytorch-") as where:
        torch = torch_env()
        with host.Cluster(2) as both:
            run([with_vouching, in_a_tunnel], both, torch, where)
