# SPDX-License-Identifier: MIT
"""
A fork of the template becomes a worker: everything in the process that an interpreter that
was started for this worker alone would have otherwise.
"""
from __future__ import annotations

import io
import os
import sys
from typing import Mapping

from _crun import kernel
from _crun.command import Environment

STREAMS = ("<stdin>", "<stdout>", "<stderr>")


# -- environment and arguments ----------------------------------------------------------


def changes(old: Mapping[bytes, bytes], new: Mapping[bytes, bytes]) -> dict[bytes, bytes | None]:
    """What was set, and what was removed (None)."""
    changed: dict[bytes, bytes | None] = {
        name: value for name, value in new.items() if old.get(name) != value}
    changed.update((name, None) for name in old if name not in new)
    return changed


def set_environment(env: Environment, template: Mapping[bytes, bytes],
                    changed: Mapping[bytes, bytes | None]) -> None:
    """
    os.environ stays the object that it is, and C's environment follows. The interpreter's
    start and the imports have `changed` the environment that the template began with: they
    would have done the same here where the worker's variable is the template's.
    """
    env = dict(env)
    for name, value in changed.items():
        if env.get(name) != template.get(name):
            continue
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    os.environb.clear()
    os.environb.update(env)
    if "posix" in sys.modules:
        sys.modules["posix"].environ.clear()
        sys.modules["posix"].environ.update(env)


def command_prefix(command: list[str], arguments: list[str]) -> list[str]:
    """The part of a command that the interpreter has read for itself: all but the arguments."""
    return command[:len(command) - len(arguments) + 1]


def set_arguments(argv: list[bytes], prefix: list[str]) -> None:
    words = [os.fsdecode(word) for word in argv]
    sys.argv[1:] = words[len(prefix):]
    if sys.version_info >= (3, 10):
        sys.orig_argv[:] = words


# -- standard streams -------------------------------------------------------------------


def _renew_stream(stream: io.TextIOWrapper, fd: int, unbuffered: bool) -> None:
    """The same object, as the interpreter's start (create_stdio) makes it for this file."""
    mode = "wb" if fd else "rb"
    file = open(fd, mode, 0 if unbuffered and fd else -1, closefd=False)
    raw = getattr(file, "raw", file)
    raw.name = STREAMS[fd]
    stream.__init__(  # type: ignore[misc]
        file, stream.encoding, stream.errors, newline="\n", write_through=unbuffered,
        line_buffering=not unbuffered and (fd == 2 or raw.isatty()))
    stream.mode = mode[0]  # type: ignore[misc]


def renew_streams() -> None:
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    unbuffered = isinstance(getattr(sys.__stdout__, "buffer", None), io.RawIOBase)  # -u
    for fd, stream in enumerate(streams):
        if stream is not None:
            _renew_stream(stream, fd, unbuffered)


def replay(printed: Mapping[int, bytes]) -> None:
    """What the imports have printed, each worker prints."""
    for fd, text in printed.items():
        try:
            while text:
                text = text[os.write(fd, text):]
        except OSError:
            pass


# -- what the interpreter knows ----------------------------------------------------------


def renew_threading() -> None:
    if "threading" in sys.modules:
        main = sys.modules["threading"].main_thread()
        if hasattr(main, "_set_native_id"):
            main._set_native_id()


def renew_finders() -> None:
    """Folders may have changed since the template looked into them."""
    for finder in list(sys.path_importer_cache.values()):
        if hasattr(finder, "invalidate_caches"):
            finder.invalidate_caches()


def renew_interpreter() -> None:
    renew_streams()
    renew_threading()
    renew_finders()


# -- the process ------------------------------------------------------------------------


def set_terminal() -> None:
    """As in C: standard output, else standard error, is the controlling terminal."""
    import fcntl
    import termios
    fcntl.ioctl(1 if os.isatty(1) else 2, termios.TIOCSCTTY, 0)


def become_worker(parent: int, files: list[int], is_tty: bool, numa_node: int) -> None:
    kernel.die_with_parent()
    if os.getppid() != parent:
        os._exit(127)
    os.setsid()
    if numa_node >= 0:
        kernel.bind_memory(numa_node)
    for fd, file in enumerate(files):
        os.dup2(file, fd)
    if is_tty:
        set_terminal()
