# SPDX-License-Identifier: MIT
"""Sections as crun.checkpoint encodes them: what is read back, also by another number of ranks, and
what a worker that writes garbage does to its readers."""
import contextlib
import ctypes
import io
import json
import os
import shutil
import struct
import sys
import tempfile
import types
import unittest
from unittest import mock

import numpy
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from crun.checkpoint import __main__ as command
from crun.checkpoint import Checkpointer, MemoryFault, MemoryReader, claim, library, storage
from crun.checkpoint.section import Chunk, Section, SectionWriter

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

    def test_the_words_of_the_agent(self):
        for text, said in ("memory: a part is damaged", "a part is damaged"), ("x in memory: 1 B", "x in memory: 1 B"):
            with self.assertRaisesRegex(MemoryFault, f"^{said}$"):
                library._check(-1, library._Err(text=text.encode()))

    def test_a_folder_that_was_not_restored(self):
        os.environ.update(RANK="0", WORLD_SIZE="1")
        with tempfile.TemporaryDirectory() as folder:
            Checkpointer(folder, {"m": nn.Linear(1, 1)}).save_files(3)
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                Checkpointer(folder, {"m": nn.Linear(1, 1)}).step(2)
            self.assertIn("step-3 is newer than step 2, with which this program begins: call restore()", said.getvalue())
            Checkpointer(folder, {"m": nn.Linear(1, 1)}).step(4)  # it has loaded that one itself

    def test_another_model_is_refused(self):
        os.environ.update(RANK="0", WORLD_SIZE="1")
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
            Checkpointer(folder, {"model": nn.Linear(24, 32)}).save_files(3)
            with self.assertRaisesRegex(ValueError, "no checkpoint in .* fits this program"):
                Checkpointer(folder, {"model": nn.Linear(24, 16)}).restore()
        self.assertRegex(said.getvalue(),
                         r"is not restored: model\.\S+ is float32\[16.* and was float32\[32")

    def test_another_number_of_ranks(self):
        whole = torch.arange(20.0).reshape(10, 2)
        sections = [encode([Chunk("w", whole[6 * r:6 * r + 6], (10, 2), (6 * r, 0))], {"x": r})
                    for r in range(WORLD)]
        reader = self.reader(Parts(sections), 0, 1)
        state = {"w": torch.zeros(10, 2)}
        dcp.load(state, storage_reader=reader, no_dist=True)
        self.assertTrue(torch.equal(state["w"], whole))
        # of as many ranks, each reads its own part only, and sees that the whole lacks one
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
                    os.path.isdir(storage_writer.path), claim.claim(folder, "two", True))):
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
