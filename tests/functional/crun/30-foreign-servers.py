#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 23 s
"""
Another server has the port where a rendezvous was expected: crun and crunctl, with and
without a key, say so.
"""
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, Process, expect, fail, free_port, run, same, until  # noqa: E402

CRUN, CRUNCTL = BIN / "crun", BIN / "crunctl"
ENV = {n: v for n, v in os.environ.items() if not n.startswith(("SLURM_", "CRUN_", "PET_"))}


class Folder:
    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="crun-foreign-")
        self.key = f"{self.path}/key"
        subprocess.run([CRUNCTL, "keygen", self.key], check=True, capture_output=True)
        self.certificate = [f"{self.path}/server.key", f"{self.path}/server.crt"]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
                        "2", "-subj", "/CN=x", "-keyout", self.certificate[0], "-out",
                        self.certificate[1]], check=True, capture_output=True)


def accepts(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def server(command, **options):
    """A command that listens on the port named in it."""
    port = free_port()
    p = Process([str(word).replace("PORT", str(port)) for word in command], **options)
    try:
        until(lambda: accepts(port) or p.popen.poll() is not None, p.__str__)
        if p.popen.poll() is not None:
            fail(p, p.out, p.err)
        yield port
    finally:
        p.end()


@contextlib.contextmanager
def answering(answer):
    """A server of this process: answer(connection) for each connection."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection = s.accept()[0]
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()
        threading.Thread(target=serve, daemon=True).start()
        yield s.getsockname()[1]


def check(folder, port):
    with contextlib.ExitStack() as stack:
        pairs = []
        for key in ([], [f"--key-file={folder.key}"]):
            pairs += [(
                Process([CRUN, "--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1",
                         f"--master_port={port}", *key, "true"], env=ENV),
                Process([CRUNCTL, "-e", f"127.0.0.1:{port}", "--timeout=3", *key, "status"],
                        env=ENV))]
            stack.callback(pairs[-1][0].end)
        for crun, ctl in pairs:
            until(lambda p=crun: re.search(f"127.0.0.1:{port}.*another program", p.err), crun.__str__)
            ctl.wait()
            same((ctl.popen.returncode, "another program" in ctl.err), (69, True))
            same(crun.popen.poll(), None)


def http(folder):
    with server([sys.executable, "-m", "http.server", "PORT", "--bind", "127.0.0.1",
                 "--directory", folder.path]) as port:
        check(folder, port)


def tls_of_openssl(folder):
    key, certificate = folder.certificate
    with server(["openssl", "s_server", "-accept", "127.0.0.1:PORT", "-key", key, "-cert",
                 certificate, "-quiet"]) as port:
        check(folder, port)


def silent_store(folder):
    """As torch's with libuv: it waits for more where the first bytes are no request."""
    def answer(c):
        with contextlib.suppress(OSError), c:
            c.recv(64)
            time.sleep(30)
    with answering(answer) as port:
        check(folder, port)


def a_crun_with_a_store_is_none(folder):
    """A node without the key of a keyed rendezvous is told of the key, not of its store."""
    port = free_port()
    host = Process([CRUN, "--nnodes=1:2", "--node_rank=0", "--master_addr=127.0.0.1",
                    f"--master_port={port}", f"--key-file={folder.key}",
                    "--rdzv-conf=last_call_timeout=0", "sh", "-c", "echo up; exec sleep 600"],
                   env=ENV)
    try:
        until(lambda: "up" in host.out, lambda: host.err)
        ctl = Process([CRUNCTL, "-e", f"127.0.0.1:{port}", "status"], env=ENV)
        expect(ctl, 69, "if it asks for a key")
    finally:
        host.end()


def it_goes_on_when_the_port_is_free(folder):
    port = free_port()
    with contextlib.ExitStack() as stack:
        http_server = Process([sys.executable, "-m", "http.server", str(port), "--bind",
                               "127.0.0.1", "--directory", folder.path])
        stack.callback(http_server.end)
        until(lambda: accepts(port), http_server.__str__)
        words = ["--nnodes=2", "--master_addr=127.0.0.1", f"--master_port={port}", "true"]
        b = Process([CRUN, "--node_rank=1", *words], env=ENV)
        stack.callback(b.end)
        until(lambda: "another program listens there" in b.err, lambda: b.err)
        http_server.end()
        a = Process([CRUN, "--node_rank=0", *words], env=ENV)
        stack.callback(a.end)
        expect(a, 0)
        expect(b, 0)


TESTS = [
    http,
    tls_of_openssl,
    silent_store,
    a_crun_with_a_store_is_none,
    it_goes_on_when_the_port_is_free,
]

if __name__ == "__main__":
    place = Folder()
    try:
        run(TESTS, place)
    finally:
        shutil.rmtree(place.path)
