# SPDX-License-Identifier: MIT
"""python -m crun.checkpoint FOLDER [KEEP [JOB]]: writes a set that is in memory to FOLDER/step-N.

crun runs it on each node when a job is over and its newest set is in no file: the workers
may be dead; and while they train on (CRUN_MEMORY_FLUSH is not 0). Each node writes the parts that
it has; that with rank 0's waits for the others' and gives the folder its name. The parts are open
descriptors:

    CRUN_MEMORY_PARTS="RANK:PATH[:shared] ..." CRUN_MEMORY_STEP, _EPOCH, _WORLD, _JOB and _FLUSH

CRUN_MEMORY_COPIES are parts of other nodes, to be written where these do not begin to. Which node
writes which part is in a folder that stays in step-N, for a node that begins when the others are done,
and for later flushes: where the ranks or an earlier one have written this step, nothing is written.
"""
import glob
import io
import os
import pickle
import shutil
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

if not __package__:  # run by its path: crun is perhaps in no folder that Python looks in
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

_CLAIMS = ".crun-parts-"  # Folder.save leaves one, too


def name_of_flush() -> str:
    """The same on all nodes, and another one than that of what another job or flush has left."""
    words = (os.environ.get("CRUN_MEMORY_" + name, "0") for name in ("STEP", "EPOCH", "JOB", "FLUSH"))
    return "-".join(words).removesuffix("-0")


def have_it(folder: str) -> bool:
    """Files: the ranks, or an earlier flush, have written this step of the job or a newer one."""
    mine, paths = name_of_flush().split("-"), glob.glob(f"{glob.escape(folder)}/step-*/{_CLAIMS}*")
    marks = (path.rpartition(_CLAIMS)[2].split("-") for path in paths)
    return any(m != mine and m[2] == mine[2] and all(int(m[i]) >= int(mine[i]) for i in (0, 1)) for m in marks)


if __name__ == "__main__" and have_it(sys.argv[1]):  # before the seconds that it takes to import torch
    sys.exit(114)  # MEMORY_EXIT_IN_FILES

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.filesystem import _StoragePrefix  # noqa: E402
from torch.distributed.checkpoint.metadata import (  # noqa: E402
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties, TensorStorageMetadata)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType  # noqa: E402

from crun.checkpoint import claim as claims  # noqa: E402
from crun.checkpoint import files  # noqa: E402
from crun.checkpoint.library import MemoryFault, read_descriptor  # noqa: E402
from crun.checkpoint.section import Chunk, Section, save_objects  # noqa: E402
from crun.checkpoint.state import FILES, flat_objects  # noqa: E402
from crun.checkpoint.storage import HAS_SHARED  # noqa: E402

_OTHERS_SECONDS = 3.0
_BEGIN_SECONDS = 120.0  # until this node sees what another one has begun, as through NFS


class Written(NamedTuple):
    """One item in a file: what it is, and where."""
    item: WriteItem
    path: Tuple[Any, ...]
    result: Any


class Content:
    """The items of one section, as a planner has them for FileSystemWriter."""

    def __init__(self, section: Section, rank: Optional[int]) -> None:
        self.items: List[Tuple[WriteItem, Tuple[Any, ...]]] = []
        self._data: Dict[MetadataIndex, Any] = {}
        mine = f"rank-{rank}."
        for chunk in section.chunks:
            self._add_tensor(chunk, section.paths.get(chunk.name, tuple(chunk.name.split("."))))
            if (rank == 0 and chunk.name.startswith(mine) and not chunk.name.startswith(mine + FILES) and
                    tuple(chunk.tensor.shape) == chunk.shape):
                # also where others look for it
                path = section.paths.get(chunk.name, ())[1:]
                self._add_tensor(chunk._replace(name=chunk.name[len(mine):]), path)
        objects, paths = dict(section.objects), dict(section.paths)
        for name in [n for n in objects if rank == 0 and n.startswith(mine)]:
            objects[name[len(mine):]] = objects[name]
            paths[name[len(mine):]] = paths.get(name, tuple(name.split(".")))[1:]
        for path, value in flat_objects(objects, paths):
            name = ".".join(map(str, path))
            if rank != 0 and not name.startswith(mine):
                continue
            if isinstance(value, torch.Tensor):
                self._add_tensor(Chunk(name, value, tuple(value.shape), (0,)), path)
            else:
                index = MetadataIndex(name)
                self.items.append((WriteItem(index, WriteItemType.BYTE_IO), path))
                self._data[index] = io.BytesIO(save_objects(value))

    def _add_tensor(self, chunk: Chunk, path: Tuple[Any, ...]) -> None:
        index = MetadataIndex(chunk.name, torch.Size(chunk.offsets))
        place = ChunkStorageMetadata(torch.Size(chunk.offsets), chunk.tensor.size())
        data = TensorWriteData(place, TensorProperties(dtype=chunk.tensor.dtype),
                               torch.Size(chunk.shape))
        self.items.append((WriteItem(index, WriteItemType.SHARD, tensor_data=data), path))
        self._data[index] = chunk.tensor

    def resolve_data(self, item: WriteItem) -> Any:
        return self._data[item.index]


def write_section(new: str, section: Section, rank: Optional[int]) -> None:
    """A file of tensors, and then one that lists its items."""
    name = "shared" if rank is None else str(rank)
    content = Content(section, rank)
    writer = dcp.FileSystemWriter(new)
    writer.set_up_storage_writer(False)
    plan = SavePlan([item for item, _ in content.items], storage_data=_StoragePrefix(f"__{name}_"))
    results = {r.index: r for r in writer.write_data(plan, content).wait()}
    written = [Written(item, path, results[item.index]) for item, path in content.items]
    with open(os.path.join(new, f".written-{name}.{os.getpid()}"), "wb") as file:
        pickle.dump(written, file)
    os.rename(file.name, os.path.join(new, f".written-{name}"))


def wait_for(new: str, names: List[str]) -> List[Written]:
    written: List[Written] = []
    until = time.monotonic() + _BEGIN_SECONDS
    for name in names:
        path = os.path.join(new, f".written-{name}")
        while not os.path.exists(path):
            if time.monotonic() > until and not os.path.exists(os.path.join(claims_of(new), name)):
                raise MemoryFault(f"no node has begun to write part {name} to {os.path.dirname(new)} in "
                                  f"{_BEGIN_SECONDS:.0f} s: is it one folder of all nodes?")
            time.sleep(0.05)  # crun ends it when its time is over
        with open(path, "rb") as file:
            written += pickle.load(file)  # this user's own file, as .metadata is
        os.unlink(path)
    return written


def metadata_of(written: List[Written]) -> Metadata:
    names: Dict[str, Any] = {}
    for item, _, _ in written:
        data = item.tensor_data
        if data is None:
            names[item.index.fqn] = BytesStorageMetadata()
            continue
        whole = names.setdefault(item.index.fqn,
                                 TensorStorageMetadata(data.properties, data.size, []))
        if data.chunk not in whole.chunks:
            whole.chunks.append(data.chunk)
    return Metadata(names, planner_data={w.item.index.fqn: w.path for w in written})


def read(fd: int, shared: bool) -> Optional[Section]:
    part = read_descriptor(fd, shared)
    if (part.step, part.world) != (_number("STEP"), _number("WORLD")):
        raise MemoryFault("a part is of another step")
    return Section(part.bytes) if part.bytes else None


def _number(name: str) -> int:
    return int(os.environ["CRUN_MEMORY_" + name])


def claims_of(folder: str) -> str:
    return os.path.join(folder, _CLAIMS + name_of_flush())


def claim(new: str, name: str) -> bool:
    """A part is written by one node."""
    path = os.path.join(claims_of(new), name)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def write_parts(new: str, variable: str) -> Dict[int, bool]:
    """Those parts that no other node has begun to write: whether the set has a shared section."""
    wrote: Dict[int, bool] = {}
    for word in os.environ.get(variable, "").split():
        rank, path, *has_shared = word.split(":")
        fd = os.open(path, os.O_RDONLY)
        section = read(fd, False)
        if section and claim(new, rank):
            wrote[int(rank)] = section.objects.pop(HAS_SHARED, False)
            write_section(new, section, int(rank))
        shared = read(fd, True) if has_shared else None
        if shared and claim(new, "shared"):
            write_section(new, shared, None)
        os.close(fd)
    return wrote


def main() -> None:
    folder, keep, job = [*sys.argv[1:], "", ""][:3]
    claims.check(folder, job)
    new = os.path.join(folder, files.NEW + name_of_flush())
    files.remove_left(folder, True, job, os.path.basename(new))  # of flushes before, which have ended
    done = claims_of(os.path.join(folder, f"step-{_number('STEP')}"))  # by the others, with this node's copies
    os.makedirs(claims_of(new), exist_ok=True)
    try:
        if not os.path.exists(done):
            write_set(folder, new, int(keep or 2), job)
    except BaseException as error:
        if not isinstance(error, FileNotFoundError) or not os.path.exists(done):
            shutil.rmtree(new, ignore_errors=True)  # without it, the other nodes' parts are worth nothing
            claims.check(folder, job)  # a job that has taken the folder removes what it finds there
            raise
    if os.path.exists(done):
        shutil.rmtree(new, ignore_errors=True)


def write_set(folder: str, new: str, keep: int, job: str) -> None:
    wrote = write_parts(new, "CRUN_MEMORY_PARTS")
    copies = [word.split(":")[0] for word in os.environ.get("CRUN_MEMORY_COPIES", "").split()]
    until = time.monotonic() + _OTHERS_SECONDS
    while (time.monotonic() < until and
           not all(os.path.exists(os.path.join(claims_of(new), rank)) for rank in copies)):
        time.sleep(0.05)
    wrote.update(write_parts(new, "CRUN_MEMORY_COPIES"))
    if 0 in wrote:
        written = wait_for(new, [*map(str, range(_number("WORLD"))), *(["shared"] if wrote[0] else [])])
        dcp.FileSystemWriter(new).finish(metadata_of(written), [[w.result for w in written]])
        files.complete(folder, new, _number("STEP"), keep, job)


if __name__ == "__main__":
    try:
        main()
    except (MemoryFault, OSError) as error:
        sys.exit(f"crun.checkpoint: step {os.environ.get('CRUN_MEMORY_STEP')}: {error}")
