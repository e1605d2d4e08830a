# SPDX-License-Identifier: MIT
"""
Which modules a template imports: those of --warm=LIST, else those that the program's last run
has noted, else torch. Without those that cannot be shared by a fork, which are noted, too.
"""
from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from typing import NamedTuple

import _crun  # type: ignore[import-not-found]
from _crun import kernel, notes

DEFAULT = ["torch"]
LATER = {"jax": ["jaxlib.mlir.dialects.mhlo", "jaxlib.mlir.dialects.builtin"]}  # imported at the first use
OLD_MARKER_S = 3600  # of a template that is not there any more, nor the one after it
PACKAGE_LIMIT = 3  # so many of one package left out: all of its modules are


def program_path_entry() -> str:
    """What the interpreter will put in front of sys.path ("" for nothing, as with -P)."""
    if getattr(sys.flags, "safe_path", False) or sys.flags.isolated:
        return ""
    file = notes.PROGRAM_FILE
    if _crun.argv[0] in ("-c", "-m") or file is None:
        return _crun.folder
    return file if os.path.isdir(file) or file.endswith((".zip", ".pyz")) else os.path.dirname(file)


# -- the list ---------------------------------------------------------------------------


def wanted() -> list[str]:
    given = _crun.settings.get("CRUN_TEMPLATE_MODULES", "")
    names = [name.strip() for name in given.split(",") if name.strip()]
    names = names or notes.read_note("modules") or DEFAULT
    names = names + [name for package in names for name in LATER.get(package, [])]
    return without_left_out([name for name in names if not notes.is_program(name)])


def watch_notes() -> int:
    """A descriptor that becomes readable when a program's modules are noted; -1: none."""
    if _crun.settings.get("CRUN_TEMPLATE_MODULES", "").strip(", "):
        return -1
    return kernel.watch_renames(notes.cache_folder())


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
    entries = (line.split("\t") for line in notes.read_note("left-out") or [])
    return [entry[0] for entry in entries if len(entry) == 3 and entry[1] == _stamp(entry[0])]


def _is_left_out(name: str, names: list[str], crowded: set[str]) -> bool:
    package = name.partition(".")[0]
    if package in crowded and name != package:
        return True
    return any(name == other or name.startswith(other + ".") for other in names)


def without_left_out(wanted: list[str]) -> list[str]:
    given = _crun.settings.get("CRUN_TEMPLATE_LEFT_OUT", "")
    names = _remembered() + [name for name in given.split(",") if name]
    packages = [name.partition(".")[0] for name in names]
    crowded = {package for package in packages if packages.count(package) >= PACKAGE_LIMIT}
    return [name for name in wanted if not _is_left_out(name, names, crowded)]


def remember(name: str, reason: str) -> None:
    lines = [line for line in notes.read_note("left-out") or [] if line.split("\t")[0] in _remembered()]
    notes.write_note("left-out", lines + [f"{name}\t{_stamp(name)}\t{reason}"])


# -- the module that is being imported --------------------------------------------------


class Death(NamedTuple):
    """How the last template of this guard ended while it imported a module."""

    module: str
    count: int  # of the templates in a row that ended so
    reason: str  # "": it may have been killed from outside


def remove_old_markers() -> None:
    """A job that ends while its template imports leaves one."""
    prefix = os.path.basename(notes.path_of("importing-"))
    try:
        for entry in os.scandir(notes.cache_folder()):
            if entry.name.startswith(prefix) and \
                    entry.stat().st_mtime < time.time() - OLD_MARKER_S:
                os.unlink(entry.path)
    except OSError:  # without a folder there is none; another one may have removed it
        pass


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
        self.path = notes.path_of(f"importing-{os.uname().nodename}-{guard}-{begun}")
        self.fd = -1

    def last_death(self) -> Death | None:
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
        remove_old_markers()
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
