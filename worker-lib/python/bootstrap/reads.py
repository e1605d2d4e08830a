# SPDX-License-Identifier: MIT
"""
What imports read. A template imports for all workers of all attempts. So whatever an import
reads is the same for these; or it is compared before each start (files, variables); or it is
renewed in each worker (random numbers, the time, the pid: renewal.py); or the module is left out.
"""
from __future__ import annotations

import _io
import builtins
import gc
import io
import os
import random
import subprocess
import sys
import weakref
from importlib.util import source_from_cache
from typing import Any, Callable, Iterator, NamedTuple

from _crun import kernel, notes, renewal

# Each worker has these, with values of its own. The template has none of them.
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "ROLE_RANK", "WORLD_SIZE",
                  "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                  "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE", "CRUN_EPOCH")
SLURM_VARIABLES = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS")
RANK_PREFIXES = ("TORCHELASTIC_", "CRUN_")
PSEUDO_FILES = ("/proc/", "/sys/", "/dev/")  # the machine's, whose times say nothing
# For numbers of links in its own output; for examples in texts of documentation.
HARMLESS_DRAWS = {"rich.style", "scipy.stats._distribution_infrastructure"}
PASSED_ON = ("os", "_collections_abc", "collections.abc", "random", "secrets", "uuid", "tempfile",
             "subprocess", __name__)  # their callers are those that read


def reader() -> str:
    """The name of the module whose code reads."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__") in PASSED_ON:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


class Watched:
    """
    A function whose calls are noted while there is a template. Like one of C, it is no method
    where it is an attribute; and it is equal to it, for sets such as os.supports_fd.
    """

    is_on = False

    def __init__(self, function: Callable[..., Any], note: Callable[..., Any]) -> None:
        self.function, self.note = function, note

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if Watched.is_on:
            return self.note(self.function, args, kwargs)
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __hash__(self) -> int:
        return hash(self.function)

    def __eq__(self, other: object) -> bool:
        return self.function == (other.function if isinstance(other, Watched) else other)


# -- files ------------------------------------------------------------------------------


def _path(args: Any, kwargs: Any) -> Any:
    """The first argument; None for one in a folder that is open."""
    if kwargs.get("dir_fd") is not None:
        return None
    return args[0] if args else kwargs.get("path", kwargs.get("file", "."))


class Files:
    """Those that were opened, listed or missed, as they were before that."""

    def __init__(self) -> None:
        self.times: dict[str, int | None] = {}
        self.names: dict[str, set[str]] = {}  # of folders
        self.stat, self.listdir = os.stat, os.listdir

    def _time(self, path: str) -> int | None:
        try:
            return self.stat(path).st_mtime_ns
        except (OSError, ValueError):
            return None

    def _names(self, path: str) -> set[str]:
        try:
            return set(self.listdir(path)) - {"__pycache__"}
        except OSError:
            return set()

    def add(self, path: Any, is_folder: bool = False) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        try:
            path = os.path.abspath(os.fsdecode(path))
            path = source_from_cache(path)  # of a .pyc in its folder
        except (OSError, ValueError):
            pass
        # what a program writes beside itself does not matter to who lists the folder
        if path in self.times or path.startswith(PSEUDO_FILES) or \
                is_folder and notes.is_own(path + "/"):
            return
        self.times[path] = self._time(path)
        if is_folder:
            self.names[path] = self._names(path)

    def add_modules(self, begun_ns: int) -> None:
        """Those that were not opened by Python code. A time during the imports is too late."""
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and file not in self.times:
                time_ns = self._time(file)
                self.times[file] = -1 if time_ns and time_ns > begun_ns else time_ns

    def changed(self) -> str | None:
        stat = self.stat
        for path, time_ns in self.times.items():
            try:
                now_ns = stat(path).st_mtime_ns
            except (OSError, ValueError):
                now_ns = None
            if now_ns != time_ns and \
                    (path not in self.names or self._names(path) != self.names[path]):
                return path
        return None

    # calls that are noted

    def open(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        mode = args[1] if len(args) > 1 else kwargs.get("flags", kwargs.get("mode", "r"))
        writes = mode & os.O_ACCMODE if isinstance(mode, int) else set(str(mode)) & set("wax+")
        if not writes:
            self.add(_path(args, kwargs))
        return function(*args, **kwargs)

    def list(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.add(_path(args, kwargs), is_folder=True)
        return function(*args, **kwargs)

    def look(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except FileNotFoundError:
            self.add(_path(args, kwargs))
            raise


# -- the environment --------------------------------------------------------------------


class Unknown(str):
    """
    The value of a variable that differs between workers, for an import that goes through all
    variables. It may look at the names, see that the value is not empty, and drop it.
    """

    variables: Variables

    def __bool__(self) -> bool:
        return True


def _used(name: str) -> Callable[..., Any]:
    method = getattr(str, name)

    def call(self: Unknown, *args: Any, **kwargs: Any) -> Any:
        self.variables.found.append((reader(), str.__str__(self)))
        return method(self, *args, **kwargs)
    return call


for _name in dir(str):
    if callable(getattr(str, _name)) and _name not in dir(object) or \
            _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__",
                      "__str__", "__repr__", "__format__"):
        setattr(Unknown, _name, _used(_name))


class Read(NamedTuple):
    module: str  # whose import was going on
    variable: str


class Variables:
    """Which module reads a variable that differs between workers, by Python or C code."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self.read: dict[str, str] = {}  # by name: the module whose import has read it first
        self.importing = ""
        self.passes: set[str] = set()
        self.unknown: list[tuple[str, weakref.ref[Unknown]]] = []

    def __enter__(self) -> None:
        names = RANK_VARIABLES + (SLURM_VARIABLES if "SLURM_JOB_ID" in os.environ else ())
        self.missing = [name for name in names if name not in os.environ]
        kind = type(os.environ)
        self._getitem, self._iter = kind.__getitem__, kind.__iter__
        kind.__getitem__ = lambda environ, name: self._get(environ, name)  # type: ignore
        kind.__iter__ = lambda environ: self._names(environ)  # type: ignore
        self.found.clear()
        self.in_c = kernel.UnreadVariables(self.missing)

    def __exit__(self, *_: object) -> None:
        kind = type(os.environ)
        kind.__getitem__, kind.__iter__ = self._getitem, self._iter  # type: ignore
        self.in_c.remove()

    def _get(self, environ: Any, name: Any) -> Any:
        text = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
        try:
            value = self._getitem(environ, name)
        except KeyError:  # what the template has, all workers have
            if text not in self.missing and not text.startswith(RANK_PREFIXES):
                self.read.setdefault(text, self.importing)
                raise
            who = reader()
            if text not in self.passes or isinstance(name, bytes):
                self.found.append((who, text))
                raise
            self.passes.discard(text)
            value = Unknown(text)
            value.variables = self
            self.unknown.append((who, weakref.ref(value)))
            return value
        self.read.setdefault(text, self.importing)
        return value

    def _names(self, environ: Any) -> Iterator[Any]:
        """With those that a worker would find; the value of each may be fetched once."""
        names = list(self._iter(environ))
        if environ is not os.environ:
            self.found.append((reader(), "all variables"))
            return iter(names)
        self.passes = set(self.missing)
        return iter(self.missing + names)  # a variable of a loop keeps the last value

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A program, to which C's environment is copied."""
        try:
            return function(*args, **kwargs)
        finally:
            self.in_c.forget_reads()

    def problem(self) -> str | None:
        for module, variable in self.found:
            if module not in renewal.REPAIRS:
                return f"{module} reads {variable}"
        if any(ref() is not None for _, ref in self.unknown):
            gc.collect()
        for module, ref in self.unknown:
            if ref() is not None:
                return f"{module} keeps all variables"
        self.unknown.clear()
        name = self.in_c.find_read()
        return f"its C code reads {name}" if name else None

    def different(self, template: dict[bytes, bytes], worker: dict[bytes, bytes]) -> Read | None:
        """A variable that was read, and is not the same in this worker."""
        for name, module in self.read.items():
            key = os.fsencode(name)
            if template.get(key) != worker.get(key):
                return Read(module, name)
        return None


# -- random numbers ---------------------------------------------------------------------


class Draws:
    """Random generators that get no seed, and random numbers."""

    def __init__(self) -> None:
        self.generators: dict[int, weakref.ref[random.Random]] = {}
        self.numbers: list[tuple[str, bytes]] = []
        self.is_seeded = False  # the generator behind the functions of `random`
        self._settled = 0
        self._states = renewal.states()

    def seed(self, function: Callable[..., Any], generator: random.Random, args: Any, kwargs: Any) -> None:
        function(generator, *args, **kwargs)
        self.generators.pop(id(generator), None)
        if not renewal.is_seed(args, kwargs):
            self.generators[id(generator)] = weakref.ref(generator)

    def seed_all(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        function(*args, **kwargs)
        self.is_seeded = renewal.is_seed(args, kwargs)

    def fetch(self, function: Callable[..., bytes], args: Any, kwargs: Any) -> bytes:
        drawn = function(*args, **kwargs)
        self.numbers.append((reader(), drawn))
        return drawn

    def problem(self, new: list[str]) -> str | None:
        """Each number must be found where it can be renewed."""
        before, self._states = self._states, renewal.states()
        for name, state in before.items():
            if self._states.get(name, state) != state and not HARMLESS_DRAWS & set(new) and \
                    not (self.is_seeded and name == "random"):
                return f"it draws random numbers by {name}"
        fresh = self.numbers[self._settled:]
        self._settled = len(self.numbers)
        if fresh:
            entropies = renewal.numpy_entropies()
            for module, drawn in fresh:
                if int.from_bytes(drawn, "big") not in entropies and \
                        module not in {*renewal.RENEWED, *HARMLESS_DRAWS} and \
                        not renewal.is_kept(drawn, new):
                    return f"{module} draws random numbers"
        return None


# -- all of it --------------------------------------------------------------------------


class Reads:
    """Follows the imports while it is entered."""

    def __init__(self) -> None:
        self.files, self.variables, self.draws = Files(), Variables(), Draws()

    def _table(self) -> list[tuple[Any, str, Callable[..., Any]]]:
        files, draws = self.files, self.draws
        return [(builtins, "open", files.open), (io, "open", files.open),
                (io, "open_code", files.open), (_io, "open_code", files.open),
                (os, "open", files.open), (os, "listdir", files.list),
                (os, "scandir", files.list), (os, "stat", files.look),
                (os, "system", self.variables.run), (os, "urandom", draws.fetch),
                (random, "_urandom", draws.fetch), (random, "seed", draws.seed_all)]

    def __enter__(self) -> "Reads":
        self._replaced = [(home, name, getattr(home, name)) for home, name, _ in self._table()]
        self._watched = [Watched(getattr(home, name), note) for home, name, note in self._table()]
        for (home, name, _), watched in zip(self._replaced, self._watched):
            setattr(home, name, watched)
        self._seed = seed = random.Random.seed
        draws = self.draws
        random.Random.seed = lambda generator, *args, **kwargs: \
            draws.seed(seed, generator, args, kwargs)  # type: ignore
        self._vfork = getattr(subprocess, "_USE_VFORK", False)
        subprocess._USE_VFORK = False  # type: ignore[attr-defined]  # a child reads C's environment
        self.variables.__enter__()
        Watched.is_on = True
        return self

    def __exit__(self, *error: object) -> None:
        Watched.is_on = False
        self.variables.__exit__(*error)
        subprocess._USE_VFORK = self._vfork  # type: ignore[attr-defined]
        random.Random.seed = self._seed  # type: ignore[method-assign]
        for home, name, function in self._replaced:
            setattr(home, name, function)
        for holder in gc.get_referrers(*self._watched):  # modules and tables that have copied them
            if type(holder) is dict:
                for name, value in list(holder.items()):
                    if type(value) is Watched:
                        holder[name] = value.function

    def problem(self, new: list[str]) -> str | None:
        return self.variables.problem() or self.draws.problem(new)

    def renewal(self) -> renewal.Renewal:
        generators = [ref() for ref in self.draws.generators.values()]
        return renewal.Renewal([found for found in generators if found is not None],
                               [drawn for _, drawn in self.draws.numbers], self.draws.is_seeded)
