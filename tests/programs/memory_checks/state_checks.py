# SPDX-License-Identifier: MIT
"""What programs have, saved by one of two ranks and loaded by another life."""
import os
import tempfile
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from crun.checkpoint import MemoryFault, files_in_memory, storage
from crun.checkpoint.state import FILES, Files, State
from section_checks import WORLD, Parts, Reading, encode


class Counting(nn.Module):
    """Has a state beside its parameters, which is a copy."""

    def __init__(self, as_tensor):
        super().__init__()
        self.count, self.as_tensor = 0, as_tensor

    def get_extra_state(self):
        return torch.tensor([self.count]) if self.as_tensor else {1: self.count}

    def set_extra_state(self, state):
        self.count = int(state[0] if self.as_tensor else state[1])


class Optimizer(torch.optim.Optimizer):
    """Keeps numbers, and tensors of another type than its parameters'."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": torch.tensor(0.5), "by_step": {}})

    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state["step"] = state.get("step", 0) + 1
            state["master"] = state.get("master", p.detach().float()) + 0.001
            state["nothing"] = None


class States(Reading):
    """What a program has, saved by one of two ranks and loaded by another life of it."""

    @classmethod
    def setUpClass(cls):
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)
        cls.addClassCleanup(dist.destroy_process_group)

    @staticmethod
    def program(optimizer=Optimizer):
        model = nn.Sequential(nn.Linear(2, 1).bfloat16(), Counting(True), Counting(False))
        model = DistributedDataParallel(model)
        return model, optimizer(model.parameters())

    @staticmethod
    def state(model, optimizer):
        return State({"m": model, "o": optimizer}, 0, WORLD, False)

    def through_memory(self, old, new):
        shared, own = old.trees()
        own.objects[storage.HAS_SHARED] = True
        section = encode(own.chunks(), own.objects, own.paths)
        parts = Parts([section] * WORLD, encode(shared.chunks(), {}, shared.paths))
        self.load(self.reader(parts, 0, WORLD, False), new)

    def through_files(self, old, new):
        with tempfile.TemporaryDirectory() as folder:
            dcp.save(old.files_tree(), checkpoint_id=folder, no_dist=True)
            self.load(dcp.FileSystemReader(folder), new)

    @staticmethod
    def load(reader, new):
        metadata = reader.read_metadata()
        flat = new.template(metadata)
        dcp.load(flat, storage_reader=reader, planner=storage.StrictPlanner(), no_dist=True)
        new.load(flat)

    def test_all_of_it_is_there_again(self):
        for way in self.through_memory, self.through_files:
            (model, optimizer), (other, fresh) = self.program(), self.program()
            model.module[1].count, model.module[2].count = 3, 4
            optimizer.step()
            optimizer.step()
            optimizer.param_groups[0]["by_step"] = {0: [0.5, {}], 30: ()}
            way(self.state(model, optimizer), self.state(other, fresh))
            self.assertEqual([m.count for m in other.module[1:]], [3, 4])
            self.assertEqual(fresh.param_groups[0]["by_step"], {0: [0.5, {}], 30: ()})
            for p, q in zip(model.parameters(), other.parameters()):
                self.assertTrue(torch.equal(p, q))
                old, new = optimizer.state[p], fresh.state[q]
                self.assertEqual((new["step"], new["nothing"], new["master"].dtype),
                                 (2, None, torch.float32))
                self.assertTrue(torch.equal(old["master"], new["master"]))

    def test_the_files_of_a_trainer(self):
        content = {"a.b/c.d": torch.arange(5, dtype=torch.uint8), "empty": torch.empty(0, dtype=torch.uint8)}
        for way in self.through_memory, self.through_files:
            old, new = Files(lambda: content), Files(dict)
            way(*(State({FILES: files}, 0, WORLD, False) for files in (old, new)))
            self.assertEqual({name: t.tolist() for name, t in new.loaded.items()},
                             {name: t.tolist() for name, t in content.items()})

    def test_files_go_to_no_other_folder(self):
        os.environ.update(RANK="0", WORLD_SIZE=str(WORLD))
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(files_in_memory, "Checkpointer"):
            kept = files_in_memory.TrainerCheckpoints(f"{folder}/kept", 1, lambda _: None)
            kept._memory.restore.return_value = 3
            for name in "../restored-too", "a/../../x", folder + "/x":
                kept._files.loaded = {name: torch.ones(1, dtype=torch.uint8)}
                with self.assertRaisesRegex(MemoryFault, "in no folder of a checkpoint"):
                    kept.restore(1)
            self.assertEqual(os.listdir(folder), [])

    def test_another_optimizer_is_refused(self):
        (model, optimizer), (other, fresh) = self.program(torch.optim.Adam), self.program(torch.optim.AdamW)
        for way in self.through_memory, self.through_files:
            with self.assertRaisesRegex(MemoryFault, "o is another optimizer"):
                way(self.state(model, optimizer), self.state(other, fresh))

    def test_local_sgd_is_of_each_rank(self):
        model, optimizer = self.program()
        optimizer.step()
        self.assertTrue(self.state(model, optimizer).trees()[0].tensors)
        state = post_localSGD_hook.PostLocalSGDState(None, dist.group.WORLD, 0)
        model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        self.assertFalse(self.state(model, optimizer).trees()[0].tensors)

    def test_steps_without_sync_are_of_each_rank(self):
        model = DistributedDataParallel(nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = self.state(model, optimizer)
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        with model.no_sync():
            model(torch.ones(1, 2))
        model(torch.ones(1, 2))  # DDP averages the gradients of both batches
        optimizer.step()
        self.assertEqual(len(state.trees()[0].tensors), 2)
        with model.no_sync():
            model(torch.ones(1, 2))
        optimizer.step()
        self.assertFalse(state.trees()[0].tensors)

    def test_names_of_crun_itself(self):
        for name in "rng", "parameters", "param_groups", "rank-0", "a.b":
            with self.assertRaisesRegex(ValueError, "such a name is crun's own"):
                State({name: Counting(True)}, 0, 1, True)
