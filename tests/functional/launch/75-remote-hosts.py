#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 15 s
"""Hosts come and go while a job runs: the host file that changes, and SIGHUP. In the place of ssh
stands a script that executes the command here."""
import os
import signal
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from launch import CRUN, TIMEOUT, Place, with_place  # noqa: E402
from process import read, run, same, until  # noqa: E402

FAKE = r'''#!/bin/sh
cd "$(dirname "$0")" || exit 255
host=$1; shift
case $host in
closed*) [ -e open ] || { echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255; } ;;
esac
export HOME="$PWD/home.$host"; mkdir -p "$HOME"
exec "$@"
'''
# A rank says which size its world has, until there is a file "enough".
RANK = 'echo "$WORLD_SIZE" >>sizes; while [ ! -e enough ]; do sleep 0.05; done'
PATIENCE = 4 * TIMEOUT


def replace(p, name, text):
    p.file(name + ".new", text)
    os.rename(f"{p.path}/{name}.new", f"{p.path}/{name}")


def start(p, *words):
    # the world is to be known from files; the messages are looked at in the end
    p.errors = open(f"{p.path}/errors", "wb")
    return p.start(CRUN, "--rsh", p.rsh, *words, "sh", "-c", RANK, stdin=subprocess.DEVNULL,
                   stderr=p.errors)


def sizes(p, size, count):
    """All ranks of a world of this size have started."""
    until(lambda: read(f"{p.path}/sizes").decode().split().count(str(size)) == count,
          lambda: f"{count} ranks in a world of {size}: {read(p.path + '/sizes')} "
                  f"{read(p.path + '/errors').decode()}", PATIENCE)


def says(p, text):
    until(lambda: text in read(f"{p.path}/errors").decode(),
          lambda: f"{text!r}: {read(p.path + '/errors').decode()}", PATIENCE)


def finish(p, made):
    p.file("enough")
    out, _ = made.communicate(timeout=PATIENCE)
    if made.returncode:
        raise AssertionError(f"exit code {made.returncode}: {read(p.path + '/errors').decode()}")


def test_a_host_file_that_changes(p):
    replace(p, "hosts", "h1 slots=1\nh2 slots=1\n")
    made = start(p, "--hostfile", "hosts", "--nnodes=1:4")
    sizes(p, 2, 2)
    replace(p, "hosts", "h1 slots=1\nh2 slots=1\nh3 slots=2\n")
    sizes(p, 4, 4)
    says(p, "h3 is new in the list of hosts: its node joins the job")
    replace(p, "hosts", "h1 slots=1\nh3 slots=2\n")
    sizes(p, 3, 3)
    says(p, "h2 is gone from the list of hosts: its node leaves the job")
    replace(p, "hosts", "h1 slots=x\n")
    says(p, "the list of hosts stays as it was: --hostfile hosts:1: \"x\" is not a number of slots")
    made.send_signal(signal.SIGHUP)  # it is said once
    finish(p, made)
    same(read(f"{p.path}/errors").decode().count("stays as it was"), 1)


def test_sighup_tries_failed_hosts_again(p):
    replace(p, "hosts", "h1\nclosed2\n")
    made = start(p, "--hostfile", "hosts", "--nnodes=1:2")
    sizes(p, 1, 1)
    p.file("open")
    made.send_signal(signal.SIGHUP)
    sizes(p, 2, 2)
    finish(p, made)


def test_a_job_of_fixed_size_stays(p):
    replace(p, "hosts", "h1\n")
    made = start(p, "--hostfile", "hosts")
    sizes(p, 1, 1)
    replace(p, "hosts", "h1\nh2\n")
    says(p, "this job has a fixed number of nodes")
    finish(p, made)



def make_place():
    p = Place()
    p.rsh = p.file("fakessh", FAKE)
    p.env["XDG_CONFIG_HOME"] = f"{p.path}/config"
    return p


if __name__ == "__main__":
    run([with_place(make_place, f) for name, f in list(globals().items()) if name.startswith("test_")])
