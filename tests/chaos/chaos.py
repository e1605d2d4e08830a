# SPDX-License-Identifier: MIT
"""The command line of chaos, and what it prints: see scripts/chaos --help."""
import argparse
import collections
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, __file__.rsplit("/chaos/", 1)[0] + "/lib")
from delays import Delays  # noqa: E402
from faults import KINDS  # noqa: E402
from hosts import Net, mount_disk, unmount  # noqa: E402
from run import Run  # noqa: E402

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
NODES = 4
NODES_KEEPING = 6
NODES_PAIR = 2
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
    parser.add_argument("--clusters", type=int, default=1, metavar="N",
                        help="so many at the same time, which share the seeds")
    parser.add_argument("--faults", type=int, default=8, help="in a run (8)")
    parser.add_argument("--in-turn", type=int, default=3, metavar="N",
                        help="so many more hosts are killed by R2-killed-in-turn (3)")
    parser.add_argument("--only", metavar="KIND,...",
                        help="these kinds of faults; a beginning of their names will do")
    parser.add_argument("--replicas", action="store_true",
                        help="the job's own nodes keep the rendezvous, and any of them may die")
    parser.add_argument("--pairs", action="store_true",
                        help="two nodes keep it, alone, with a directory or a crund as the witness")
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


def names(options):
    count = NODES_PAIR if options.pairs else NODES_KEEPING if options.replicas else NODES
    return [f"node-{i}" for i in range(count)] + ["stranger", "rendezvous"]


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


def record(run):
    """What is told of a run to those who count, as JSON."""
    return {"seed": run.seed, "bad": bool(run.violations), "starved": run.starved,
            "faults": run.observed()}


class Tally:
    """What was seen of each kind of fault."""

    def __init__(self):
        self.seen = {}  # by kind, of good runs
        self.bad_kinds = collections.Counter()
        self.runs = self.bad = self.starved = 0

    def add(self, told):
        self.runs += 1
        self.bad += told["bad"]
        self.starved += told["starved"]
        for fault in told["faults"]:
            self.seen.setdefault(fault["kind"], []).append(fault)
        if told["bad"]:
            self.bad_kinds.update({fault["kind"] for fault in told["faults"]})

    def row(self, name):
        seen = self.seen[name]
        pauses = [fault["pause"] for fault in seen]
        codes = sum((collections.Counter(fault["codes"]) for fault in seen),
                    collections.Counter())
        ends = ", ".join(f"{code}: {n}" for code, n in sorted(codes.items()))
        return (f"| {name} | {len(seen)} | {sum(not f['epochs'] for f in seen)} | {ends} | "
                f"{statistics.median(pauses):.2f} | {max(pauses):.2f} | "
                f"{self.bad_kinds[name] or ''} |")

    def print(self, kinds, net):
        print("| fault | times | the epoch went on | its crun ended by | pause of the training,"
              " median s | longest | in bad runs |")
        print("|---|---|---|---|---|---|---|")
        for kind in kinds:
            if kind.name in self.seen:
                print(self.row(kind.name))
        for kind in kinds:
            if why := kind.missing(net):
                print(f"not made here: {kind.name}: {why}")
        if self.starved:
            print(f"{self.starved} agents were taken for lost because this machine was late")
        print(f"{self.runs} runs, {sum(map(len, self.seen.values()))} faults of "
              f"{len(self.seen)} kinds, {self.bad} runs with violations")


def tell(run, options, folder, seconds):
    kept = options.keep or run.violations
    print(f"seed {run.seed}: {'VIOLATIONS' if run.violations else 'ok'}, "
          f"{len(run.injected)} faults, {run.spent} restarts, ends by {run.plan.ending}, "
          f"{seconds:.1f} s" + (f", kept in {folder}" if kept else ""), flush=True)
    for line in run.violations[:SAID_MAX]:
        print("   ", line)
    if run.violations:
        only = (f" --only {options.only}" if options.only else "") + (
            " --pairs" if options.pairs else " --replicas" if options.replicas else "")
        print(f"    again: scripts/chaos --seed {run.seed} --runs 1 "
              f"--faults {options.faults}{only}", flush=True)


def one(net, options, kinds, seed, delays):
    folder = tempfile.mkdtemp(prefix=f"chaos-{seed}-")
    os.makedirs(folder + "/chain/disk")
    begin = time.monotonic()
    mounted = net.disks and mount_disk(folder + "/chain/disk", "32m")
    run = Run(net, options, seed, kinds, folder, delays)
    try:
        net.begin(seed, folder)
        run.run()
        told = record(run)
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
    return told


def runs(options, kinds, seed, out):
    """One cluster's runs; a line to `out` for each."""
    end, left, delays = time.monotonic() + options.minutes * 60, options.runs, Delays()
    with Net(options.build + "/bin/chaos-relay", names(options)) as net:
        while left if options.runs else time.monotonic() < end:
            json.dump(one(net, options, kinds, seed, delays), out)
            print(file=out, flush=True)
            seed += options.clusters
            left = left and left - 1


def start_cluster(options, kinds, seed, write_fd):
    """A process of its own, for namespaces are named after one."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with os.fdopen(write_fd, "w") as out:
                runs(options, kinds, seed, out)
            code = 0
        except SystemExit as e:
            code = e.code
        except Exception:  # noqa: BLE001
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def count(options, kinds, seed):
    """The tally of all clusters, and whether they all came to their end."""
    read_fd, write_fd = os.pipe()
    sys.stdout.flush()
    pids = [start_cluster(options, kinds, seed + i, write_fd) for i in range(options.clusters)]
    os.close(write_fd)

    def end(*_):
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    tally = Tally()
    with os.fdopen(read_fd) as told:
        for line in told:
            tally.add(json.loads(line))
    ends = [os.waitpid(pid, 0)[1] for pid in pids]
    return tally, not any(ends)


def main():
    options = parse()
    if why := available():
        print(f"SKIPPED: chaos needs hosts of its own: {why}")
        return 77
    kinds = choose(options.only)
    net = Net(options.build + "/bin/chaos-relay", names(options))
    if options.list:
        list_kinds(net)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = options.seed if options.seed is not None else random.randrange(1 << 31)
    tally, complete = count(options, kinds, seed)
    tally.print(kinds, net)
    return 1 if tally.bad or not complete else 0


if __name__ == "__main__":
    sys.exit(main())
