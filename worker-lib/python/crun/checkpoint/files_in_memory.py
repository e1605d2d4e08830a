# SPDX-License-Identifier: MIT
"""Checkpoints that a framework's trainer writes itself, in memory: as their files."""
import glob
import os
import shutil
import tempfile
from typing import Any, Callable, Dict, Tuple

import torch

import crun

from .checkpointer import Checkpointer
from .library import MemoryFault
from .state import FILES, Files


class TrainerCheckpoints:
    """write(folder) has the trainer write a checkpoint there, by all ranks together, each into
    a folder of its own. Those to go on from come back in a folder below `folder`."""

    def __init__(self, folder: str, every: int, write: Callable[[str], None]) -> None:
        self._restored, self._write = os.path.join(os.path.abspath(folder), "restored"), write
        self._scratch = f"crun-{os.environ.get('CRUN_LAUNCH', '')}-{crun.rank()}-"
        self._files, self._is_put = Files(self._read), False
        self._memory = Checkpointer(folder, {FILES: self._files}, every, rng=False, on_request=False)
        self._all = self._memory._ranks.all

    def restore(self, least: int) -> Tuple[int, str]:
        """The newest step from here on that is in memory, or that crun wrote to files at the end of
        a job, and the folder where it now is. 0: none."""
        for left in glob.glob(os.path.join(tempfile.gettempdir(), self._scratch + "*")):
            shutil.rmtree(left, ignore_errors=True)  # killed while it wrote
        step = self._memory.restore(least)
        if step:
            self._put_files()
        return step, self._restored

    def _put_files(self) -> None:
        self._remove_files()  # those of another life
        self._all(True)
        for name, content in self._files.loaded.items():
            path = os.path.normpath(os.path.join(self._restored, name))
            if not path.startswith(self._restored + os.sep):
                raise MemoryFault(f"{name} is in no folder of a checkpoint")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            content.numpy().tofile(path)
        self._files.loaded, self._is_put = {}, True
        self._all(True)

    def _remove_files(self) -> None:
        if crun.local_rank() == 0:
            shutil.rmtree(self._restored, ignore_errors=True)

    def is_in_files(self, step: int) -> None:
        """The trainer has written a checkpoint of its own."""
        self._memory._files_step = step

    def agreed(self, value: Any) -> Any:
        """Rank 0's."""
        return self._memory._ranks.broadcast(value)

    def step(self, step: int) -> None:
        """So many are done; all that the trainer does after one is done, too."""
        if self._is_put:
            self._remove_files()  # all ranks have read them
            self._is_put = False
        self._memory.step(step)

    def _read(self) -> Dict[str, torch.Tensor]:
        with tempfile.TemporaryDirectory(prefix=self._scratch) as scratch:
            self._write(scratch)
            return {os.path.relpath(os.path.join(top, name), scratch): _content(os.path.join(top, name))
                    for top, _, names in os.walk(scratch) for name in names}


def _content(path: str) -> torch.Tensor:
    """It stays when the file goes."""
    size = os.path.getsize(path)
    return torch.from_file(path, False, size, dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)
