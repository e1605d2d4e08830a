# SPDX-License-Identifier: MIT
"""The command line of chaos, and what it prints: see scripts/chaos --help."""
import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from faults import KINDS
from hosts import Net, mount_disk, unmount
from run import Run

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
NODES = 4
SAID_MAX = 8


def parse():
    parser = argparse.ArgumentParser(
        prog="scripts/chaos",
        description="Real crund, crun and workers on several hosts (network namespaces), "
                    "and faults at random moments, several at once; then what must hold is "
                    "checked. Needs root.")
    parser.add_argument("--seed", type=int, help="of the first run; the next ones count on")
    parser.add_argument("--minutes", type=float, default=1, help="run after run, for so long")
    parser.add_argument("--runs", type=int, help="so many runs instead")
    parser.add_argument("--faults", type=int, default=8, help="in a run (8)")
    parser.add_argument("--only", metavar="KIND,...",
                        help="these kinds of faults; a beginning of their names will do")
    parser.add_argument("--list", action="store_true", help="the kinds of faults, and exit")
    parser.add_argument("--keep", action="store_true", help="the folders of good runs too")
    parser.add_argument("--build", default=os.environ.get("BUILD", ROOT + "/build"))
    return parser.parse_args()


def available():
    """None, or why there can be no hosts here."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "nsenter"):
        if not shutil.which(tool):
            return f"{tool} is not installed"
    probe = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True)
    return None if probe.returncode == 0 else "namespaces cannot be made here"


def choose(only):
    if not only:
        return KINDS
    chosen = [k for k in KINDS if any(k.name.startswith(w) for w in only.split(","))]
    if not chosen:
        sys.exit(f"chaos: no kind of fault is called {only} (see --list)")
    return chosen


def list_kinds(net):
    for kind in KINDS:
        why = kind.missing(net)
        cost = "any" if kind.cost is None else kind.cost
        print(f"{kind.name:27} {kind.on:7} restarts: {cost:<4} {kind.seen}"
              + (f"  NOT HERE: {why}" if why else ""))


class Tally:
    """What was seen of each kind of fault."""

    def __init__(self):
        self.pauses, self.violations = {}, {}
        self.runs = self.bad = self.faults = 0

    def add(self, run):
        self.runs += 1
        self.bad += bool(run.violations)
        pauses = run.pauses()
        self.faults += len(pauses)
        for kind, pause in pauses:
            self.pauses.setdefault(kind.name, []).append(pause)
        if run.violations:
            for name in {kind.name for kind, _ in pauses}:
                self.violations[name] = self.violations.get(name, 0) + 1

    def print(self, kinds, net):
        print("| fault | times | pause of the training, median s | longest | in bad runs |")
        print("|---|---|---|---|---|")
        for kind in kinds:
            seen = self.pauses.get(kind.name, [])
            if seen:
                print(f"| {kind.name} | {len(seen)} | {statistics.median(seen):.2f} | "
                      f"{max(seen):.2f} | {self.violations.get(kind.name, '')} |")
        for kind in kinds:
            if why := kind.missing(net):
                print(f"not made here: {kind.name}: {why}")
        print(f"{self.runs} runs, {self.faults} faults of {len(self.pauses)} kinds, "
              f"{self.bad} runs with violations")


def tell(run, options, folder, seconds):
    kept = options.keep or run.violations
    print(f"seed {run.seed}: {'VIOLATIONS' if run.violations else 'ok'}, "
          f"{len(run.injected)} faults, {run.spent} restarts, ends by {run.plan.ending}, "
          f"{seconds:.1f} s" + (f", kept in {folder}" if kept else ""), flush=True)
    for line in run.violations[:SAID_MAX]:
        print("   ", line)
    if run.violations:
        only = f" --only {options.only}" if options.only else ""
        print(f"    again: scripts/chaos --seed {run.seed} --runs 1 "
              f"--faults {options.faults}{only}", flush=True)


def one(net, options, kinds, seed, tally):
    folder = tempfile.mkdtemp(prefix=f"chaos-{seed}-")
    os.makedirs(folder + "/chain/disk")
    begin = time.monotonic()
    mounted = net.disks and mount_disk(folder + "/chain/disk", "32m")
    run = Run(net, os.path.realpath(options.build), seed, options.faults, kinds, folder)
    try:
        net.begin(seed, folder)
        run.run()
        tally.add(run)
    finally:
        run.keep(folder)
        kept = options.keep or run.violations
        if kept:  # what is on small disks goes with them
            shutil.copytree(folder, folder + "~", symlinks=True)
        net.end()
        if mounted:
            unmount(folder + "/chain/disk")
        shutil.rmtree(folder, ignore_errors=True)
        if kept:
            os.rename(folder + "~", folder)
    tell(run, options, folder, time.monotonic() - begin)


def main():
    options = parse()
    if why := available():
        print(f"SKIPPED: chaos needs hosts of its own: {why}")
        return 77
    names = [f"node-{i}" for i in range(NODES)] + ["stranger", "rendezvous"]
    kinds = choose(options.only)
    net = Net(options.build + "/bin/chaos-relay", names)
    if options.list:
        list_kinds(net)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = options.seed if options.seed is not None else random.randrange(1 << 31)
    tally, end = Tally(), time.monotonic() + options.minutes * 60
    with net:
        while tally.runs < options.runs if options.runs else time.monotonic() < end:
            one(net, options, kinds, seed, tally)
            seed += 1
    tally.print(kinds, net)
    return 1 if tally.bad else 0


if __name__ == "__main__":
    sys.exit(main())
