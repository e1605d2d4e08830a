# SPDX-License-Identifier: MIT
"""
TF_CONFIG for TensorFlow's cluster resolver, made when that first reads it: each worker holds a port
of its node, and gives its address to the others through the store of rank 0.
"""
from __future__ import annotations

import json
import os
import socket
from types import ModuleType
from typing import Any

from _crun import import_watch

RESOLVER = "tensorflow.python.distribute.cluster_resolver.tfconfig_cluster_resolver"
VALIDATE, SET, GET, WAIT = b"\0\xce\xf7\x85\x3c", b"\1", b"\3", b"\6"  # of PyTorch's TCPStore

_held: list[socket.socket] = []  # until the worker ends; TensorFlow's server binds it, too


def _number(n: int) -> bytes:
    return n.to_bytes(8, "little")


def _counted(value: bytes) -> bytes:
    return _number(len(value)) + value


def _exchange(store: Any, rank: int, size: int, own: str) -> list[str]:
    """The values of all ranks. The store is new in each epoch, and so are they."""
    keys = [_counted(f"crun/tensorflow/{i}".encode()) for i in range(size)]
    store.write(VALIDATE + SET + keys[rank] + _counted(own.encode())
                + WAIT + _number(size) + b"".join(keys))
    store.flush()
    if store.read(1) != b"\0":
        raise OSError("TF_CONFIG: the store of rank 0 is closed")
    store.write(b"".join(GET + key for key in keys))
    store.flush()
    return [store.read(int.from_bytes(store.read(8), "little")).decode() for _ in keys]


def _own_host() -> str:
    """By which the other nodes reach this worker, as it reaches rank 0's."""
    host = os.environ["MASTER_ADDR"]
    if os.environ["GROUP_WORLD_SIZE"] != "1":  # the store may be at a tunnel's address
        host = os.environ["JAX_COORDINATOR_ADDRESS"].rpartition(":")[0].strip("[]")
    family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as s:
        s.connect(address)
        own = str(s.getsockname()[0])
    return f"[{own}]" if ":" in own else own


def _hold_port() -> int:
    s = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    if s.family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", 0))
    _held.append(s)
    return int(s.getsockname()[1])


def make() -> str:
    """Waits until all workers are here, as TensorFlow's servers do after it."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    own = f"{_own_host()}:{_hold_port()}"
    at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    with socket.create_connection(at) as s, s.makefile("rwb") as store:
        workers = _exchange(store, rank, size, own)
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


def _imported(module: ModuleType) -> None:
    load: Any = module._load_tf_config

    def load_tf_config() -> Any:
        env = os.environ
        if ("TF_CONFIG" not in env and env.get("WORLD_SIZE", "1") != "1"
                and env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"):
            env["TF_CONFIG"] = make()
        return load()

    module._load_tf_config = load_tf_config  # type: ignore[attr-defined]


def start() -> None:
    import_watch.begin([RESOLVER], _imported)
