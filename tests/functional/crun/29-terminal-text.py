#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 8 s
# sanitizers: no, unit tests and a fuzzer escape the same texts
"""
Texts that would steer a terminal, from workers and from another node, reach no terminal:
in the report, the log, status, events and JSON they are escaped, and JSON keeps their
value.
"""
import contextlib
import itertools
import json
import subprocess
import sys
import unicodedata

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (DONE, FAILED, START, STOP, STOPPED, Session, frame,  # noqa: E402
                     hello, join)
from launch import CRUN, CRUNCTL, TIMEOUT, Place  # noqa: E402
from process import BIN, read, same, until  # noqa: E402

CORPUS = [
    "\x1b[2J", "\x1b]52;c;ZWNobyBwd25lZA==\x07", "\x1b]0;title\x1b\\", "\x1bP+q544e\x1b\\",
    "\x1b[5n", "\x1b(0", "\a", "\b\b\b\bgood", "first\rsecond", "\x7f", "\x0e", "\v\f",
    "\x9b31m", "\x9d52;c;YQ==\x9c", "\x90q\x9c", "\x85next", "\x84",
    "a\u202eb", "\u2066a\u2069", "\u200e\u200f\u061c", "\u2028a\u2029",
]
BYTES = [b"\x9b31m", b"\xc2", b"\xe2\x80", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x9b"]
BIDI = {"L", "R", "AL", "LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}

WORKER = """
import json, os, sys, time
text = open(sys.argv[1], "rb").read()
sys.stderr.buffer.write(b"stderr: " + text + b"\\n")
sys.stderr.flush()
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as f:
    said = text.decode(errors="replace")
    json.dump({"message": {"message": "Error: " + said,
                           "extraInfo": {"py_callstack": "trace: " + said,
                                         "timestamp": str(int(time.time()))}}}, f)
sys.exit(3)
"""


def is_harmless(text):
    return not any(c not in "\n\t" and (unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")
                   or unicodedata.bidirectional(c) in BIDI - {"L", "R", "AL"}
                   or c in "\u200e\u200f\u061c") for c in text)


def harmless(what, data):
    """Of bytes that were written: they are UTF-8 and steer nothing."""
    if not is_harmless(data.decode()):
        raise AssertionError(f"{what}: {data!r}")


def output_of(p, *words, code=0):
    done = subprocess.run(words, env=p.env, capture_output=True, timeout=TIMEOUT)
    same(done.returncode, code)
    return done.stdout + done.stderr


def the_corpus_is_not_harmless(p):
    """Or nothing is tested."""
    same([text for text in CORPUS if is_harmless(text)], [])


def what_a_worker_says(p):
    """Its last words and its error file, of one node."""
    worker = p.file("worker.py", WORKER)
    for said in [text.encode() for text in CORPUS] + BYTES:
        with open(f"{p.path}/said", "wb") as f:
            f.write(said)
        c = p.start(CRUN, "-r2", "--log-dir=logs", "--events-file=events", "--event-log-handler=console",
                    sys.executable, worker, "said", stdin=subprocess.DEVNULL)
        out, err = c.communicate(timeout=TIMEOUT)
        same((c.returncode, out), (3, b""))
        same(b"Error: " in err and b"trace: " in err, True)
        harmless("the report", err)
    harmless("the events file", read(f"{p.path}/events"))


def fail_as_a_node(port, job, kind_of_failure, text):
    """The other node of a job of two: its failure says the text in every field."""
    s = Session(port, timeout=TIMEOUT)
    s.send(hello("agent"))
    s.send(join(job, 2, "elsewhere", restart_backoff_ms=60000, quarantine=3, program="sleep"))
    while True:
        kind, body, header = s.receive()
        if kind == START:
            break
    s.send(frame(FAILED, {"kind": kind_of_failure, "code": 7, "rank": body["first_rank"],
                          "local_rank": 0, "pid": 1, "host": "elsewhere", "final": True,
                          "what": text, "error": text, "said": text, "log": text,
                          "wall_ms": "1"},
                 sequence=2, epoch=header[4], instance=header[5]))
    while kind != STOP:
        kind = s.receive()[0]
    s.send(frame(STOPPED, sequence=3, epoch=header[4], instance=header[5]))
    while kind != DONE:
        kind = s.receive()[0]
    s.close()


def what_another_node_says(p):
    crund = p.start(str(BIN / "crund"), "--allow-root", "--listen=127.0.0.1:0")
    lines = iter(crund.stderr.readline, b"")
    port = int(next(line.split(b"listening on 127.0.0.1:")[1].split()[0]
                    for line in lines if b"listening on" in line))
    ctl = [CRUNCTL, f"--rdzv-endpoint=127.0.0.1:{port}"]
    for i, (failure, text) in enumerate(itertools.product(("exit", "agent"), CORPUS)):
        job = f"job{i}"
        c = p.start(CRUN, "--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}",
                    f"--rdzv-id={job}", "sleep", "1000", stdin=subprocess.DEVNULL)
        until(lambda: job.encode() in output_of(p, *ctl, "status"), "the join")
        fail_as_a_node(port, job, failure, text)
        out, err = c.communicate(timeout=TIMEOUT)
        same((c.returncode, out), (7 if failure == "exit" else 1, b""))
        harmless("the report", err)
        for command in ("status", "events"):
            harmless(command, output_of(p, *ctl, command, "-j", job))
            shown = output_of(p, *ctl, command, "-j", job, "--json")
            harmless(f"{command} --json", shown)
            values = str([json.loads(line) for line in shown.splitlines()]
                         if command == "events" else json.loads(shown))
            if failure == "agent" and str([text])[2:-2] not in values:
                raise AssertionError(f"{text!r} is not in {values}")
    crund.terminate()
    harmless("the log of crund", crund.communicate(timeout=TIMEOUT)[1])


CHECKS = [the_corpus_is_not_harmless, what_a_worker_says, what_another_node_says]

if __name__ == "__main__":
    for check in CHECKS:
        with contextlib.closing(Place()) as place:
            check(place)
            place.nothing_is_left()
        print(f"ok {check.__name__}", flush=True)
