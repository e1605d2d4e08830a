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
from typing import Callable, Iterable

from _crun import kernel

HARMLESS_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")
GPU_FILES = ("/dev/nvidia-uvm", "/dev/kfd", "/dev/dri/", "/dev/davinci", "/dev/accel")
NVML_FILES = ("/dev/nvidia",)  # NVML opens them without a context on the GPU
THREAD_END_S = 0.2  # for threads that are ending
# Of jemalloc, as in pyarrow, on which pandas, datasets and scikit-learn are built: it takes its
# locks before a fork, and does without the thread in a child.
HARMLESS_THREADS = (b"jemalloc_bg_thd", )


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


# -- shared memory, modules -------------------------------------------------------------


def shared_maps() -> set[str]:
    """Memory that forks share and nobody can open: of semaphores and locks, anonymous."""
    with open("/proc/self/maps") as maps:
        words = [line.split(None, 5) for line in maps]
    return {w[0] for w in words if w[1].startswith("rw-s") and w[-1].endswith("(deleted)\n")}


def own_module_problem(names: Iterable[str], is_own: Callable[[str], bool]) -> str | None:
    """A module of the program itself must be imported by each worker."""
    for name in names:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_own(file):
            return f"it imports {name} of the program's folder"
    return None


class Before:
    """What there is before the imports."""

    def __init__(self) -> None:
        self.files, self.maps = open_files(), shared_maps()

    def problem(self) -> str | None:
        return (file_problem(self.files) or gpu_problem() or child_problem() or thread_problem()
                or ("it shares memory with all forks" if shared_maps() - self.maps else None))
