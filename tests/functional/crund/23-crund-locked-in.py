#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 3 s
# sanitizers: no, they look into their process when it ends
"""
What crund gives up once it listens: somebody who runs code inside it finds no program, no
process, no file but the journal and the keys, and no connection to elsewhere. What it says
about that is true, and it works as before.
"""
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (Crund, JOINED, REFUSED, RESUME, Session, WELCOME, frame,  # noqa: E402
                     hello, join)
from process import SECONDS  # noqa: E402

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
REFUSED_INSIDE = ("program", "fork", "clone3", "read", "folder", "write", "connect")


def until(what, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return found


def escapes(d, *flags):
    """How what is tried inside ends, by name, and the crund."""
    state = os.path.join(d, "state")
    listener = socket.create_server(("127.0.0.1", 0))
    crund = Crund(d, "--state-dir", state, *flags,
                  env={"LD_PRELOAD": f"{BUILD}/lib/escape_preload.so",
                       "ESCAPE_PORT": str(listener.getsockname()[1]),
                       "ESCAPE_STATE": f"{state}/journal"})
    os.kill(crund.pid, signal.SIGUSR2)
    until(lambda: "escape end" in crund.log())
    return dict(re.findall(r"escape (\w+): (\w+)", crund.log())), crund


def line_of(crund, words):
    return until(lambda: next((x for x in crund.log().splitlines() if words in x), None))


def nothing_else_can_be_reached(d):
    found, crund = escapes(d)
    said = line_of(crund, "locked in: ")
    if "; not:" in said:
        print("SKIPPED in part:", said)
    for name in REFUSED_INSIDE:
        by_seccomp = name in ("program", "fork", "clone3", "connect")
        if ("seccomp" if by_seccomp else "Landlock") in said:
            assert found[name] in ("EPERM", "EACCES", "ENOSYS"), (name, found)
    for name in ("state", "replacement", "thread"):
        assert found[name] == "done", found
    for task in os.listdir(f"/proc/{crund.pid}/task"):
        with open(f"/proc/{crund.pid}/task/{task}/status", encoding="ascii") as f:
            status = f.read()
        assert "NoNewPrivs:\t1" in status, status
        assert ("Seccomp:\t2" in status) == ("seccomp" in said), status
    with open(f"/proc/{crund.pid}/limits", encoding="ascii") as f:
        assert re.search(r"Max core file size +0 +0", f.read())
    crund.process.kill()


def it_says_so_to_crunctl(d):
    crund = Crund(d, "--state-dir", d + "/state")
    done = subprocess.run([f"{BUILD}/bin/crunctl", "status", "-e", f"127.0.0.1:{crund.port}"],
                          stdout=subprocess.PIPE, text=True, check=True)
    assert "rendezvous: locked in: memory hidden, no new privileges" in done.stdout, done
    assert done.stdout.splitlines()[-1].split(": ", 1)[1] in crund.log()
    crund.process.kill()


def its_memory_is_hidden_from_its_user(d):
    """The kernel gives what is in /proc of such a process to root."""
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if os.geteuid() != 0 or subprocess.run([*other, "test", "-x", f"{BUILD}/bin/crund"],
                                           check=False).returncode != 0:
        return
    for flags, uid in ([], 0), (["--unconfined"], 65534):
        crund = Crund(d, *flags, prefix=other)
        assert os.stat(f"/proc/{crund.pid}/mem").st_uid == uid
        crund.process.kill()


def it_can_be_switched_off(d):
    found, crund = escapes(d, "--unconfined")
    line_of(crund, "not locked in (--unconfined)")
    assert set(found.values()) == {"done"}, found
    os.unlink("/tmp/crund-escape")
    crund.process.kill()


def memory_of(pid):
    """As much of it as can be read: what a core would have."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, \
            open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            first, end = (int(x, 16) for x in line.split()[0].split("-"))
            try:
                memory.seek(first)
                yield memory.read(end - first)
            except (OSError, ValueError, OverflowError):
                pass  # the kernel's own page


def its_memory_is_no_ticket(d):
    """Not even right after an agent has joined, when it has read its incarnation."""
    if os.geteuid() != 0:
        return
    crund = Crund(d)
    sessions = []
    for i in range(20):
        s = Session(crund.port)
        s.send(hello("agent"))
        s.expect(WELCOME)
        request = join(f"job-{i}", nodes=1)
        s.send(request)
        s.expect(JOINED)
        incarnation = re.search(rb'"incarnation": "(\w+)"', request)[1]
        for part in memory_of(crund.pid):
            for form in (incarnation, bytes.fromhex(incarnation.decode())):
                at = part.find(form)
                assert at < 0, (i, part[max(0, at - 64):at + 64])
        sessions.append(s)
    crund.process.kill()


def its_journal_is_kept_and_read(d):
    """A job is there after a restart, and the journal is no ticket to its place."""
    crund = Crund(d, "--state-dir", d + "/state")
    s = Session(crund.port)
    s.send(hello("agent"))
    s.expect(WELCOME)
    request = join("kept", nodes=2)
    s.send(request)
    instance = s.expect(JOINED)[1][5]
    incarnation = bytes.fromhex(re.search(rb'"incarnation": "(\w+)"', request)[1].decode())
    crund.process.kill()
    crund.process.wait()
    with open(d + "/state/journal", "rb") as f:
        journal = f.read()
    assert incarnation not in journal and b"kept" in journal
    crund = Crund(d, "--state-dir", d + "/state", name="again")
    journal = journal.rstrip(b"\0")
    for tried in [journal[at:at + 16] for at in range(len(journal) - 15)] + [incarnation]:
        s = Session(crund.port)
        s.send(hello("agent"))
        s.expect(WELCOME)
        s.send(frame(RESUME, {"run_id": "kept", "incarnation": tried.hex(), "node": 0},
                     instance=instance))
        kind = s.receive()[0]
        assert kind == (JOINED if tried == incarnation else REFUSED), (tried, kind)
        s.close()
    crund.process.kill()


def root_is_refused(d):
    if os.geteuid() != 0:
        return
    env = {k: v for k, v in os.environ.items() if k != "CRUND_ALLOW_ROOT"}
    done = subprocess.run([f"{BUILD}/bin/crund", "--listen", "127.0.0.1:0"], env=env, text=True,
                          stderr=subprocess.PIPE, timeout=SECONDS, check=False)
    assert done.returncode == 2 and "does not start as root" in done.stderr, done


def main():
    for test in (nothing_else_can_be_reached, it_says_so_to_crunctl,
                 its_memory_is_hidden_from_its_user, it_can_be_switched_off,
                 its_journal_is_kept_and_read,
                 its_memory_is_no_ticket, root_is_refused):
        with tempfile.TemporaryDirectory() as d:
            test(d)
        print("ok", test.__name__)


main()
