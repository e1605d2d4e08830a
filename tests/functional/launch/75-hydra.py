#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 2 s
# sanitizers: no, mpiexec's processes take most of the time
"""
`mpiexec.hydra -ppn 1 -hosts h1,h2 crun train.py`: MPICH's launcher starts a crun on each
host over a real sshd, and they find each other without any flag of crun.

    BUILD=build tests/functional/launch/75-hydra.py [TEST...]
"""
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, fail, run, same, until  # noqa: E402
import sshd  # noqa: E402

CRUN = BIN / "crun"
SHOW = "echo rank=$RANK world=$WORLD_SIZE on=$(hostname)"


def mpiexec(hosts, at, *words, env=None):
    return hosts.desk.start(
        ["mpiexec.hydra", "-launcher", "ssh", "-hosts", ",".join(at), "-ppn", "1", "-n", len(at),
         CRUN, *words], env=env)


def a_crun_on_each_host_is_a_node(hosts):
    p = mpiexec(hosts, ["h1", "h2", "h3"], "--nproc-per-node=2", "--no-python", "sh", "-c", SHOW)
    p.expect(0)
    same(sorted(p.out.split("\n")[:-1]),
         sorted(f"rank={r} world=6 on=h{r // 2 + 1}" for r in range(6)))


def two_jobs_at_once_do_not_mix(hosts):
    both = [mpiexec(hosts, at, "--no-python", "sh", "-c", SHOW)
            for at in (["h1", "h2"], ["h2", "h1"])]
    for p, at in zip(both, (["h1", "h2"], ["h2", "h1"])):
        p.expect(0)
        same(sorted(p.out.split("\n")[:-1]),
             [f"rank={r} world=2 on={name}" for r, name in enumerate(at)])


def a_worker_that_fails_ends_the_job(hosts):
    p = mpiexec(hosts, ["h1", "h2"], "--no-python", "sh", "-c",
                "if [ $RANK = 1 ]; then exit 37; fi; exec sleep 1000")
    same(p.wait(), 37)
    if "rank 1" not in p.err:
        fail(p.err)
    for name in ("h1", "h2"):
        until(lambda: not hosts[name].left(), lambda: f"left on {name}: {hosts[name].left()}")


def main():
    sshd.need("mpiexec.hydra", "csh")
    with sshd.Hosts({"h1": {}, "h2": {"shell": "/bin/csh"}, "h3": {}}) as hosts:
        run([a_crun_on_each_host_is_a_node, two_jobs_at_once_do_not_mix,
             a_worker_that_fails_ends_the_job], hosts)


main()
