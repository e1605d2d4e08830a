# SPDX-License-Identifier: MIT
"""
jax.distributed.initialize() without arguments: crun is one of JAX's cluster types, and the
first of them, as a scheduler's variables may tell of crun's own process.
"""
from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from functools import update_wrapper
from types import ModuleType
from typing import Any, NoReturn

from _crun import import_watch
from _crun.page import SAVES_TOGETHER, worker_page

DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
DEVICE_FILES = ("/dev/nvidia[0-9]*", "/dev/dri/renderD*")
COORDINATOR_S = 30  # that it may begin to listen later; JAX itself waits longer
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # of which gRPC takes the first


def _program_chose_devices() -> bool:
    from _crun import command
    before = command.initial_environment()
    return any(os.environb.get(name.encode()) != before.get(name.encode()) for name in DEVICES)


def _count_devices() -> int:
    import glob
    for name in DEVICES:
        if os.environ.get(name):
            return len(os.environ[name].split(","))
    return next((len(files) for files in map(glob.glob, DEVICE_FILES) if files), 0)


def own_device() -> int | None:
    """The device of this worker, if there is one for each on this node. JAX numbers those
    that CUDA_VISIBLE_DEVICES leaves."""
    workers = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if workers == 1 or _count_devices() < workers or _program_chose_devices():
        return None
    return int(os.environ["LOCAL_RANK"])


def proxy_problem(address: str) -> str | None:
    """gRPC goes through a proxy even to this machine, and initialize() waits."""
    host = address.rpartition(":")[0].strip("[]")
    proxy = next((name for name in PROXIES if os.environ.get(name)), None)
    exempt = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""
    if not proxy or any(end.strip() and host.endswith(end.strip().lstrip("*"))
                        for end in exempt.split(",")):
        return None
    return (f"{proxy} is set, and no_proxy does not name {host}: jax.distributed.initialize() "
            "may wait for that proxy")


def wait_for_coordinator(address: str) -> None:
    """gRPC asks again after a second only if it comes before the coordinator of rank 0."""
    host, _, port = address.rpartition(":")
    limit = time.monotonic() + COORDINATOR_S
    while time.monotonic() < limit:
        try:
            socket.create_connection((host.strip("[]"), int(port)), 1).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.005)
        except (OSError, ValueError):
            return


def _register(module: ModuleType) -> None:
    base: Any = module.ClusterEnv

    class CrunCluster(base):
        name = "crun"

        @classmethod
        def is_env_present(cls) -> bool:
            return "RANK" in os.environ and "WORLD_SIZE" in os.environ

        @classmethod
        def get_coordinator_address(cls, *_: Any, **__: Any) -> str:
            """JAX takes the variable itself, if it is set."""
            address = os.environ.get("JAX_COORDINATOR_ADDRESS")
            if not address:
                raise RuntimeError("JAX_COORDINATOR_ADDRESS is not set: crun on the node of "
                                   "rank 0, or crund, is of an earlier version")
            return address

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["WORLD_SIZE"])

        @classmethod
        def get_process_id(cls) -> int:
            rank = int(os.environ["RANK"])
            problem = proxy_problem(os.environ.get("JAX_COORDINATOR_ADDRESS", ""))
            if rank == 0 and problem:
                os.write(2, f"crun: {problem}\n".encode(errors="replace"))
            if rank:
                wait_for_coordinator(os.environ.get("JAX_COORDINATOR_ADDRESS", ""))
            return rank

        @classmethod
        def get_local_process_id(cls) -> int | None:
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and worker_page.open():
                worker_page.set_flags(SAVES_TOGETHER)
            return own_device()

    base._cluster_types.remove(CrunCluster)
    base._cluster_types.insert(0, CrunCluster)


class _Exit(SystemExit):
    """It notes whether it ends the interpreter, which sets sys.last_value for other exceptions only: then
    it is destroyed before the end begins, where no function of Python runs."""
    ends_failing = False

    def __del__(self) -> None:
        if (sys._getframe().f_back is None and self.code not in (None, 0) and
                threading.current_thread() is threading.main_thread()):
            _Exit.ends_failing = True

    def __reduce__(self) -> tuple[Any, ...]:
        return SystemExit, self.args


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"


def note_exits() -> None:
    def exit(status: Any = None, /) -> NoReturn:
        raise _Exit(*(() if status is None else (status,)))
    sys.exit = exit


def note_handlers() -> None:
    """What JAX does at SIGTERM needs all processes. After a failure crun waits for the program's handlers only."""
    set_handler = signal.signal

    def noting(signalnum: Any, handler: Any) -> Any:
        if signalnum == signal.SIGTERM:
            worker_page.set_flags(0, SAVES_TOGETHER)
        return set_handler(signalnum, handler)
    signal.signal = update_wrapper(noting, set_handler)


def _imported(module: ModuleType) -> None:
    try:
        note_exits()
        note_handlers()
        _register(module)
    except Exception as error:  # another version of JAX: initialize() needs arguments there
        os.write(2, f"crun: JAX does not take its ranks from crun: {error!r}\n"
                 .encode(errors="replace"))


def _leave_peers() -> None:
    """After a failure JAX would wait at its end, for five minutes, for the other processes, which
    wait for this one. What holds the connection is not destroyed either: that waits, too."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is None or (getattr(sys, "last_value", None) is None and not _Exit.ends_failing):
        return
    import ctypes
    for name in ("preemption_sync_manager", "client", "service"):
        if getattr(state, name, None) is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(getattr(state, name)))
            setattr(state, name, None)


def start() -> None:
    if hasattr(threading, "_register_atexit"):  # before what JAX has registered
        threading._register_atexit(_leave_peers)
    import_watch.begin(["jax._src.clusters.cluster"], _imported)
