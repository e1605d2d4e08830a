# SPDX-License-Identifier: MIT
"""The control protocol from the outside, for tests that speak it byte by byte."""
import hmac
import json
import os
import re
import socket
import struct
import subprocess
import time

from process import SECONDS

PREFACE = b"CRUN\r\n\x1a\n"
HEADER = struct.Struct("<IHHQQ16s")
HELLO, JOIN, RESUME, HEARTBEAT, STORE_READY = 1, 10, 11, 12, 13
FAILED, FINISHED, STOPPED, LEAVE, BYE = 14, 15, 16, 18, 20
STATUS, EVENTS, STOP_JOB = 30, 31, 32
WELCOME, REFUSED, ACK = 50, 51, 52
JOINED, BEAT, START, STOP, DONE, NOTICE = 60, 61, 62, 64, 66, 67
JOB_STATUS, NODE_STATUS, EVENT, END_OF_LIST = 80, 81, 82, 83
SHOW_LOGS, RANK_LOGS = 35, 85
REPLICATE = 38


def frame(kind, body=None, sequence=1, epoch=0, instance=bytes(16)):
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    return HEADER.pack(len(data), kind, 0, sequence, epoch, instance) + data


def hello(role="ctl", instance=bytes(16)):
    return frame(HELLO, {"version_min": 3, "version_max": 3, "role": role,
                         "software": "test"}, instance=instance)


def hkdf(secret, label):
    """What a key's secret becomes, for TLS: the label is b"crun tls"."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, label + b"\0\1", "sha256")


def join(run_id="job", nodes=2, host="node0", **changes):
    config = {"min_nodes": nodes, "max_nodes": nodes, "max_restarts": 0,
              "lease_ms": 15000, "join_timeout_ms": 600000, "last_call_ms": 30000,
              "shutdown_grace_ms": 25000, "failure_grace_ms": 5000, "scale": "now"}
    config.update(changes)
    return frame(JOIN, {"run_id": run_id, "incarnation": os.urandom(16).hex(),
                        "host": host, "pid": 1, "workers": 1, "node_rank": -1,
                        "config": config})


class Session:
    """A connection that reads whole frames; Closed when the other side has closed."""

    class Closed(Exception):
        pass

    def __init__(self, port, preface=True, timeout=SECONDS):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        if preface:
            self.send(PREFACE)

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        """The next frame: (kind, body, header)."""
        while len(self.buffer) < HEADER.size or len(self.buffer) < HEADER.size + \
                HEADER.unpack_from(self.buffer)[0]:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Session.Closed
            self.buffer += data
        header = HEADER.unpack_from(self.buffer)
        end = HEADER.size + header[0]
        body = json.loads(self.buffer[HEADER.size:end])
        self.buffer = self.buffer[end:]
        return header[1], body, header

    def expect(self, kind):
        got, body, header = self.receive()
        assert got == kind, f"message {got} {body}, not {kind}"
        return body, header

    def close(self):
        self.socket.close()


def closed_within(sock, seconds):
    """Whether the other side closes in time, regardless of earlier messages."""
    deadline = time.monotonic() + seconds
    while True:
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            if not sock.recv(65536):
                return True
        except ConnectionResetError:
            return True
        except (TimeoutError, socket.timeout):
            return False


class Crund:
    """
    A crund on any port of 127.0.0.1, which does not outlive the test. Its standard error
    goes to a file.
    """

    def __init__(self, directory, *flags, name="crund", prefix=(), env=None):
        program = os.path.join(os.environ.get("BUILD", "build"), "bin", "crund")
        self.log_path = os.path.join(directory, name + ".log")
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *prefix, program, "--listen", "127.0.0.1:0", *flags],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(self.log_path, "w", encoding="utf-8"),
            env={"CRUND_ALLOW_ROOT": "1", **os.environ, **(env or {})})
        self.pid = self.process.pid
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(r"listening on 127\.0\.0\.1:(\d+)", self.log())):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.01)
        self.port = int(found[1])

    def log(self):
        with open(self.log_path, encoding="utf-8") as f:
            return f.read()

    def stop(self, signal=15):
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal)
        return self.process.wait(SECONDS)

    def memory(self, field="Pss"):
        """KiB: Pss, or VmHWM."""
        path = "smaps_rollup" if field == "Pss" else "status"
        with open(f"/proc/{self.pid}/{path}", encoding="ascii") as f:
            return int(re.search(rf"^{field}:\s+(\d+)", f.read(), re.M)[1])

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))
