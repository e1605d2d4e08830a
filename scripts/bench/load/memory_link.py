#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two nodes, network namespaces on a link of --mbit, train with a checkpoint in memory at each step;
without copies and with copies at half of the link they take turns: what that costs, and its rate."""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "lib"))
import host  # noqa: E402
from process import BIN  # noqa: E402


def sent(node):
    """Bytes that have left it."""
    return int(subprocess.run(["ip", "netns", "exec", node.ns, "cat",
                               f"/sys/class/net/{node.interface}/statistics/tx_bytes"],
                              capture_output=True, text=True, check=True).stdout)


def train(cluster, copies, rate):
    """(seconds of the training, bytes that a node has sent in a second)."""
    with tempfile.TemporaryDirectory() as folder:
        before = sent(cluster[0])
        nodes = [cluster[i].start([
            BIN / "crun", "--nnodes=2", f"--node-rank={i}", f"--master-addr={cluster[0].address}",
            "--master-port=29500", "--nproc-per-node=1", f"--memory-copies={copies}",
            f"--memory-copy-rate={rate}", BIN / "train", "--zero", "--model=mlp", "--batch=32",
            "--train-limit=12800", "--passes=1", "--memory-every=1", f"--ckpt-dir={folder}"])
            for i in (0, 1)]
        for p in nodes:
            p.expect(0, seconds=600)
        seconds = float(re.search(r"^pass 1 .* ([\d.]+) s$", nodes[0].out, re.M).group(1))
        return seconds, (sent(cluster[0]) - before) / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    host.need()
    rate = args.mbit * 1000000 // 8 // 2
    took = {0: [], 1: []}
    with host.Cluster(2) as cluster:
        for node in cluster.nodes:
            subprocess.run(["tc", "-n", node.ns, "qdisc", "add", "dev", node.interface, "root", "tbf",
                            "rate", f"{args.mbit}mbit", "burst", "256k", "latency", "50ms"], check=True)
        for _ in range(args.rounds):
            for copies in 0, 1:
                took[copies].append(train(cluster, copies, rate))
    (alone, own), (with_copies, both) = ([statistics.median(column) for column in zip(*took[n])]
                                         for n in (0, 1))
    copied = both - own * alone / with_copies  # the training sends as much in a longer time
    print(f"| link of {args.mbit} Mbit/s, copies at most {rate / 1e6:.1f} MB/s | |\n|---|---|\n"
          f"| a training without copies | {alone:.1f} s |\n"
          f"| with copies | {with_copies:.1f} s, {with_copies / alone:.2f} times |\n"
          f"| rate of the copies | {copied / 1e6:.1f} MB/s |")


if __name__ == "__main__":
    main()
