# SPDX-License-Identifier: MIT
"""What writes to a folder of checkpoints, one at a time, and what it leaves there."""
import contextlib
import io
import os
import tempfile
import unittest
from unittest import mock

from torch import nn

from crun.checkpoint import Checkpointer


class Folders(unittest.TestCase):
    def test_two_that_write_to_one_folder(self):
        """Of one program: the second one does not overwrite what the first one has, nor the first one
        what one has that went on from it."""
        os.environ.update(RANK="0", WORLD_SIZE="1")
        other = "another Checkpointer of this program writes to .*: give each a folder of its own"
        with tempfile.TemporaryDirectory() as folder:
            first, second = (Checkpointer(folder, {"m": nn.Linear(1, 1)}, files_every=1) for _ in range(2))
            self.assertEqual((first.restore(), second.restore()), (0, 0))
            first.step(1)
            written = os.stat(f"{folder}/step-1")
            for act in second.step, second.save_files:
                with self.assertRaisesRegex(ValueError, other):
                    act(1)
            self.assertEqual(os.stat(f"{folder}/step-1"), written)
            for step in 2, 3:
                self.assertEqual(second.restore(), step - 1)
                first.step(step)
                with self.assertRaisesRegex(ValueError, other):
                    second.step(step)
            self.assertEqual(second.restore(), 3)
            second.step(4)
            with self.assertRaisesRegex(ValueError, other):
                first.step(4)
            second.step(5)

    def test_two_programs_of_one_job(self):
        os.environ.update(RANK="0", WORLD_SIZE="1", CRUN_EPOCH="3", CRUN_INSTANCE="one")
        self.addCleanup(os.environ.pop, "CRUN_INSTANCE")
        self.addCleanup(os.environ.pop, "CRUN_EPOCH")
        (read, write), (lives, ends) = os.pipe(), os.pipe()
        with tempfile.TemporaryDirectory() as folder:
            child = os.fork()
            if child == 0:
                os.close(ends)
                Checkpointer(folder, {"m": nn.Linear(1, 1)}, files_every=1).step(1)
                os.close(write)
                os.read(lives, 1)
                os._exit(0)
            os.close(write)
            os.read(read, 1)
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                Checkpointer(folder, {"m": nn.Linear(1, 1)}, files_every=1).step(2)
            self.assertIn(f"another program of this job, process {child} of ", said.getvalue())
            self.assertEqual(sorted(os.listdir(folder)), [".crun-jobs", "step-1"])
            os.close(ends)
            os.waitpid(child, 0)
            Checkpointer(folder, {"m": nn.Linear(1, 1)}, files_every=1).step(2)  # when the other one has ended
            with mock.patch.dict(os.environ, CRUN_EPOCH="4"):
                Checkpointer(folder, {"m": nn.Linear(1, 1)}, files_every=1).step(3)
            Checkpointer(folder, {"m": nn.Linear(1, 1)}, files_every=1).step(4)
            with open(f"{folder}/.crun-jobs") as file:  # which takes nothing from the later life
                self.assertRegex(file.read(), rf"^one/4/[^/]+/{os.getpid()}\n$")
