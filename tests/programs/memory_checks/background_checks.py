# SPDX-License-Identifier: MIT
"""What a step has is saved, although the program goes on while it is copied."""
import ctypes
import os
import tempfile
import threading
import unittest
from unittest import mock

import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from crun.checkpoint import Checkpointer, MemoryFault, library, storage
from crun.checkpoint.section import Chunk, Section


class Slot:
    """Stands in for the library: it writes the tensors as they are once `may_write` is set."""

    def __init__(self):
        self.world, self.step, self.may_write = 0, 0, threading.Event()
        self.commits, self.sections, self.is_taken = [], {}, False

    def begin(self, step, *_):
        self.begun = step

    def write(self, shared, pieces):
        self.may_write.wait()
        self.sections[shared] = bytearray(b"".join(ctypes.string_at(at, size) for at, size in pieces))

    def commit(self):
        section = Section(memoryview(self.sections[False]))
        self.commits.append((self.begun, {c.name: c.tensor.clone() for c in section.chunks}))

    def is_kept(self):
        return True

    def restored(self, step):
        pass


class Copied(Slot):
    """Its copies are safe at the third look."""

    def __init__(self):
        super().__init__()
        self.looks = 0
        self.may_write.set()

    def begin(self, step, *_):
        if self.looks < 3:
            raise MemoryFault("it would overwrite what has no copy yet")
        super().begin(step)

    def is_kept(self):
        self.looks += 1
        return self.looks >= 3


class OfAPlanner(unittest.TestCase):
    def test_copies_are_waited_for(self):
        slot = Copied()
        with mock.patch.object(library, "client", lambda: slot):
            dcp.save({"w": torch.ones(2)}, storage_writer=storage.MemoryWriter(4), no_dist=True)
        self.assertEqual([step for step, _ in slot.commits], [4])
        slot.is_taken = True
        with mock.patch.object(library, "client", lambda: slot):
            with self.assertRaisesRegex(MemoryFault, "a Checkpointer of this process has the memory"):
                storage.MemoryWriter(5)


class InTheBackground(unittest.TestCase):
    """What a step has is saved, although the program goes on while it is copied."""

    def setUp(self):
        os.environ.update(RANK="0", WORLD_SIZE="1")
        self.slot, self.folder = Slot(), tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(self.slot.may_write.set)
        self.model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        with mock.patch.object(library, "client", lambda *_: self.slot):
            self.ckpt = Checkpointer(self.folder.name, {"m": self.model, "o": self.optimizer}, background=True)
        self.ckpt.restore()
        self.train()

    def train(self):
        self.forward()
        self.optimizer.step()

    def forward(self):
        self.model(torch.rand(4, 8)).square().sum().backward()

    def live(self):
        state = {f"m.{name}": t.clone() for name, t in self.model.state_dict().items()}
        for number, values in self.optimizer.state_dict()["state"].items():
            state.update({f"o.state.{number}.{key}": t.clone() for key, t in values.items()})
        return state

    def expect_commits(self, *wanted):
        self.assertEqual([step for step, _ in self.slot.commits], [step for step, _ in wanted])
        for (step, saved), (_, live) in zip(self.slot.commits, wanted):
            self.assertEqual(saved.keys(), live.keys())
            for name in live:
                self.assertTrue(torch.equal(saved[name], live[name]), f"{name} of step {step}")

    def test_an_optimizer_waits(self):
        first = self.live()
        self.ckpt.step(1)
        self.forward()  # changes buffers and gradients
        self.expect_commits()
        threading.Timer(0.1, self.slot.may_write.set).start()
        self.optimizer.step()
        self.ckpt._wait()
        self.expect_commits((1, first))
        second = self.live()
        self.ckpt.step(2)
        self.forward()
        self.optimizer.step()
        self.ckpt._wait()
        self.expect_commits((1, first), (2, second))

    def test_nothing_is_undone(self):
        """The agents have newer steps, which are whole."""
        self.slot.may_write.set()
        self.ckpt.restore()
        self.ckpt.step(1)
        with self.assertRaisesRegex(ValueError, "after a save"):
            self.ckpt.restore()

    def test_changes_by_others_are_seen(self):
        weight, moment = self.model[0].weight, self.optimizer.state[self.model[0].weight]["exp_avg"]
        ways = {"mul_": lambda: weight.mul_(2), "detach": lambda: weight.detach().clamp_(0, 0.1),
                "foreach": lambda: torch._foreach_mul_([weight], 0.5), "index": lambda: weight[0].zero_(),
                "moment": lambda: moment.zero_(), "init": lambda: nn.init.zeros_(weight),
                "load": lambda: self.model.load_state_dict(self.model.state_dict()),
                "other memory": lambda: nn.utils.vector_to_parameters(torch.ones(8 * 8), [weight])}
        for way, change in ways.items():
            for mode in torch.no_grad, torch.inference_mode:
                with self.subTest(way=way, mode=mode.__name__):
                    self.slot.may_write.clear()
                    self.slot.commits.clear()
                    self.ckpt._in_background, step = True, self.ckpt._last_step + 1
                    before = self.live()
                    self.ckpt.step(step)
                    with mode():
                        change()
                    self.slot.may_write.set()
                    self.ckpt._wait()
                    if way == "other memory":  # that of the step stays
                        self.expect_commits((step, before))
                        continue
                    self.expect_commits()
                    after = self.live()
                    self.ckpt.step(step + 1)  # at once, as from now on
                    self.expect_commits((step + 1, after))

    def test_a_device_is_waited_for_in_a_thread(self):
        """While it copies, an optimizer may change what it has on the CPU."""
        weight, counter = (Chunk(name, torch.empty(size, device=device), (size,), (0,))
                           for name, size, device in (("w", 1000, "meta"), ("c", 1, "cpu")))
        for in_background in False, True:
            self.assertEqual(self.ckpt._stable.choose(in_background, {"w", "c"}, [weight, counter]), set())
            much = counter._replace(tensor=torch.empty(1000))
            self.assertIsNone(self.ckpt._stable.choose(in_background, {"w", "c"}, [weight, much]))

    def test_much_else_is_written_at_once(self):
        self.slot.may_write.set()
        self.model.register_buffer("much", torch.zeros(100000))
        now = self.live()
        self.ckpt.step(1)
        self.model.much.add_(1)
        self.ckpt._wait()
        self.expect_commits((1, now))
