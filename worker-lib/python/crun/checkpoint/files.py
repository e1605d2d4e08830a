# SPDX-License-Identifier: MIT
"""Folders of torch.distributed.checkpoint, step-N each, complete or not there."""
import contextlib
import errno
import os
import shutil
import sys
import time
import warnings
import zlib
from typing import Any, Callable, Dict, List, Optional, TypeVar, cast

import torch
import torch.distributed.checkpoint as dcp

import crun

from . import claim
from .library import MemoryFault
from .ranks import Ranks

_PREFIX = "step-"
NEW = ".new-step-"
_OLD = ".old-step-"
_LOOK_SECONDS = 1.0
T = TypeVar("T")
_takes: Dict[Any, object] = {}  # by folder, the last of this process


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


def is_of_crun(new: str, job: str) -> bool:
    """Written by crun while the ranks train on: they do not take it for what a life before has
    left, nor crun what they write."""
    return bool(job) and f"-{job}-" in new


def remove_left(folder: str, by_crun: bool, job: str, but: str = "") -> None:
    """What has not been completed. Under its own name first: what still writes there completes nothing of which
    a part is removed."""
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if name.startswith(NEW) and name != but and is_of_crun(name, job) == by_crun:
            path, old = (os.path.join(folder, n) for n in (name, _OLD + name[len(NEW):]))
            shutil.rmtree(old, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.rename(path, old)
                shutil.rmtree(old, ignore_errors=True)


def complete(folder: str, new: str, step: int, keep: int, job: str) -> None:
    """The new folder gets its name, when all of it is on the disk; older ones go. Not in a folder
    that another job has taken from this one."""
    final = os.path.join(folder, f"{_PREFIX}{step}")
    for name in os.listdir(new):
        sync(os.path.join(new, name))
    sync(new)
    claim.check(folder, job)
    by_crun = is_of_crun(new, job)
    old = os.path.join(folder, f"{_OLD}{step}{'-crun' if by_crun else ''}")
    while True:
        shutil.rmtree(old, ignore_errors=True)
        try:
            os.rename(final, old)  # from a life before, with steps that were done again
        except FileNotFoundError:
            pass
        try:
            os.rename(new, final)
            break
        except OSError as error:  # crun and the program have written this step at the same time
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    sync(folder)
    for name in os.listdir(folder):
        if name.startswith(_OLD) and name.endswith("-crun") == by_crun:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    remove_left(folder, by_crun, job)
    for old_step in [s for s in steps_in(folder) if s <= step][max(keep, 1):]:
        shutil.rmtree(os.path.join(folder, f"{_PREFIX}{old_step}"), ignore_errors=True)


class Folder:
    def __init__(self, path: "str | os.PathLike[str]", keep: int, ranks: Ranks) -> None:
        self.path, self._keep, self._ranks = os.fspath(path), keep, ranks
        self._is_taken, self._next_look = False, 0.0
        self._place = os.path.realpath(path), claim.this_job()
        self._last_take = _takes.get(self._place)
        self._seen: Optional[List[int]] = None  # the steps that it could restore
        self._claimed = ""
        self._claimed = self._as_rank_0(lambda: self._claim(False))

    @property
    def job(self) -> str:
        """If it has a claim."""
        return self._claimed.split("/")[0]

    def _claim(self, takes: bool, step: int = 0) -> str:
        claim.check(self.path, self._claimed)
        newer = [s for s in steps_in(self.path) if s > step] if takes and self._seen is None else []
        if newer:  # a failure would bring it back
            raise claim.ClaimLost(f"{self.of(newer[0])} is newer than step {step}, with which this program begins: "
                                  "call restore() first, or give it a folder of its own")
        if takes and not self.job and claim.this_job() and self._seen is not None:
            for step in set(steps_in(self.path)) - set(self._seen):
                raise claim.ClaimLost(f"another job has written step {step} to {os.path.abspath(self.path)} "
                                      "since this one restored: start this one again")
        claimed = claim.claim(self.path, claim.this_job(), takes)
        if claimed and takes and not self._is_taken:
            remove_left(self.path, False, claim.this_job())
        return claimed

    def _as_rank_0(self, act: Callable[[], T]) -> T:
        """All ranks end where it finds that another job has taken the folder."""
        result: Any = None
        is_lost = False
        if self._ranks.rank == 0:
            try:
                result = act()
            except claim.ClaimLost as lost:
                is_lost = True
                print(f"crun.checkpoint: {lost}", file=sys.stderr, flush=True)
        is_lost, result = self._ranks.broadcast((is_lost, result))
        if is_lost:
            sys.exit(claim.EXIT_CODE)
        return cast(T, result)

    def take(self, step: int, again: bool = False) -> None:
        """By all ranks together, before each step: a job that only restores claims nothing. Of two
        Checkpointers of a program, the second one may go on from what the first one has written."""
        if _takes.get(self._place) is not self._last_take:
            raise ValueError(f"another Checkpointer of this program writes to {self.path}: give each a folder "
                             "of its own")
        self._last_take = _takes[self._place] = object()
        if again or not self._is_taken:
            self._claimed = self._as_rank_0(lambda: self._claim(True, step))
        self._is_taken = True

    def check_claim(self) -> None:
        """By all ranks together."""
        self._as_rank_0(lambda: claim.check(self.path, self._claimed))

    def is_lost(self) -> bool:
        """To this rank, which looks once a second at most."""
        if self._ranks.rank or time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + _LOOK_SECONDS
        try:
            claim.check(self.path, self._claimed)
            return False
        except claim.ClaimLost:
            return True

    def of(self, step: int) -> str:
        return os.path.join(self.path, f"{_PREFIX}{step}")

    def steps(self) -> List[int]:
        """As rank 0 sees them."""
        def steps() -> List[int]:
            claim.check(self.path, self._claimed)
            self._seen = steps_in(self.path)
            return self._seen
        self._last_take = _takes.get(self._place)
        return self._as_rank_0(steps)

    def is_one(self, step: int) -> bool:
        """All ranks see the same one, not folders of their own nodes. By all ranks together."""
        with open(os.path.join(self.of(step), ".metadata"), "rb") as file:
            return not self._ranks.differ(torch.tensor([zlib.crc32(file.read())])).any()

    def check(self, step: int, metadata: Any) -> None:
        """That the files are as long as the metadata says."""
        for item in (metadata.storage_data or {}).values():
            path = os.path.join(self.of(step), item.relative_path)
            if os.path.getsize(path) < item.offset + item.length:
                raise MemoryFault(f"{path} is too short")

    def save(self, step: int, state: Any) -> None:
        self.take(step, True)
        new = os.path.join(self.path, f"{NEW}{step}-{self.job}")
        if self._ranks.rank == 0:  # with the mark of a flush: none writes this step again
            shutil.rmtree(new, ignore_errors=True)
            with contextlib.suppress(OSError):  # dcp.save has all ranks know of it
                os.makedirs(os.path.join(new, self.job and f".crun-parts-{step}-{crun.epoch()}-{self.job}-ranks"))
        self._ranks.all(True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(state, storage_writer=dcp.FileSystemWriter(new),
                     process_group=self._ranks.group, no_dist=self._ranks.group is None)
        self._as_rank_0(lambda: complete(self.path, new, step, self._keep, self.job))
