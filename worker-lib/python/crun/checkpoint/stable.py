# SPDX-License-Identifier: MIT
"""Which tensors are written while the program goes on, and whether one has changed meanwhile."""
from typing import List, Optional, Set, Tuple

import torch

from .section import Chunk


class Stable:
    def __init__(self) -> None:
        self.versions: List[Tuple[torch.Tensor, int]] = []

    def choose(self, in_background: bool, optimized: "Set[str]", chunks: List[Chunk]) -> "Optional[Set[str]]":
        """Which tensors of the CPU are written later. The others are copied first; None: that
        would be much, and all is written now."""
        self.versions = []
        on_device = any(c.tensor.device.type != "cpu" for c in chunks)
        if not in_background and not on_device:
            return None
        stable = set() if on_device else optimized
        here = [c for c in chunks if c.tensor.device.type == "cpu" and c.name not in stable]
        if sum(c.tensor.nbytes for c in here) * 8 > sum(c.tensor.nbytes for c in chunks):
            return None
        self.versions = [(c.tensor, c.tensor._version) for c in chunks if c.name in stable]
        return stable

    def have_changed(self) -> bool:
        return any(tensor._version != version for tensor, version in self.versions)
