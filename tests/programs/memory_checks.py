#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sections as crun.checkpoint encodes them: what is read back, also by another number of ranks, and
what a worker that writes garbage does to its readers."""
import ctypes
import json
import os
import struct
import sys
import tempfile
import types
import unittest

import torch
import torch.distributed.checkpoint as dcp

from crun.checkpoint import __main__ as command
from crun.checkpoint import MemoryFault, MemoryReader, library, storage
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


class Checks(unittest.TestCase):
    def reader(self, parts, rank, world, all_ranks=True):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
        self.addCleanup(setattr, library, "client", library.client)
        library.client = lambda: parts
        return MemoryReader(all_ranks)

    def test_what_is_written_is_read(self):
        chunks = [Chunk("a", torch.arange(7.0), (7,), (0,)),
                  Chunk("b", torch.tensor(3, dtype=torch.int64), (), ()),
                  Chunk("c", torch.ones(2, 3, dtype=torch.bfloat16), (4, 3), (2, 0)),
                  Chunk("d", torch.empty(0, 5), (0, 5), (0, 0)),
                  Chunk("e", torch.arange(6).reshape(2, 3).t(), (3, 2), (0, 0))]
        section = Section(memoryview(encode(chunks, {"x": [1, float("inf"), None]}, {"a": ("a",)})))
        for old, new in zip(chunks, section.chunks):
            self.assertEqual((old.name, old.shape, old.offsets), (new.name, new.shape, new.offsets))
            self.assertTrue(torch.equal(old.tensor, new.tensor) and old.tensor.dtype == new.tensor.dtype)
        self.assertEqual((section.objects, section.paths), ({"x": [1, float("inf"), None]}, {"a": ("a",)}))

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
            command.main()
            self.assertEqual(sorted(os.listdir(folder)), ["0", "1", "step-7"])
            self.assertEqual(sorted(os.listdir(folder + "/step-7")),
                             [".metadata", "__0_0.distcp", "__1_0.distcp", "__shared_0.distcp"])
            state = {"w": torch.zeros(10, 2), "s": torch.zeros(2), "m": {"b": torch.ones(3)},
                     "rank-1": {"m": {"b": torch.zeros(3)}}, "o": {"param_groups": [{"lr": 0.0}]}}
            dcp.load(state, checkpoint_id=folder + "/step-7", no_dist=True)
        self.assertTrue(torch.equal(state["w"], whole))
        self.assertEqual((state["s"].tolist(), state["m"]["b"].tolist(), state["rank-1"]["m"]["b"].tolist(),
                          state["o"]), ([1, 1], [0] * 3, [1] * 3, {"param_groups": [{"lr": 0.5}]}))


if __name__ == "__main__":
    unittest.main()
