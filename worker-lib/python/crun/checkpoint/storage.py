# SPDX-License-Identifier: MIT
"""Checkpoints in memory as a storage of torch.distributed.checkpoint:

    dcp.save(state, storage_writer=MemoryWriter(step))
    reader = MemoryReader()
    if reader.step:
        dcp.load(state, storage_reader=reader)
"""
import io
import math
import time
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties, TensorStorageMetadata)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, SavePlan, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

import crun

from . import library
from .library import Client, MemoryFault, Part
from .device import DeviceCopies
from .section import Chunk, Section, SectionWriter, load_objects, save_objects

HAS_SHARED = "crun.has_shared"
_LOOK_SECONDS = 0.001


def _done(value: Any) -> "Future[Any]":
    future: "Future[Any]" = Future()
    future.set_result(value)
    return future


class PartWriter:
    """Writes the parts of this rank, one after the other."""

    def __init__(self, client: Client) -> None:
        self._client, self._device = client, DeviceCopies()

    def begin(self, step: int, sections: "List[Optional[Tuple[Any, Any]]]", has_shared: bool,
              files_step: int) -> None:
        """The sections are own and shared, each (pieces, alive) or None."""
        sizes = [sum(size for _, size in s[0]) if s else 0 for s in sections]
        self._device.forget(max(sizes))
        self._client.begin(step, sizes[0], sizes[1], has_shared, files_step)
        self._sections, self._events = sections, []
        for shared, section in enumerate(sections):
            if section and any(address is None for address, _ in section[0]):
                self._events.append(self._device.start(self._client, bool(shared), *section))

    def write(self) -> None:
        """Also in another thread. The part is to be committed then."""
        for event in self._events:
            event.synchronize()
        for shared, section in enumerate(self._sections):
            if section:
                self._client.write(bool(shared), section[0])


class Parts:
    """Sections of one set: where each tensor is. Those that come first win."""

    def __init__(self) -> None:
        self.where: Dict[MetadataIndex, torch.Tensor] = {}
        self.tensors: Dict[str, TensorStorageMetadata] = {}
        self.objects: Dict[str, Any] = {}
        self.paths: Dict[str, Tuple[Any, ...]] = {}
        self._open: List[Part] = []

    def add(self, part: Part) -> Section:
        self._open.append(part)
        section = Section(part.bytes)
        for chunk in section.chunks:
            self._add_chunk(chunk)
        self.objects = {**section.objects, **self.objects}
        self.paths = {**section.paths, **self.paths}
        return section

    def _add_chunk(self, chunk: Chunk) -> None:
        whole = self.tensors.setdefault(chunk.name, TensorStorageMetadata(
            TensorProperties(dtype=chunk.tensor.dtype), torch.Size(chunk.shape), []))
        index = MetadataIndex(chunk.name, chunk.offsets)
        if (index in self.where or whole.size != torch.Size(chunk.shape) or
                whole.properties.dtype != chunk.tensor.dtype):
            return
        self.where[index] = chunk.tensor
        whole.chunks.append(ChunkStorageMetadata(torch.Size(chunk.offsets), chunk.tensor.size()))

    def metadata(self) -> Metadata:
        names: Dict[str, Any] = {name: BytesStorageMetadata() for name in self.objects}
        names.update(self.tensors)
        paths = {name: self.paths.get(name, tuple(name.split("."))) for name in names}
        return Metadata(names, planner_data=paths, storage_data=None)

    def close(self) -> None:
        self.where.clear()
        for part in self._open:
            part.close()


class MemoryReader(dcp.StorageReader):  # type: ignore[misc]
    """What the job goes back to. `step` is None where nothing is in memory, which is so on
    all ranks. Without `all_ranks` only this rank's part is read if there are as many ranks as
    there were: enough for tensors that are cut as they were, and no planner but StrictPlanner
    sees where it is not."""

    def __init__(self, all_ranks: bool = True) -> None:
        self._client = library.client()
        self.step: Optional[int] = None
        self.parts = Parts()
        if self._client and self._client.world:
            self.step = self._client.step
            self._read(self._client, all_ranks)

    def _read(self, client: Client, all_ranks: bool) -> None:
        mine = crun.rank() % client.world
        own = self.parts.add(client.read(mine, False))
        if own.objects.get(HAS_SHARED):
            self.parts.add(client.read(mine, True))
        self.has_all = all_ranks or client.world != crun.world_size()
        if self.has_all:
            for rank in range(client.world):
                if rank != mine:
                    self.parts.add(client.read(rank, False))
        self.parts.objects.pop(HAS_SHARED, None)

    def reset(self, checkpoint_id: Any = None) -> None:
        pass

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        return self.parts.metadata()

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *_: Any,
                              **__: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: List[LoadPlan]) -> List[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: Any) -> "Future[None]":
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(save_objects(self.parts.objects[name])))
                continue
            source = self.parts.where[MetadataIndex(name, item.storage_index.offset)]
            for dim, (at, size) in enumerate(zip(item.storage_offsets, item.lengths)):
                source = source.narrow(dim, at, size)
            target = planner.resolve_tensor(item).detach()
            target.copy_(source)
            planner.commit_tensor(item, target)
        return _done(None)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return checkpoint_id is None

    def close(self) -> None:
        self.parts.close()


class StrictPlanner(DefaultLoadPlanner):  # type: ignore[misc]
    """Refuses what it would have to leave as it is, or to convert; unpickles nothing."""

    def create_local_plan(self) -> LoadPlan:
        plan = super().create_local_plan()
        found: Dict[str, int] = {}
        for item in plan.items:
            if item.type == LoadItemType.TENSOR:
                name = item.dest_index.fqn
                found[name] = found.get(name, 0) + math.prod(item.lengths)
        for name, value in self.state_dict.items():
            saved = self.metadata.state_dict_metadata[name]
            if isinstance(value, torch.Tensor):
                local = value.to_local() if hasattr(value, "to_local") else value
                if saved.properties.dtype != value.dtype:
                    raise MemoryFault(f"{name} is {value.dtype} and was {saved.properties.dtype}")
                if found.get(name, 0) != local.numel():
                    raise MemoryFault(f"{name} lacks a part")
        return plan

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        """What a plain tensor is asked takes a tenth of its copy."""
        value = self.state_dict[index.fqn]
        return value if type(value) is torch.Tensor else super().lookup_tensor(index)

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        content = torch.load(value, map_location="cpu", weights_only=True)
        super().load_bytes(read_item, io.BytesIO(save_objects(content)))


class MemoryWriter(dcp.StorageWriter):  # type: ignore[misc]
    """Writes one checkpoint, of this step, into memory: for dcp.save and dcp.async_save. The
    next one may be written when this one is done."""

    def __init__(self, step: int, files_step: int = 0) -> None:
        client = library.client()
        if client is None:
            raise MemoryFault("no crun offers memory to this process")
        if client.is_taken:
            raise MemoryFault("a Checkpointer of this process has the memory")
        self._client, self._step, self._files_step = client, step, files_step

    def reset(self, checkpoint_id: Any = None) -> None:
        pass

    def set_up_storage_writer(self, is_coordinator: bool, *_: Any, **__: Any) -> None:
        pass

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """No rank writes before all have come here: the save before that one is safe then, whose copies
        may be on their way."""
        while not self._client.is_kept():
            time.sleep(_LOOK_SECONDS)
        return plan

    def prepare_global_plan(self, plans: List[SavePlan]) -> List[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: Any) -> "Future[List[WriteResult]]":
        chunks, objects, results = [], {}, []
        for item in plan.items:
            data = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                objects[item.index.fqn] = load_objects(data.getbuffer(), any_object=True)
            else:
                whole = item.tensor_data
                chunks.append(Chunk(item.index.fqn, data, tuple(whole.size),
                                    tuple(whole.chunk.offsets)))
            results.append(WriteResult(item.index, 0, None))
        paths = dict(getattr(planner, "mappings", {}))
        pieces = SectionWriter().encode(chunks, objects, paths)
        part = PartWriter(self._client)
        part.begin(self._step, [pieces, None], False, self._files_step)
        part.write()
        self._client.commit()
        return _done(results)

    def finish(self, metadata: Metadata, results: Any) -> None:
        pass

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return checkpoint_id is None
