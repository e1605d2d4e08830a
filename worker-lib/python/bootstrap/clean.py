# SPDX-License-Identifier: MIT
"""
Whether a process can be forked into workers: what a fork does not copy, or what must not be
shared by the ranks. Each function returns the reason against it, or None.
"""
from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any, Callable, Iterable

from _crun import kernel

HARMLESS_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")
GPU_FILES = ("/dev/nvidia-uvm", "/dev/kfd", "/dev/dri/", "/dev/davinci", "/dev/accel")
NVML_FILES = ("/dev/nvidia",)  # NVML opens them without a context on the GPU
THREAD_END_S = 0.2  # for threads that are ending
# Of jemalloc, as in pyarrow, on which pandas, datasets and scikit-learn are built: it takes its
# locks before a fork, and does without the thread in a child.
HARMLESS_THREADS = (b"jemalloc_bg_thd", )

# Variables that differ between workers: the template has none of them.
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "ROLE_RANK", "WORLD_SIZE",
                  "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "ROLE_NAME",
                  "MASTER_ADDR", "MASTER_PORT")
SLURM_VARIABLES = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS")
ENVIRON_MODULES = ("os", "_collections_abc", "collections.abc")
RANK_PREFIXES = ("TORCHELASTIC_", "CRUN_")


# -- descriptors, processes, threads ----------------------------------------------------


def open_files() -> dict[int, str]:
    files = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            files[int(name)] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass  # the folder itself, which listdir has closed
    return files


def file_problem(before: dict[int, str]) -> str | None:
    for fd, name in open_files().items():
        if before.get(fd) == name or name in HARMLESS_FILES or os.path.isdir(name):
            continue
        if name.startswith(GPU_FILES):
            return f"it opens {name}"
        if name.startswith(NVML_FILES):
            continue
        kind = name.partition(":")[0] if name.startswith(("socket:", "pipe:")) else name
        return f"it leaves a {kind} open" if kind != name else f"it leaves {name} open"
    return None


def gpu_problem() -> str | None:
    return "it initializes CUDA" if kernel.cuda_is_initialized() else None


def children() -> list[int]:
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as file:
                found += [int(pid) for pid in file.read().split()]
        except OSError:
            pass
    return found


def child_problem() -> str | None:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return "it leaves a process running"


def _tasks() -> int:
    """Those that matter."""
    count = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm", "rb") as file:
                count += file.read().rstrip() not in HARMLESS_THREADS
        except OSError:
            pass  # it has ended
    return count


def _one_task_left() -> bool:
    end = time.monotonic() + THREAD_END_S
    while _tasks() > 1 and time.monotonic() < end:
        time.sleep(0.002)
    return _tasks() == 1


def thread_problem() -> str | None:
    """Some libraries end their threads before each fork; a fork tells which do."""
    if threading.active_count() > 1:
        names = ", ".join(t.name for t in threading.enumerate()[1:])
        return f"it leaves a thread running ({names})"
    if _tasks() == 1:
        return None
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return None if _one_task_left() else "it leaves a thread running that a fork does not end"


def end_children() -> None:
    for pid in children():
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except OSError:
            pass


# -- what imports read and find ---------------------------------------------------------


class RankReads:
    """Notes which module reads a variable that differs between workers, while it is entered."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def __enter__(self) -> "RankReads":
        kind = type(os.environ)
        self._original = original = kind.__getitem__
        found = self.found
        of_ranks = RANK_VARIABLES + (SLURM_VARIABLES if "SLURM_JOB_ID" in os.environ else ())

        def read(environ: os._Environ[str], name: str) -> str:
            try:
                return original(environ, name)
            except KeyError:  # what the template has, all workers have
                if name in of_ranks or str(name).startswith(RANK_PREFIXES):
                    found.append((_reader(), name))
                raise

        kind.__getitem__ = read  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        type(os.environ).__getitem__ = self._original  # type: ignore[method-assign]

    def problem(self) -> str | None:
        for module, variable in self.found:
            if module not in REPAIRS:
                return f"{module} reads {variable}"
        return None


def _reader() -> str:
    """The name of the module whose code reads os.environ."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__") in ENVIRON_MODULES:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def _repair_lightning(module: Any) -> None:
    module.rank_zero_only.rank = module._get_rank() or 0


def _repair_torchmetrics(module: Any) -> None:
    module.rank_zero_only.rank = int(os.environ.get("LOCAL_RANK", 0))


# Modules that compute something from these variables when they are imported, and what
# computes it again in a worker.
REPAIRS: dict[str, Callable[[Any], None]] = {
    "lightning.fabric.utilities.rank_zero": _repair_lightning,
    "lightning_fabric.utilities.rank_zero": _repair_lightning,
    "torchmetrics.utilities.prints": _repair_torchmetrics,
}


def repair_rank_readers() -> None:
    for name, repair in REPAIRS.items():
        if name in sys.modules:
            try:
                repair(sys.modules[name])
            except (AttributeError, ValueError) as error:
                os.write(2, f"crun: cannot tell {name} its rank: {error}\n".encode())


def own_module_problem(names: Iterable[str], is_own: Callable[[str], bool]) -> str | None:
    """A module of the program itself must be imported by each worker."""
    for name in names:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_own(file):
            return f"it imports {name} of the program's folder"
    return None


def first_problem(before: dict[int, str]) -> str | None:
    return (file_problem(before) or gpu_problem() or child_problem() or thread_problem())
