#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 12 s
# sanitizers: no, the unit tests of backends have threads do the same
"""
The worker library between nodes, which are network namespaces: which backend a world
takes, right results in worlds of all shapes, and what the ranks say when one of them is
killed, stopped or cut off.
"""
import signal
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, expect, fail, run, until  # noqa: E402
import host  # noqa: E402

BENCH = BIN / "coll-bench"
SWEEP = ["--check", "--json", "--min-bytes=4", "--max-bytes=1M", "--factor=512",
         "--iterations=3"]


def under_crun(cluster, workers, *flags):
    """A job with so many workers on each node; the processes of crun, by node."""
    return [cluster[i].start(
        [BIN / "crun", f"--nnodes={len(workers)}", f"--node_rank={i}",
         f"--master_addr={cluster[0].address}", "--master_port=29500",
         f"--nproc_per_node={n}", BENCH, *flags])
        for i, n in enumerate(workers)]


def worlds_of_all_shapes(cluster):
    for workers, backend in (([1, 1], "tcp"), ([2, 2], "shm+tcp"), ([3, 1], "shm+tcp"),
                             ([1, 2, 1], "shm+tcp")):
        for op in ("all_reduce", "broadcast", "reduce_scatter", "all_gather",
                   "all_to_all", "barrier", "sendrecv"):
            job = under_crun(cluster, workers, *SWEEP, f"--op={op}")
            expect(job[0], 0, f'"backend": "{backend}"', '"errors": 0',
                   f'"ranks": {sum(workers)}')
            for p in job[1:]:
                expect(p, 0)


def backends_by_name(cluster):
    job = under_crun(cluster, [2, 2], *SWEEP, "--backend=tcp")
    for p in job:
        expect(p, 0)
    if '"backend": "tcp"' not in job[0].out:
        fail("--backend=tcp took", job[0].out)
    for p in under_crun(cluster, [1, 1], *SWEEP, "--backend=shm"):
        expect(p, 1)


# -- without a launcher, so that only the library ends the others -------------------


def alone(cluster, ranks_of, *flags, timeout=60, port=29600):
    """Ranks dealt to nodes; rank 0 serves the store. Their processes, by rank."""
    size, started, rank = sum(ranks_of), [], 0
    for index, count in enumerate(ranks_of):
        for local in range(count):
            env = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local,
                   "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": cluster[0].address,
                   "MASTER_PORT": port, "CRUN_TIMEOUT": timeout}
            started.append(cluster[index].start(
                [BENCH, *flags], env={k: str(v) for k, v in env.items()}))
            rank += 1
    return started


ENDLESS = ["--bytes=1M", "--iterations=1000000", "--warmup=0"]


def at_work(ranks):
    """They have met, and use their processors."""
    until(lambda: "# all_reduce" in ranks[0].out, "the ranks' meeting")
    time.sleep(0.2)  # a while into their work, wherever that is


SHAPES = ([1, 1, 1], [2, 2])


def a_killed_rank_is_named_by_all(cluster):
    for shape in SHAPES:
        ranks = alone(cluster, shape, *ENDLESS, timeout=1000)
        at_work(ranks)
        ranks[2].kill()
        for p in ranks[:2] + ranks[3:]:
            expect(p, 1, "coll-bench: ", "rank 2")


def a_stopped_rank_is_named_by_all(cluster):
    worlds = []
    for i, shape in enumerate(SHAPES):
        worlds.append(alone(cluster, shape, *ENDLESS, timeout=2, port=29601 + i))
        at_work(worlds[-1])
        worlds[-1][2].kill(signal.SIGSTOP)
    for ranks in worlds:
        for p in ranks[:2] + ranks[3:]:
            expect(p, 1, "coll-bench: timeout: ", "for rank 2")
        ranks[2].kill(signal.SIGCONT)
        expect(ranks[2], 1)


def a_node_that_is_cut_off_is_named(cluster):
    ranks = alone(cluster, [1, 1, 1], *ENDLESS, timeout=2)
    at_work(ranks)
    cluster[2].cut()
    try:
        for p in ranks[:2]:
            expect(p, 1, "coll-bench: timeout: ", "rank 2")
        expect(ranks[2], 1, "coll-bench: timeout: ")
    finally:
        cluster[2].mend()


def main():
    host.need()
    with host.Cluster(3) as cluster:
        run((worlds_of_all_shapes, backends_by_name,
                   a_killed_rank_is_named_by_all, a_stopped_rank_is_named_by_all,
                   a_node_that_is_cut_off_is_named), cluster)


main()
