#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 15 s
# sanitizers: no, its cases wait most of the time; test_notify runs the code
"""
Who is told of a job's failures and end: commands, webhooks over http and https, and a sign of life
of a crund that is locked in. What they do wrong costs the job nothing, and gives them no secret.
"""
import concurrent.futures
import http.server
import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, fail, matches, same, until  # noqa: E402

# Rank 1 waits for the end that the test gives it, or fails once.
WORKER = """
[ "$RANK" = 1 ] || exec sleep "${2:-0}"
[ -e "$1" ] && exit 0
echo $$ > "$1.pid" && mv "$1.pid" "$1"
exec sleep 60
"""
FAILS = ["sh", "-c", "exit 3"]


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, certificate=None, patience=None, answers=()):
        super().__init__(("127.0.0.1", 0), Handler)
        self.got, self.gets, self.patience, self.answers = [], 0, patience, list(answers)
        self.secured = certificate is not None
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True,
                                              do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self):
        scheme, host = ("https", "localhost") if self.secured else ("http", "127.0.0.1")
        return f"{scheme}://{host}:{self.server_address[1]}/hook/secret-path?a=b"

    def kinds(self):
        return [event["kind"] for _, event in self.got]

    def handle_error(self, request, client_address):
        pass  # a client that does not accept the certificate


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.patience:
            self.server.patience.wait()
        code = self.server.answers.pop(0) if self.server.answers else 204
        if code == 204:
            self.server.got.append((self.headers, json.loads(body)))
        self.send_response(code)
        self.end_headers()

    def do_GET(self):
        same(self.path, "/hook/secret-path?a=b")
        self.server.gets += 1
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def crun(*words, env=None):
    return Process([BIN / "crun", "--restart-backoff=0", *words],
                   env={**os.environ, **(env or {})})


def kill_rank_1(p, mark):
    until(lambda: mark.exists() and mark.read_text(), lambda: f"rank 1 runs\n{p.err}")
    os.kill(int(mark.read_text()), signal.SIGKILL)


def no_secret_is_told(p):
    if "secret" in p.out + p.err:
        fail("a secret is in the log:", p.err)


# -- webhooks -------------------------------------------------------------------------


def a_webhook_gets_the_failure_the_restart_and_the_end(folder):
    server, mark = Server(answers=[503]), folder / "mark"
    (folder / "token").write_text("bearer-secret\n")
    p = crun("--nproc-per-node=2", "--max-restarts=1", "--rdzv-id=resnet", "--rdzv-backend=static",
             f"--webhook={server.url()}", f"--webhook-token-file={folder}/token",
             "sh", "-c", WORKER, "sh", mark)
    kill_rank_1(p, mark)
    p.expect(0, "--webhook: 127.0.0.1", "it answers with status 503; trying again",
             "--webhook works again")
    no_secret_is_told(p)
    same(server.kinds(), ["failed", "formed", "done"])
    headers, failed = server.got[0]
    same((headers["Authorization"], headers["Content-Type"]),
         ("Bearer bearer-secret", "application/json"))
    same({name: failed[name] for name in ("run_id", "epoch", "rank", "job")},
         {"run_id": "resnet", "epoch": 1, "rank": 1, "job": "resnet"})
    same(failed["node"], failed["host"])
    matches(failed["text"], r'^job "resnet": rank 1 on \S+ was killed by SIGKILL')
    matches(failed["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
    matches(failed["instance"], "^[0-9a-f]{32}$")
    events = [event for _, event in server.got]
    same([event["epoch"] for event in events], [1, 2, 2])
    for name in ("sequence", "time_ms", "monotonic_ms"):
        numbers = [event[name] for event in events]
        same(numbers, sorted(numbers))
    same(len({event["sequence"] for event in events}), 3)
    matches(events[2]["text"], "exit code 0")


def a_certificate_is_checked(folder):
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "1", "-subj", "/CN=hook", "-addext", "subjectAltName=DNS:localhost",
            "-keyout", folder / "key", "-out", folder / "crt"]
    subprocess.run(make, check=True, capture_output=True)
    (folder / "pem").write_text((folder / "key").read_text() + (folder / "crt").read_text())
    server = Server(certificate=folder / "pem")
    p = crun(f"--webhook={server.url()}", *FAILS, env={"SSL_CERT_FILE": str(folder / "crt")})
    p.expect(3)
    same(server.kinds(), ["failed", "done"])
    p = crun(f"--webhook={server.url()}", *FAILS, env={"SSL_CERT_FILE": "/dev/null"})
    p.expect(3, "--webhook: localhost", "its certificate is not accepted")
    no_secret_is_told(p)
    same(server.kinds(), ["failed", "done"])


def a_server_that_refuses_or_hangs_costs_nothing(_):
    with Server() as gone:
        url = gone.url()
        gone.shutdown()
    begun = time.monotonic()
    p = crun(f"--webhook={url}", *FAILS)
    p.expect(3, "Connection refused")
    if p.err.count("--webhook") != 1:
        fail("not one line:", p.err)
    if time.monotonic() - begun > 4:
        fail("a refused connection delays the end by", time.monotonic() - begun)
    patience = threading.Event()
    server, begun = Server(patience=patience), time.monotonic()
    p = crun(f"--webhook={server.url()}", *FAILS)
    p.expect(3, "could not be told in time")
    patience.set()
    if time.monotonic() - begun > 9:
        fail("a server that hangs delays the end by", time.monotonic() - begun)


# -- commands -------------------------------------------------------------------------


def a_command_gets_the_event_and_no_secret(folder):
    out = folder / "out"
    command = (f'cat >> {out}; echo "$CRUN_EVENT_KIND $CRUN_EVENT_RUN_ID $CRUN_EVENT_EPOCH '
               f'$CRUN_EVENT_RANK|$CRUN_EVENT_TEXT" >> {out}.told; env >> {out}.env; '
               f'ls /proc/self/fd >> {out}.fds; echo printed')
    p = crun("--rdzv-id=resnet", "--on-event", command, "--on-event-kinds=failed,joined,done",
             *FAILS, env={"CRUN_WEBHOOK_TOKEN_FILE": "", "CRUN_KEY_FILE": "",
                          "CREDENTIALS_DIRECTORY": "", "CRUN_OF_MINE": "secret",
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
    begun = time.monotonic()
    p = crun("--on-event", f"echo $$ > {folder}/pid; sleep 1000 & wait", *FAILS)
    p.expect(3, "ending: 2 events could not be told in time")
    if time.monotonic() - begun > 9:
        fail("a command that hangs delays the end by", time.monotonic() - begun)
    group = int((folder / "pid").read_text())
    until(lambda: not group_lives(group), "nothing of the command is left")


def group_lives(group):
    try:
        os.killpg(group, 0)
        return True
    except ProcessLookupError:
        return False


# -- crund ----------------------------------------------------------------------------


def a_locked_in_crund_notifies_and_shows_that_it_lives(folder):
    server, hook = Server(), Server()
    daemon = Process([BIN / "crund", "--allow-root", "--listen=127.0.0.1:0",
                      f"--state-dir={folder}/state", f"--heartbeat-url={server.url()}",
                      "--heartbeat-every=1", f"--webhook={hook.url()}",
                      "--on-event", f"echo $CRUN_EVENT_KIND >> {folder}/kinds"])
    try:
        until(lambda: "listening on" in daemon.err, "crund listens")
        if "not locked in" in daemon.err:
            fail(daemon.err)
        port = daemon.err.split("listening on 127.0.0.1:", 1)[1].split(" ", 1)[0]
        p = crun("--nnodes=1:1", "--rdzv-backend=c10d", "--rdzv-id=away", "--max-restarts=0",
                 f"--rdzv-endpoint=127.0.0.1:{port}", "--webhook=http://127.0.0.1:9/", *FAILS)
        p.expect(3, "--webhook has no effect here: the rendezvous of this job is a crund")
        until(lambda: hook.kinds() == ["failed", "done"], lambda: f"{hook.kinds()}\n{daemon.err}")
        until(lambda: (folder / "kinds").read_text() == "failed\ndone\n", "the command")
        until(lambda: server.gets >= 2, "signs of life")
        daemon.kill(signal.SIGSTOP)
        time.sleep(0.2)
        before = server.gets
        time.sleep(2.2)
        same(server.gets, before)
        daemon.kill(signal.SIGCONT)
        until(lambda: server.gets > before, "it lives again")
        daemon.kill(signal.SIGTERM)
        daemon.expect(0)
    finally:
        daemon.end()


CASES = [a_webhook_gets_the_failure_the_restart_and_the_end, a_certificate_is_checked,
         a_server_that_refuses_or_hangs_costs_nothing, a_command_gets_the_event_and_no_secret,
         a_command_that_fails_or_hangs_costs_nothing,
         a_locked_in_crund_notifies_and_shows_that_it_lives]


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
