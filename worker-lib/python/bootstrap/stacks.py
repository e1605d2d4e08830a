# SPDX-License-Identifier: MIT
"""
Stacks on request: crun sends this worker a signal, and Python's faulthandler writes the stacks
of all threads into a file of crun. No thread, no Python code at that moment: it works while the
program hangs in C code or holds the interpreter's lock. So do the processes that multiprocessing
forks, such as those of a data loader, one after the other. faulthandler.enable is left to the
program.
"""
import faulthandler
import os
import signal
import sys
import threading

STACKS_SIGNAL = 60  # PROGRESS_STACKS_SIGNAL of progress_page.h


def start() -> None:
    path = sys.modules["_crun"].settings.get("CRUN_STACKS")
    if not path or signal.getsignal(STACKS_SIGNAL) is not signal.SIG_DFL:
        return
    from _crun.page import ENDS, worker_page
    if not worker_page.open():
        return
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError:
        return
    faulthandler.register(STACKS_SIGNAL, file=fd, all_threads=True, chain=False)
    worker_page.set_stacks_fd(fd)

    def stop() -> None:
        """The file is for the worker and what multiprocessing forks, not for other forks."""
        if sys._getframe(1).f_globals.get("__name__") != "multiprocessing.popen_fork":
            faulthandler.unregister(STACKS_SIGNAL)
            os.close(fd)

    os.register_at_fork(after_in_child=stop)

    def note_end() -> None:
        """Threads that are waited for may go on with the training. JAX waits for the other ranks after this."""
        if all(t.daemon or t is threading.current_thread() for t in threading.enumerate()):
            worker_page.set_flags(ENDS)

    if hasattr(threading, "_register_atexit"):
        threading._register_atexit(note_end)
