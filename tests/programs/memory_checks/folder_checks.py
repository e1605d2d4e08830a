# SPDX-License-Identifier: MIT
"""What writes to a folder of checkpoints, one at a time, and what it leaves there."""
import concurrent.futures
import contextlib
import io
import os
import pathlib
import pickle
import shutil
import sys
import tempfile
import threading
import unittest
from unittest import mock

import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from crun.checkpoint import __main__ as command
from crun.checkpoint import Checkpointer, MemoryFault, files


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

    def test_what_a_killed_process_has_left(self):
        """It goes when the next one begins, also if that completes nothing, as on a full disk."""
        os.environ.update(RANK="0", WORLD_SIZE="1", CRUN_INSTANCE="one", CRUN_MEMORY_STEP="7", CRUN_MEMORY_EPOCH="2",
                          CRUN_MEMORY_WORLD="1", CRUN_MEMORY_JOB="one", CRUN_MEMORY_FLUSH="6")
        for name in "CRUN_INSTANCE", "CRUN_MEMORY_FLUSH":
            self.addCleanup(os.environ.pop, name)
        with tempfile.TemporaryDirectory() as folder:
            for name in "5-one", "4-2-one", "4-2-one-5", "7-2-one-6", "3-other", "3-1-other-9":
                os.makedirs(f"{folder}/.new-step-{name}/x")
            with mock.patch.object(sys, "argv", ["", folder, "2", "one"]), \
                    mock.patch.object(command, "write_set", side_effect=OSError("full")):
                with self.assertRaisesRegex(OSError, "full"):
                    command.main()
            self.assertEqual(sorted(os.listdir(folder)), [
                ".new-step-3-1-other-9", ".new-step-3-other", ".new-step-4-2-one", ".new-step-5-one"])
            os.mkdir(f"{folder}/.new-step-8-2-one-7")  # crun writes it
            with mock.patch.object(dcp, "save", side_effect=OSError("full")):
                with self.assertRaisesRegex(OSError, "full"):
                    Checkpointer(folder, {"m": nn.Linear(1, 1)}, files_every=1).step(1)
            self.assertEqual(sorted(os.listdir(folder)), [".crun-jobs", ".new-step-1-one", ".new-step-8-2-one-7"])

    def test_what_ranks_or_a_flush_have_written(self):
        """Of this job, and not before it was in memory: no other file is known to fit what was there."""
        def have(**of):
            with mock.patch.dict(os.environ, {f"CRUN_MEMORY_{name}": value for name, value in {
                    "STEP": "7", "EPOCH": "2", "JOB": "one", "FLUSH": "0", **of}.items()}):
                return command.have_it(folder)
        self.addCleanup(os.environ.pop, "CRUN_INSTANCE")
        self.addCleanup(os.environ.pop, "CRUN_EPOCH", None)
        os.environ.update(RANK="0", WORLD_SIZE="1", CRUN_INSTANCE="one", CRUN_EPOCH="2")
        with tempfile.TemporaryDirectory(prefix="[a]") as folder:
            self.assertFalse(have())
            Checkpointer(folder, {"m": nn.Linear(1, 1)}).save_files(7)
            self.assertTrue(have())
            for of, has in (({"STEP": "6"}, True), ({"EPOCH": "1"}, True), ({"FLUSH": "5"}, True), ({"STEP": "8"}, False),
                            ({"EPOCH": "3"}, False), ({"JOB": "two"}, False)):
                self.assertEqual(have(**of), has, of)
            os.rename(f"{folder}/step-7/.crun-parts-7-2-one-ranks", f"{folder}/step-7/.crun-parts-7-2-one-5")
            self.assertTrue(have())
            self.assertFalse(have(FLUSH="5"))  # this very one: a node is late

    def test_what_is_removed_is_not_completed(self):
        with tempfile.TemporaryDirectory() as folder:
            new = f"{folder}/.new-step-1-one"
            os.mkdir(new)
            with mock.patch.object(shutil, "rmtree"):  # it stands still there
                files.remove_left(folder, False, "one")
            with self.assertRaises(FileNotFoundError):
                files.complete(folder, new, 1, 2, "one")

    def test_a_part_that_no_node_begins(self):
        """As where each node has a folder of its own."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(command, "_BEGIN_SECONDS", 0.0):
            new = f"{folder}/.new-step-1-one"
            os.makedirs(command.claims_of(new))
            with self.assertRaisesRegex(MemoryFault, f"no node has begun to write part 1 to {folder} in"):
                command.wait_for(new, ["1"])
            command.claim(new, "1")
            pathlib.Path(new, "part").write_bytes(pickle.dumps([3]))
            threading.Timer(0.2, os.rename, (f"{new}/part", f"{new}/.written-1")).start()
            self.assertEqual(command.wait_for(new, ["1"]), [3])

    def test_a_step_in_another_thread(self):
        os.environ.update(RANK="0", WORLD_SIZE="1")
        model = nn.Linear(1, 1)
        optim = torch.optim.SGD(model.parameters(), 0.1)
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(1) as other:
            ckpt = Checkpointer(folder, {"m": model, "o": optim}, files_every=1)
            optim.step()
            ckpt.step(1)
            with contextlib.redirect_stderr(io.StringIO()) as said:
                with self.assertRaisesRegex(RuntimeError, "in another thread than the optimizer's"):
                    other.submit(ckpt.step, 2).result()
            self.assertIn("in another thread than the optimizer's", said.getvalue())
            other.submit(optim.step).result()  # all of the training is there now
            other.submit(ckpt.step, 2).result()
            self.assertEqual(sorted(os.listdir(folder)), ["step-1", "step-2"])
