# SPDX-License-Identifier: MIT
"""
What imports have drawn at random, or have read of the time and the process, and what each worker
draws and reads again: generators without a seed, and variables of modules.
"""
from __future__ import annotations

import gc
import os
import random
import sys
import time
from typing import Any, Callable, Iterator

# Modules that draw a number, which is renewed by name.
RENEWED = ("multiprocessing.process", "multiprocess.process")
begun, begun_monotonic = time.time(), time.monotonic()


def is_of_now(value: Any) -> bool:
    """Whether a number is a time since the template began, in seconds or nanoseconds."""
    return type(value) in (int, float) and (int(begun) <= value <= time.time() or
                                            begun * 1e9 <= value <= time.time_ns())


def is_seed(args: Any, kwargs: Any) -> bool:
    """Whether the arguments of a seed() are the same in each run."""
    value = args[0] if args else kwargs.get("a")
    return value is not None and not is_of_now(value)


# -- ranks ------------------------------------------------------------------------------


def _repair_lightning(module: Any) -> None:
    module.rank_zero_only.rank = module._get_rank() or 0


def _repair_torchmetrics(module: Any) -> None:
    module.rank_zero_only.rank = int(os.environ.get("LOCAL_RANK", 0))


# Modules that compute something from a rank when they are imported, and what computes it again
# in a worker.
REPAIRS: dict[str, Callable[[Any], None]] = {
    "lightning.fabric.utilities.rank_zero": _repair_lightning,
    "lightning_fabric.utilities.rank_zero": _repair_lightning,
    "torchmetrics.utilities.prints": _repair_torchmetrics,
}


def repair_rank_readers() -> None:
    for name, repair in REPAIRS.items():
        if name in sys.modules:
            try:
                repair(sys.modules[name])
            except (AttributeError, ValueError) as error:
                os.write(2, f"crun: cannot tell {name} its rank: {error}\n".encode())


# -- generators -------------------------------------------------------------------------


def _numpy(name: str) -> Any:
    return getattr(sys.modules.get("numpy.random.bit_generator"), name, ())


def _numpy_objects() -> list[Any]:
    """Bit generators and sequences of seeds."""
    kinds = _numpy("BitGenerator"), _numpy("SeedSequence")
    if not all(kinds):
        return []
    # not isinstance(), for which lazy objects find out what they are
    return [found for found in gc.get_objects() if issubclass(type(found), kinds)]


def _entropy(found: Any) -> int | None:
    entropy = getattr(getattr(found, "seed_seq", found), "entropy", None)
    return entropy if type(entropy) is int else None


def numpy_entropies() -> list[int | None]:
    return [_entropy(found) for found in _numpy_objects()]


def states() -> dict[str, Any]:
    """Of the generators that all modules share, unless an import gave them a seed."""
    found: dict[str, Any] = {"random": random.getstate()}
    generator = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
    if generator is not None and generator._bit_generator.seed_seq is not None:
        state = generator._bit_generator.state["state"]
        found["numpy.random"] = state["key"].tobytes(), state["pos"]
    return found


def _renew_torch_seed() -> None:
    """Torch draws 64 bits when it is imported. What an import has set stays."""
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None and generator.initial_seed() >= 1 << 32:
        generator.seed()


# -- variables of modules ---------------------------------------------------------------


def _forms(drawn: bytes) -> list[Any]:
    """What programs make of random bytes. Few bytes would be found in any text."""
    forms: list[Any] = [drawn, drawn.hex()] if len(drawn) >= 8 else []
    if len(drawn) == 16 and "uuid" in sys.modules:
        unique = sys.modules["uuid"].UUID(bytes=drawn, version=4)
        forms += [unique, str(unique), unique.hex]
    return forms


def _find(value: Any, forms: list[Any]) -> int | None:
    """Which form the value is, or has in it."""
    for i, form in enumerate(forms):
        if type(value) is type(form) and (value == form or
                                          isinstance(form, (str, bytes)) and form in value):
            return i
    return None


def variables_of_modules() -> Iterator[tuple[dict[str, Any], str, Any]]:
    for name, module in list(sys.modules.items()):
        home = getattr(module, "__dict__", None)
        if type(home) is dict and name.partition(".")[0] != "_crun":
            for variable, value in list(home.items()):
                yield home, variable, value


def is_kept(drawn: bytes, modules: list[str]) -> bool:
    forms = _forms(drawn)
    return any(_find(value, forms) is not None for name in modules if name in sys.modules
               for value in list(getattr(sys.modules[name], "__dict__", {}).values()))


def _clock_of(name: str, value: Any) -> Callable[[], Any] | None:
    """What has told this value."""
    if type(value) is float and begun <= value <= time.time():
        return time.time
    if type(value) is float and begun_monotonic <= value <= time.monotonic() \
            and value != round(value, 4):  # no constant, on a machine that has just begun
        return time.monotonic
    if type(value) is int and begun * 1e9 <= value <= time.time_ns():
        return time.time_ns
    if type(value) is int and value == os.getpid() and "pid" in name.lower():
        return os.getpid
    datetime = sys.modules.get("datetime")
    if datetime and type(value) is datetime.datetime:
        age = (datetime.datetime.now(value.tzinfo) - value).total_seconds()
        if 0 <= age <= time.time() - begun:
            return lambda: datetime.datetime.now(value.tzinfo)
    return None


# -- for the template, and for its workers ----------------------------------------------


class Renewal:
    """Found in a template, once it has imported all modules."""

    def __init__(self, generators: Any, numbers: list[bytes], is_seeded: bool) -> None:
        self.generators = list(generators)
        self.state = random.getstate() if is_seeded else None
        entropies = [int.from_bytes(drawn, "big") for drawn in numbers]
        self.numpy = [found for found in _numpy_objects()
                      if _entropy(found) in entropies or is_of_now(_entropy(found))]
        self.numbers = [(_forms(drawn), len(drawn)) for drawn in numbers]
        self.clocks: list[tuple[dict[str, Any], str, Callable[[], Any]]] = []
        self.drawn: list[tuple[dict[str, Any], str, int]] = []
        for home, name, value in variables_of_modules():
            clock = _clock_of(name, value)
            if clock:
                self.clocks.append((home, name, clock))
            elif type(value).__name__ in ("str", "bytes", "UUID"):
                self.drawn += [(home, name, number) for number, (forms, _) in
                               enumerate(self.numbers) if _find(value, forms) is not None]

    def renew(self) -> None:
        for generator in self.generators:
            random.Random.seed(generator)
        if self.state:
            random.setstate(self.state)  # a fork gives it another seed
        for found in self.numpy:
            found.__init__()
        new = [_forms(os.urandom(size)) for _, size in self.numbers]
        for home, name, number in self.drawn:
            forms, value = self.numbers[number][0], home[name]
            which = _find(value, forms)
            if which is not None:
                home[name] = new[number][which] if value == forms[which] else \
                    value.replace(forms[which], new[number][which])
        for home, name, clock in self.clocks:
            home[name] = clock()
        for name in RENEWED:
            if name in sys.modules:
                sys.modules[name].current_process().authkey = os.urandom(32)
        if "uuid" in sys.modules:
            sys.modules["uuid"]._last_timestamp = None
        _renew_torch_seed()
        repair_rank_readers()
