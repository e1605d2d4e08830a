#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 13 s
# sanitizers: no, its cases wait most of the time; test_notify runs the code
"""
Commands for a job's failures and end (--on-event): what they get, and that what they do wrong costs the
job nothing and gives them no secret. The lines of curl in watching.md, and trainjob-status, with the
servers that they are for.
"""
import concurrent.futures
import http.server
import json
import os
import pathlib
import re
import shlex
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, ROOT, Process, fail, matches, same, until  # noqa: E402

FAILS = ["sh", "-c", "exit 3"]
# A program that reports its steps; rank 0 is the slower one.
STEPS = """
import mmap, os, struct, sys, time
page = mmap.mmap(os.open(os.environ["CRUN_PROGRESS"], os.O_RDWR), 4096)
def report(step, loss):
    page[16:32] = struct.pack("QQ", step, 100)
    page[40:56] = struct.pack("dQ", loss, time.monotonic_ns())
    page[8:12] = struct.pack("I", struct.unpack("I", page[8:12])[0] + 2)
    page[12:16] = struct.pack("I", 1)
step = 40
while not os.path.exists(sys.argv[1]) and step < 90:
    report(step, 0.25)
    time.sleep(0.4)
    step += 1
report(100, 0.125)
"""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, certificate=None, token=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.got, self.gets, self.refused, self.token = [], 0, 0, token
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True,
                                              do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, host="127.0.0.1"):
        return f"{self.scheme}://{host}:{self.server_address[1]}/hook/secret-path"

    def handle_error(self, request, client_address):
        pass  # a client that does not accept the certificate


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        same([self.path, self.headers["Content-Type"]], ["/hook/secret-path", "application/json"])
        may = self.server.token in (None, self.headers["Authorization"])
        if may:
            self.server.got.append(json.loads(body))
        else:
            self.server.refused += 1
        self.send_response(204 if may else 403)
        self.end_headers()

    def do_GET(self):
        same(self.path, "/hook/secret-path")
        self.server.gets += 1
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def crun(*words, env=None):
    return Process([BIN / "crun", "--restart-backoff=0", *words],
                   env={**os.environ, **(env or {})})


def lines_of_the_manual(word):
    """Those of watching.md's blocks for a shell that have the word."""
    manual = (ROOT / "launcher" / "man" / "watching.md").read_text()
    blocks = "".join(re.findall(r"```sh\n(.*?)```", manual, re.S))
    lines = [line for line in blocks.splitlines() if word in line]
    return lines or fail(f"watching.md has no {word}")


# -- the manual's lines ---------------------------------------------------------------


def the_manuals_webhook_shows_events_in_a_chat(folder):
    server, home = Server(token="Bearer bearer-secret"), {"HOME": str(folder)}
    for line in lines_of_the_manual(".chat"):
        line = line.replace("https://hooks.example.com/T0/B1", server.url())
        words = shlex.split(line)
        if words[0] != "crun":
            subprocess.run(["sh", "-c", line], check=True, env={**os.environ, **home})
            with open(folder / ".chat", "a", encoding="utf-8") as f:
                f.write('header = "Authorization: Bearer bearer-secret"\n')
            same(os.stat(folder / ".chat").st_mode & 0o777, 0o600)
            continue
        p = crun("--rdzv-id=resnet", *words[1:-1], *FAILS, env=home)
        p.expect(3)
        if "secret" in p.out + p.err or "--on-event" in p.err:
            fail(p.err)
        same([event["kind"] for event in server.got], ["failed", "done"])
        matches(server.got[0]["text"], r'^job "resnet": rank 0 on \S+ exited with code 3')
        server.token = "another"
        p = crun(*words[1:-1], *FAILS, env=home)
        p.expect(3, "error: 403", 'command has failed for the event "failed": exit code 22')


def the_manuals_sign_of_life_ends_with_the_daemon(folder):
    server = Server()
    daemon = Process([BIN / "crund", "--allow-root", "--listen=127.0.0.1:0", "--http=0",
                      f"--state-dir={folder}/state"])
    try:
        until(lambda: "listening on" in daemon.err, "crund listens")
        (line,) = lines_of_the_manual("healthz")
        line = line.replace("http://127.0.0.1:29480/healthz",
                            re.search(r"page at (http://\S+/)", daemon.err)[1] + "healthz")
        line = line.replace("https://hc.example.com/4f1", server.url()).replace("-m 10", "-m 2")
        subprocess.run(["sh", "-c", line], check=True)
        same(server.gets, 1)
        daemon.kill(signal.SIGSTOP)
        same(subprocess.run(["sh", "-c", line], capture_output=True, check=False).returncode, 28)
        daemon.kill(signal.SIGCONT)
        daemon.kill(signal.SIGTERM)
        daemon.expect(0)
        same(server.gets, 1)
    finally:
        daemon.end()


def a_trainjob_shows_the_progress(folder):
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "1", "-subj", "/CN=status", "-addext",
            "subjectAltName=DNS:localhost", "-keyout", folder / "key", "-out", folder / "crt"]
    subprocess.run(make, check=True, capture_output=True)
    (folder / "pem").write_text((folder / "key").read_text() + (folder / "crt").read_text())
    (folder / "token").write_text("service-account-secret\n")
    (folder / "steps.py").write_text(STEPS)
    (folder / "sleep").write_text("#!/bin/sh\nexec /bin/sleep 0.2\n")
    (folder / "sleep").chmod(0o755)  # its posts come sooner
    server = Server(certificate=folder / "pem", token="Bearer service-account-secret")
    script, enough = ROOT / "scripts" / "kubernetes" / "trainjob-status", folder / "enough"
    env = {"KUBEFLOW_TRAINER_SERVER_URL": server.url("localhost"),
           "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(folder / "crt"),
           "KUBEFLOW_TRAINER_SERVER_TOKEN": str(folder / "token"),
           "PATH": f"{folder}:{os.environ['PATH']}"}
    p = crun(f"--metrics-file={folder}/prom", "--nproc-per-node=2", "--on-event-kinds=done",
             f"--on-event={script} --last {folder}/prom", folder / "steps.py", enough, env=env)
    other = Process([script, folder / "prom"],  # the certificate has another name
                    env={**os.environ, **env, "KUBEFLOW_TRAINER_SERVER_URL": server.url()})
    loop = Process([script, folder / "prom"], env={**os.environ, **env})
    try:
        until(lambda: any("progressPercentage" in str(post) for post in server.got),
              lambda: f"a post: {server.got} {loop.err} {p.err}")
        until(lambda: "certificate" in other.err, lambda: f"another name: {other.err}")
        enough.touch()
        p.expect(0)
    finally:
        loop.end()
        other.end()
    same([server.refused, loop.err, "secret" in other.err + p.err], [0, "", False])
    first = next(post["trainerStatus"] for post in server.got if "progressP" in str(post))
    last = server.got[-1]["trainerStatus"]
    metrics = {m["name"]: m["value"] for m in first["metrics"]}
    if not 40 <= first["progressPercentage"] < 90 or metrics["loss"] != "0.25":
        fail("the progress:", first)
    matches(first["lastUpdatedTime"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
    same([last["progressPercentage"], last["estimatedRemainingSeconds"]], [100, 0])


# -- commands -------------------------------------------------------------------------


def a_command_gets_the_event_and_no_secret(folder):
    out = folder / "out"
    command = (f'cat >> {out}; echo "$CRUN_EVENT_KIND $CRUN_EVENT_RUN_ID $CRUN_EVENT_EPOCH '
               f'$CRUN_EVENT_RANK|$CRUN_EVENT_TEXT" >> {out}.told; env >> {out}.env; '
               f'ls /proc/self/fd >> {out}.fds; echo printed')
    p = crun("--rdzv-id=resnet", "--on-event", command, "--on-event-kinds=failed,joined,done",
             *FAILS, env={"CRUN_KEY_FILE": "", "CREDENTIALS_DIRECTORY": "",
                          "CRUN_OF_MINE": "secret",
                          "PET_OF_MINE": "secret", "KEPT": "this"})
    p.expect(3)
    if "printed" in p.out or p.err.count("printed") != 3:
        fail("a command prints to standard error:", p.out, p.err)
    kinds = [json.loads(line)["kind"] for line in out.read_text().splitlines()]
    same(kinds, ["joined", "failed", "done"])
    told = pathlib.Path(f"{out}.told").read_text().splitlines()
    matches(told[1], r"^failed resnet 1 0\|rank 0 on \S+ exited with code 3$")
    env = pathlib.Path(f"{out}.env").read_text()
    if "secret" in env or "KEPT=this\n" not in env:
        fail("the environment of a command:", env)
    same(set(pathlib.Path(f"{out}.fds").read_text().splitlines()), set("0123"))  # 3: its own


def a_command_that_fails_or_hangs_costs_nothing(folder):
    p = crun("--on-event", "exit 5", *FAILS)
    p.expect(3, '--on-event: the command has failed for the event "failed": exit code 5')
    if p.err.count("--on-event") != 1:
        fail("not one line:", p.err)
    p = crun("--on-event", f"echo $$ > {folder}/pid; sleep 1000 & wait", *FAILS)
    p.expect(3, "ending: 2 events could not be told in time")
    group = int((folder / "pid").read_text())
    until(lambda: not group_lives(group), "nothing of the command is left")


def group_lives(group):
    try:
        os.killpg(group, 0)
        return True
    except ProcessLookupError:
        return False


# -- crund ----------------------------------------------------------------------------


def a_locked_in_crund_runs_commands(folder):
    daemon = Process([BIN / "crund", "--allow-root", "--listen=127.0.0.1:0",
                      f"--state-dir={folder}/state",
                      "--on-event", f"echo $CRUN_EVENT_KIND >> {folder}/kinds"])
    try:
        until(lambda: "listening on" in daemon.err, "crund listens")
        if "not locked in" in daemon.err:
            fail(daemon.err)
        port = daemon.err.split("listening on 127.0.0.1:", 1)[1].split(" ", 1)[0]
        p = crun("--nnodes=1:1", "--rdzv-backend=c10d", "--rdzv-id=away", "--max-restarts=0",
                 f"--rdzv-endpoint=127.0.0.1:{port}", "--on-event=true", *FAILS)
        p.expect(3, "--on-event has no effect here: the rendezvous of this job is a crund")
        until(lambda: (folder / "kinds").read_text() == "failed\ndone\n", "the command")
        daemon.kill(signal.SIGTERM)
        daemon.expect(0)
    finally:
        daemon.end()


def flags_of_earlier_versions_name_others(_):
    crun("--webhook-token-file", "x", *FAILS).expect(2, "--webhook-token-file is gone: --on-event")
    crun(*FAILS, env={"PET_WEBHOOK": "http://a"}).expect(2, "PET_WEBHOOK is gone: --on-event")


CASES = [the_manuals_webhook_shows_events_in_a_chat, the_manuals_sign_of_life_ends_with_the_daemon,
         a_trainjob_shows_the_progress, a_command_gets_the_event_and_no_secret,
         a_command_that_fails_or_hangs_costs_nothing, a_locked_in_crund_runs_commands,
         flags_of_earlier_versions_name_others]


def run_case(case, folder):
    begun = time.monotonic()
    try:
        case(pathlib.Path(tempfile.mkdtemp(dir=folder)))
    except SystemExit as e:
        return f"{case.__name__}: {e}"
    except Exception as e:  # pylint: disable=broad-exception-caught
        return f"{case.__name__}: {e!r}"
    print(f"ok {case.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
    return None


def main():
    """The cases run side by side: they wait most of the time."""
    cases = [case for case in CASES if case.__name__ in sys.argv[1:] or not sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        wrong = [text for text in pool.map(lambda case: run_case(case, folder), cases) if text]
    if wrong:
        fail("\n".join(wrong))


main()
