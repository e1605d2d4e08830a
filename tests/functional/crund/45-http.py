#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 14 s
"""
The page of a crund and of a crun that hosts its rendezvous, over HTTP: who is shown what,
and what hostile clients do: half requests, floods, slow readers, requests in requests,
other names, other paths, other users. A job beside feels nothing of it.
"""
import contextlib
import ctypes
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import Crund  # noqa: E402
from process import BIN, Process, fail, free_port, matches, run, same, until  # noqa: E402

BOB = 61002
LIBC = ctypes.CDLL(None)
# Prints a step 20 times a second until the file is gone.
WORKER = r"""
step=0
echo "hello of $RANK"
while [ -e "$1" ]; do
    step=$((step + 1))
    echo "step $step"
    sleep 0.05
done
"""
GET = "GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"


# -- requests -------------------------------------------------------------------------


def connect(port, user=None, source=None):
    if user is not None:
        LIBC.setfsuid(user)
    try:
        s = socket.socket()
    finally:
        LIBC.setfsuid(os.geteuid())
    s.settimeout(20)
    if source:
        s.bind((source, 0))
    s.connect(("127.0.0.1", port))
    return s


def read_all(s):
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := s.recv(65536):
            data += piece
    s.close()
    return data


def raw(port, text, **options):
    s = connect(port, **options)
    with contextlib.suppress(ConnectionError):
        s.sendall(text.encode("latin-1") if isinstance(text, str) else text)
    return read_all(s)


class Answer:
    def __init__(self, data):
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1]) if lines[0] else 0
        self.headers = dict(re.split(r":\s*", line.lower(), maxsplit=1) for line in lines[1:])
        self.raw = data
        self.text = self.body.decode("utf-8", "replace")


def get(port, path, headers="", **options):
    return Answer(raw(port, GET.format(path, headers), **options))


def status_of(port, text, wanted):
    """One answer comes, and the connection ends."""
    data = raw(port, text)
    found = [int(code) for code in re.findall(rb"HTTP/1\.1 (\d+)", data)]
    if len(found) != 1 or found[0] not in wanted:
        fail(repr(text)[:200], "was answered by", found, data[:300])


# -- the job beside -------------------------------------------------------------------


class Job:
    """One node with two workers, of a crund; or which hosts its rendezvous."""

    def __init__(self, directory, name, *flags):
        self.name = name
        self.file = f"{directory}/{name}.go"
        open(self.file, "w", encoding="utf-8").close()
        self.process = Process(
            [BIN / "crun", *flags, "--nproc-per-node=2", r"--progress-pattern=^step (\d+)",
             "--max-restarts=3", "--restart-backoff=0", "--no-python", "sh", "-c", WORKER, name,
             self.file], cwd=directory)

    def state(self, port):
        return json.loads(get(port, f"/api/v1/jobs/{self.name}").body)

    def runs(self, port):
        def is_seen():
            try:
                answer = get(port, f"/api/v1/jobs/{self.name}")
            except ConnectionRefusedError:
                return False
            state = json.loads(answer.body) if answer.status == 200 else {"state": "none"}
            return state["state"] == "running" and state.get("step") and state
        state = until(is_seen, lambda: str(self.process))
        jobs = json.loads(get(port, "/api/v1/jobs").body)["jobs"]
        if not any(job["job"] == self.name and job["step"] for job in jobs):
            fail("the list of jobs shows no step of", self.name, jobs)
        return state

    def feels_nothing(self, port):
        before = self.runs(port)
        state = until(lambda: (new := self.state(port))["step"] > before["step"] + 20 and new,
                      "steps are made and told")
        same([state["epoch"], state["restarts"], state["state"]], [1, 0, "running"])
        node = state["nodes"][0]
        if not node["connected"] or node["heard_ms_ago"] > 6000:
            fail("its node was heard", node["heard_ms_ago"], "ms ago")

    def end(self):
        os.unlink(self.file)
        self.process.expect(0)


class World:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="crun-http-")
        self.directory = self.folder.name
        self.crund = Crund(self.directory, "--http", "0", "--http-name", "train.example,other")
        self.port = int(re.search(r"page at http://127\.0\.0\.1:(\d+)/", self.crund.log())[1])
        self.job = Job(self.directory, "beside",
                       f"--rdzv-endpoint=127.0.0.1:{self.crund.port}", "--rdzv-id=beside",
                       "--rdzv-backend=c10d", "--nnodes=1")
        self.job.runs(self.port)
        self.half = []

    def crunctl(self, *words):
        done = subprocess.run([BIN / "crunctl", "-e", f"127.0.0.1:{self.crund.port}", *words],
                              capture_output=True, text=True, check=False)
        same([done.returncode, done.stderr], [0, ""])
        return done.stdout


w = None


# -- pages ----------------------------------------------------------------------------


def link_to(job):
    """Its record may come after its first output."""
    def ask():
        done = subprocess.run([BIN / "crunctl", "page", str(job.process.pid)],
                              capture_output=True, text=True, check=False)
        return done.returncode == 0 and done.stdout.strip()
    return until(ask, lambda: str(job.process))


def begin():
    global w
    w = World()
    # see half_requests_end; a flood of root's takes no places of another user
    w.half = [connect(w.port, user=BOB if os.geteuid() == 0 else None) for _ in range(5)]
    for i, s in enumerate(w.half):
        s.sendall(GET.format("/", "A: b\r\n").encode()[:4 + 8 * i])
    w.since = time.monotonic()


def each_page_is_there():
    for path, what in (("/", "<title>"), ("/jobs/beside", "<title>"), ("/jobs/b%65side", "<title>"),
                       ("/jobs/beside/report.html", "beside"), ("/healthz", "alive"),
                       ("/readyz", "ready"), ("/metrics", "crun_job"),
                       ("/api/v1/jobs", '"beside"'), ("/api/v1/jobs/beside", '"running"'),
                       ("/api/v1/viewer", '"sees_output":true'),
                       ("/api/v1/jobs/beside/ranks/1", '"local_rank":1'),
                       ("/api/v1/jobs/beside/ranks/1/logs?lines=3", "step"),
                       ("/api/v1/jobs/beside/events", "formed"),
                       ("/jobs/beside/ranks/1", "<title>"),
                       ("/api/v1/jobs/beside/ranks/1/logs", "hello of 1")):
        answer = get(w.port, path)
        same([path, answer.status], [path, 200])
        matches(answer.text, what)
        same([answer.headers[name] for name in ("cache-control", "x-content-type-options",
                                                "x-frame-options", "connection")],
             ["no-store", "nosniff", "deny", "close"])
        matches(answer.headers["content-security-policy"], "^default-src 'none';.*frame-ancestors 'none'")
        same(int(answer.headers["content-length"]), len(answer.body))
        head = Answer(raw(w.port, f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        same([head.status, head.body], [200, b""])
    # what the page shows is what crunctl shows
    ours = json.loads(w.crunctl("status", "--json", "beside"))[0]
    theirs = w.job.state(w.port)
    for name in ("job", "state", "epoch", "instance", "program", "worker_count", "restarts"):
        same([name, theirs[name]], [name, ours[name]])
    client = http.client.HTTPConnection("127.0.0.1", w.port)
    client.request("GET", "/healthz")
    same(client.getresponse().read(), b"alive\n")


def others_are_not_there():
    for path in ("/nothing", "/jobs", "/jobs/", "/jobs/other", "/jobs/beside/", "//jobs/beside",
                 "/jobs/../metrics", "/jobs/%2e%2e/metrics", "/jobs/beside%00", "/jobs/beside%2flive",
                 "/jobs/beside/ranks/x", "/jobs/beside/live", "/api/v1/jobs/other", "/%2e%2e/%2e%2e/etc/passwd",
                 "/..;/metrics", "/metrics/", "/jobs/beside/ranks/01", "/\\metrics"):
        answer = get(w.port, path)
        same([path, answer.status, answer.text.count("\n")], [path, 404, 1])
        same([path, '"error"' in answer.text], [path, path.startswith("/api/")])
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"):
        answer = Answer(raw(w.port, f"{method} /jobs/beside HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        same([method, answer.status, answer.headers["allow"]], [method, 405, "get, head"])
    status_of(w.port, "STOP / HTTP/1.1\r\nHost: localhost\r\n\r\n", (501,))


# -- hostile clients ------------------------------------------------------------------


def requests_in_requests():
    second = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for headers, body in (("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + second),
                          ("Content-Length: 0\r\nContent-Length: 60\r\n", second),
                          ("Content-Length: 60\r\n", second),
                          ("Transfer-Encoding: chunked\r\n", "0\r\n\r\n" + second),
                          ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n" + second),
                          ("Transfer-Encoding:\x0bchunked\r\n", "0\r\n\r\n" + second),
                          ("A: b\r\n c\r\n", ""), ("A: b\nC: d\r\n", ""), ("A: b\r\n\n", second),
                          ("A: b\rC: d\r\n", ""), ("Host: localhost\r\n", ""),
                          ("Host: evil.example\r\n", ""), ("A: \x00\r\n", ""), ("", second)):
        status_of(w.port, GET.format("/", headers) + body, (400, 413))
        status_of(w.port, GET.format("/", headers).replace("GET", "POST") + body, (400, 405, 413))
    status_of(w.port, "GET / HTTP/1.1\nHost: localhost\n\n", (400,))
    status_of(w.port, "\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n", (400,))
    status_of(w.port, "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", (400,))
    status_of(w.port, "GET / HTTP/1.1\r\n\r\n", (400,))


def heads_are_not_large():
    status_of(w.port, GET.format("/" + "a" * 3000, ""), (404,))
    status_of(w.port, GET.format("/", "A: b\r\n" * 120), (400,))
    for text in (GET.format("/" + "a" * 40000, ""), GET.format("/", "A: " + "b" * 40000 + "\r\n"),
                 GET.format("/", "A: b\r\n" * 20000), "A" * 100000, "\x16\x03\x01" + "\0" * 400):
        data = raw(w.port, text)
        if b"HTTP/1.1 200" in data:
            fail(repr(text[:60]), "is answered:", data[:200])


def other_names_are_refused():
    def ask(host, headers=""):
        return Answer(raw(w.port, f"GET /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n")).status

    for host in ("localhost", f"127.0.0.1:{w.port}", "[::1]:80", "TRAIN.example", "other:81",
                 socket.gethostname()):
        same([host, ask(host)], [host, 200])
    for host in ("evil.example", f"evil.example:{w.port}", "127.0.0.1.evil.example", "localhost.",
                 "8.8.8.8", "", "a b"):
        same([host, ask(host)], [host, 421])
    for headers in ("Origin: http://evil.example\r\n", "Origin: null\r\n",
                    "Origin: http://localhost:81\r\n", "Sec-Fetch-Site: cross-site\r\n",
                    "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\n"):
        same([headers, ask("localhost", headers)], [headers, 403])
    for headers in ("Origin: http://localhost\r\n", "Sec-Fetch-Site: same-origin\r\n",
                    "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"):
        same([headers, ask("localhost", headers)], [headers, 200])


def floods_and_those_who_do_not_read():
    begun = w.crund.cpu_seconds()
    memory = w.crund.memory("VmRSS")
    idle = []
    for _ in range(120):  # more than one address may have
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", w.port))
        idle.append(s)
    same(get(w.port, "/healthz", source="127.0.0.2").status, 200)
    for i, s in enumerate(idle):  # those that are still there ask, and do not read
        with contextlib.suppress(ConnectionError):
            s.sendall(GET.format(("/api/v1/jobs/beside/live", "/metrics", "/api/v1/live")[i % 3], "").encode())
    same(get(w.port, "/healthz", source="127.0.0.2").status, 200)
    for s in idle:
        s.close()
    until(lambda: get(w.port, "/healthz").status == 200, "the page is back")
    for _ in range(150):
        connect(w.port).close()
    until(lambda: get(w.port, "/healthz").status == 200, "the page is back")
    grown = w.crund.memory("VmRSS") - memory
    if grown > 16384 and "san" not in os.environ.get("BUILD", ""):
        fail("crund has grown by", grown, "KiB")
    if w.crund.cpu_seconds() - begun > 2 and "san" not in os.environ.get("BUILD", ""):
        fail("crund has used", w.crund.cpu_seconds() - begun, "s")


def half_requests_end():
    """Those of begin()."""
    for s in w.half:
        s.settimeout(20)
        with contextlib.suppress(ConnectionError):
            if b"200" in s.recv(65536):
                fail("half a request is answered")
        s.close()
    took = time.monotonic() - w.since
    if took < 8 and os.geteuid() == 0:
        fail("half requests have ended after", took, "s")
    same(get(w.port, "/healthz").status, 200)


# -- viewers --------------------------------------------------------------------------


def links_give_rights():
    link = w.crunctl("page", "beside").strip()
    matches(link, rf"^http://127\.0\.0\.1:{w.port}/jobs/beside\?token=[0-9a-f]{{32}}$")
    path = link[len(f"http://127.0.0.1:{w.port}"):]
    answer = get(w.port, path)
    same([answer.status, answer.headers["location"]], [303, "/jobs/beside"])
    cookie = answer.headers["set-cookie"]
    matches(cookie, rf"^crun_{w.port}=[0-9a-f]+; path=/; max-age=\d+; httponly; samesite=lax$")
    for wrong in ("0" * 32, "x", "", path[-32:][::-1], path[-31:]):
        same([wrong, get(w.port, f"/?token={wrong}").status], [wrong, 403])
    same(get(w.port, path, "Sec-Fetch-Site: cross-site\r\n").status, 403)
    if os.geteuid() != 0:
        print("not root: other users are not tried")
        return
    # another user of this machine does not see the job, unless it was given a link
    same(get(w.port, "/jobs/beside", user=BOB).status, 404)
    same(json.loads(get(w.port, "/api/v1/jobs", user=BOB).body), {"jobs": []})
    if "beside" in get(w.port, "/metrics", user=BOB).text:
        fail("another user is told of the job by metrics")
    for page in ("report.html", "ranks/0"):
        same(get(w.port, f"/jobs/beside/{page}", user=BOB).status, 404)
    for what in ("", "/live", "/events", "/ranks/0", "/ranks/0/logs", "/ranks/0/stacks"):
        same(get(w.port, f"/api/v1/jobs/beside{what}", user=BOB).status, 404)
    path = w.crunctl("page", "beside").strip()[len(f"http://127.0.0.1:{w.port}"):]
    cookie = get(w.port, path, user=BOB).headers["set-cookie"]
    given = f"Cookie: a=b; {cookie.split(';')[0]}\r\n"
    same(get(w.port, "/jobs/beside", given, user=BOB).status, 200)
    matches(get(w.port, "/api/v1/jobs/beside/ranks/0/logs", given, user=BOB).text, r"step \d+")
    same(get(w.port, "/jobs/beside", given.replace("=", "=0"), user=BOB).status, 404)


def a_hosting_crun_has_a_page():
    port = free_port()
    job = Job(w.directory, "alone", f"--http={port}", "--rdzv-id=alone")
    job.runs(port)
    matches(job.process.err, rf"crun: page at http://127\.0\.0\.1:{port}/\n")
    same([job["job"] for job in json.loads(get(port, "/api/v1/jobs").body)["jobs"]], ["alone"])
    same(get(port, "/readyz").status, 200)
    same(get(port, "/jobs/beside").status, 404)
    link = link_to(job)
    matches(link, rf"^http://127\.0\.0\.1:{port}/\?token=")
    # the cookie of one page is nothing to another
    answer = get(port, "/" + link.rsplit("/", 1)[1], user=BOB)
    cookie = answer.headers["set-cookie"].split(";")[0]
    if os.geteuid() == 0:
        same(get(port, "/", user=BOB).status, 403)
        same(get(port, "/", f"Cookie: {cookie}\r\n", user=BOB).status, 200)
        other = cookie.replace(str(port), str(w.port))
        same(get(w.port, "/jobs/beside", f"Cookie: {other}\r\n", user=BOB).status, 404)
    # a port that is in use is no reason not to train, and one for a crund to end
    second = Process([BIN / "crun", f"--http={port}", "--no-python", "true"])
    second.expect(0, f"crun: no page: port {port} is in use")
    done = subprocess.run([BIN / "crund", "--allow-root", "--listen", "127.0.0.1:0", "--http",
                           str(port)], capture_output=True, text=True, check=False)
    same(done.returncode, 1)
    matches(done.stderr, r"^crund: --http: .*in use.*\n$")
    # a page that is open is told the end before crun goes away
    with connect(port) as s:
        s.sendall(GET.format("/api/v1/jobs/alone/live", "").encode())
        matches(s.recv(65536).decode(), "200 OK")
        job.end()
        matches(read_all(s).decode(), r"event: end\n")


def a_page_opens_when_it_is_asked_for():
    job = Job(w.directory, "asked", "--rdzv-id=asked")
    until(lambda: "hello" in job.process.out, lambda: str(job.process))
    link = link_to(job)
    matches(link, r"^http://127\.0\.0\.1:\d+/\?token=[0-9a-f]{32}$")
    port = int(re.search(r":(\d+)/", link)[1])
    same(get(port, "/?" + link.split("?")[1]).status, 303)
    matches(get(port, "/api/v1/jobs").text, "asked")
    job.end()


def page_port(crund):
    return int(re.search(r"page at http://127\.0\.0\.1:(\d+)/", crund.log())[1])


def keys_keep_others_out():
    key = w.directory + "/key"
    subprocess.run([BIN / "crunctl", "keygen", key], check=True, capture_output=True)
    crund = Crund(w.directory, "--http", "0", "--key-file", key, name="keyed")
    port = page_port(crund)
    same(get(port, "/").status, 200)
    link = subprocess.run([BIN / "crunctl", "-e", f"127.0.0.1:{crund.port}", "--key-file", key,
                           "page"], capture_output=True, text=True, check=True).stdout
    answer = get(port, "/?" + link.strip().split("?")[1], user=BOB)
    cookie = answer.headers["set-cookie"].split(";")[0]
    if os.geteuid() == 0:
        for path, status in (("/", 403), ("/metrics", 403), ("/api/v1/jobs", 403),
                             ("/healthz", 200), ("/readyz", 200)):
            same([path, get(port, path, user=BOB).status], [path, status])
        same(get(port, "/", f"Cookie: {cookie}\r\n", user=BOB).status, 200)
        # with another key nothing of it counts
        subprocess.run([BIN / "crunctl", "keygen", key + ".new"], check=True, capture_output=True)
        os.rename(key + ".new", key)
        until(lambda: get(port, "/", f"Cookie: {cookie}\r\n", user=BOB).status == 403,
              crund.log)
    same(crund.stop(), 0)


def no_descriptors_cost_no_time():
    crund = Crund(w.directory, "--http", "0", name="few", prefix=("prlimit", "--nofile=40"))
    port = page_port(crund)
    held = [connect(port) for _ in range(48)]
    begun = crund.cpu_seconds()
    time.sleep(0.5)
    if crund.cpu_seconds() - begun > 0.2:
        fail("crund is busy without descriptors:", crund.cpu_seconds() - begun, "s")
    for s in held:
        s.close()
    same(get(port, "/healthz").status, 200)
    same(crund.stop(), 0)


def the_job_has_felt_nothing():
    w.job.feels_nothing(w.port)
    w.job.end()
    same(w.crund.stop(), 0)
    if "Sanitizer" in w.crund.log():
        fail(w.crund.log())


run([begin, each_page_is_there, others_are_not_there, requests_in_requests,
     heads_are_not_large, other_names_are_refused,
     floods_and_those_who_do_not_read, links_give_rights, a_hosting_crun_has_a_page,
     a_page_opens_when_it_is_asked_for, keys_keep_others_out, no_descriptors_cost_no_time,
     half_requests_end, the_job_has_felt_nothing])
