# SPDX-License-Identifier: MIT
"""When a checkpoint is saved, where, and which one is restored."""
import os
import sys
import threading
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.distributed.checkpoint as dcp

import crun

from . import library
from .claim import this_job
from .files import Folder
from .library import MemoryFault
from .ranks import GIVEN_UP, KEPT, LOST, NOT_YET, Ranks
from .resume_doubts import Doubts
from .section import SectionWriter
from .stable import Stable
from .state import State
from .storage import HAS_SHARED, MemoryReader, PartWriter, StrictPlanner

_HERE = os.path.dirname(os.path.abspath(__file__))


def _say(text: str) -> None:
    print(f"crun.checkpoint: {text}", file=sys.stderr, flush=True)


class Checkpointer:
    """The checkpoints of a program, by all of its ranks together.

    state: by name, modules (also in DDP, with FSDP2 or tensor parallelism), optimizers, and
    whatever has state_dict and load_state_dict; dictionaries, whose values restore() replaces, and
    generators of torch, numpy and random. The states of the global random generators are
    saved, too, unless `rng` is false. Each `every` steps a checkpoint goes to memory, each
    `files_every` steps to `folder`, and when crun wants one (`on_request`); 0: never. `keep` folders
    stay.

    background: parameters and states of optimizers on a CPU are copied to memory while the
    program goes on, until an optimizer steps. Nothing else may change them meanwhile: what
    PyTorch's operations do is seen, and such a save does not count, but not what is written
    through `.data`, NumPy, or a kernel of the program's own.
    """

    def __init__(self, folder: "str | os.PathLike[str]", state: Dict[str, Any], every: int = 1,
                 files_every: int = 0, keep: int = 2, rng: bool = True,
                 background: bool = False, on_request: bool = True) -> None:
        self._ranks = Ranks()
        self._state = State(state, self._ranks.rank, self._ranks.size, rng)
        self._folder = Folder(folder, keep, self._ranks)
        self._doubts = Doubts(self._doubt, self._state.loaders, self._state.knows,
                              self._state.gradient)
        self._every, self._files_every = every, files_every
        self._files_step, self._last_step, self._saves = 0, -1, 0
        self._writers = SectionWriter(), SectionWriter()
        self._has_saved = self._gives_up = False
        self._client = self._connect(keep) if every else None
        self._parts = PartWriter(self._client) if self._client else None
        self._thread: Optional[threading.Thread] = None
        self._fault: Optional[Exception] = None  # of the thread
        self._written = threading.Event()
        self._stable = Stable()  # what is read in the thread
        self._in_background = bool(background and self._client)
        if self._in_background:
            self._state.when_optimizers_step(self._wait_until_written)
        self._asks = self._ranks.all(on_request and crun.is_present())

    def _connect(self, keep: int) -> Optional[library.Client]:
        """On all ranks or on none."""
        client = fault = None
        try:
            if self._ranks.size != crun.world_size():
                raise MemoryFault("the process group is not the whole job")
            client = library.client([sys.executable, os.path.join(_HERE, "__main__.py"),
                                     os.path.abspath(self._folder.path), str(keep),
                                     *filter(None, [this_job()])])
        except MemoryFault as error:
            fault = error
        if fault:
            _say(f"rank {self._ranks.rank}: files only: {fault}")
        return client if self._ranks.all(client is not None) else None

    # -- restoring -------------------------------------------------------------------------

    def restore(self, least: int = 1) -> int:
        """The newest step that all ranks can have, of which the state now is; 0: none from `least`
        on."""
        self._wait()
        if self._client and self._has_saved:
            raise ValueError("restore() after a save: a failure would bring back what it undoes, from memory")
        for name in self._state.optimizers_with_other_schedules():
            self._doubt(f"the state has no schedule of {name}, which begins anew after a failure")
        with crun.loading():
            in_memory = self._client.step if self._client and self._client.world else -1
            in_memory = in_memory if in_memory >= least else -1
            steps = [step for step in self._folder.steps() if step >= least]
            # newer ones: memory was given up, and files were not
            step = self._restore_files([s for s in steps if s > in_memory >= 0])
            from_memory = False
            if step is None and in_memory >= 0:
                step = self._restore_memory()
                from_memory = step is not None
            if step is None:
                step = self._restore_files([s for s in steps if s <= in_memory or in_memory < 0])
        if step is None and steps:
            raise ValueError(f"no checkpoint in {self._folder.path} fits this program")
        step = self._last_step = crun._page.restored_step = step or 0
        if self._client:
            self._client.restored(step if from_memory else 0)
        if step and self._state.has_rng and not self._state.is_trainers:
            self._doubts.begin()
        return step

    def _doubt(self, text: str) -> None:
        if self._ranks.rank == 0:  # the others run the same program
            _say(text)

    def _restore_memory(self) -> Optional[int]:
        assert self._client
        reader = planner = fault = None
        try:
            reader, planner = self._open_memory(False)
        except Exception as error:  # a damaged part, a program that has changed
            fault = error
        if fault:
            _say(f"rank {self._ranks.rank}: step {self._client.step} in memory is not restored: "
                 f"{_first_line(fault)}")
        if not self._ranks.all(fault is None):
            return None
        assert reader and planner
        reader.read_data(planner.local_plan, planner)  # dcp.load would make the plan again
        self._state.load(planner.original_state_dict)
        step, _ = self._client.step, reader.close()
        return step

    def _open_memory(self, all_ranks: bool) -> "Tuple[MemoryReader, StrictPlanner]":
        """Nothing of the program has changed before all ranks have come so far."""
        reader = MemoryReader(all_ranks)
        try:
            planner = self._template(reader.read_metadata())
            self._state.check(reader.parts.objects)
            return reader, planner
        except BaseException as error:
            reader.close()
            if reader.has_all or not isinstance(error, MemoryFault):
                raise
        return self._open_memory(True)  # tensors are perhaps cut in another way now

    def _template(self, metadata: Any) -> StrictPlanner:
        """The plan of what to load; an error if the checkpoint lacks a part of it."""
        planner = StrictPlanner()
        planner.set_up_planner(self._state.template(metadata), metadata, True)
        planner.local_plan = planner.create_local_plan()
        return planner

    def _load_files(self, reader: Any, flat: Dict[str, Any]) -> None:
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.load(flat, storage_reader=reader, planner=StrictPlanner(), no_dist=True)
        self._state.load(flat)

    def _restore_files(self, steps: List[int]) -> Optional[int]:
        for step in steps:
            fault: Optional[Exception] = None
            try:
                reader = dcp.FileSystemReader(self._folder.of(step))
                metadata = reader.read_metadata()
                self._folder.check(step, metadata)
                flat = self._template(metadata).original_state_dict
            except Exception as error:
                fault = error
            if self._ranks.all(fault is None):
                try:
                    if not self._folder.is_one(step):
                        raise MemoryFault("the nodes have different folders of this name")
                    self._load_files(reader, flat)
                except Exception as error:
                    fault = error
                if self._ranks.all(fault is None):
                    return step
            if fault:
                _say(f"rank {self._ranks.rank}: {self._folder.of(step)} is not restored: "
                     f"{_first_line(fault)}")
        return None

    # -- saving ----------------------------------------------------------------------------

    def step(self, step: int, **progress: Any) -> None:
        """So many steps are done. Saves where that is due; `progress` is that of
        crun.progress. The same number again, as between two steps that accumulate gradients,
        saves nothing: ranks could not tell what they have of it."""
        if self._state.thread not in (0, threading.get_ident()):
            text = "step() is called in another thread than the optimizer's step(), which can change what it reads"
            _say(f"rank {self._ranks.rank}: {text}")  # what a thread raises is perhaps not seen
            raise RuntimeError(text)
        if step < self._last_step:
            raise ValueError(f"step {step} comes after step {self._last_step}")
        if step == self._last_step:
            crun.progress(step, **progress)
            return
        if self._every or self._files_every:
            self._folder.take(step)
        self._last_step = step
        self._wait()
        kept, wanted, differs = self._ranks.last_answer()
        if differs:  # with other learning rates, parameters do from now on
            self._saves = 0
        self._sum = self._state.sum_of_groups()
        if kept == NOT_YET and step % self._every == 0:  # copies have had a step's time
            self._ranks.ask(self._memory_state(), False, self._sum)
            kept, *_ = self._ranks.last_answer()
        if kept == LOST:
            self._folder.check_claim()
        if kept == GIVEN_UP:
            self._client = None
        crun.progress(step, **progress)
        self._doubts.look()
        saves = self._client and step % self._every == 0 and kept == KEPT
        begun = False
        with crun.checkpointing():
            if saves:
                begun = self._begin_memory(step)
            if wanted or self._files_every and step % self._files_every == 0:
                self.save_files(step)
        self._wants = self._asks and crun.checkpoint_wanted()
        if begun and not self._written.is_set() or saves and self._in_background:
            self._thread = threading.Thread(target=self._end_later, args=[begun])
            self._thread.start()
        else:
            self._end_step(begun, False)

    def _wait(self) -> None:
        if self._thread:
            self._thread.join()
            self._thread = None
        if self._fault:
            raise self._fault

    def _wait_until_written(self) -> None:
        if self._thread and self._stable.versions:
            self._written.wait()

    def _end_later(self, begun: bool) -> None:
        try:
            self._end_step(begun, self._in_background)
        except Exception as error:  # another rank is dead: the next step fails
            self._fault = error

    def _end_step(self, begun: bool, together: bool) -> None:
        """together: no rank commits where another one's tensors have changed meanwhile."""
        try:
            if begun and not self._written.is_set():
                assert self._parts
                self._parts.write()
        except Exception as error:  # the other ranks wait for this one's answer
            self._give_up(error)
            begun = False
        if self._stable.have_changed():
            _say(f"rank {self._ranks.rank}: step {self._last_step} is not saved in memory, and the "
                 "next ones are not in the background: the state changes between the steps of "
                 "its optimizers")
            begun = False
        self._stable.versions = []
        self._written.set()
        if together:
            begun = self._in_background = self._ranks.all(begun)
        if begun and self._client:
            self._client.commit()
        if self._client or self._asks:
            self._ranks.ask(self._memory_state(), self._wants, self._sum)

    def _memory_state(self) -> int:
        if self._folder.is_lost():
            return LOST
        if self._gives_up:
            return GIVEN_UP
        return KEPT if self._client is None or self._client.is_kept() else NOT_YET

    def _begin_memory(self, step: int) -> bool:
        """Whether it is to be committed."""
        assert self._client and self._parts
        self._find_differing()
        shared, own = self._state.trees()
        own.objects[HAS_SHARED] = bool(shared.tensors)
        writes = bool(shared.tensors) and crun.local_rank() == 0
        chunks = [own.chunks(), shared.chunks() if writes else []]
        stable = self._stable.choose(self._in_background, own.optimized | shared.optimized,
                                     chunks[0] + chunks[1])
        try:
            sections = [self._writers[0].encode(chunks[0], own.objects, own.paths, stable),
                        self._writers[1].encode(chunks[1], {}, shared.paths, stable)
                        if writes else None]
            self._has_saved = True
            self._parts.begin(step, sections, bool(shared.tensors), self._files_step)
            self._written.clear()
            if stable is None:
                self._parts.write()
                self._written.set()
            return True
        except MemoryFault as error:
            self._give_up(error)
            return False

    def _find_differing(self) -> None:
        """At the first save, the second, the fourth..., and when learning rates differ: it reads all that
        is shared."""
        self._saves += 1
        if self._saves & (self._saves - 1) == 0 and (names := self._state.find_differing(self._ranks)):
            self._doubt(f"{len(names)} tensors are not the same on all ranks that have them, as {names[0]}: each "
                        "rank's own are saved from now on")

    def _give_up(self, error: Exception) -> None:
        _say(f"files only from step {self._last_step} on: rank {self._ranks.rank}: "
             f"{_first_line(error)}")
        self._gives_up = True

    def save_files(self, step: int) -> None:
        """Writes step-N in the folder now, by all ranks together."""
        self._wait()
        crun.checkpoint_wanted()  # a rank that did not know of the request may know by now
        with crun.checkpointing():
            self._saves = 0  # the writing takes longer than a look
            self._find_differing()
            self._folder.save(step, self._state.files_tree())
        crun.checkpoint_done()


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
