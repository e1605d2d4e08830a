# SPDX-License-Identifier: MIT
"""Calls functions with the modules of their lists when they have been imported."""
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Collection, Dict, Optional

_imported: Dict[str, Callable[[ModuleType], None]] = {}


class _HookedSpec(ModuleSpec):
    """The spec of a module to hook, until it has been imported.

    The import system takes back `_initializing` after the code of the module has run. So
    nothing of this module is on the stack while it runs, which tracebacks would show.
    """

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__.get("_initializing", False))

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__dict__["_initializing"] = value
        if value:
            return
        self.__class__ = ModuleSpec  # type: ignore[assignment]
        module = sys.modules.get(self.name)
        if type(module) is ModuleType:
            _imported[self.name](module)


_HookedSpec.__name__ = _HookedSpec.__qualname__ = "ModuleSpec"


class Finder:
    """Has the other finders look for the modules to hook."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if name not in _imported:
            return None
        for finder in sys.meta_path:
            find = None if finder is Finder else getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = find(name, path, target) if find else None
            if spec is not None:
                if type(spec) is ModuleSpec:
                    spec.__class__ = _HookedSpec
                return spec
        return None


def begin(names: Collection[str], imported: Callable[[ModuleType], None]) -> None:
    """For the modules that have been imported, and for the others once they are."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
    for name in names:
        if name in _imported:
            continue
        _imported[name] = imported
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if type(module) is ModuleType and not getattr(spec, "_initializing", False):
            imported(module)
