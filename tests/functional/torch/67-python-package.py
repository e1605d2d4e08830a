#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 2 s
# sanitizers: no, there is no C in it
"""The Python package crun, with a page and without one. 68 has it with real trainers."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PYTHON = ROOT / "worker-lib" / "python"
sys.path.insert(0, str(ROOT / "tests" / "lib"))
from watch_cost import new_page  # noqa: E402


def run(program, **variables):
    """What a program prints."""
    environment = {name: value for name, value in os.environ.items() if name not in
                   ("CRUN_PROGRESS", "RANK", "TORCHELASTIC_ERROR_FILE")}
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], text=True,
                          capture_output=True, cwd=PYTHON, env={**environment, **variables})


class Package(unittest.TestCase):
    def setUp(self):
        self.page = new_page()
        # the words of the page, as the agent sees and writes them
        self.head = """
            import crun, mmap, os
            words = memoryview(mmap.mmap(os.open(os.environ["CRUN_PROGRESS"], os.O_RDWR),
                                         4096)).cast("I")
            def phase():
                return crun.page.PHASES[words[3]]
            """

    def check(self, program, **variables):
        done = run(textwrap.dedent(self.head) + textwrap.dedent(program),
                   CRUN_PROGRESS=self.page.name, **variables)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_progress(self):
        self.check("""
            crun.progress(7, steps=10, loss=0.5, samples=3)
            assert (words[4], words[6], words[8], phase()) == (7, 10, 3, "training")
            assert crun.is_present() and crun.page.worker_page.step == 7
            with crun.evaluating():
                assert phase() == "evaluating"
                crun.progress(8)
                with crun.loading():
                    assert phase() == "loading"
                with crun.training():
                    assert phase() == "training"
                assert phase() == "evaluating" and words[4] == 8
            with crun.checkpointing(), crun.communicating():
                assert phase() == "communicating"
            crun.progress(9, phase="loading")
            assert phase() == "loading"
            crun.done()
            assert phase() == "done"
            """)

    def test_a_step_of_several_batches_after_the_restored_one(self):
        self.check("""
            crun.page.worker_page.restored_step = 7
            crun.progress(7, samples=1)
            assert (words[4], words[8], words[62]) == (0, 1, 8)
            crun.progress(8)
            assert (words[4], words[62]) == (8, 8)
            """)

    def test_a_checkpoint(self):
        self.check("""
            assert not crun.checkpoint_wanted()
            words[16], words[17] = 1, 5000
            assert crun.checkpoint_wanted() and crun.checkpoint_within() == 5
            words[16] = 2  # while it saves
            crun.checkpoint_done()
            assert words[14] == 1 and crun.checkpoint_wanted()
            with crun.checkpointing():
                pass
            crun.checkpoint_done()
            assert words[14] == 2 and not crun.checkpoint_wanted()
            words[16] = 3
            assert [crun.checkpoint_wanted(together_every=3) for _ in range(6)] == [
                False, False, True, False, False, True]
            """)

    def test_a_rank_that_never_saves(self):
        for rank, saved in (("0", 0), ("1", 1)):
            self.check(f"""
                words[14], words[16] = 0, 1
                crun.progress(1)
                assert words[14] == {saved}
                """, RANK=rank)

    def test_without_crun(self):
        done = run("""
            import crun, sys
            assert "torch" not in sys.modules
            assert not crun.is_present()
            crun.progress(1, steps=2, loss=0.5, samples=3, phase="training")
            with crun.evaluating(), crun.checkpointing():
                pass
            assert not crun.checkpoint_wanted() and crun.checkpoint_within() == 0
            crun.checkpoint_done()
            crun.done()
            print(crun.rank(), crun.world_size(), crun.local_rank(), crun.local_world_size(),
                  crun.node(), crun.nodes(), crun.restarts(), crun.max_restarts(), crun.epoch(),
                  repr(crun.job()))
            """)
        self.assertEqual((done.stderr, done.stdout), ("", "0 1 0 1 0 1 0 0 1 ''\n"))

    def test_what_the_launcher_says(self):
        done = run("""
            import crun
            print(crun.rank(), crun.world_size(), crun.local_rank(), crun.local_world_size(),
                  crun.node(), crun.nodes(), crun.restarts(), crun.max_restarts(), crun.epoch(),
                  repr(crun.job()))
            """, RANK="5", WORLD_SIZE="8", LOCAL_RANK="1", LOCAL_WORLD_SIZE="4", GROUP_RANK="1",
                   GROUP_WORLD_SIZE="2", TORCHELASTIC_RESTART_COUNT="2",
                   TORCHELASTIC_MAX_RESTARTS="3", CRUN_EPOCH="9", TORCHELASTIC_RUN_ID="j")
        self.assertEqual((done.stderr, done.stdout), ("", "5 8 1 4 1 2 2 3 9 'j'\n"))

    def test_record(self):
        for program in ("@crun.record\ndef f(): raise ValueError('bad')\nf()",
                        "with crun.record():\n    raise ValueError('bad')"):
            with tempfile.TemporaryDirectory() as folder:
                file = folder + "/error.json"
                done = run("import crun\n" + program, TORCHELASTIC_ERROR_FILE=file)
                self.assertEqual(done.returncode, 1)
                self.assertTrue(done.stderr.endswith("ValueError: bad\n"))
                message = json.loads(pathlib.Path(file).read_text())["message"]
            self.assertEqual(message["message"], "ValueError: bad")
            self.assertIn("Traceback (most", message["extraInfo"]["py_callstack"])
            self.assertTrue(message["extraInfo"]["timestamp"].isdigit())

    def test_record_leaves_exits_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("import crun\nwith crun.record():\n    raise SystemExit(3)",
                       TORCHELASTIC_ERROR_FILE=folder + "/error.json")
            self.assertEqual((done.returncode, os.listdir(folder)), (3, []))
        done = run("import crun\nwith crun.record():\n    1 / 0",
                   TORCHELASTIC_ERROR_FILE="/no/such/folder/error.json")
        self.assertTrue(done.stderr.endswith("ZeroDivisionError: division by zero\n"))


if __name__ == "__main__":
    unittest.main()
