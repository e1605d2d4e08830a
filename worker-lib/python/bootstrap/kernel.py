# SPDX-License-Identifier: MIT
"""What the template and its forks ask of the kernel and libc, and Python has no function for."""
from __future__ import annotations

import ctypes
import mmap
import os
import signal
from typing import Iterable

PR_SET_PDEATHSIG = 1
PR_SET_MM, PR_SET_MM_MAP = 35, 14
MPOL_BIND = 2
IN_MOVED_TO = 0x80
SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


def die_with_parent() -> None:
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def bind_memory(node: int) -> None:
    """All memory from now on comes from this NUMA node."""
    number = SET_MEMPOLICY.get(os.uname().machine)
    if number is None:
        return
    mask = (1 << node).to_bytes(1024 // 8, "little")
    _check(_libc.syscall(number, MPOL_BIND, mask, ctypes.c_ulong(1024 + 1)), "set_mempolicy")


def watch_renames(folder: str) -> int:
    """A descriptor that becomes readable when a file gets its name in the folder; -1: none."""
    fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd >= 0 and _libc.inotify_add_watch(fd, os.fsencode(folder), IN_MOVED_TO) < 0:
        os.close(fd)
        return -1
    return fd


def flush_output() -> None:
    """What C code has printed and not yet written."""
    _libc.fflush(None)


def trim_memory() -> None:
    """Gives free memory back, so that forks do not share what is of no use."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


class _MemoryMap(ctypes.Structure):  # struct prctl_mm_map
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "start_code", "end_code", "start_data", "end_data", "start_brk", "brk", "start_stack",
        "arg_start", "arg_end", "env_start", "env_end", "auxv")]
    _fields_ += [("auxv_size", ctypes.c_uint32), ("exe_fd", ctypes.c_uint32)]


def _memory_map() -> _MemoryMap:
    """As it is now: /proc/self/stat, whose fields are numbered from 1 in proc(5)."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()

    def field(number: int) -> int:
        return int(fields[number - 3])

    _libc.sbrk.restype = ctypes.c_void_p
    return _MemoryMap(
        start_code=field(26), end_code=field(27), start_stack=field(28),
        start_data=field(45), end_data=field(46), start_brk=field(47), brk=_libc.sbrk(0),
        exe_fd=0xFFFFFFFF)


def show_command(argv: list[bytes], env: list[bytes]) -> None:
    """Sets /proc/self/cmdline and environ, where the kernel lets us."""
    arguments = b"".join(word + b"\0" for word in argv)
    variables = b"".join(entry + b"\0" for entry in env)
    shown = arguments + variables
    _libc.malloc.restype = ctypes.c_void_p
    memory = _memory_map()
    memory.arg_start = _libc.malloc(len(shown))  # for good: it is shown until the process is gone
    ctypes.memmove(memory.arg_start, shown, len(shown))
    memory.arg_end = memory.env_start = memory.arg_start + len(arguments)
    memory.env_end = memory.env_start + len(variables)
    size = ctypes.c_ulong(ctypes.sizeof(memory))
    _libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(memory), size, 0)


class UnreadVariables:
    """
    Variables of C's environment whose values begin a page each. No such page is in memory until
    somebody reads the value, which getenv() does not.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = [os.fsencode(name) for name in names]
        self.memory = mmap.mmap(-1, 2 * mmap.PAGESIZE * len(self.names) or 1, mmap.MAP_PRIVATE)
        try:
            self.memory.madvise(mmap.MADV_NOHUGEPAGE)
        except OSError:
            pass  # this kernel has none
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for value, name in zip(self._values(), self.names):
            at = value - len(name) - 1
            self.memory[at:value] = name + b"="
            _libc.putenv(ctypes.c_void_p(self.address + at))

    def _values(self) -> range:
        return range(mmap.PAGESIZE, len(self.memory), 2 * mmap.PAGESIZE)

    def find_read(self) -> str | None:
        """The name of one whose value has been read: its page is present, or was swapped."""
        try:
            pages = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None  # as in gVisor
        try:
            for value, name in zip(self._values(), self.names):
                page = (self.address + value) // mmap.PAGESIZE
                if int.from_bytes(os.pread(pages, 8, 8 * page), "little") >> 62:
                    return os.fsdecode(name)
            return None
        finally:
            os.close(pages)

    def forget_reads(self) -> None:
        for value in self._values():
            self.memory.madvise(mmap.MADV_DONTNEED, value, mmap.PAGESIZE)

    def remove(self) -> None:
        """Who has a pointer to a value keeps it."""
        for name in self.names:
            _libc.unsetenv(name)


def cuda_is_initialized() -> bool:
    """Whether anything in this process has called cuInit."""
    with open("/proc/self/maps", "rb") as maps:
        if b"libcuda.so" not in maps.read():
            return False
    try:
        libcuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True
    return libcuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != 3  # NOT_INITIALIZED
