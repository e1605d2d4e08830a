# SPDX-License-Identifier: MIT
"""The bytes of a section: tensors as they are, an index in JSON, and one pickle of the other
objects that is only loaded with weights_only.

    index bytes, object bytes (two 64-bit numbers), index, tensors at multiples of 64, objects
"""
import io
import json
import pickle
import re
import struct
import types
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import torch

from .library import MemoryFault, Piece

_HEAD = struct.Struct("<QQ")
_ALIGN = 64
ZEROS = torch.zeros(_ALIGN, dtype=torch.uint8)
_DTYPES = {str(d)[6:]: d for d in vars(torch).values() if isinstance(d, torch.dtype)}


class Chunk(NamedTuple):
    """A tensor, or this rank's share of one."""
    name: str
    tensor: torch.Tensor  # the share
    shape: Tuple[int, ...]  # of the whole
    offsets: Tuple[int, ...]  # of the share in it


def _up(number: int) -> int:
    return -(-number // _ALIGN) * _ALIGN


_LOADABLE: Set[Any] = set()  # types and functions


def save_objects(objects: Any) -> bytes:
    """What could not be loaded is not saved."""
    kinds: Set[Any] = set()

    class Pickler(pickle.Pickler):
        def reducer_override(self, value: Any) -> Any:
            kinds.add(value if hasattr(value, "__qualname__") else type(value))
            return NotImplemented

    file = io.BytesIO()
    torch.save(objects, file, pickle_module=types.SimpleNamespace(__name__="pickle", Pickler=Pickler))
    if isinstance(objects, dict) and not kinds <= _LOADABLE:
        for name in objects if len(objects) > 1 else ():
            save_objects({name: objects[name]})
        load_objects(file.getvalue(), name=next(iter(objects)))
        _LOADABLE.update(kinds)
    return file.getvalue()


def load_objects(data: Any, any_object: bool = False, name: str = "an object") -> Any:
    """What came over the network executes nothing."""
    try:
        objects = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:
        why: Any = re.search(r"(?s:.*)(GLOBAL \S+)|.*", str(error))
        raise MemoryFault(f"{name} cannot be loaded: {why[1] or why[0]}") from error
    if not any_object and not isinstance(objects, dict):
        raise MemoryFault("the objects are no dictionary")
    return objects


class SectionWriter:
    """The pieces of a section. Its index stays while names and shapes do."""

    def __init__(self) -> None:
        self._shape: Any = None
        self._head = b""

    def encode(self, chunks: List[Chunk], objects: Dict[str, Any], paths: Dict[str, Tuple[Any, ...]],
               stable: Optional[Set[str]] = None) -> Tuple[List[Piece], List[Any]]:
        """The pieces, and the tensors that must live until they are written. None but `stable`
        may be changed meanwhile (if given: else nothing is)."""
        shape = [paths, *((c.name, c.tensor.dtype, c.tensor.shape, c.shape, c.offsets) for c in chunks)]
        if shape != self._shape:
            self._head = self._encode_index(chunks, paths)
            self._shape = shape
        data = save_objects(objects) if objects else b""
        head = bytearray(_HEAD.pack(len(self._head), len(data)) + self._head)
        head += bytes(_up(len(head)) - len(head))
        alive: List[Any] = [torch.frombuffer(head, dtype=torch.uint8)]
        for chunk in chunks:
            tensor = chunk.tensor.detach().resolve_conj().resolve_neg().contiguous()
            if tensor.is_quantized or tensor.numel() and not tensor.data_ptr():
                raise MemoryFault(f"{chunk.name} is more than its bytes: {type(chunk.tensor).__name__} of {tensor.dtype}")
            stays = stable is None or chunk.name in stable or tensor.device.type != "cpu"
            alive.append(tensor if stays else tensor.clone())
        if data:
            alive.append(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        pieces: List[Piece] = []
        for tensor in alive:
            size = tensor.numel() * tensor.element_size()
            pieces.append((tensor.data_ptr() if tensor.device.type == "cpu" else None, size))
            if size % _ALIGN:
                pieces.append((ZEROS.data_ptr(), _ALIGN - size % _ALIGN))
        return pieces, alive

    @staticmethod
    def _encode_index(chunks: List[Chunk], paths: Dict[str, Tuple[Any, ...]]) -> bytes:
        at, tensors = 0, []
        for c in chunks:
            tensors.append([c.name, str(c.tensor.dtype)[6:], list(c.shape), list(c.offsets), list(c.tensor.shape), at])
            at += _up(c.tensor.numel() * c.tensor.element_size())
        return json.dumps({"tensors": tensors, "paths": paths}).encode()


class Section:
    """A section that was read: every number of it is checked before it is used."""

    def __init__(self, data: memoryview) -> None:
        try:
            self._parse(data)
        except MemoryFault:
            raise
        except Exception as error:
            raise MemoryFault(f"the index of a part is wrong: {error}") from error

    def _parse(self, data: memoryview) -> None:
        index_bytes, object_bytes = _HEAD.unpack_from(data)
        start = _up(_HEAD.size + index_bytes)
        index = json.loads(bytes(data[_HEAD.size:_HEAD.size + index_bytes]))
        self.chunks: List[Chunk] = []
        end = 0
        for name, dtype, shape, offsets, local, at in index["tensors"]:
            self._check(name, shape, offsets, local, at)
            count = 1
            for n in local:
                count *= n
            size = count * torch.empty(0, dtype=_DTYPES[dtype]).element_size()
            if start + at + size > len(data):
                raise MemoryFault(f"the index of a part is wrong: {name} is longer than the part")
            tensor = (torch.frombuffer(data, dtype=_DTYPES[dtype], count=count, offset=start + at) if count
                      else torch.empty(0, dtype=_DTYPES[dtype])).view(local)
            self.chunks.append(Chunk(name, tensor, tuple(shape), tuple(offsets)))
            end = max(end, _up(at + size))
        if len({(c.name, c.offsets) for c in self.chunks}) != len(self.chunks):
            raise MemoryFault("the index of a part is wrong: a name twice")
        if start + end + object_bytes > len(data):
            raise MemoryFault("the index of a part is wrong: the objects are longer than the part")
        objects = data[start + end:start + end + object_bytes]
        self.objects = load_objects(objects) if object_bytes else {}
        self.paths = {str(name): tuple(path) for name, path in index["paths"].items()}

    @staticmethod
    def _check(name: Any, shape: Any, offsets: Any, local: Any, at: Any) -> None:
        numbers = [*shape, *offsets, *local, at]
        if not (isinstance(name, str) and len(shape) == len(offsets) == len(local) and
                all(type(n) is int and 0 <= n < 2**60 for n in numbers) and at % _ALIGN == 0 and
                all(o + n <= s for s, o, n in zip(shape, offsets, local))):
            raise MemoryFault("the index of a part is wrong: " + repr(name)[:100])
