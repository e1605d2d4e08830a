#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 6 s
"""
Attacks on what shows a job: links after their key is retired, cookies that another user's
server was sent by a real browser, requests that a proxy has passed on, users that take all
connections, names with percent signs, and files that are not what they should be.
"""
import ctypes
import http.server
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import JOINED, WELCOME, Crund, Session, hello, join  # noqa: E402
from process import BIN, SECONDS, fail, run, same, until  # noqa: E402
import browser  # noqa: E402

BOB, CAROL = 61002, 61003
LIBC = ctypes.CDLL(None)


class World:
    """A crund with a page, for two teams if `keys` is true."""

    def __init__(self, directory, keys=False):
        os.mkdir(directory)
        self.directory, self.keys = directory, f"{directory}/keys"
        flags = []
        if keys:
            os.mkdir(self.keys, 0o700)
            self.keygen("red")
            flags = ["--key-dir", self.keys]
        self.crund = Crund(directory, "--http", "0", *flags)
        self.port = int(re.search(r"page at http://127\.0\.0\.1:(\d+)/", self.crund.log())[1])

    def keygen(self, name):
        subprocess.run([BIN / "crunctl", "keygen", f"{self.keys}/{name}"], check=True,
                       capture_output=True)
        shutil.copy(f"{self.keys}/{name}", f"{self.directory}/{name}.key")
        os.chmod(f"{self.directory}/{name}.key", 0o600)

    def link(self, *words, key=None):
        env = {**os.environ, **({"CRUN_KEY_FILE": f"{self.directory}/{key}.key"} if key else {})}
        done = subprocess.run([BIN / "crunctl", "-e", f"127.0.0.1:{self.crund.port}", "page", *words],
                              env=env, capture_output=True, text=True, check=False)
        same([done.returncode, done.stderr], [0, ""])
        return done.stdout.strip().split(f":{self.port}", 1)[1]

    def status(self, key):
        env = {**os.environ, "CRUN_KEY_FILE": f"{self.directory}/{key}.key"}
        return subprocess.run([BIN / "crunctl", "-e", f"127.0.0.1:{self.crund.port}", "status"],
                              env=env, capture_output=True, check=False).returncode

    def connect(self, user=None, source="127.0.0.1"):
        if user is not None:
            LIBC.setfsuid(user)
        try:
            s = socket.socket()
        finally:
            LIBC.setfsuid(os.geteuid())
        s.settimeout(10)
        s.bind((source, 0))
        s.connect(("127.0.0.1", self.port))
        return s

    def ask(self, path, *headers, **options):
        s = self.connect(**options)
        head = "".join(f"{line}\r\n" for line in ("Host: localhost", *headers))
        s.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        return s

    def get(self, path, *headers, **options):
        s, data = self.ask(path, *headers, **options), b""
        while piece := s.recv(65536):
            data += piece
        s.close()
        return int(data.split()[1]), data.decode()

    def cookie_of(self, link, **options):
        return "Cookie: " + re.search("Set-Cookie: ([^;]*)", self.get(link, **options)[1])[1]

    def join(self, run_id):
        s = Session(self.crund.port)
        s.send(hello("agent"))
        s.expect(WELCOME)
        s.send(join(run_id, nodes=1))
        s.expect(JOINED)
        return s


def rights_end_with_their_key(folder):
    w = World(f"{folder}/keys", keys=True)
    unused, used = w.link(key="red"), w.link(key="red")
    # a user of this machine who has no key is shown nothing but with the cookie
    who = {"user": BOB} if os.geteuid() == 0 else {}
    cookie = w.cookie_of(used, **who)
    w.keygen("blue")  # another team's key is nothing to red
    until(lambda: w.status(key="blue") == 0, "blue's key counts")
    same(w.get("/", cookie, **who)[0], 200)
    os.unlink(f"{w.keys}/red")
    if who:
        until(lambda: w.get("/", cookie, **who)[0] == 403, "the cookie counts no more")
    until(lambda: w.get(unused)[0] == 403, "the link counts no more")
    same(w.crund.stop(), 0)


def live_views_end_with_their_key(folder):
    """Their job was made with a key, too: its agent is refused a moment later."""
    w = World(f"{folder}/live", keys=True)
    env = {**os.environ, "CRUN_KEY_FILE": f"{w.directory}/red.key"}
    job = subprocess.Popen([BIN / "crun", f"--rdzv-endpoint=127.0.0.1:{w.crund.port}",
                            "--rdzv-id=secret", "--rdzv-backend=c10d", "--no-python", "sleep", "1000"],
                           env=env, stderr=subprocess.DEVNULL)
    cookie = w.cookie_of(w.link(key="red"))
    until(lambda: w.get("/jobs/secret", cookie)[0] == 200, "the job is there")
    live = w.ask("/api/v1/jobs/secret/live", cookie)
    os.unlink(f"{w.keys}/red")
    until_s = time.monotonic() + SECONDS
    while live.recv(65536):
        if time.monotonic() > until_s:
            fail("a live view goes on after its key was retired")
    job.kill()
    job.wait(SECONDS)
    same(w.crund.stop(), 0)


def a_link_counts_once(folder):
    w = World(f"{folder}/once", keys=True)
    link = w.link(key="red")
    cookie = w.cookie_of(link)
    same([w.get(link)[0], w.get(link, cookie)[0], w.get("/", cookie)[0]], [403, 303, 200])
    same(w.crund.stop(), 0)


class Thief(http.server.BaseHTTPRequestHandler):
    """A server of another user on the same host: browsers send it the cookies of all ports."""
    got = []

    def do_GET(self):
        self.got.append(self.headers["Cookie"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def cookie_by_browser(w, link):
    """What Chromium gives away after it has followed the link."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Thief)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with browser.Browser() as chromium:
        page, origin = chromium.page(), f"http://127.0.0.1:{w.port}"
        page.open(origin + link)
        page.until_text("job")
        page.evaluate(f"fetch('http://127.0.0.1:{server.server_port}/',"
                      " {mode: 'no-cors', credentials: 'include'}).catch(() => 0); 0")
        page.evaluate(f"location = 'http://127.0.0.1:{server.server_port}/'; 0")
        cookie = until(lambda: next(filter(None, Thief.got), None), "the browser comes")
        page.open(origin + "/jobs/job")
        page.until_text("job")
    server.shutdown()
    return "Cookie: " + cookie


def a_cookie_is_one_users(folder):
    if os.geteuid() != 0:
        print("not root: other users are not tried")
        return
    w = World(f"{folder}/cookie")
    agent = w.join("job")
    if browser.program():
        stolen = cookie_by_browser(w, w.link("job"))
        same([w.get("/jobs/job", stolen, user=user)[0] for user in (0, BOB)], [200, 404])
    bobs = w.cookie_of(w.link("job"), user=BOB)
    for user, status in ((BOB, 200), (CAROL, 404), (0, 200)):
        same([user, w.get("/jobs/job", bobs, user=user)[0]], [user, status])
        same([user, w.get("/jobs/job", bobs, "Via: 1.1 me", user=user)[0]], [user, status])
    agent.close()
    same(w.crund.stop(), 0)


def who_asks_through_a_proxy_is_unknown(folder):
    w = World(f"{folder}/proxy")
    agent = w.join("job")
    same(w.get("/api/v1/jobs/job/ranks/0")[0], 200)
    for header in ("Via: 1.1 proxy", "Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.1",
                   "X-Real-Ip: 192.0.2.1", "x-forwarded-host: train.example"):
        same([header, w.get("/jobs/job", header)[0]], [header, 200])
        same([header, w.get("/api/v1/jobs/job/ranks/0/logs", header)[0]], [header, 403])
        if os.geteuid() == 0:  # nor does it give another user more
            same([header, w.get("/jobs/job", header, user=BOB)[0]], [header, 404])
    agent.close()
    same(w.crund.stop(), 0)


def links_name_the_job_that_was_asked_for(folder):
    w = World(f"{folder}/names")
    names = ("a%41", "100%", "x" * 128)
    agents = [w.join(name) for name in names]
    for name in names:
        status, link = w.get(w.link(name))
        same(status, 303)
        status, answer = w.get(re.search(r"Location: (\S+)", link)[1])
        same([name, status], [name, 200])
        same(json.loads(w.get("/api/v1" + re.search(r"Location: (\S+)", link)[1])[1].split("\r\n\r\n")[1])["job"],
             name)
    for agent in agents:
        agent.close()
    same(w.crund.stop(), 0)


def one_user_cannot_take_all_connections(folder):
    if os.geteuid() != 0:
        print("not root: other users are not tried")
        return
    w = World(f"{folder}/flood")
    flood = [w.connect(user=BOB, source=f"127.0.0.{2 + i % 8}") for i in range(80)]
    for _ in range(3):
        same(w.get("/healthz")[0], 200)
    # a third one's cookie is kept, and his requests are answered
    cookie = w.cookie_of(w.link(), user=CAROL)
    live = w.ask("/api/v1/live", cookie, user=CAROL)
    for _ in range(20):
        flood += [w.connect(user=BOB) for _ in range(4)]
        same(w.get("/", user=CAROL)[0], 200)
    same(live.recv(9), b"HTTP/1.1 ")
    for s in flood:
        s.close()
    same(w.crund.stop(), 0)


def what_is_no_file_is_not_replaced(folder):
    pipe, link = f"{folder}/pipe.prom", f"{folder}/link.prom"
    os.mkfifo(pipe)
    os.symlink("pipe.prom", link)
    for path in (pipe, link):
        done = subprocess.run([BIN / "crun", "--metrics-file", path, "--no-python", "true"],
                              capture_output=True, text=True, timeout=SECONDS, check=False)
        same(done.returncode, 0)
        same(done.stderr.count("no regular file"), 1)
    same([stat.S_ISFIFO(os.lstat(pipe).st_mode), os.path.islink(link)], [True, True])


def with_folder(test):
    def wrapped():
        with tempfile.TemporaryDirectory(prefix="crun-page-") as folder:
            test(folder)
    wrapped.__name__ = test.__name__
    return wrapped


run([with_folder(test) for test in (
    rights_end_with_their_key, live_views_end_with_their_key, a_link_counts_once,
    a_cookie_is_one_users, who_asks_through_a_proxy_is_unknown,
    links_name_the_job_that_was_asked_for, one_user_cannot_take_all_connections,
    what_is_no_file_is_not_replaced)])
