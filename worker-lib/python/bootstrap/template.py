# SPDX-License-Identifier: MIT
"""
The template: an interpreter that has imported what a program needs, and forks into workers.

It is a child of the guard, with a socket to it. The guard sends a packet for each worker, with
its standard streams, a payload (argv and environment) and a channel. The worker is a fork of a
fork, so that the guard, a subreaper, adopts it; it sends its pid, and goes on after the answer
"go". The guard starts a worker as usual whose channel is closed before.

What the imports print is kept, and printed by each worker. Lines that the template itself
writes are printed by crun, once.
"""
from __future__ import annotations

import array
import atexit
import gc
import importlib
import os
import select
import socket
import struct
import sys
import time
from typing import Callable, NamedTuple, NoReturn

import _crun  # type: ignore[import-not-found]
from _crun import (command, fork_safety, forked, kernel, notes, reads, renewal,
                   template_modules)

REQUEST = struct.Struct("=IIIi")  # struct template_request
REQUEST_FDS = 5
ADOPTION_S = 10
QUIET_S = 1
MODULE_LIMIT_S = 100  # below the guard's limit for a template that sends nothing
DEATHS_LIMIT = 3  # without a reason: they may have been killed from outside
LEFT_OUT = b"CRUN_TEMPLATE_LEFT_OUT"
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"  # torch.cuda.is_available() without a context


# -- output -----------------------------------------------------------------------------


class Capture:
    """Keeps what is printed while modules are imported."""

    def __init__(self) -> None:
        self.messages = os.dup(2)
        self.kept = {fd: os.memfd_create("output") for fd in (1, 2)}
        for fd, file in self.kept.items():
            os.dup2(file, fd)

    def say(self, text: str) -> None:
        os.write(self.messages, f"{text}\n".encode(errors="replace"))

    def end(self) -> dict[int, bytes]:
        """What was printed, by descriptor."""
        sys.stdout.flush()
        sys.stderr.flush()
        kernel.flush_output()
        printed = {}
        for fd, file in self.kept.items():
            printed[fd] = os.pread(file, os.fstat(file).st_size, 0)
            os.dup2(self.messages, fd)
            os.close(file)
        os.close(self.messages)
        return printed


def say(text: str) -> None:
    os.write(2, f"{text}\n".encode(errors="replace"))


# -- imports ----------------------------------------------------------------------------


class Imports:
    """Imports the modules, and begins again without one that cannot be forked."""

    def __init__(self, output: Capture, following: reads.Reads) -> None:
        self.output = output
        self.reads = following
        self.guard = socket.socket(fileno=os.dup(int(_crun.settings["CRUN_TEMPLATE_FD"])))
        self.marker = template_modules.Marker(int(_crun.settings["CRUN_TEMPLATE_PARENT"]))

    def run(self) -> None:
        death = self.marker.last_death()
        if death and (death.reason or death.count >= DEATHS_LIMIT):
            self._leave_out(death.module, death.reason or "the interpreter ends while it is imported",
                            remember=bool(death.reason))
        entry = template_modules.program_path_entry()
        self._refuse_hidden_modules(entry)
        if entry:
            sys.path.insert(0, entry)
        self.marker.begin(int(_crun.settings.get("CRUN_TEMPLATE_LIMIT") or MODULE_LIMIT_S))
        self.before = fork_safety.Before()
        wanted = template_modules.wanted()
        with self.reads:
            for name in wanted:
                self._import_with_packages(name, death)
        self.marker.end()
        self.guard.close()
        if entry:
            self._remove_entry(entry)

    def _import_with_packages(self, name: str, death: template_modules.Death | None) -> None:
        """Package by package: one that cannot be forked is left out as a whole, at once."""
        words = name.split(".")
        for count in range(1, len(words) + 1):
            part = ".".join(words[:count])
            if part not in sys.modules:
                self._import(part, death.count if death and part == death.module else 0)
            if part not in sys.modules:
                return

    def _import(self, name: str, deaths: int) -> None:
        before, failure = len(sys.modules), ""
        self.marker.name(name, deaths)
        self.reads.variables.importing = name
        try:
            importlib.import_module(name)
        except BaseException as error:
            if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
                return  # there is none
            failure = f"its import fails: {type(error).__name__}: {error}".split("\n")[0]
        if len(sys.modules) > before or failure:  # half of it may be there, and registered
            self.guard.send(b"imported")
            problem = self._problem(list(sys.modules)[before:]) or failure
            if problem:
                self._leave_out(name, problem)

    def _problem(self, new: list[str]) -> str | None:
        for name in new:
            if notes.is_program(name):
                return f"it imports {name}, which is the program"
        return (fork_safety.own_module_problem(new, notes.is_own) or self.reads.problem(new)
                or self.before.problem())

    def _refuse_hidden_modules(self, entry: str) -> None:
        """What this module has imported may have another meaning for the program."""
        for name in {name.partition(".")[0] for name in sys.modules} - _crun.first_modules:
            path = os.path.join(entry, name)
            if os.path.exists(path + ".py") or os.path.exists(os.path.join(path, "__init__.py")):
                raise RuntimeError(f"the program's folder has a module {name} of its own")

    def _remove_entry(self, entry: str) -> None:
        """The interpreter puts it there again."""
        if sys.path[:1] != [entry]:
            raise RuntimeError("an import has put a folder in front of the program's")
        del sys.path[0]
        for folder in list(sys.path_importer_cache):
            if notes.is_own(folder + "/"):
                del sys.path_importer_cache[folder]

    def _leave_out(self, name: str, reason: str, remember: bool = True) -> NoReturn:
        self.marker.forget()
        os.dup2(self.output.messages, 1)
        os.dup2(self.output.messages, 2)
        leave_out(name, reason, remember)


def leave_out(name: str, reason: str, remember: bool = True) -> NoReturn:
    """Imports cannot be undone: the template executes itself."""
    say(f"warm starts leave {name} out: {reason}")
    if remember:
        template_modules.remember(name, reason)
    env = command.initial_environment()
    names = env.get(LEFT_OUT, b"").split(b",") + [os.fsencode(name)]
    env[LEFT_OUT] = b",".join(filter(None, names))
    begin_again(env)


def begin_again(env: command.Environment) -> NoReturn:
    """In the same process. Requests that come meanwhile wait in the socket."""
    fork_safety.end_children()
    os.closerange(4, 1024)
    command.execute_again(env)


# -- requests ---------------------------------------------------------------------------


class Request(NamedTuple):
    argv: list[bytes]
    env: list[bytes]
    is_tty: bool
    numa_node: int
    fds: list[int]  # 0, 1, 2, the payload, the channel

    @property
    def channel(self) -> int:
        return self.fds[4]

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def read_payload(fd: int, argc: int, envc: int) -> tuple[list[bytes], list[bytes]]:
    """argv and environment, see guard_payload_pack."""
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    offsets = struct.unpack_from(f"={argc + 1 + envc + 1}Q", data)

    def texts(of: tuple[int, ...]) -> list[bytes]:
        return [data[at:data.index(b"\0", at)] for at in of]

    return texts(offsets[:argc]), texts(offsets[argc + 1:argc + 1 + envc])


def receive_packet(guard: socket.socket, flags: int) -> tuple[bytes, list[int]]:
    """socket.recv_fds ignores its flags."""
    fds = array.array("i")
    packet, notes, _, _ = guard.recvmsg(4096, socket.CMSG_SPACE(REQUEST_FDS * fds.itemsize),
                                        flags | socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in notes:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data)
    return packet, list(fds)


def receive(guard: socket.socket, flags: int = 0) -> Request | None:
    """The next request; None if none waits. The template ends with the guard."""
    try:
        packet, fds = receive_packet(guard, flags)
    except BlockingIOError:
        return None
    if not packet:
        os._exit(0)
    argc, envc, is_tty, numa_node = REQUEST.unpack(packet)
    argv, env = read_payload(fds[3], argc, envc)
    return Request(argv, env, bool(is_tty), numa_node, fds)


class Template:
    def __init__(self, printed: dict[int, bytes], begun_with: dict[bytes, bytes],
                 following: reads.Reads, renewing: renewal.Renewal) -> None:
        self.guard_pid = int(_crun.settings["CRUN_TEMPLATE_PARENT"])
        self.guard = socket.socket(fileno=int(_crun.settings["CRUN_TEMPLATE_FD"]))
        self.printed = printed
        self.begun_with = begun_with
        self.changed = forked.changes(begun_with, os.environb)
        self.prefix = forked.command_prefix(command.original(), sys.argv)
        self.reads = following
        self.renewal = renewing
        self.wanted = set(template_modules.wanted())
        self.noted = template_modules.watch_notes()
        self.is_outdated = False

    def serve(self) -> None:
        """Returns in a worker."""
        self.guard.send(b"ready")
        while True:
            self._wait()
            request = self._fork(self._next_batch())
            if request:
                self._become(request)
                return

    def _wait(self) -> None:
        """
        For a request. When the program has noted more modules, the template begins again, but
        not in the moments in which the workers may be restarted.
        """
        while self.noted >= 0:
            timeout = QUIET_S if self.is_outdated else None
            readable = select.select([self.guard, self.noted], [], [], timeout)[0]
            if self.guard in readable:
                return
            if not readable:
                self.guard.send(b"again")
                begin_again(command.initial_environment())
            os.read(self.noted, 4096)
            self.is_outdated = bool(set(template_modules.wanted()) - self.wanted)

    def _next_batch(self) -> list[Request]:
        """
        All requests that wait, but at least one. While the files are looked at, which takes
        milliseconds, the guard sends the other workers' requests.
        """
        batch = []
        request = receive(self.guard)
        changed = self.reads.files.changed()
        if changed:
            say(f"{changed} has changed: the next workers start cold")
            os._exit(0)
        while request:
            self._compare_variables(request)
            if [os.fsdecode(word) for word in request.argv[:len(self.prefix)]] == self.prefix:
                batch.append(request)
            else:
                request.close()
            request = receive(self.guard, socket.MSG_DONTWAIT)
        return batch

    def _compare_variables(self, request: Request) -> None:
        read = self.reads.variables.different(self.begun_with, command.environment_of(request.env))
        if read:
            self.guard.send(b"again")
            leave_out(read.module, f"it reads {read.variable}, which differs between workers")

    def _fork(self, batch: list[Request]) -> Request | None:
        """One child forks all workers and ends, so that the guard adopts them."""
        if not batch:
            return None
        pid = os.fork()
        if pid == 0:
            for request in batch:
                if os.fork() == 0:
                    return self._keep(request, batch)
            os._exit(0)
        for request in batch:
            request.close()
        os.waitpid(pid, 0)
        return None

    def _keep(self, request: Request, batch: list[Request]) -> Request:
        self.guard.close()
        if self.noted >= 0:
            os.close(self.noted)
        for other in batch:
            if other is not request:
                other.close()
        return request

    def _become(self, request: Request) -> None:
        try:
            self._await_go(request.channel)
            forked.become_worker(self.guard_pid, request.fds[:3], request.is_tty,
                                 request.numa_node)
        except OSError as error:
            os.write(request.fds[2], f"crun: cannot start the worker: {error}\n".encode())
            os._exit(127)
        request.close()
        kernel.show_command(request.argv, request.env)
        forked.set_environment(command.environment_of(request.env), self.begun_with, self.changed)
        forked.set_arguments(request.argv, self.prefix)
        _crun.settings = _crun.take_settings()
        forked.renew_interpreter()
        self.renewal.renew()
        forked.replay(self.printed)

    def _await_go(self, channel: int) -> None:
        """The guard does not know this process yet: before "go" it ends without a word."""
        end = time.monotonic() + ADOPTION_S
        while os.getppid() != self.guard_pid:
            if time.monotonic() > end:
                os._exit(0)
            time.sleep(0.0002)
        try:
            os.write(channel, str(os.getpid()).encode())
            answer = os.read(channel, 16)
        except OSError:
            os._exit(0)
        if answer != b"go":
            os._exit(0)


def import_all(output: Capture, import_hidden: Callable[[], object]) -> reads.Reads:
    nvml_check = os.environ.get(NVML_CHECK)
    os.environ[NVML_CHECK] = "1"
    begun_ns = time.time_ns()
    following = reads.Reads()
    with following:
        import_hidden()
        problem = following.problem(list(sys.modules))
    if problem:
        raise RuntimeError(f"in sitecustomize, {problem}")
    Imports(output, following).run()
    following.files.add_modules(begun_ns)
    if nvml_check is None:
        os.environ.pop(NVML_CHECK, None)
    else:
        os.environ[NVML_CHECK] = nvml_check
    return following


def run(import_hidden: Callable[[], object], prepare: Callable[[], object]) -> None:
    """Returns in a worker."""
    begun_with = command.initial_environment()
    output = Capture()
    atexit.register(gc.unfreeze)  # the last to run: what dies at the end dies there as usual
    collects = gc.isenabled()
    gc.disable()
    try:
        following = import_all(output, import_hidden)
        prepare()
        renewing = following.renewal()  # before its objects are frozen
    finally:
        printed = output.end()
    if collects:
        gc.enable()
    gc.collect()
    gc.freeze()
    kernel.trim_memory()
    Template(printed, begun_with, following, renewing).serve()
