#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Where a sync fails nobody is told anything, and crund ends with one line and status 74. The next
one has what was acknowledged before; 40-crund-crash kills it in between.
"""
import os
import shutil
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (Crund, END_OF_LIST, JOB_STATUS, JOINED, STATUS, Session,  # noqa: E402
                     WELCOME, frame, hello, join)
from process import SECONDS  # noqa: E402


def joined(port, run_id):
    s = Session(port)
    s.send(hello("agent") + join(run_id))
    s.expect(WELCOME)
    s.expect(JOINED)
    return s


def jobs(port):
    s = Session(port)
    s.send(hello() + frame(STATUS, sequence=2))
    s.expect(WELCOME)
    names = []
    while (message := s.receive())[0] != END_OF_LIST:
        assert message[0] == JOB_STATUS, message
        names.append(message[1]["run_id"])
    s.close()
    return sorted(names)


def failing_sync(directory):
    flag = os.path.join(directory, "fail")
    state = os.path.join(directory, "failing")
    library = os.path.abspath(os.path.join(os.environ.get("BUILD", "build"), "lib",
                                           "failing_sync_preload.so"))
    crund = Crund(directory, "--state-dir", state, name="failing",
                  env={"LD_PRELOAD": library, "FAILING_SYNC": flag,
                       "ASAN_OPTIONS": "verify_asan_link_order=0"})
    first = joined(crund.port, "before")
    before = len(crund.log().splitlines())
    open(flag, "w", encoding="ascii").close()
    try:
        joined(crund.port, "after")
        raise AssertionError("told that it has joined, though nothing was written")
    except Session.Closed:
        pass
    code = crund.process.wait(SECONDS)
    lines = [line for line in crund.log().splitlines()[before:] if "job \"" not in line]
    assert code == 74, f"exit code {code}: {crund.log()}"
    assert len(lines) == 1 and "Input/output error" in lines[0], crund.log()
    first.close()
    os.remove(flag)
    crund = Crund(directory, "--state-dir", state, name="mended")
    assert "before" in jobs(crund.port) and " resumed" in crund.log(), crund.log()
    assert crund.stop() == 0


def main():
    directory = tempfile.mkdtemp()
    try:
        failing_sync(directory)
    finally:
        shutil.rmtree(directory)


main()
