#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 10 s
"""Of many hosts the first ones connect to the others. In the place of ssh stands a script that
executes the command here; it writes down which process has called it."""
import os
import signal
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from launch import CRUN, TIMEOUT, Place, with_place  # noqa: E402
from process import lives, read, run, same, until  # noqa: E402

# The name of a host says how it behaves: closedN does not answer, keyN refuses every key, farN
# refuses all but the launcher, whose home is not that of a host.
FAKE = r'''#!/bin/sh
cd "$(dirname "$0")" || exit 255
host=$1; shift
echo "$$ $host ${FAKE_HOST:-launcher}" >>calls
case $host in
closed*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
key*) echo "$host: Permission denied (publickey)." >&2; exit 255 ;;
far*) [ -z "$FAKE_HOST" ] || { echo "$host: Permission denied (publickey)." >&2; exit 255; } ;;
hangs*) exec sleep 1000 ;;
esac
export HOME="$PWD/home.$host" FAKE_HOST=$host; mkdir -p "$HOME"
exec "$@"
'''


def hosts(p, names, *words):
    return ["--rsh", p.rsh, "-H", names, "--tree-above=2", *words]


def calls(p):
    """host: (pid of its far side, the host that has called it)"""
    lines = [line.split() for line in read(f"{p.path}/calls").decode().splitlines()]
    return {host: (int(pid), caller) for pid, host, caller in lines}


def written(p, name, count):
    def look():
        lines = read(f"{p.path}/{name}").decode().split()
        return lines if len(lines) == count else None
    return until(look, f"{count} words in {name}", TIMEOUT)


def gone(pids):
    until(lambda: not any(lives(int(pid)) for pid in pids), "the workers' end", TIMEOUT)


def test_the_first_hosts_connect_to_the_others(p):
    names = [f"h{i}" for i in range(9)]
    made = p.start(CRUN, *hosts(p, ",".join(names), "--host-prefix", "sh", "-c",
                                "echo $GROUP_RANK $WORLD_SIZE; echo err >&2"), stdin=subprocess.DEVNULL)
    out, err = made.communicate(timeout=TIMEOUT)
    same(made.returncode, 0)
    same(sorted(out.decode().splitlines()), [f"h{i}: {i} 9" for i in range(9)])
    same(sorted(line for line in err.decode().splitlines() if "crun:" not in line),
         [f"h{i}: err" for i in range(9)])
    callers = [caller for _, caller in calls(p).values()]
    same({c: callers.count(c) for c in callers}, {"launcher": 3, "h0": 2, "h1": 2, "h2": 2})


def test_output_of_all_sizes_arrives(p):
    out = p.crun(hosts(p, "h0,h1,h2,h3,h4", "sh", "-c", "yes $RANK | head -c 3000000"), 0)
    for rank in "01234":
        same(out.count(rank), 1500000)


def test_standard_input_and_exit_code(p):
    made = p.start(CRUN, *hosts(p, "h0,h1,h2,h3", "sh", "-c", "[ $RANK != 0 ] || cat; exit $((RANK * 2))",
                                "--max-restarts=0"), stdin=subprocess.PIPE)
    out, _ = made.communicate(b"x" * 300000, timeout=TIMEOUT)
    assert made.returncode in (2, 4, 6), made.returncode


def test_a_failure_is_that_of_its_host(p):
    p.crun(hosts(p, "h0,h1,h4,closed2,key3", "true"), 69, "2 of 5 hosts cannot take part",
           "closed2: did not answer: ssh: connect to", "key3: refused the key")
    same(calls(p)["closed2"][1] != "launcher", True)
    p.crun(hosts(p, "h0,h1,h2,h3", "--wdir=/nowhere", "true"), 2, "h0, h1, h2, h3: no such folder")
    # a far side that cannot take part still connects for others
    p.crun(hosts(p, "h0,h1,closed2,h3", "--nnodes=2:4", "sh", "-c", "echo $WORLD_SIZE"), 0,
           "the job starts with 3 of 4 hosts")


def test_what_another_host_cannot_reach_the_launcher_does(p):
    same(p.crun(hosts(p, "h0,h1,far2,h3", "sh", "-c", "echo $WORLD_SIZE"), 0), "4\n" * 4)
    same(calls(p)["far2"][1], "launcher")
    same(p.crun(hosts(p, "closed0,key1,h2,h3", "--nnodes=1:4", "sh", "-c", "echo $WORLD_SIZE"), 0),
         "2\n" * 2)


def test_signals_end_all_hosts(p):
    for signo, code in (signal.SIGINT, 130), (signal.SIGTERM, 143):
        made = p.start(CRUN, *hosts(p, "h0,h1,h2,h3,h4", "sh", "-c", "echo $$ >>up; sleep 100"),
                       stdin=subprocess.DEVNULL)
        pids = written(p, "up", 5)
        made.send_signal(signo)
        p.end(made, code)
        gone(pids)
        os.remove(f"{p.path}/up")


def test_the_launchers_death_ends_all_hosts(p):
    made = p.start(CRUN, *hosts(p, "h0,h1,h2,h3,h4", "sh", "-c", "echo $$ >>up; sleep 100"),
                   stdin=subprocess.DEVNULL)
    pids = written(p, "up", 5)
    made.kill()
    made.wait()
    gone(pids)


def test_a_lost_branch_is_named(p):
    for names, said in (("h0,h1,h2,h3", "the job ends"),):
        made = p.start(CRUN, *hosts(p, names, "sh", "-c", "echo $$ >>up; sleep 100"),
                       stdin=subprocess.DEVNULL)
        pids = written(p, "up", 4)
        os.kill(calls(p)["h1"][0], signal.SIGKILL)
        p.end(made, 69, "the connection to h1 is lost", said)
        gone(pids)


def test_an_elastic_job_loses_a_branch(p):
    script = "echo $$ >>up; while [ $WORLD_SIZE = 5 ]; do sleep 0.05; done"
    made = p.start(CRUN, *hosts(p, "h0,h1,h2,h3,h4", "--nnodes=1:5", "sh", "-c", script),
                   stdin=subprocess.DEVNULL)
    written(p, "up", 5)
    behind = [host for host, (_, caller) in calls(p).items() if caller == "h1"]
    os.kill(calls(p)["h1"][0], signal.SIGKILL)
    p.end(made, 0, "the connection to h1 is lost", *[f"the connection to {h} is lost" for h in behind])


def test_a_host_that_hangs_behind_another(p):
    made = p.start(CRUN, *hosts(p, "h0,h1,hangs2", "true"), stdin=subprocess.DEVNULL)
    until(lambda: len(calls(p)) == 3, "all calls", TIMEOUT)
    made.send_signal(signal.SIGINT)
    p.end(made, 130)



def make_place():
    p = Place()
    p.rsh = p.file("fakessh", FAKE)
    p.env["XDG_CONFIG_HOME"] = f"{p.path}/config"
    return p


if __name__ == "__main__":
    run([with_place(make_place, f) for name, f in list(globals().items()) if name.startswith("test_")])
