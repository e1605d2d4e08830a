# SPDX-License-Identifier: MIT
"""Notes about a program in the user's cache folder: the modules that it has imported from outside
its own folder, for the next template of it.

A worker imports this module when it ends. So it imports little, and evaluates no strings (as
typing and collections.namedtuple do): the interpreter would forget that it was interrupted.
"""
from __future__ import annotations

import binascii
import os
import sys

import _crun  # type: ignore[import-not-found]
from _crun import command

NEVER = ("__main__", "__mp_main__", "sitecustomize", "usercustomize", "_crun", "crun")
PACKAGES = ("site-packages", "dist-packages")


# -- the program ------------------------------------------------------------------------


def _module() -> str | None:
    """Of `python -m`."""
    if _crun.argv[0] != "-m":
        return None
    words = command.original()
    return words[words.index("-m") + 1] if "-m" in words else None


def _file() -> str | None:
    """With -c (--run-path), the program is the first argument."""
    script = _crun.argv[1:2] if _crun.argv[0] == "-c" else _crun.argv[:1]
    if not script or PROGRAM_MODULE:
        return None
    return os.path.realpath(os.path.join(_crun.folder, script[0]))


def _folders() -> tuple[str, ...]:
    folders = {_crun.folder, os.path.realpath(_crun.folder)}
    if PROGRAM_FILE:
        folders |= {PROGRAM_FILE, os.path.dirname(PROGRAM_FILE)}
    return tuple(folder.rstrip("/") + "/" for folder in folders)


PROGRAM_MODULE = _module()
PROGRAM_FILE = _file()
PROGRAM_FOLDERS = _folders()
LIBRARY = os.path.dirname(os.__file__) + "/"


def is_own(path: str) -> bool:
    """Whether the file belongs to the program, and not to an installed package."""
    if not path.startswith(PROGRAM_FOLDERS) or path.startswith(LIBRARY):
        return False
    return not any(part in PACKAGES for part in path.split("/"))


def is_program(name: str) -> bool:
    """The module of `python -m` must not be imported before it runs."""
    return PROGRAM_MODULE is not None and name in (PROGRAM_MODULE, PROGRAM_MODULE + ".__main__")


# -- the cache --------------------------------------------------------------------------


def cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "crun")


def program_key() -> str:
    version = sys.version.replace("\n", " ")
    program = PROGRAM_MODULE or PROGRAM_FILE or ""
    return "\t".join(("crun modules 1", sys.executable, sys.prefix, version, program))


def path_of(kind: str) -> str:
    program = PROGRAM_MODULE or os.path.basename(PROGRAM_FILE or "python")
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in program)[:80]
    number = binascii.crc32(os.fsencode(program_key()))
    return os.path.join(cache_folder(), f"{name}-{number:08x}.{kind}")


def read_note(kind: str) -> list[str] | None:
    """The lines below the key, or None."""
    try:
        with open(path_of(kind), encoding="utf-8", errors="surrogateescape") as file:
            key, *lines = file.read().splitlines()
    except (OSError, ValueError):
        return None
    return lines if key == program_key() else None


def write_note(kind: str, lines: list[str]) -> None:
    """Whole or not at all; without a word where that is not possible."""
    path = path_of(kind)
    part = f"{path}.{os.uname().nodename}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(part, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\n".join([program_key(), *lines]) + "\n")
        os.rename(part, path)
    except OSError:
        try:
            os.unlink(part)
        except OSError:
            pass


# -- the list ---------------------------------------------------------------------------


def _importable() -> list[str]:
    """In the order in which their imports were complete: what a module needs comes before it."""
    names = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if (name.partition(".")[0] in NEVER or spec is None or spec.name != name
                or not spec.has_location or not isinstance(spec.origin, str)):
            continue
        if spec.loader is not None and not is_program(name) and not is_own(spec.origin):
            names.append(name)
    return names


def note() -> None:
    """The program has come so far that it has imported what it needs."""
    names = _importable()
    if names != read_note("modules"):
        write_note("modules", names)


def note_at_exit() -> None:
    """A program that failed may not have come far: its list replaces none."""
    failed = hasattr(sys, "last_type") or hasattr(sys, "last_exc")
    if not failed or read_note("modules") is None:
        note()
