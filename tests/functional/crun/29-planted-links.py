#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 2 s
"""
Another user puts links to this user's files into folders that both may write, under the
names that crun, its preflight and the worker library write to. The files stay as they are.
"""
import contextlib
import os
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from launch import Place, sh  # noqa: E402
from process import BIN, read, same, skip  # noqa: E402

STRANGER = 65534


def plant(p, name):
    """A link of the stranger to a file of this user. Returns both paths."""
    shared = os.path.join(p.path, "shared")
    if not os.path.isdir(shared):
        os.mkdir(shared)
        os.chmod(shared, 0o777)
    victim, link = p.file(f"victim-of-{name}", "mine"), os.path.join(shared, name)
    os.symlink(victim, link)
    os.lchown(link, STRANGER, STRANGER)
    return victim, link


def events(p):
    victim, link = plant(p, "events")
    p.crun(["--events-file", link, "true"], 0, "--events-file", "continuing without it")
    same(read(victim), b"mine")
    os.unlink(link)
    os.symlink(victim, link)  # this user's own link
    p.crun(["--events-file", link, "true"], 0)
    assert b'"kind":"formed"' in read(victim), read(victim)


def error_file_of_crun(p):
    victim, link = plant(p, "error.json")
    p.crun(sh("exit 3"), 3, env={**p.env, "TORCHELASTIC_ERROR_FILE": link})
    same(read(victim), b"mine")


def error_file_of_preflight(p):
    victim, link = plant(p, "error.json")
    preflight = p.start(str(BIN / "crun-preflight"), "/no/such/program",
                        env={**p.env, "TORCHELASTIC_ERROR_FILE": link})
    p.end(preflight, 127, "preflight: execve")
    same(read(victim), b"mine")


def flight_recorder(p):
    victims = [plant(p, f"flight-rank-{rank}.txt")[0] for rank in range(2)]
    p.crun(["--nproc-per-node=2", str(BIN / "worker-calls"), "abort"], 3,
           env={**p.env, "CRUN_FLIGHT_DIR": os.path.join(p.path, "shared")})
    for victim in victims:
        same(read(victim), b"mine")


def main():
    if os.geteuid() != 0:
        skip("another user's link needs root", "planted links")
    for check in (events, error_file_of_crun, error_file_of_preflight, flight_recorder):
        with contextlib.closing(Place()) as place:
            os.chmod(place.path, 0o755)
            check(place)
            place.nothing_is_left()


if __name__ == "__main__":
    main()
