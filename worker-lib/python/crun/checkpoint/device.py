# SPDX-License-Identifier: MIT
"""Tensors of a GPU go to their place in the slot on a side stream: nothing is copied twice."""
import ctypes
from typing import Any, Dict, List

import torch

from .library import Client, Piece
from .section import ZEROS


class DeviceCopies:
    """The slots' memory is registered with CUDA, so that copies do not block. The program's own
    stream waits for them on the GPU: what comes after may write to the tensors."""

    def __init__(self) -> None:
        self._registered: Dict[int, int] = {}
        self._stream: Any = None

    def forget(self, bytes_needed: int) -> None:
        """Before a slot grows, which moves it."""
        if any(size < bytes_needed for size in self._registered.values()):
            for address in self._registered:
                torch.cuda.cudart().cudaHostUnregister(address)
            self._registered.clear()

    def start(self, client: Client, shared: bool, pieces: List[Piece], alive: List[Any]) -> Any:
        """Returns an event after which the bytes are there."""
        at = client.section(shared)
        total = sum(size for _, size in pieces)
        if at not in self._registered:
            result = torch.cuda.cudart().cudaHostRegister(at, total, 0)
            if int(result) == 0:  # else the copies block, and are right all the same
                self._registered[at] = total
        self._stream = self._stream or torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())
        tensors = iter(alive)
        with torch.cuda.stream(self._stream):
            for address, size in pieces:
                if address != ZEROS.data_ptr():
                    tensor = next(tensors)
                    if address is None and size:
                        buffer = (ctypes.c_char * size).from_address(at)
                        target = torch.frombuffer(buffer, dtype=torch.uint8)
                        target.copy_(tensor.view(-1).view(torch.uint8), non_blocking=True)
                        tensor.record_stream(self._stream)
                at += size
        torch.cuda.current_stream().wait_stream(self._stream)
        return self._stream.record_event()
