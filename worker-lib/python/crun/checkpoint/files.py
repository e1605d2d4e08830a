# SPDX-License-Identifier: MIT
"""Folders of torch.distributed.checkpoint, step-N each, complete or not there."""
import os
import shutil
import warnings
from typing import Any, List

import torch.distributed.checkpoint as dcp

from .library import MemoryFault
from .ranks import Ranks

_PREFIX = "step-"
NEW = ".new-step-"


def steps_in(folder: str) -> List[int]:
    """Newest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    steps = [name[len(_PREFIX):] for name in names if name.startswith(_PREFIX)]
    return sorted((int(step) for step in steps if step.isdecimal()), reverse=True)


def sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def complete(folder: str, new: str, step: int, keep: int) -> None:
    """The new folder gets its name, when all of it is on the disk; older ones go."""
    final = os.path.join(folder, f"{_PREFIX}{step}")
    for name in os.listdir(new):
        sync(os.path.join(new, name))
    sync(new)
    if os.path.isdir(final):  # from a life before, with steps that were done again
        old = os.path.join(folder, f".old-{_PREFIX}{step}")
        shutil.rmtree(old, ignore_errors=True)
        os.rename(final, old)
    os.rename(new, final)
    sync(folder)
    for name in os.listdir(folder):
        if name.startswith((f".old-{_PREFIX}", NEW)):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    for old_step in [s for s in steps_in(folder) if s <= step][max(keep, 1):]:
        shutil.rmtree(os.path.join(folder, f"{_PREFIX}{old_step}"), ignore_errors=True)


class Folder:
    def __init__(self, path: "str | os.PathLike[str]", keep: int, ranks: Ranks) -> None:
        self.path, self._keep, self._ranks = os.fspath(path), keep, ranks

    def of(self, step: int) -> str:
        return os.path.join(self.path, f"{_PREFIX}{step}")

    def steps(self) -> List[int]:
        """As rank 0 sees them."""
        steps: List[int] = self._ranks.broadcast(steps_in(self.path))
        return steps

    def check(self, step: int, metadata: Any) -> None:
        """That the files are as long as the metadata says."""
        for item in (metadata.storage_data or {}).values():
            path = os.path.join(self.of(step), item.relative_path)
            if os.path.getsize(path) < item.offset + item.length:
                raise MemoryFault(f"{path} is too short")

    def save(self, step: int, state: Any) -> None:
        new = os.path.join(self.path, f"{NEW}{step}")
        if self._ranks.rank == 0:
            shutil.rmtree(new, ignore_errors=True)
            os.makedirs(self.path, exist_ok=True)
        self._ranks.all(True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(state, storage_writer=dcp.FileSystemWriter(new),
                     process_group=self._ranks.group, no_dist=self._ranks.group is None)
        if self._ranks.rank == 0:
            complete(self.path, new, step, self._keep)
        self._ranks.all(True)
