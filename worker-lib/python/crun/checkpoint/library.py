# SPDX-License-Identifier: MIT
"""The worker library's part of checkpoints in memory (worker-lib/checkpoint/memory_client.h)."""
import ctypes
import os
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Iterable, List, Optional, Tuple

import crun

KIND = b"torch 1"
Piece = Tuple[Optional[int], int]  # address, None: a device has written it; bytes


class MemoryFault(Exception):
    """What the agent or the library says, in one sentence."""


class _Err(ctypes.Structure):
    _fields_ = [("code", c_int), ("rank", c_uint32), ("text", c_char * 512)]


class MemorySet(ctypes.Structure):
    _fields_ = [("epoch", c_uint64), ("step", c_uint64), ("world", c_uint32), ("pad", c_uint32)]


class _Config(ctypes.Structure):
    _fields_ = [("path", c_char_p), ("epoch", c_uint64), ("rank", c_uint32),
                ("local_rank", c_uint32), ("local_world", c_uint32), ("world", c_uint32),
                ("kind", c_char_p), ("command", c_char_p)]


class _Piece(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_uint64)]


class _Save(ctypes.Structure):
    _fields_ = [("step", c_uint64), ("own_bytes", c_uint64), ("shared_bytes", c_uint64),
                ("files_step", c_uint64), ("has_shared", c_uint32)]


class _Part(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_uint64), ("map", c_void_p),
                ("map_bytes", c_uint64)]


class _Header(ctypes.Structure):
    """The beginning of struct memory_header."""
    _fields_ = [("words", c_uint32 * 3), ("rank", c_uint32), ("set", MemorySet),
                ("rest", c_char * 4056)]


_FUNCTIONS = {
    "open": (c_void_p, POINTER(_Config), POINTER(_Err)),
    "close": (None, c_void_p),
    "restores": (POINTER(MemorySet), c_void_p),
    "read": (c_int, c_void_p, c_uint32, c_bool, POINTER(_Part), POINTER(_Err)),
    "part_read": (c_int, c_int, c_bool, POINTER(_Part), POINTER(_Header), POINTER(_Err)),
    "part_free": (None, POINTER(_Part)),
    "restored": (None, c_void_p, c_uint64),
    "begin": (c_int, c_void_p, POINTER(_Save), POINTER(_Err)),
    "section": (c_void_p, c_void_p, c_bool),
    "write": (c_int, c_void_p, c_bool, POINTER(_Piece), c_size_t, POINTER(_Err)),
    "commit": (None, c_void_p),
    "is_kept": (c_bool, c_void_p),
}

_calls: Any = None


def _load() -> Any:
    """Where crun is installed: by pip beside this package, by make below PREFIX."""
    global _calls
    if _calls is None:
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        name, error = "libcrun-worker.so.0", None
        for folder in (os.path.join(package, "lib"), os.path.join(package, "../../.."), ""):
            try:
                _calls = ctypes.CDLL(os.path.join(folder, name))
                break
            except OSError as e:
                error = e
        else:
            raise MemoryFault(f"{name} is not here: {error}")
        for call, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(_calls, "crun_memory_" + call, None)
            if function is None:
                _calls = None
                raise MemoryFault(f"{name} is older than this package")
            function.restype, function.argtypes = result, arguments
    return _calls


def _check(result: Any, error: _Err) -> Any:
    if result is None or result == -1:
        raise MemoryFault(error.text.decode(errors="replace").removeprefix("memory: "))
    return result


class Part:
    """The bytes of a section that was read; they end with this object."""

    def __init__(self, part: _Part, rank: int, step: int, world: int) -> None:
        self._part, self.rank, self.step, self.world = part, rank, step, world
        self.bytes = memoryview((c_char * part.bytes).from_address(part.data)).cast("B")

    def close(self) -> None:
        self.bytes = memoryview(b"")
        if self._part.map:
            _load().crun_memory_part_free(byref(self._part))


def read_descriptor(fd: int, shared: bool) -> Part:
    part, header, error = _Part(), _Header(), _Err()
    _check(_load().crun_memory_part_read(fd, shared, byref(part), byref(header), byref(error)), error)
    return Part(part, header.rank, header.set.step, header.set.world)


class Client:
    """This worker's slots; one thread at a time."""

    def __init__(self, path: str, command: List[str]) -> None:
        self._calls, error = _load(), _Err()
        words = b"".join(word.encode() + b"\0" for word in command) + b"\0"
        self._config = _Config(path.encode(), crun.epoch(), crun.rank(), crun.local_rank(),
                               crun.local_world_size(), crun.world_size(), KIND, None)
        self._command = ctypes.create_string_buffer(words)  # c_char_p would end at a NUL
        self._config.command = ctypes.cast(self._command, c_char_p) if command else None
        self._memory = _check(self._calls.crun_memory_open(byref(self._config), byref(error)), error)
        self.is_taken = False
        restores = self._calls.crun_memory_restores(self._memory).contents
        self.step, self.world = restores.step, restores.world

    def read(self, rank: int, shared: bool) -> Part:
        part, error = _Part(), _Err()
        _check(self._calls.crun_memory_read(self._memory, rank, shared, byref(part), byref(error)), error)
        return Part(part, rank, self.step, self.world)

    def restored(self, step: int) -> None:
        self._calls.crun_memory_restored(self._memory, step)

    def begin(self, step: int, own: int, shared: int, has_shared: bool, files_step: int) -> None:
        save, error = _Save(step, own, shared, files_step, has_shared), _Err()
        _check(self._calls.crun_memory_begin(self._memory, byref(save), byref(error)), error)

    def section(self, shared: bool) -> int:
        return int(self._calls.crun_memory_section(self._memory, shared))

    def write(self, shared: bool, pieces: Iterable[Piece]) -> None:
        array = (_Piece * len(pieces))(*pieces)  # type: ignore[arg-type]
        error = _Err()
        _check(self._calls.crun_memory_write(self._memory, shared, array, len(array), byref(error)), error)

    def commit(self) -> None:
        self._calls.crun_memory_commit(self._memory)

    def is_kept(self) -> bool:
        return bool(self._calls.crun_memory_is_kept(self._memory))


_client: Optional[Client] = None
_pid = 0


def client(command: Optional[List[str]] = None) -> Optional[Client]:
    """The one of this process. None: no agent offers memory to it."""
    global _client, _pid
    path = os.environ.get("CRUN_MEMORY")
    if not path:
        return None
    if _client is None or _pid != os.getpid():
        _client, _pid = Client(path, command or []), os.getpid()
    elif command and _client.is_taken:
        raise MemoryFault("another Checkpointer of this process has the memory")
    _client.is_taken |= bool(command)
    return _client
