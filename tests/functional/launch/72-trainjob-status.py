#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 10 s
# sanitizers: no, its cases wait most of the time; test_trainjob_status and test_https run the code
"""
The progress of a job in `kubectl get trainjob`: what crun posts to the status server of Kubeflow
Trainer, here an HTTPS server that looks at the certificate's name and the token. Servers that
refuse, lie or hang disturb nothing. The cases run side by side: the first post comes after 5 s.
"""
import concurrent.futures
import http.server
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, fail, same, until  # noqa: E402

TOKEN = "header.secret-of-the-service-account.signature"

# Rank 0 is the slower one. It goes on when the test has seen enough.
WORKER = """
import mmap, os, struct, sys, time
page = mmap.mmap(os.open(os.environ["CRUN_PROGRESS"], os.O_RDWR), 4096)
def tell(step, steps, loss):
    page[16:32] = struct.pack("QQ", step, steps)
    page[40:56] = struct.pack("dQ", loss, time.monotonic_ns())
    page[8:12] = struct.pack("I", struct.unpack("I", page[8:12])[0] + 2)
page[12:16] = struct.pack("I", 1)
steps, enough, rank = int(sys.argv[1]), sys.argv[2], int(os.environ["RANK"])
step = 40 + rank
while not os.path.exists(enough) and step < 90:
    tell(step, steps, 0.25)
    time.sleep(0.4)
    step += 1
tell(100, steps, 0.125)
"""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    address_family = socket.AF_INET6

    def __init__(self, folder, token=TOKEN, patience=None):
        super().__init__(("::", 0), Handler)  # and IPv4
        self.posts, self.refused, self.wanted, self.patience = [], 0, token, patience
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        self.socket = context.wrap_socket(self.socket, server_side=True,
                                          do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # a client that does not accept the certificate


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.patience:
            self.server.posts.append(body)
            self.server.patience.wait()
        good = self.headers["Authorization"] == f"Bearer {self.server.wanted}" and \
            self.headers["Content-Type"] == "application/json" and \
            self.path == "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/b/status"
        if good:
            self.server.posts.append(json.loads(body)["trainerStatus"])
        else:
            self.server.refused += 1
        self.send_response(200 if good else 403)
        self.end_headers()

    def log_message(self, *_):
        pass


def make_certificates(folder):
    """An authority, and a server whose certificate is for ::1 and "status.test"."""
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "1"]
    run = {"check": True, "capture_output": True}
    for name in ("ca", "other"):
        subprocess.run([*make, "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt",
                        "-subj", f"/CN={name}"], **run)
    subprocess.run([*make, "-keyout", folder / "server.key", "-out", folder / "server.crt",
                    "-subj", "/CN=server", "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key",
                    "-addext", "subjectAltName=IP:::1,DNS:status.test",
                    "-addext", "basicConstraints=CA:FALSE"], **run)
    (folder / "server.pem").write_text((folder / "server.key").read_text() +
                                       (folder / "server.crt").read_text())


class Job:
    """A crun of two workers with the trainer's variables."""

    def __init__(self, folder, server, steps=100, host="[::1]", authority="ca", nodes=(),
                 beside=None):
        self.folder = beside.folder if beside else pathlib.Path(tempfile.mkdtemp(dir=folder))
        (self.folder / "token").write_text(TOKEN + "\n")
        (self.folder / "worker.py").write_text(WORKER)
        self.enough = self.folder / "enough"
        url = (f"https://{host}:{server.server_address[1]}"
               "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/b/status")
        env = {**os.environ, "KUBEFLOW_TRAINER_SERVER_URL": url,
               "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(folder / f"{authority}.crt"),
               "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.folder / "token")}
        self.p = Process([BIN / "crun", "-v", "--nproc-per-node=2", *nodes,
                          self.folder / "worker.py", str(steps), self.enough], env=env)

    def end(self, seconds=60):
        self.enough.touch()
        begun = time.monotonic()
        self.p.expect(0, seconds=seconds)
        if "secret-of" in self.p.out + self.p.err:
            fail("the token is in the log:", self.p.err)
        return time.monotonic() - begun


# -- cases ----------------------------------------------------------------------------


def the_progress_is_posted(folder):
    server = Server(folder)
    job = Job(folder, server)
    # the first one has no rate where the workers were late
    first = until(lambda: next((p for p in server.posts if "steps_per_second" in str(p)), None),
                  lambda: f"a post: {server.posts} {job.p.err}")
    if not 40 <= first["progressPercentage"] < 90:
        fail("percent done:", first)
    metrics = {m["name"]: m["value"] for m in first["metrics"]}
    same(metrics["loss"], "0.25")
    same(int(metrics["step"]), first["progressPercentage"])
    if not 0 < float(metrics["steps_per_second"]) < 20 or \
            not 2 < first["estimatedRemainingSeconds"] < 600:
        fail("the rate, and what remains:", first)
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first["lastUpdatedTime"]):
        fail("the time:", first)
    job.end()
    last = server.posts[-1]
    same((last["progressPercentage"], last["estimatedRemainingSeconds"]), (100, 0))
    same(server.refused, 0)


def percent_done_only_if_the_number_of_steps_is_known(folder):
    server = Server(folder)
    job = Job(folder, server, steps=0)
    first = until(lambda: server.posts and server.posts[0], lambda: f"a post: {job.p.err}")
    same(set(first), {"metrics", "lastUpdatedTime"})
    job.end()


def refused(folder, server, says, **more):
    job = Job(folder, server, **more)
    until(lambda: says in job.p.err, lambda: f"{says}: {job.p.err}")
    job.end()
    same(job.p.err.count("cannot be shown in Kubernetes"), 1)
    same(server.posts, [])


def a_wrong_token_is_told(folder):
    refused(folder, Server(folder, token="another"), "it answers with status 403")


def a_server_of_another_authority_gets_no_token(folder):
    server = Server(folder)
    refused(folder, server, "its certificate is not accepted", authority="other")
    same(server.refused, 0)


def a_server_of_another_name_gets_no_token(folder):
    server = Server(folder)
    refused(folder, server, "its certificate is not accepted: hostname mismatch",
            host="localhost")
    same(server.refused, 0)


def a_server_that_hangs_disturbs_nothing(folder):
    server = Server(folder, patience=threading.Event())
    job = Job(folder, server)
    until(lambda: server.posts, lambda: f"a post: {job.p.err}")
    took = job.end()
    if took > 3:
        fail("the end of the job took", took, "s")
    server.patience.set()


def only_rank_0s_node_posts(folder):
    server = Server(folder)
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    both, flags = [None], ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    for i in range(2):
        both.append(Job(folder, server, nodes=[*flags, f"--node-rank={i}"], beside=both[-1]))
    both = both[1:]
    until(lambda: server.posts, lambda: f"a post: {both[0].p.err}")
    for job in both:
        job.enough.touch()
    for job in both:
        job.end()
    same(len(server.posts), 2)


CASES = [
    the_progress_is_posted,
    percent_done_only_if_the_number_of_steps_is_known,
    a_wrong_token_is_told,
    a_server_of_another_authority_gets_no_token,
    a_server_of_another_name_gets_no_token,
    a_server_that_hangs_disturbs_nothing,
    only_rank_0s_node_posts,
]


def main():
    with tempfile.TemporaryDirectory(prefix="crun-trainjob-") as name:
        folder = pathlib.Path(name)
        make_certificates(folder)
        with concurrent.futures.ThreadPoolExecutor(len(CASES)) as pool:
            running = {case: pool.submit(case, folder) for case in CASES}
    errors = [f"{case.__name__}: {f.exception()}" for case, f in running.items() if f.exception()]
    if errors:
        sys.exit("\n".join(errors))


main()
