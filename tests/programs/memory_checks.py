#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sections as crun.checkpoint encodes them: what is read back, also by another number of ranks, and
what a worker that writes garbage does to its readers."""
import contextlib
import ctypes
import io
import json
import os
import random
import shutil
import struct
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.testing._internal.two_tensor import TwoTensor
from torchdata.stateful_dataloader import StatefulDataLoader

from crun.checkpoint import __main__ as command
from crun.checkpoint import Checkpointer, MemoryFault, MemoryReader, claim, files_in_memory, library, storage
from crun.checkpoint.checkpointer import _chunks
from crun.checkpoint.section import Chunk, Section, SectionWriter
from crun.checkpoint.loaders import Place
from crun.checkpoint.state import FILES, Files, State

WORLD = 2


def encode(chunks, objects=None, paths=None):
    """The bytes as the library puts them into the slot."""
    pieces, _alive = SectionWriter().encode(chunks, objects or {}, paths or {})
    return bytearray(b"".join(ctypes.string_at(at, size) for at, size in pieces))


def index_of(data):
    return json.loads(data[16:16 + struct.unpack_from("<Q", data)[0]])


def with_index(data, index, objects=0):
    """Other words in front of the same tensors."""
    text = json.dumps(index).encode()
    old = struct.unpack_from("<Q", data)[0]
    body = data[-(-(16 + old) // 64) * 64:]
    head = struct.pack("<QQ", len(text), objects) + text
    return bytearray(head + bytes(-len(head) % 64) + body)


class Parts:
    """In place of the library: each rank's section of two."""

    def __init__(self, sections, shared=None):
        self.world, self.step, self.sections, self.shared = WORLD, 7, sections, shared

    def read(self, rank, shared):
        data = self.shared if shared else self.sections[rank]
        return types.SimpleNamespace(bytes=memoryview(data), close=lambda: None)


class Reading(unittest.TestCase):
    def reader(self, parts, rank, world, all_ranks=True):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
        self.addCleanup(setattr, library, "client", library.client)
        library.client = lambda: parts
        return MemoryReader(all_ranks)


class Checks(Reading):
    def test_what_is_written_is_read(self):
        chunks = [Chunk("a", torch.arange(7.0), (7,), (0,)),
                  Chunk("b", torch.tensor(3, dtype=torch.int64), (), ()),
                  Chunk("c", torch.ones(2, 3, dtype=torch.bfloat16), (4, 3), (2, 0)),
                  Chunk("d", torch.empty(0, 5), (0, 5), (0, 0)),
                  Chunk("e", torch.arange(6).reshape(2, 3).t(), (3, 2), (0, 0)),
                  Chunk("f", torch.tensor([1 + 2j]).conj(), (1,), (0,)),
                  Chunk("g", torch._neg_view(torch.ones(1)), (1,), (0,))]
        section = Section(memoryview(encode(chunks, {"x": [1, float("inf"), None]}, {"a": ("a",)})))
        for old, new in zip(chunks, section.chunks):
            self.assertEqual((old.name, old.shape, old.offsets), (new.name, new.shape, new.offsets))
            self.assertTrue(torch.equal(old.tensor, new.tensor) and old.tensor.dtype == new.tensor.dtype)
        self.assertEqual((section.objects, section.paths), ({"x": [1, float("inf"), None]}, {"a": ("a",)}))

    def test_what_is_more_than_its_bytes(self):
        for tensor in (TwoTensor(torch.ones(2), torch.zeros(2)),
                       torch.quantize_per_tensor(torch.ones(2), 0.1, 3, torch.qint8)):
            with self.assertRaisesRegex(MemoryFault, "w is more than its bytes: T.* of torch"):
                encode([Chunk("w", tensor, (2,), (0,))])

    def test_what_cannot_be_loaded_any_more(self):
        """The state has such an object only later: no step with it counts as saved."""
        writer = SectionWriter()
        writer.encode([], {"best": {"loss": 0.5}, "rng": torch.ones(2)}, {})
        writer.encode([], {"best": {"loss": None}, "rng": torch.ones(2)}, {})
        with self.assertRaisesRegex(MemoryFault, r"best cannot be loaded: GLOBAL \S+\.scalar"):
            writer.encode([], {"best": {"loss": numpy.float64(0.5)}, "rng": torch.ones(2)}, {})

    def test_a_folder_that_was_not_restored(self):
        os.environ.update(RANK="0", WORLD_SIZE="1")
        with tempfile.TemporaryDirectory() as folder:
            Checkpointer(folder, {"m": nn.Linear(1, 1)}).save_files(3)
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                Checkpointer(folder, {"m": nn.Linear(1, 1)}).step(2)
            self.assertIn("step-3 is newer than step 2, with which this program begins: call restore()", said.getvalue())
            Checkpointer(folder, {"m": nn.Linear(1, 1)}).step(4)  # it has loaded that one itself

    def test_another_number_of_ranks(self):
        whole = torch.arange(20.0).reshape(10, 2)
        sections = [encode([Chunk("w", whole[6 * r:6 * r + 6], (10, 2), (6 * r, 0))], {"x": r})
                    for r in range(WORLD)]
        reader = self.reader(Parts(sections), 0, 1)
        state = {"w": torch.zeros(10, 2)}
        dcp.load(state, storage_reader=reader, no_dist=True)
        self.assertTrue(torch.equal(state["w"], whole))
        # as many ranks, which read nothing but what is theirs, see that it is not all
        reader = self.reader(Parts(sections), 1, WORLD, False)
        planner = storage.StrictPlanner()
        planner.set_up_planner({"w": torch.zeros(10, 2)}, reader.read_metadata(), True)
        with self.assertRaisesRegex(MemoryFault, "w lacks a part"):
            planner.create_local_plan()

    def test_the_own_part_comes_first(self):
        sections = [encode([Chunk("w", torch.full((2,), float(r)), (2,), (0,))]) for r in range(WORLD)]
        for rank in range(3):
            state = {"w": torch.zeros(2)}
            dcp.load(state, storage_reader=self.reader(Parts(sections), rank, 3), no_dist=True)
            self.assertEqual(state["w"].tolist(), [rank % WORLD] * 2)

    def test_a_number_again_saves_nothing(self):
        os.environ.update(RANK="0", WORLD_SIZE="1")
        with tempfile.TemporaryDirectory() as folder:
            ckpt = Checkpointer(folder, {"m": nn.Linear(1, 1)}, files_every=1)
            ckpt.restore()
            for step, names in (1, ["step-1"]), (1, []), (2, ["step-2"]):
                ckpt.step(step)
                self.assertEqual(os.listdir(folder), names)
                shutil.rmtree(f"{folder}/step-1", ignore_errors=True)
            with self.assertRaisesRegex(ValueError, "step 1 comes after step 2"):
                ckpt.step(1)

    def test_the_newest_that_is_whole(self):
        os.environ.update(RANK="0", WORLD_SIZE="1")
        for in_memory, damaged, expected in (5, 9, 5), (5, 0, 9), (9, 0, 9), (None, 9, 2), (-1, 9, 2), (0, 9, 2):
            with tempfile.TemporaryDirectory() as folder:
                ckpt = Checkpointer(folder, {"m": nn.Linear(1, 1)})
                ckpt.save_files(2)
                ckpt.save_files(9)
                if damaged:
                    os.unlink(f"{folder}/step-{damaged}/.metadata")
                restored = mock.Mock()
                ckpt._client = in_memory is not None and types.SimpleNamespace(
                    world=int(in_memory >= 0), step=max(in_memory, 0), restored=restored)
                ckpt._restore_memory = lambda step=in_memory: step
                self.assertEqual(ckpt.restore(), expected)
                if in_memory is not None:
                    restored.assert_called_with(expected if expected == in_memory else 0)

    def test_a_later_job_takes_the_folder(self):
        """The earlier one, also in a life of its own after that, neither saves nor goes on."""
        os.environ.update(RANK="0", WORLD_SIZE="1")

        def of(job, folder, **more):
            os.environ["CRUN_INSTANCE"] = job
            return Checkpointer(folder, {"m": nn.Linear(1, 1)}, **more)

        def ends(act, folder, why="another job, .* to {}: end it, or give"):
            with self.assertRaises(SystemExit) as end, contextlib.redirect_stderr(io.StringIO()) as said:
                act()
            self.assertEqual(end.exception.code, 78)
            self.assertRegex(said.getvalue(), f"^crun.checkpoint: {why.format(folder)} .*\n$")

        self.addCleanup(os.environ.pop, "CRUN_INSTANCE", None)
        for name in "saves", "flushes", "restores", "keeps":
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                without = of("", folder, files_every=1)
                without.save_files(1)  # as before there were claims
                self.assertEqual(os.listdir(folder), ["step-1"])
                first = of("one", folder, files_every=1)
                self.assertEqual(first.restore(), 1)
                first.save_files(2)
                self.assertEqual(of("one", folder).restore(), 2)  # its next life
                self.assertEqual(of("reader", folder).restore(), 2)
                os.environ["CRUN_INSTANCE"] = "one"
                first.save_files(3)
                second = of("two", folder, files_every=1)
                self.assertEqual(second.restore(), 3)
                if name == "saves":  # after the second one's restore, before its first step
                    os.environ["CRUN_INSTANCE"] = "one"
                    first.save_files(400)
                    os.environ["CRUN_INSTANCE"] = "two"
                    ends(lambda: second.step(4), folder, "another job has written step 400 to {}")
                    shutil.rmtree(f"{folder}/step-400")
                    second = of("two", folder, files_every=1)
                    self.assertEqual(second.restore(), 3)
                second.save_files(3)
                os.mkdir(f"{folder}/.new-step-9-two")
                os.environ["CRUN_INSTANCE"] = "one"
                if name == "saves":
                    ends(lambda: first.save_files(500), folder)
                    ends(first.restore, folder)
                elif name == "flushes":
                    with mock.patch.object(sys, "argv", ["", folder, "2", "one"]), \
                            self.assertRaisesRegex(MemoryFault, "another job"):
                        command.main()
                elif name == "restores":
                    ends(lambda: of("one", folder), folder)
                else:
                    first._client = types.SimpleNamespace(is_kept=lambda: True)
                    first._ranks.ask(first._memory_state(), False)
                    ends(lambda: first.step(4), folder)
                self.assertIn(".new-step-9-two", os.listdir(folder))
                os.environ["CRUN_INSTANCE"] = "two"
                second.save_files(4)
                third = of("three", folder)
                self.assertEqual(third.restore(), 4)
                third.step(5)
                ends(lambda: second.save_files(6), folder)
                self.assertEqual(sorted(os.listdir(folder)), [".crun-jobs", "step-3", "step-4"])

    def test_the_folder_is_taken_during_a_save(self):
        os.environ.update(RANK="0", WORLD_SIZE="1", CRUN_INSTANCE="one")
        self.addCleanup(os.environ.pop, "CRUN_INSTANCE")
        with tempfile.TemporaryDirectory() as folder:
            ckpt = Checkpointer(folder, {"m": nn.Linear(1, 1)})
            with mock.patch.object(dcp, "save", lambda *_, storage_writer, **__: (
                    os.mkdir(storage_writer.path), claim.claim(folder, "two", True))):
                with self.assertRaises(SystemExit):
                    ckpt.save_files(1)
            self.assertEqual(sorted(os.listdir(folder)), [".crun-jobs", ".new-step-1-one"])

    def test_a_folder_to_restore_from_only(self):
        os.environ.update(RANK="0", WORLD_SIZE="1", CRUN_INSTANCE="one")
        self.addCleanup(os.environ.pop, "CRUN_INSTANCE")
        with tempfile.TemporaryDirectory() as folder:
            Checkpointer(folder, {"m": nn.Linear(1, 1)}).save_files(3)
            os.environ["CRUN_INSTANCE"] = "two"
            with mock.patch.object(os, "rename", side_effect=PermissionError):  # root may write to all
                self.assertEqual(Checkpointer(folder, {"m": nn.Linear(1, 1)}).restore(), 3)

    def test_two_have_not_the_same_memory(self):
        os.environ["CRUN_MEMORY"] = "@none"
        self.addCleanup(os.environ.pop, "CRUN_MEMORY")
        self.addCleanup(setattr, library, "Client", library.Client)
        library.Client = lambda path, command: types.SimpleNamespace(is_taken=False)
        self.addCleanup(setattr, library, "_client", None)
        first = library.client(["a"])
        self.assertIs(library.client(), first)
        with self.assertRaisesRegex(MemoryFault, "another Checkpointer of this process"):
            library.client(["b"])

    def test_a_hostile_index(self):
        data = encode([Chunk("w", torch.ones(4), (4,), (0,))])
        good = index_of(data)["tensors"][0]  # name, type, shape, offsets, of this part, place
        self.assertEqual(len(Section(memoryview(with_index(data, {"tensors": [good], "paths": {}}))).chunks), 1)
        for at, value in ((0, 3), (0, None), (1, "Tensor"), (1, "load"), (1, 5), (2, [3]), (2, [4, 4]),
                          (3, [1]), (3, [-1]), (3, ["0"]), (4, [2**40]), (4, [4.0]), (4, [True]),
                          (4, "4"), (5, 64), (5, -64), (5, 2**62), (5, 3), (5, None)):
            row = list(good)
            row[at] = value
            bad = with_index(data, {"tensors": [row], "paths": {}})
            with self.assertRaises(MemoryFault, msg=row):
                Section(memoryview(bad))
        for index in ([], {}, {"tensors": [good, good], "paths": {}}, {"tensors": [[]], "paths": {}},
                      {"tensors": [good]}, {"tensors": [good], "paths": 3}):
            with self.assertRaises(MemoryFault, msg=index):
                Section(memoryview(with_index(data, index)))
        for short in b"", b"\0" * 16, struct.pack("<QQ", 2**63, 0), bytes(data[:60]), b"\xff" * 200:
            with self.assertRaises(MemoryFault, msg=short):
                Section(memoryview(bytearray(short)))
        with self.assertRaises(MemoryFault):
            Section(memoryview(with_index(data, {"tensors": [good], "paths": {}}, objects=2**60)))

    def test_no_object_executes(self):
        class Evil:
            def __reduce__(self):
                return os.mkdir, ("/nowhere/evil",)
        with self.assertRaisesRegex(MemoryFault, "cannot be loaded"):
            Section(memoryview(encode([], {"x": Evil()})))

    def test_the_files_of_a_node_that_is_gone(self):
        """Rank 0's node is: the other one has a copy of its part, and completes the folder."""
        whole = torch.arange(20.0).reshape(10, 2)
        own = [Section(memoryview(encode([Chunk("w", whole[5 * r:5 * r + 5], (10, 2), (5 * r, 0)),
                                          Chunk(f"rank-{r}.m.b", torch.ones(3) * r, (3,), (0,))],
                                         {storage.HAS_SHARED: True, f"rank-{r}.x": r,
                                          "o.param_groups": [{"lr": 0.5}]}))) for r in range(WORLD)]
        shared = Section(memoryview(encode([Chunk("s", torch.ones(2), (2,), (0,))])))
        self.addCleanup(setattr, command, "read", command.read)
        command.read = lambda fd, is_shared: shared if is_shared else own[int(os.read(fd, 1))]
        self.addCleanup(setattr, command, "_OTHERS_SECONDS", command._OTHERS_SECONDS)
        command._OTHERS_SECONDS = 0.1
        with tempfile.TemporaryDirectory() as folder:
            for rank in range(WORLD):
                with open(f"{folder}/{rank}", "w") as file:
                    file.write(str(rank))
            os.environ.update(CRUN_MEMORY_STEP="7", CRUN_MEMORY_EPOCH="2", CRUN_MEMORY_WORLD=str(WORLD),
                              CRUN_MEMORY_PARTS=f"1:{folder}/1", CRUN_MEMORY_COPIES=f"0:{folder}/0 1:{folder}/1:shared")
            sys.argv = ["", folder]
            with mock.patch.dict(os.environ, CRUN_MEMORY_JOB="before", CRUN_MEMORY_COPIES=""):
                other = encode([Chunk("w", whole[:5] - 1, (10, 2), (5, 0))])
                with mock.patch.object(command, "read", lambda *_: Section(memoryview(other))):
                    command.main()  # and its other node is gone
            os.environ["CRUN_MEMORY_JOB"] = "this"
            command.main()
            self.assertEqual(sorted(os.listdir(folder)), ["0", "1", "step-7"])
            files = [".crun-parts-7-2-this", ".metadata", "__0_0.distcp", "__1_0.distcp", "__shared_0.distcp"]
            self.assertEqual(sorted(os.listdir(folder + "/step-7")), files)
            written = {name: os.stat(f"{folder}/step-7/{name}").st_mtime_ns for name in files}
            # rank 0's node was only late: it writes nothing, and does not wait for the other one
            late = dict(CRUN_MEMORY_PARTS=f"0:{folder}/0", CRUN_MEMORY_COPIES=f"1:{folder}/1")
            with mock.patch.dict(os.environ, late):
                command.main()
                # the folder gets its name while it writes
                os.rename(f"{folder}/step-7", f"{folder}/aside")

                def named(new, _):
                    shutil.rmtree(new)
                    os.rename(f"{folder}/aside", f"{folder}/step-7")
                    raise FileNotFoundError(new)
                with mock.patch.object(command, "write_parts", named):
                    command.main()
            self.assertEqual(sorted(os.listdir(folder)), ["0", "1", "step-7"])
            self.assertEqual({name: os.stat(f"{folder}/step-7/{name}").st_mtime_ns for name in files}, written)
            state = {"w": torch.zeros(10, 2), "s": torch.zeros(2), "m": {"b": torch.ones(3)},
                     "rank-1": {"m": {"b": torch.zeros(3)}}, "o": {"param_groups": [{"lr": 0.0}]}}
            dcp.load(state, checkpoint_id=folder + "/step-7", no_dist=True)
        self.assertTrue(torch.equal(state["w"], whole))
        self.assertEqual((state["s"].tolist(), state["m"]["b"].tolist(), state["rank-1"]["m"]["b"].tolist(),
                          state["o"]), ([1, 1], [0] * 3, [1] * 3, {"param_groups": [{"lr": 0.5}]}))


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
        section = encode(_chunks(own), own.objects, own.paths())
        parts = Parts([section] * WORLD, encode(_chunks(shared), {}, shared.paths()))
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


class Dots(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((4,), index / 24)


class Life:
    """A process of a program that has its state in files: what is not restored is made anew."""

    files_every = 0

    def __init__(self, folder, **more):
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.BatchNorm1d(4), nn.Linear(4, 4))
        self.model[3].weight = self.model[0].weight  # tied
        self.ema = torch.optim.swa_utils.AveragedModel(self.model)
        self.optim = torch.optim.Adam(self.model.parameters())
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=2)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optim, 0.1, 20)
        state = {"m": self.model, "o": self.optim, "ema": self.ema, "scaler": self.scaler,
                 "schedule": self.schedule, **more}
        state = {name: value for name, value in state.items() if value is not None}
        self.ckpt = Checkpointer(folder, state, every=0, files_every=Life.files_every)

    def train(self, x, step):
        self.scaler.scale(self.model(x).square().sum()).backward()
        self.scaler.step(self.optim)
        self.scaler.update()
        self.optim.zero_grad()
        self.schedule.step()
        self.ema.update_parameters(self.model)
        self.ckpt.step(step + 1)

    def digest(self):
        return [t.tolist() for m in (self.model, self.ema) for t in m.state_dict().values()], random.random()


def draws_ahead(folder, steps, draw=lambda: torch.rand(3, 4)):
    life = Life(folder)
    first = life.ckpt.restore()
    x = draw()
    for step in range(first, steps):
        now, x = x, draw()
        life.train(now, step)
    return life.digest()


def draws_numpy_ahead(folder, steps):
    return draws_ahead(folder, steps, lambda: torch.from_numpy(numpy.random.rand(3, 4)).float())


def draws_ahead_in_the_state(folder, steps):
    batch = {}
    life = Life(folder, batch=batch)
    first = life.ckpt.restore()
    if not batch:
        batch["x"] = torch.rand(3, 4)
    for step in range(first, steps):
        now, batch["x"] = batch["x"], torch.rand(3, 4)
        life.train(now, step)
    return life.digest()


def has_generators(folder, steps):
    own, python, bits = torch.Generator(), random.Random(1), numpy.random.default_rng(1)
    life = Life(folder, own=own, python=python, bits=bits)
    for step in range(life.ckpt.restore(), steps):
        shift = float(bits.random()) + float(numpy.random.rand()) + random.random()
        life.train(torch.rand(3, 4, generator=own) * python.random() + shift, step)
    return life.digest()


def loader_of(workers, epochs_of_sampler):
    sampler = epochs_of_sampler and torch.utils.data.DistributedSampler(Dots(), 2, 1)
    return StatefulDataLoader(Dots(), 3, shuffle=None if sampler else True, sampler=sampler or None,
                              num_workers=workers)


def epochs(folder, steps, batches, **more):
    progress = {"epoch": 0}
    life = Life(folder, progress=progress, **more)
    step = life.ckpt.restore()
    while step < steps:
        if hasattr(batches.sampler, "set_epoch"):
            batches.sampler.set_epoch(progress["epoch"])
        for x in batches:
            if step < steps:
                life.train(x, step)
                step += 1
        progress["epoch"] += 1
    return life.digest()


def has_loader(folder, steps, workers=0, epochs_of_sampler=False):
    loader = loader_of(workers, epochs_of_sampler)
    return epochs(folder, steps, loader, loader=loader)


def has_loader_of_processes(folder, steps):
    return has_loader(folder, steps, 1)


def has_distributed_sampler(folder, steps):
    return has_loader(folder, steps, 0, True)


def has_a_plain_loader(folder, steps):
    return epochs(folder, steps, torch.utils.data.DataLoader(Dots(), 3, shuffle=True))


def has_an_old_iterator(folder, steps):
    loader = loader_of(0, False)
    batches = iter(loader)
    life = Life(folder, loader=loader)
    for step in range(life.ckpt.restore(), steps):
        life.train(next(batches), step)
    return life.digest()


def has_a_schedule_elsewhere(folder, steps):
    life = Life(folder, schedule=None)
    for step in range(life.ckpt.restore(), steps):
        life.train(torch.rand(3, 4), step)
    return life.digest()


def has_an_optimizer_elsewhere(folder, steps):
    life = Life(folder, schedule=None, o=None)
    life.optim = torch.optim.Adam(life.model.parameters())
    for step in range(life.ckpt.restore(), steps):
        life.train(torch.rand(3, 4), step)
    return life.digest()


def accumulates(folder, steps):
    """A step of its own for each of two batches, of whose gradients one is lost."""
    life = Life(folder)
    for step in range(life.ckpt.restore(), steps):
        life.model(torch.rand(3, 4)).square().sum().backward()
        if step % 2:
            life.optim.step()
            life.optim.zero_grad()
        life.ckpt.step(step + 1)
    return life.digest()


class WholePrograms(unittest.TestCase):
    """One that is restored has the bits of one that was not disturbed, or a line says why not."""

    RIGHT = (draws_ahead_in_the_state, has_generators, has_loader, has_loader_of_processes,
             has_distributed_sampler)
    WRONG = {draws_ahead: "PyTorch's generator: .* not as much as between", draws_numpy_ahead: "NumPy's generator",
             has_a_plain_loader: "PyTorch's generator", has_an_old_iterator: r"state\['loader'\] is the same",
             accumulates: "gradients grow from one step to the next", has_a_schedule_elsewhere: "no schedule of o",
             has_an_optimizer_elsewhere: "not have an optimizer that steps, of type Adam:"}

    def lives(self, program, *lives):
        """What the last of them has, which ended after so many steps each, and what they said."""
        Life.files_every = lives[0]
        os.environ.update(RANK="0", WORLD_SIZE="1")
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said):
            for number, steps in enumerate(lives):
                random.seed(2)
                numpy.random.seed(2)
                torch.manual_seed(2)
                digest = program(folder, steps)
        return digest, said.getvalue()

    def test_the_bits(self):
        for program in self.RIGHT:
            with self.subTest(program=program.__name__):
                undisturbed, _ = self.lives(program, 12)
                self.assertEqual(self.lives(program, 5, 12), (undisturbed, ""))  # in the middle of an epoch

    def test_a_line_says_it(self):
        for program, line in self.WRONG.items():
            with self.subTest(program=program.__name__):
                self.assertRegex(self.lives(program, 5, 9)[1], line)


class TwoRanks(unittest.TestCase):
    """Real ones, with files."""

    def by_ranks(self, program):
        """What it returns on each."""
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for rank in range(WORLD):
                read, write = os.pipe()
                if os.fork() == 0:
                    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD))
                    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", WORLD), rank=rank,
                                            world_size=WORLD)
                    with contextlib.redirect_stderr(io.StringIO()) as said:
                        result = program(folder, rank)
                    os.write(write, json.dumps([result, said.getvalue()]).encode())
                    os._exit(0)
                os.close(write)
                found.append(read)
            found = [os.fdopen(fd).read() for fd in found]
            for _ in found:
                os.wait()
        return [json.loads(text) for text in found]

    def test_learning_rates_of_their_own(self):
        """As of schedules that look at a rank's own loss: parameters are each rank's own from then on."""
        def program(folder, rank):
            model = DistributedDataParallel(nn.Linear(2, 1))
            optim = torch.optim.SGD(model.parameters(), lr=0.1)
            ckpt = Checkpointer(folder, {"m": model, "o": optim}, every=0, files_every=1)
            ckpt.restore()
            for step in range(1, 7):
                optim.zero_grad()
                model(torch.ones(1, 2)).sum().backward()
                optim.step()
                if step == 4:
                    optim.param_groups[0]["lr"] += rank
                ckpt.step(step)
            old = [p.tolist() for p in model.parameters()]
            Checkpointer(folder, {"m": model, "o": optim}).restore()
            return old, [p.tolist() for p in model.parameters()]

        ranks = self.by_ranks(program)
        for (old, new), _ in ranks:
            self.assertEqual(old, new)
        self.assertIn("2 tensors of DDP are not the same on all ranks", ranks[0][1])

    def test_parameters_of_their_own(self):
        """Of which the sums are as those of the other rank, or almost."""
        def program(folder, rank):
            model = DistributedDataParallel(nn.ParameterList([
                torch.ones(1), nn.Parameter(torch.zeros(WORLD), requires_grad=False),
                nn.Parameter(torch.zeros(1, dtype=torch.int64), requires_grad=False),
                nn.Parameter(torch.zeros(70000), requires_grad=False)]))
            model.module[1].data[rank] = 1
            model.module[2].data[0] = rank
            model.module[3].data[rank * (1 << 16)] = 1
            ckpt = Checkpointer(folder, {"m": model}, every=0, files_every=1)
            ckpt.step(1)
            old = [p.tolist() for p in model.parameters()]
            Checkpointer(folder, {"m": model}).restore()
            return old == [p.tolist() for p in model.parameters()]

        self.assertEqual([same for (same, _) in self.by_ranks(program)], [True, True])

    def test_folders_of_their_own(self):
        def program(folder, rank):
            model = nn.Linear(2, 1)
            with mock.patch("torch.distributed.is_initialized", lambda: False), \
                    mock.patch.dict(os.environ, RANK="0", WORLD_SIZE="1"):
                Checkpointer(f"{folder}/{rank}", {"m": model}, rng=False).save_files(3)
            try:
                Checkpointer(f"{folder}/{rank}", {"m": model}, rng=False).restore()
            except ValueError as error:
                return str(error)

        for result, said in self.by_ranks(program):
            self.assertIn("no checkpoint in", str(result))
            self.assertIn("step-3 is not restored: the nodes have different folders of this name", said)


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


class Shuffles(torch.utils.data.Sampler):
    """Counts its epochs, and draws once in each, or for each sample."""

    def __init__(self, draws_always=False):
        self.draws_always, self.epoch = draws_always, 0

    def __len__(self):
        return 20

    def __iter__(self):
        self.epoch += 1
        order = random.Random(random.random() + self.epoch).sample(range(20), 20)
        return iter(order) if not self.draws_always else (random.randrange(20) for _ in order)


class Places(unittest.TestCase):
    """A DataLoader goes on where another one was, and draws nothing that the program would notice."""

    def loader(self, **more):
        loader = torch.utils.data.DataLoader(range(20), 4, **more)
        return loader, Place(loader)

    def goes_on(self, make, batches):
        random.seed(1)
        torch.manual_seed(1)
        old, place = self.loader(**make())
        list(old)
        iterator = iter(old)
        for _ in range(batches):
            next(iterator)
        self.assertTrue(place.is_known and not place.reason, place.reason)
        saved, rng = place.state_dict(), (random.getstate(), torch.get_rng_state())
        is_over = batches == len(old)  # then nothing more is drawn from this iterator
        left = [] if is_over else [*map(torch.Tensor.tolist, iterator)], [*map(torch.Tensor.tolist, old)]
        new, place = self.loader(**make())
        self.assertTrue(place.go_to(saved, batches))
        iterator = iter(new)
        random.setstate(rng[0])
        torch.set_rng_state(rng[1])
        place.load_now(saved)
        rest = [] if is_over else [*map(torch.Tensor.tolist, iterator)]
        self.assertEqual((rest, [*map(torch.Tensor.tolist, new)]), left)

    def test_it_goes_on_from_its_place(self):
        for workers in 0, 1:
            for make in (lambda: {"shuffle": True}, lambda: {"sampler": Shuffles()},
                         lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(3)}):
                for batches in 2, 5:
                    with self.subTest(workers=workers, batches=batches):
                        self.goes_on(lambda: {**make(), "num_workers": workers}, batches)

    def test_what_has_no_place_says_so(self):
        loader, place = self.loader(sampler=Shuffles(True))
        next(iterator := iter(loader))
        self.assertFalse(place.is_known)
        next(iterator)
        self.assertIn("for each batch", place.reason)
        self.assertIn("no state_dict", Place(iter([])).reason)


if __name__ == "__main__":
    unittest.main()
