#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 1 s
# sanitizers: no, there is no C in it
"""The status page as Python writes it: the layout, phases, threads, signals, forks."""
import math
import multiprocessing
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "worker-lib" / "python"))
from crun import page as p  # noqa: E402

LIB = str(ROOT / "tests" / "lib")
HALF = struct.Struct("=IIIIQQQdQIIII")  # up to save_within_ms


class PageCase(unittest.TestCase):
    def setUp(self):
        self.file = tempfile.NamedTemporaryFile()
        self.file.write(struct.pack("=II", 0x67707263, 1).ljust(4096, b"\0"))
        self.file.flush()
        self.page = p.Page()
        self.assertTrue(self.page.open(self.file.name))

    def content(self):
        return pathlib.Path(self.file.name).read_bytes()

    def fields(self):
        names = ("magic version writing phase step steps samples loss changed_ns saved flags save "
                 "save_within_ms").split()
        return dict(zip(names, HALF.unpack_from(self.content())))

    def where(self):
        return self.content()[128:240].rstrip(b"\0").decode()

    def ask(self, number, within_ms=5000):
        with open(self.file.name, "r+b") as f:
            f.seek(64)
            f.write(struct.pack("=II", number, within_ms))


class StatusPage(PageCase):
    def test_opening_writes_nothing(self):
        self.assertEqual(self.content()[8:], bytes(4088))

    def test_a_report(self):
        before = time.monotonic_ns()
        self.page.report(step=2**40, steps=7, samples=9, loss=0.25)
        f = self.fields()
        self.assertEqual((f["step"], f["steps"], f["samples"], f["loss"]), (2**40, 7, 9, 0.25))
        self.assertEqual(f["writing"], 2)
        self.assertTrue(before <= f["changed_ns"] <= time.monotonic_ns())
        self.page.report(step=3)
        self.assertEqual(self.fields()["loss"], 0.25)

    def test_no_loss_is_nan(self):
        self.page.enter(p.LOADING, p.NOWHERE)
        self.assertTrue(math.isnan(self.fields()["loss"]))

    def test_phases_nest(self):
        self.page.set_phase(p.TRAINING, p.where_field("a.py:1 (f)"))
        self.assertTrue(self.page.enter(p.EVALUATING, p.where_field("b.py:2 (g)")))
        self.page.enter(p.LOADING, p.NOWHERE)
        self.assertEqual((self.fields()["phase"], self.where()), (p.LOADING, ""))
        self.page.leave()
        self.assertEqual((self.fields()["phase"], self.where()), (p.EVALUATING, "b.py:2 (g)"))
        self.page.set_phase(p.UNKNOWN, p.NOWHERE)
        self.assertEqual(self.fields()["phase"], p.EVALUATING)
        self.page.leave()
        self.page.leave()  # one too many
        self.assertEqual((self.fields()["phase"], self.where()), (p.UNKNOWN, ""))

    def test_where_is_cut_between_characters(self):
        for text in ("x" * 200, "x" + "é" * 100):
            field = p.where_field(text)
            self.assertEqual(len(field), 112)
            self.assertTrue(text.startswith(field.rstrip(b"\0").decode()))
            self.assertEqual(field[-1], 0)

    def test_phases_of_other_threads_are_not_shown(self):
        def run():
            self.page.enter(p.CHECKPOINTING, p.NOWHERE)
            seen.append(self.fields()["phase"])
            self.page.leave()
            self.page.show_this_thread()
            self.page.enter(p.LOADING, p.NOWHERE)

        seen = []
        self.page.set_phase(p.TRAINING, p.NOWHERE)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        self.assertEqual(seen, [p.TRAINING])
        self.assertEqual(self.fields()["phase"], p.LOADING)

    def test_a_checkpoint_on_request(self):
        self.assertEqual(self.page.wanted, 0)
        self.ask(3)
        self.assertEqual((self.page.wanted, self.page.wanted_within), (3, 5.0))
        self.page.set_saved(3)
        self.assertEqual((self.page.wanted, self.fields()["saved"]), (0, 3))

    def test_checkpoints_are_counted_when_they_end(self):
        def count():
            return struct.unpack_from("=I", self.content(), 244)[0]

        self.page.set_phase(p.TRAINING, p.NOWHERE)
        self.page.enter(p.CHECKPOINTING, p.NOWHERE)
        self.page.enter(p.CHECKPOINTING, p.where_field("the same"))
        self.page.leave()
        self.assertEqual(count(), 0)
        self.page.leave()
        self.assertEqual(count(), 1)
        self.page.set_phase(p.CHECKPOINTING, p.NOWHERE)
        self.page.set_phase(p.EVALUATING, p.NOWHERE)
        self.assertEqual(count(), 2)

    def test_flags(self):
        self.page.set_stacks_fd(17)
        self.page.set_flags(p.WATCHED | p.HAS_SAVED)
        self.page.set_flags(0, p.WATCHED)
        self.assertEqual(self.fields()["flags"], p.HAS_SAVED | p.STACKS)
        self.assertEqual(struct.unpack_from("=i", self.content(), 240), (17,))

    def test_a_loss_that_is_nan_is_not_none(self):
        for loss, flags in ((1.5, 0), (math.nan, p.LOSS_IS_NAN), (math.nan, p.LOSS_IS_NAN),
                            (None, p.LOSS_IS_NAN), (2.5, 0)):
            self.page.report(step=1, loss=loss)
            self.assertEqual(self.fields()["flags"], flags)

    def test_a_signal_handler_may_report(self):
        """The number of writes is even in the end, wherever the handler came in between."""
        counted = []

        def handle(*_):
            counted.append(1)
            self.page.report(samples=len(counted))

        old = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        while len(counted) < 100:
            self.page.report(step=len(counted))
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        self.assertEqual(self.fields()["writing"] % 2, 0)

    def test_threads_report_at_once(self):
        def run(n):
            for i in range(2000):
                self.page.report(step=i, samples=n)
                self.page.set_saved(i)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual((self.fields()["writing"] % 2, self.fields()["step"]), (0, 1999))

    def test_no_page(self):
        page = p.Page()
        os.environ.pop("CRUN_PROGRESS", None)
        self.assertFalse(page.open())
        with tempfile.NamedTemporaryFile() as other:
            other.write(bytes(4096))
            other.flush()
            for path in ("/does/not/exist", "/dev/null", other.name):
                self.assertFalse(page.open(path))
        page.report(step=1)
        page.set_flags(1)
        page.set_saved(1)
        page.set_phase(1, p.NOWHERE)
        self.assertFalse(page.enter(1, p.NOWHERE))
        page.leave()
        self.assertEqual((page.step, page.wanted, page.flags), (0, 0, 0))


def report_from_child():
    if p.worker_page.open():
        p.worker_page.report(step=99)
    p.worker_page.report(step=98)


AT_END = """
import atexit, sys
sys.path.insert(0, sys.argv[1])
import watch_cost
watch, p = watch_cost.load_watch()
watch.start()
p.worker_page.report_step(int(sys.argv[2])) if sys.argv[2] != "0" else None
atexit.register(lambda: print(p.PHASES[p.worker_page.phase]))
"""


class End(PageCase):
    def test_the_end_of_the_interpreter_is_no_training(self):
        for steps, phase in (("1", "done"), ("0", "unknown")):
            said = subprocess.run([sys.executable, "-c", AT_END, LIB, steps], text=True,
                                  env={**os.environ, "CRUN_PROGRESS": self.file.name},
                                  capture_output=True, check=True).stdout
            self.assertEqual(said, phase + "\n")


class Children(PageCase):
    """A child of the worker does not write its page, however it was started."""

    def setUp(self):
        super().setUp()
        os.environ["CRUN_PROGRESS"] = self.file.name
        p.worker_page.close()
        self.assertTrue(p.worker_page.open())
        p.worker_page.report(step=1)

    def tearDown(self):
        p.worker_page.close()
        del os.environ["CRUN_PROGRESS"]

    def test_children(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method):
                child = multiprocessing.get_context(method).Process(target=report_from_child)
                child.start()
                child.join()
                self.assertEqual(child.exitcode, 0)
                self.assertEqual(self.fields()["step"], 1)
        p.worker_page.report(step=2)
        self.assertEqual(self.fields()["step"], 2)

    def test_a_child_by_fork_alone(self):
        child = os.fork()
        if child == 0:
            p.worker_page.open()
            p.worker_page.report(step=99)
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(self.fields()["step"], 1)


if __name__ == "__main__":
    unittest.main()
