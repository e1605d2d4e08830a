# SPDX-License-Identifier: MIT
"""The status page of this worker: the memory that it shares with its crun.

The layout is that of rendezvous/common/base/progress_page.h. This module is the only writer of
Python's side of the page: the package `crun`, which programs import, and the hooks of
`crun --watch` share its one `worker_page`. Without the variable CRUN_PROGRESS, in a process
that the worker forks, and in one that multiprocessing starts, all of it does nothing.
"""
import math
import mmap
import os
import sys
import threading
from threading import get_ident
from time import monotonic_ns
from typing import Any, List, Optional, Tuple

UNKNOWN, TRAINING, EVALUATING, CHECKPOINTING, COMMUNICATING, LOADING, DONE = range(7)
PHASES = ("unknown", "training", "evaluating", "checkpointing", "communicating", "loading",
          "done")

WATCHED, HAS_SAVED, STACKS, LOSS_IS_NAN, RAISED, ENDS, SAVES_TOGETHER = 1, 2, 4, 16, 32, 64, 128  # flags

_BYTES = 4096
_MAGIC = 0x67707263
_WHERE, _WHERE_BYTES = 128, 112
# places in the page as an array of 32-bit words
_MAGIC_AT, _VERSION_AT, _WRITING, _PHASE = 0, 1, 2, 3
_SAVED, _FLAGS, _SAVE, _SAVE_WITHIN_MS, _STACKS_FD, _CHECKPOINTS = 14, 15, 16, 17, 60, 61
# places in the page as an array of 64-bit words and of doubles
_STEP, _STEPS, _SAMPLES, _LOSS, _CHANGED_NS, _FIRST_STEP = 2, 3, 4, 5, 6, 31

UNPLACED = 2**64 - 1  # of a first step: the steps are those of this life alone


def where_field(text: str) -> bytes:
    """The text as the page's field `where` holds it: ends with a NUL, and with zeros."""
    text_bytes = text.encode("utf-8", "replace")[:_WHERE_BYTES - 1]
    return text_bytes.decode("utf-8", "ignore").encode().ljust(_WHERE_BYTES, b"\0")


NOWHERE = where_field("")


def _is_multiprocessing_child() -> bool:
    """Whether multiprocessing started this process."""
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    return (process.parent_process() is not None or
            getattr(process.current_process(), "_inheriting", False))


class Page:
    """A status page. Without one (`is_open` is false) its methods do nothing.

    Phases nest: `enter` begins a phase and `leave` goes back to the one outside of it. They
    are those of one thread, the main one until another trains: what the other threads of a
    program do beside is no phase of the worker.
    """

    def __init__(self) -> None:
        self.program_counts = False  # the program reports its steps: no hook does
        self.restored_step = 0  # this life's first one comes after it
        self.program_phases = False  # and its phases
        self.program_saves = False  # and answers requests for checkpoints
        self._is_child = False
        self.close()

    def close_in_child(self) -> None:
        """After a fork: the page stays the parent's, if it was open there."""
        self._is_child |= self.is_open
        self.close()

    def close(self) -> None:
        self.is_open = False
        self._is_blank = True
        self._writing = 0
        self._words: Any = None
        self._longs: Any = None
        self._doubles: Any = None
        self._where: Any = None
        self._thread = 0
        self.phase, self.where = UNKNOWN, NOWHERE
        self._outer: List[Tuple[int, bytes]] = []

    def open(self, path: Optional[str] = None) -> bool:
        """Opens the page of this worker, unless it is open. False: it has none."""
        if self.is_open:
            return True
        path = path or os.environ.get("CRUN_PROGRESS")
        if not path or self._is_child or _is_multiprocessing_child():
            return False
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                memory = memoryview(mmap.mmap(fd, _BYTES))
            finally:
                os.close(fd)
        except (OSError, ValueError):
            return False
        words = memory.cast("I")
        if words[_MAGIC_AT] != _MAGIC or words[_VERSION_AT] != 1:
            return False
        self._words = words
        self._writing = words[_WRITING] + 1 & 0xfffffffe
        self._longs = memory.cast("Q")
        self._doubles = memory.cast("d")
        self._where = memory[_WHERE:_WHERE + _WHERE_BYTES]
        self._thread = threading.main_thread().ident or 0
        self.is_open = True
        return True

    # -- writing: the word `writing` is odd in the middle of it ---------------------------
    # Threads and signal handlers need no lock: it is even whenever none of them writes.

    def _begin(self) -> int:
        """Returns what _end must have."""
        self._writing = writing = self._writing + 2 & 0xffffffff
        self._words[_WRITING] = writing - 1 & 0xffffffff
        return writing

    def _end(self, writing: int) -> None:
        self._words[_WRITING] = writing

    def _show(self, phase: int, where: bytes) -> None:
        """In a few tenths of a microsecond."""
        saved = self.phase == CHECKPOINTING != phase
        self.phase, self.where = phase, where
        self._writing = writing = self._writing + 2 & 0xffffffff
        words = self._words
        words[_WRITING] = writing - 1 & 0xffffffff
        if saved:
            words[_CHECKPOINTS] = words[_CHECKPOINTS] + 1 & 0xffffffff
        if self._is_blank:
            self._start()
        words[_PHASE] = phase
        self._where[:] = where
        self._longs[_CHANGED_NS] = monotonic_ns()
        words[_WRITING] = writing

    def _start(self) -> None:
        """The first report; until then the page is as the agent made it."""
        self._is_blank = False
        self._doubles[_LOSS] = math.nan

    def report_step(self, step: int) -> int:
        """Returns the time."""
        if not self.is_open:
            return 0
        writing = self._begin()
        if self._is_blank:
            self._start()
        self._longs[_STEP] = step
        self._longs[_CHANGED_NS] = now = monotonic_ns()
        self._end(writing)
        return now

    def report(self, step: Optional[int] = None, steps: Optional[int] = None,
               samples: Optional[int] = None, loss: Optional[float] = None) -> None:
        """Writes those numbers that are not None."""
        if not self.is_open:
            return
        writing = self._begin()
        if self._is_blank:
            self._start()
        if loss is not None:
            self._doubles[_LOSS] = loss
            if (loss != loss) != bool(self._words[_FLAGS] & LOSS_IS_NAN):
                self._words[_FLAGS] ^= LOSS_IS_NAN
        for place, number in ((_STEP, step), (_STEPS, steps), (_SAMPLES, samples)):
            if number is not None:
                self._longs[place] = max(0, int(number))
        self._longs[_CHANGED_NS] = monotonic_ns()
        self._end(writing)

    def set_first_step(self, step: int) -> None:
        """The number of the first step of this life, or UNPLACED."""
        if self.is_open:
            self._longs[_FIRST_STEP] = step

    def set_flags(self, add: int, remove: int = 0) -> None:
        if not self.is_open:
            return
        writing = self._begin()
        self._words[_FLAGS] = self._words[_FLAGS] & ~remove | add
        self._end(writing)

    def set_stacks_fd(self, fd: int) -> None:
        """The stack signal has a handler, which writes to this descriptor."""
        if not self.is_open:
            return
        writing = self._begin()
        self._words[_STACKS_FD] = fd
        self._words[_FLAGS] |= STACKS
        self._end(writing)

    # -- phases ----------------------------------------------------------------------------

    def is_shown_thread(self) -> bool:
        return get_ident() == self._thread

    def show_this_thread(self) -> None:
        """This thread trains: from now on its phases are the worker's."""
        if self.is_open and self._thread != get_ident():
            self._thread = get_ident()
            self._outer.clear()

    def enter(self, phase: int, where: bytes) -> bool:
        """A phase begins, unless it is this one already. True: `leave` must follow."""
        if get_ident() != self._thread:  # which is none without a page
            return False
        self._outer.append((self.phase, self.where))
        if phase != self.phase:
            self._show(phase, where)
        return True

    def leave(self) -> None:
        """The phase that was entered last ends."""
        if self._outer and get_ident() == self._thread:
            phase, where = self._outer.pop()
            if phase != self.phase or where != self.where:
                self._show(phase, where)

    def set_phase(self, phase: int, where: bytes) -> None:
        """The phase outside of all that were entered."""
        if get_ident() != self._thread:
            return
        if self._outer:
            self._outer[0] = (phase, where)
        elif (self.phase, self.where) != (phase, where):
            self._show(phase, where)

    @property
    def is_blank(self) -> bool:
        return self._is_blank

    @property
    def base_phase(self) -> int:
        return self._outer[0][0] if self._outer else self.phase

    # -- what it says ------------------------------------------------------------------------

    @property
    def step(self) -> int:
        return self._longs[_STEP] if self.is_open else 0

    @property
    def flags(self) -> int:
        return self._words[_FLAGS] if self.is_open else 0

    # -- checkpoints on request --------------------------------------------------------------

    @property
    def wanted(self) -> int:
        """The number of the checkpoint that crun wants; 0: none that is not saved."""
        words = self._words
        if words is None or words[_SAVE] == words[_SAVED]:
            return 0
        return words[_SAVE]

    @property
    def wanted_within(self) -> float:
        """The seconds that crun waits for it, from when it wanted it."""
        return self._words[_SAVE_WITHIN_MS] / 1000 if self.is_open else 0.0

    def set_saved(self, number: int) -> None:
        """The checkpoint with this number, of `wanted`, is safe."""
        if not self.is_open:
            return
        writing = self._begin()
        self._words[_SAVED] = number
        self._longs[_CHANGED_NS] = monotonic_ns()
        self._end(writing)


worker_page = Page()
os.register_at_fork(after_in_child=worker_page.close_in_child)
