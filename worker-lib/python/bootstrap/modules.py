# SPDX-License-Identifier: MIT
"""
Which modules a template imports: those of --warm=LIST, else what the last run of the program
had imported from outside its own folder, else torch. And the notes in the user's cache folder:
that list, and the modules that cannot be shared by a fork.
"""
from __future__ import annotations

import binascii
import faulthandler
import os
import signal
import sys
from typing import Iterator, NamedTuple, Optional

import _crun  # type: ignore[import-not-found]

DEFAULT = ["torch"]
NEVER = ("__main__", "__mp_main__", "sitecustomize", "usercustomize", "_crun", "crun")
PACKAGES = ("site-packages", "dist-packages")
PACKAGE_LIMIT = 3  # so many of one package left out: all of its modules are


# -- the program ------------------------------------------------------------------------


def program_module() -> Optional[str]:
    """The module of `python -m`."""
    if _crun.argv[0] != "-m":
        return None
    if sys.version_info >= (3, 10):
        words = sys.orig_argv
    else:
        with open("/proc/self/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read().split(b"\0")]
    return words[words.index("-m") + 1] if "-m" in words else None


def program_file() -> Optional[str]:
    """The path of the program; with -c (--run-path), that is the first argument."""
    script = _crun.argv[1:2] if _crun.argv[0] == "-c" else _crun.argv[:1]
    if not script or program_module():
        return None
    return os.path.realpath(os.path.join(_crun.folder, script[0]))


def program_path_entry() -> str:
    """What the interpreter will put in front of sys.path ("" for nothing, as with -P)."""
    if getattr(sys.flags, "safe_path", False) or sys.flags.isolated:
        return ""
    file = program_file()
    if _crun.argv[0] in ("-c", "-m") or file is None:
        return _crun.folder
    return file if os.path.isdir(file) or file.endswith((".zip", ".pyz")) else os.path.dirname(file)


def _own_folders() -> list[str]:
    file = program_file()
    folders = {_crun.folder, os.path.realpath(_crun.folder)}
    if file:
        folders |= {file, os.path.dirname(file)}
    return [folder.rstrip("/") + "/" for folder in folders]


def is_own(path: str) -> bool:
    """Whether the file belongs to the program, and not to an installed package."""
    if any(part in PACKAGES for part in path.split("/")):
        return False
    if path.startswith(os.path.dirname(os.__file__) + "/"):
        return False
    return path.startswith(tuple(_own_folders()))


def is_program(name: str) -> bool:
    """The module of `python -m` must not be imported before it runs."""
    module = program_module()
    return module is not None and name in (module, module + ".__main__")


# -- the cache --------------------------------------------------------------------------


def cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "crun")


def _key() -> str:
    version = sys.version.replace("\n", " ")
    program = program_module() or program_file() or ""
    return "\t".join(("crun modules 1", sys.executable, sys.prefix, version, program))


def _path(kind: str) -> str:
    program = program_module() or os.path.basename(program_file() or "python")
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in program)[:80]
    number = binascii.crc32(os.fsencode(_key()))
    return os.path.join(cache_folder(), f"{name}-{number:08x}.{kind}")


def _read(kind: str) -> Optional[list[str]]:
    """The lines below the key, or None."""
    try:
        with open(_path(kind), encoding="utf-8", errors="surrogateescape") as file:
            key, *lines = file.read().splitlines()
    except (OSError, ValueError):
        return None
    return lines if key == _key() else None


def _write(kind: str, lines: list[str]) -> None:
    """Whole or not at all; without a word where that is not possible."""
    path = _path(kind)
    part = f"{path}.{os.uname().nodename}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(part, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\n".join([_key(), *lines]) + "\n")
        os.rename(part, path)
    except OSError:
        try:
            os.unlink(part)
        except OSError:
            pass


# -- the list ---------------------------------------------------------------------------


def wanted() -> list[str]:
    given = _crun.settings.get("CRUN_TEMPLATE_MODULES", "")
    names = [name.strip() for name in given.split(",") if name.strip()]
    names = names or _read("modules") or DEFAULT
    return [name for name in names if not is_program(name) and not is_left_out(name)]


def _importable() -> Iterator[str]:
    """In the order in which they were imported."""
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if (name.partition(".")[0] in NEVER or spec is None or spec.name != name
                or not spec.has_location or not isinstance(spec.origin, str)):
            continue
        if spec.loader is not None and not is_program(name) and not is_own(spec.origin):
            yield name


def note() -> None:
    """The program has come so far that it has imported what it needs."""
    names = list(_importable())
    if names != _read("modules"):
        _write("modules", names)


def note_at_exit() -> None:
    """A program that failed may not have come far: its list replaces none."""
    failed = hasattr(sys, "last_type") or hasattr(sys, "last_exc")
    if not failed or _read("modules") is None:
        note()


# -- what is left out -------------------------------------------------------------------


def _stamp(name: str) -> str:
    """Changes when the package is installed again."""
    for folder in sys.path:
        for file in ("__init__.py", ".py"):
            top = name.partition(".")[0]
            path = os.path.join(folder, top, file) if file[0] == "_" else \
                os.path.join(folder, top + file)
            try:
                return str(os.stat(path).st_mtime_ns)
            except OSError:
                pass
    return "-"


def _remembered() -> list[str]:
    """Names of this cache's file that are still as they were."""
    entries = (line.split("\t") for line in _read("left-out") or [])
    return [entry[0] for entry in entries if len(entry) == 3 and entry[1] == _stamp(entry[0])]


def left_out() -> list[str]:
    given = _crun.settings.get("CRUN_TEMPLATE_LEFT_OUT", "")
    return _remembered() + [name for name in given.split(",") if name]


def is_left_out(name: str) -> bool:
    names = left_out()
    package = name.partition(".")[0]
    crowded = sum(other.partition(".")[0] == package for other in names) >= PACKAGE_LIMIT
    if crowded and name != package:
        return True
    return any(name == other or name.startswith(other + ".") for other in names)


def remember(name: str, reason: str) -> None:
    lines = [line for line in _read("left-out") or [] if line.split("\t")[0] in _remembered()]
    _write("left-out", lines + [f"{name}\t{_stamp(name)}\t{reason}"])


# -- the module that is being imported --------------------------------------------------


class Death(NamedTuple):
    """How the last template of this guard ended while it imported a module."""

    module: str
    count: int  # of the templates in a row that ended so
    reason: str  # "": it may have been killed from outside


class Marker:
    """
    A file that names the module being imported, and where a dying interpreter writes why. It
    counts for the templates of one guard only.
    """

    def __init__(self, guard: int) -> None:
        try:
            with open(f"/proc/{guard}/stat") as file:
                begun = file.read().rpartition(")")[2].split()[19]
        except OSError:
            begun = "0"
        self.path = _path(f"importing-{os.uname().nodename}-{guard}-{begun}")
        self.fd = -1

    def last_death(self) -> Optional[Death]:
        try:
            with open(self.path, errors="replace") as file:
                first, *more = file.read().splitlines()
            name, count = first.split("\t")
        except (OSError, ValueError):
            return None
        if not more:
            return Death(name, int(count) + 1, "")
        kind, _, error = more[0].partition("Fatal Python error: ")
        return Death(name, int(count) + 1,
                     f"the interpreter dies: {error}" if not kind else "it takes too long")

    def begin(self, limit_s: int) -> None:
        """From now on a module that takes longer than the limit kills the interpreter."""
        self.limit_s = limit_s
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError:
            self.fd = os.memfd_create("importing")  # no other template will see it
        faulthandler.enable(self.fd)
        faulthandler.register(signal.SIGALRM, self.fd, all_threads=False, chain=True)

    def name(self, module: str, deaths: int) -> None:
        os.lseek(self.fd, 0, os.SEEK_SET)
        os.ftruncate(self.fd, 0)
        os.write(self.fd, f"{module}\t{deaths}\n".encode())
        signal.alarm(self.limit_s)

    def end(self) -> None:
        signal.alarm(0)
        faulthandler.unregister(signal.SIGALRM)
        faulthandler.disable()
        if "faulthandler" in sys._xoptions or os.environ.get("PYTHONFAULTHANDLER") \
                or sys.flags.dev_mode:
            faulthandler.enable()
        self.forget()
        os.close(self.fd)

    def forget(self) -> None:
        try:
            os.unlink(self.path)
        except OSError:
            pass
