# SPDX-License-Identifier: MIT
"""What strangers do to a job: garbage, connections that say nothing, floods."""
import random
import socket
import time


def rendezvous(run):
    host, port = run.endpoint().split(":")
    return host, int(port)


def some_store(run):
    """The addresses on which a node listens: a store, or the rendezvous."""
    host = run.rng.choice(run.nodes)
    ports = host.listeners()
    return (host.address, run.rng.choice(ports)) if ports else rendezvous(run)


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"\xff" * 64,
    b"\x16\x03\x01\x02\x00\x01", b"\0" * 64, b"\xff\xff\xff\x7f" + b"{" * 64,
]


def throw(where):
    def inject(run, _host, _seconds):
        address, rng = where(run), random.Random(run.rng.random())

        def act():
            for _ in range(100):
                with socket.create_connection(address, 2) as s:
                    s.sendall(rng.choice(GARBAGE + [rng.randbytes(500)]))
                    s.settimeout(0.05)
                    try:
                        s.recv(100)
                    except OSError:
                        pass
        run.fork(run.stranger, act)
    return inject


def half_open(run, _host, _seconds):
    """Connections that send nothing and never end."""
    address = rendezvous(run)

    def act():
        held = [socket.create_connection(address, 2) for _ in range(300)]
        time.sleep(600)
        del held
    run.fork(run.stranger, act)


def flood(run, _host, _seconds):
    address = rendezvous(run)

    def act():
        for _ in range(3000):
            socket.create_connection(address, 2).close()
    run.fork(run.stranger, act)
