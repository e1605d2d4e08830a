# SPDX-License-Identifier: MIT
"""Where a DataLoader of PyTorch is in its epoch, so that another process goes on from there."""
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler, get_worker_info

from .resume_doubts import how_far
from .state import generator_state, rng_state, set_rng_state


def _samplers(loader: Any) -> List[Any]:
    """The loader, and all that choose its samples, also those within another."""
    found: List[Any] = [loader]
    waiting = [loader.batch_sampler, loader.sampler]
    while waiting:
        thing = waiting.pop()
        if hasattr(thing, "__dict__") and all(thing is not other for other in found):
            found.append(thing)
            waiting += [value for value in vars(thing).values()
                        if isinstance(value, Sampler) or "Sampler" in type(value).__name__]
    return found


def _numbers(thing: Any) -> Dict[str, Any]:
    return {name: value for name, value in vars(thing).items() if type(value) in (int, float, bool)}


def _generators(thing: Any) -> Dict[str, Any]:
    states = {name: generator_state(value) for name, value in vars(thing).items()}
    return {name: state for name, state in states.items() if state}


class Place:
    """That of one loader, whose class it changes. `reason`: why it is known only between epochs."""

    def __init__(self, loader: Any) -> None:
        self._loader, self._is_loader = loader, isinstance(loader, DataLoader)
        self.reason: Optional[str] = None
        self.drawn: Optional[torch.Tensor] = None  # whether the loader's processes draw
        self._begun: Any = None  # with what the sampler began the epoch
        self.skip: Optional[int] = None  # of the loader's iterator
        self._next_skip: Optional[int] = None
        self.is_known = not self._is_loader  # from the second batch on, and in later lives
        self.makes_processes_again = False  # which the undisturbed loader still has
        if not self._is_loader:
            self.reason = f"of type {type(loader).__name__}, has no state_dict"
        elif isinstance(loader.dataset, IterableDataset):
            self.reason = "with an IterableDataset, has no state_dict"
        if self._is_loader:
            self._first = [_numbers(thing) for thing in _samplers(loader)]
            if not hasattr(loader, "crun_place"):
                loader.__class__ = _placed(type(loader))
            loader.crun_place = self
            if loader.num_workers:
                self.drawn = torch.zeros(1, dtype=torch.uint8).share_memory_()
                loader.collate_fn = _Collate(loader.collate_fn, self.drawn)

    def state_dict(self) -> Any:
        if not self._is_loader:
            return None
        return {"begun": self._begun, "now": self._samplers_state(), "batches": self.batches(),
                "is_known": self.is_known and not self.reason}

    def batches(self) -> int:
        return -1 if self.reason else len(self._loader)

    def go_to(self, saved: Any, skip: int) -> bool:
        """The next iterator begins after so many batches. False: an epoch has other batches now."""
        if saved and not self.reason:
            self._begun, self._next_skip = saved["begun"], skip
            self.is_known = saved["is_known"]
        return not saved or saved["batches"] in (-1, self.batches())

    def load_now(self, saved: Any) -> None:
        if saved and self._is_loader:
            self._set_samplers(saved["now"])

    def _samplers_state(self) -> List[Any]:
        """Numbers that have changed, as a count of epochs, and random generators."""
        return [({name: value for name, value in _numbers(thing).items() if first.get(name) != value},
                 {name: state.state_dict() for name, state in _generators(thing).items()})
                for thing, first in zip(_samplers(self._loader), self._first)]

    def _set_samplers(self, states: List[Any]) -> None:
        for thing, first, (numbers, generators) in zip(_samplers(self._loader), self._first, states):
            vars(thing).update({**first, **numbers})
            for name, state in _generators(thing).items():
                if name in generators:
                    state.load_state_dict(generators[name])

    def _state(self) -> Tuple[Any, Any]:
        return rng_state(), self._samplers_state()

    def _set_state(self, state: Any) -> None:
        set_rng_state(state[0])
        self._set_samplers(state[1])

    def without_draws(self, call: "Callable[[], Any]") -> None:
        now = self._state()
        call()
        self._set_state(now)

    def begin_iterator(self) -> None:
        """What is to be skipped is of this one, also if nothing is drawn from it. It asks for the indices
        twice if it has processes."""
        self.skip, self._next_skip = self._next_skip, None

    def indices(self, sampler: Any, skip: Optional[int]) -> Iterator[Any]:
        """Those of an epoch that are left."""
        now = self._state()
        if skip is None or self._begun is None:
            self._begun = now
        if skip is not None:
            self._set_state(self._begun)
        drawn: Any = None
        for number, batch in enumerate(sampler):
            if number == 1:
                self.is_known = True
            if number == 1 and drawn != how_far():
                self.reason = "has a sampler that draws random numbers for each batch"
            if number == skip:
                self._set_state(now)
            if number >= (skip or 0):
                yield batch
            if number == 0:
                drawn = how_far()
        if skip is not None and number < skip:  # the epoch was over
            self._set_state(now)


class _Indices:
    def __init__(self, sampler: Any, loader: Any) -> None:
        self._sampler, self._loader = sampler, loader  # its place may be another one in a later epoch

    def __iter__(self) -> Iterator[Any]:
        return self._loader.crun_place.indices(self._sampler, self._loader.crun_place.skip)

    def __len__(self) -> int:
        return len(self._sampler)


def _placed(kind: Any) -> Any:
    """The class of a DataLoader, which knows its place."""
    def make_iterator(loader: Any) -> Any:
        place = loader.crun_place
        if place.makes_processes_again and loader._iterator is None:
            place.without_draws(lambda: kind.__iter__(loader))
        place.makes_processes_again = False
        place.begin_iterator()
        return kind.__iter__(loader)

    def indices(loader: Any) -> Any:
        sampler = kind._index_sampler.fget(loader)
        return sampler if isinstance(loader.dataset, IterableDataset) else _Indices(sampler, loader)
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "__iter__": make_iterator,
                                         "_index_sampler": property(indices)})


class _Collate:
    """Sees in the loader's processes whether they draw from one batch to the next."""

    def __init__(self, collate: Any, drawn: torch.Tensor) -> None:
        self._collate, self._drawn, self._places = collate, drawn, None

    def __call__(self, samples: Any) -> Any:
        batch = self._collate(samples)
        if get_worker_info() and not self._drawn[0]:
            old, self._places = self._places, how_far()
            if old and old != self._places:
                self._drawn[0] = 1
        return batch
