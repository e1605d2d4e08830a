# SPDX-License-Identifier: MIT
"""Whether a program that was restored goes on as it would have: what the first steps show of it."""
import random
import sys
from typing import Any, Callable, Dict, List

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

_LOOKS = 4  # after restore(), and after the first steps
_TWISTER = 624  # numbers of a Mersenne twister's state


def how_far() -> Dict[str, int]:
    """How far each random generator is, in its state."""
    places = {"Python": random.getstate()[1][-1] % _TWISTER,
              "PyTorch": -int(torch.get_rng_state()[8:12].view(torch.int32)) % _TWISTER}
    if "numpy" in sys.modules:
        places["NumPy"] = int(sys.modules["numpy"].random.get_state()[2]) % _TWISTER
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        places["CUDA"] = int(torch.cuda.get_rng_state()[8:16].view(torch.int64))
    return places


class Doubts:
    """A doubt is one line: what it means can be right, as when an epoch begins."""

    def __init__(self, say: Callable[[str], None], loaders: "Callable[[], Dict[str, bytes]]",
                 knows: Callable[[Optimizer], bool], gradient: "Callable[[], Any]") -> None:
        self._say, self._loaders, self._knows, self._gradient = say, loaders, knows, gradient
        self._left: Any = None  # a gradient that no optimizer has used yet
        self._looks: List[Any] = []
        self._stepped: Dict[int, Optimizer] = {}
        self._looks_at_optimizers = _LOOKS
        self._hook: Any = register_optimizer_step_post_hook(
            lambda optimizer, *_: self._stepped.update({id(optimizer): optimizer}))

    def begin(self) -> None:
        """All that a life before had is restored."""
        self._looks = [(how_far(), {})]

    def look(self) -> None:
        """After each step."""
        if self._hook:
            self._look_at_optimizers()
        if not self._looks:
            return
        self._looks.append((how_far(), self._loaders()))
        if len(self._looks) < _LOOKS:
            return
        places, (_, *states) = zip(*self._looks)
        self._looks = []
        for name in places[0]:
            first, *others = ((b[name] - a[name]) % _TWISTER for a, b in zip(places, places[1:]))
            if len(set(others)) == 1 and first != others[0]:
                self._say(f"{name}'s generator: what was drawn between restore() and the first step is "
                          "not as much as between steps. If no epoch began there, the program does not "
                          "go on as it would have: what is drawn ahead, as a batch, belongs in the state")
        for name in states[0]:
            if all(state[name] == states[0][name] for state in states):
                self._say(f"state[{name!r}] is the same after each step: batches come from another "
                          "loader, or from an iterator that was made before restore()")

    def _look_at_optimizers(self) -> None:
        unknown = [optimizer for optimizer in self._stepped.values() if not self._knows(optimizer)]
        self._looks_at_optimizers -= 1
        grows = self._left is not None and self._left[0]._version != self._left[1]
        left = None if self._stepped else self._gradient()
        self._left = None if left is None else (left, left._version)
        self._stepped.clear()
        if grows:
            self._say("gradients grow from one step to the next, and are not saved: step() is called where an "
                      "optimizer has stepped")
        if unknown or grows or not self._looks_at_optimizers:
            self._hook.remove()
            self._hook = self._left = None
        if unknown:
            self._say(f"the state does not have an optimizer that steps, of type {type(unknown[0]).__name__}: "
                      "it begins anew after a failure")
