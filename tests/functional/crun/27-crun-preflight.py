#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 15 s
# sanitizers: no, 18 and the unit tests of groups run the code
"""
crun --preflight on several hosts: a node that does not reach the others is named and kept
out, though it reaches the rendezvous, and the job goes on with the others if they suffice.
"""
import multiprocessing
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, expect, fail, living, stat_of, until  # noqa: E402
import host  # noqa: E402

DAEMON = 3  # the host that is no node of the job
WELL = r"preflight: {} nodes reach each other; all-reduce of 1 MiB over {} ranks \(shm\+tcp\): "


def join(cluster, name, size, i, command, patience=10, host=DAEMON, flag="--preflight"):
    return cluster[i].start(
        [BIN / "crun", flag, f"--nnodes={size}", f"--node-rank={i}",
         f"--rdzv-endpoint={cluster[host].address}:29400", f"--rdzv-id={name}",
         "--rdzv-backend=c10d", "--rdzv-conf=last_call_timeout=60", "--nproc-per-node=2", *command],
        env={"CRUN_PREFLIGHT_TIMEOUT": str(patience)})


def job(cluster, name, size, command, **options):
    """A crun on each of the three hosts."""
    return [join(cluster, name, size, i, command, **options) for i in range(3)]


def ends(p, code, *patterns, without=None):
    """It has said something like each, and nothing like that."""
    expect(p, code)
    said = p.out + p.err
    for pattern in patterns:
        if not re.search(pattern, said):
            fail(f"{p}: nothing like {pattern!r} in:\n{said}")
    if without and re.search(without, said):
        fail(f"{p}: there is {without!r} in:\n{said}")


def set_way(cluster, a, b, there):
    """Frames between the two hosts arrive, or are lost silently."""
    for here, other in ((cluster[a], cluster[b]), (cluster[b], cluster[a])):
        command = ["ip", "-n", here.ns, "neigh"]
        wrong = ["lladdr", "02:00:00:00:00:99", "nud", "permanent"]
        subprocess.run(command + (["del"] if there else ["replace"]) +
                       [other.address, "dev", here.interface] + ([] if there else wrong),
                       check=True)


class Cut:
    def __init__(self, cluster, *pairs):
        self.cluster, self.pairs = cluster, pairs

    def __enter__(self):
        for a, b in self.pairs:
            set_way(self.cluster, a, b, False)

    def __exit__(self, *_):
        for a, b in self.pairs:
            set_way(self.cluster, a, b, True)


ENV = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE, run $TORCHELASTIC_RUN_ID"]


def all_is_well(cluster):
    for n, p in enumerate(job(cluster, "well", 3, ENV, patience=60)):
        ends(p, 0, *[f"rank {r} of 6, run well\n" for r in (2 * n, 2 * n + 1)],
               *([WELL.format(3, 6)] if n == 0 else []))


def the_program_uses_the_library(cluster):
    """It finds nothing of the check's in the store, and nothing open."""
    command = ["sh", "-c", f"ls /proc/$$/fd; exec {BIN / 'example-all-reduce'}"]
    for p in job(cluster, "library", 3, command, patience=60):
        ends(p, 0, r"rank \d of 6 \(shm\+tcp\): the sum is 15\n", without="\n[4-9]\n")


def a_node_cut_off_from_the_others_is_kept_out(cluster):
    with Cut(cluster, (0, 2), (1, 2)):
        a, b, c = job(cluster, "cut", "2:3", ENV)
        why = "preflight: node-2 does not reach the node of rank 0: "
        ends(c, 69, why,
               without="rank . of")
        ends(a, 0, "rank 0 of 4", WELL.format(2, 4), why, without="rank . of 6")
        ends(b, 0, "rank 3 of 4", why)


def a_node_that_one_other_misses_is_kept_out(cluster):
    """Or ends the job, if too few would be left: that is a second job at the same time."""
    why = "preflight: node-2 has no connection with node-1\n"
    with Cut(cluster, (1, 2)):
        few = job(cluster, "few", 3, ENV)
        a, b, c = job(cluster, "pair", "2:3", ENV)
        ends(c, 69, why, without="rank . of")
        ends(a, 0, "rank 0 of 4", why)
        ends(b, 0, "rank 3 of 4", why)
        for p in few:
            ends(p, 69, why, without="rank . of")


def a_node_that_large_packets_do_not_reach_is_kept_out(cluster):
    """All small ones do, and so it has joined."""
    cluster[2].lose_large()
    a, b, c = job(cluster, "large", "2:3", ENV)
    why = r"preflight: node-2 loses large packets \(MTU\?\) to or from node-0, node-1\n"
    ends(c, 69, why, without="rank . of")
    ends(a, 0, "rank 0 of 4", WELL.format(2, 4), why)
    ends(b, 0, "rank 3 of 4", why)


def who_hosts_the_rendezvous_goes_on_with_that(cluster):
    """Its workers do not run; the others' do."""
    cluster[0].lose_large()
    a, b, c = job(cluster, "host", "2:3", ENV, host=0)
    why = r"preflight: node-0 loses large packets \(MTU\?\) to or from node-1, node-2\n"
    ends(b, 0, "rank 0 of 4", WELL.format(2, 4), why)
    ends(c, 0, "rank 3 of 4", why)
    ends(a, 69, why, "it stays as the host of the rendezvous", without="rank . of")


def it_is_for_all_nodes_or_for_none(cluster):
    a = join(cluster, "all", 2, 0, ENV, patience=60)
    until(lambda: "1 of 2 joined" in a.err, a.__str__)
    why = '"all" runs with another configuration: --preflight is given in the job and not given here'
    # without a key a node of another machine is told no value of the job
    ends(join(cluster, "all", 2, 1, ENV, flag="--verbose"), 2,
         '"all" runs with another configuration: --preflight differs', without="rank . of")
    until(lambda: "10.77.0.2) was refused: job " + why in a.err, a.__str__)
    b = join(cluster, "all", 2, 1, ENV, patience=60)
    ends(a, 0, "rank 0 of 4")
    ends(b, 0, "rank 3 of 4")


def where_rank_0_is_may_be_at_fault(cluster):
    with Cut(cluster, (0, 1), (0, 2)):
        a, b, c = job(cluster, "first", "2:3", ENV)
        why = "preflight: node-0 has no connection with node 1, node 2\n"
        ends(a, 69, why, without="rank . of")
        ends(b, 0, "rank 0 of 4", why)
        ends(c, 0, "rank 3 of 4", why)


def nothing_is_saved_of_a_program_that_does_not_run_yet(cluster):
    """The signal by which it would be asked for a checkpoint would end it."""
    with Cut(cluster, (1, 2)):
        a, b, c = job(cluster, "unsaved", "2:3", ["--checkpoint-signal=USR1", *ENV], patience=4)
        ends(c, 69, "preflight: node-2 has no connection with node-1\n")
        for p, rank in ((a, 0), (b, 3)):
            ends(p, 0, f"rank {rank} of 4", without="SIGUSR1")


def a_signal_to_save_does_not_end_the_check(cluster):
    p = looks_for_a_library(cluster)
    check = until(lambda: check_of(p), "the check")
    os.kill(stat_of(check).parent, signal.SIGUSR1)
    ends(p, 69, "preflight: .*: dlopen of NCCL has not returned", without="SIGUSR1")


def there_are_more_nodes_than_descriptors(cluster):
    """By the limit that the program is started with, and finds again."""
    size, limit = 12, 12
    runs = [cluster[n % 3].start(
        ["sh", "-c", f'ulimit -Sn {limit}; exec "$@"', "sh", BIN / "crun", "--preflight",
         f"--nnodes={size}", f"--rdzv-endpoint={cluster[DAEMON].address}:29400",
         "--rdzv-id=many", "--rdzv-backend=c10d", "sh", "-c", "echo limit $(ulimit -Sn)"],
        env={"CRUN_PREFLIGHT_TIMEOUT": "60"}) for n in range(size)]
    for p in runs:
        ends(p, 0, f"limit {limit}\n", without="has no connection")


def a_program_that_cannot_be_executed_is_not_started_again(cluster):
    """And no shell reports the signal as its own."""
    program = os.path.join(cluster.directory, "program")
    with open(program, "w", encoding="ascii") as f:
        f.write("echo rank $RANK of $WORLD_SIZE\n")
    os.chmod(program, 0o755)
    for p in job(cluster, "unrun", 3, ["--max-restarts=3", "--no-python", program], patience=60):
        ends(p, 1, "could not be started: Exec format error",
             without="rank . of|restart 1 of|final by")


def looks_for_a_library(cluster):
    """A crun with one worker; its check takes a while to be opened."""
    fifo = os.path.join(cluster.directory, "library")
    os.mkfifo(fifo)
    p = cluster[0].start([BIN / "crun", "--standalone", "--preflight", *ENV],
                         env={"CRUN_NCCL_LIBRARY": fifo, "CRUN_PREFLIGHT_TIMEOUT": "1"})
    p.mark = f"CRUN_NCCL_LIBRARY={fifo}\0".encode()
    return p


def check_of(p):
    """The process that makes it: the program's own is its parent."""
    own = [pid for pid in living(p.mark) if stat_of(pid).name.startswith("crun-preflight")]
    return next((pid for pid in own if stat_of(pid).parent in own), None)


def a_check_that_no_signal_ends_is_given_up(cluster):
    """Like a process that hangs in a driver: here it is stopped, and ignores alarms, too."""
    p = looks_for_a_library(cluster)
    os.kill(until(lambda: check_of(p), "the check"), signal.SIGSTOP)
    ends(p, 69, "preflight: does not end within 18 s", without="rank . of")


TESTS = (a_check_that_no_signal_ends_is_given_up, all_is_well, the_program_uses_the_library,
         nothing_is_saved_of_a_program_that_does_not_run_yet,
         a_signal_to_save_does_not_end_the_check, there_are_more_nodes_than_descriptors,
         a_program_that_cannot_be_executed_is_not_started_again,
         a_node_cut_off_from_the_others_is_kept_out,
         a_node_that_one_other_misses_is_kept_out,
         a_node_that_large_packets_do_not_reach_is_kept_out,
         who_hosts_the_rendezvous_goes_on_with_that, it_is_for_all_nodes_or_for_none, where_rank_0_is_may_be_at_fault)


def alone(test):
    with host.Cluster(4) as cluster:
        daemon = cluster[DAEMON].start(
            [BIN / "crund", "--listen", f"{cluster[DAEMON].address}:29400"])
        until(lambda: "listening" in daemon.err, daemon.__str__)
        test(cluster)
        print(f"ok: {test.__name__}", flush=True)


def main():
    why = host.available()
    if why:
        print(f"SKIPPED: {why}")
        sys.exit(77)
    # they mostly wait for absent nodes: each has its own hosts
    runs = [multiprocessing.Process(target=alone, args=(test,)) for test in TESTS]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    sys.exit(any(run.exitcode for run in runs))


if __name__ == "__main__":
    main()
