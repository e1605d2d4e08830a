# SPDX-License-Identifier: MIT
"""The state of a program as named tensors and other objects.

Names are those that torch.distributed.checkpoint gives to nested dictionaries. What differs
between ranks is below `rank-N`: random generators, data loaders, and the tensors that neither
DDP keeps equal nor a DTensor describes.
"""
import random
import sys
import threading
import zlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import torch
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from .library import MemoryFault
from .ranks import Ranks
from .section import Chunk, load_objects, save_objects

Path = Tuple[Any, ...]
_PARAMETERS = "parameters"  # of an optimizer, in its order
FILES = "crun-files"  # the name of a Files
_OBJECT = "crun-object"  # in files, the last of a name: bytes
_GROUPS = "groups"  # those of parameters, as they are


class Tree:
    """Tensors and objects by name, with the path of each in nested dictionaries."""

    def __init__(self) -> None:
        self.tensors: Dict[str, Tuple[Path, torch.Tensor]] = {}
        self.optimized: Set[str] = set()  # what optimizers alone change, in their step
        self.objects: Dict[str, Any] = {}
        self.paths: Dict[str, Path] = {}

    def put(self, path: Path, value: Any, optimized: bool = False) -> None:
        name = ".".join(map(str, path))
        self.paths[name] = path
        if isinstance(value, torch.Tensor):
            self.tensors[name] = (path, value)
            if optimized:
                self.optimized.add(name)
        else:
            self.objects[name] = value

    def chunks(self) -> List[Chunk]:
        return [_chunk(name, tensor) for name, (_, tensor) in self.tensors.items()]

def _chunk(name: str, tensor: torch.Tensor) -> Chunk:
    if isinstance(tensor, DTensor):
        _, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        return Chunk(name, tensor.to_local(), tuple(tensor.shape), tuple(offsets))
    return Chunk(name, tensor, tuple(tensor.shape), (0,) * tensor.dim())


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CPU_PIECE, _DEVICE_PIECE = 1 << 16, 1 << 24  # numbers
_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks."
_EQUAL_HOOKS = _HOOKS + "default_hooks", _HOOKS + "powerSGD_hook"


def _bare(model: Module) -> Module:
    """Without what wraps it."""
    while True:
        inner = (model.module if isinstance(model, DistributedDataParallel)
                 else getattr(model, "_orig_mod", model))
        if inner is model:
            return model
        model = inner


def _kept_equal(model: Module, size: int) -> "Set[int]":
    """The parameters that DDP keeps equal on all ranks of the program. A hook may give each
    rank its own gradients, as that of local SGD does."""
    model = getattr(model, "_orig_mod", model)
    if size == 1 or not isinstance(model, DistributedDataParallel) or \
            model.process_group.size() != size or \
            not all(getattr(hook, "__module__", "") in _EQUAL_HOOKS for hook, _ in model._comm_hooks):
        return set()
    return {id(p) for name, p in model.module.named_parameters()
            if name not in model.parameters_to_ignore}


def _sum_of_bits(tensor: torch.Tensor) -> int:
    """Of numbers times their places: any bit counts, and any order."""
    values = tensor.detach().contiguous().view(-1)
    if values.is_complex():
        values = torch.view_as_real(values).view(-1)
    values = values.view(_INTEGERS[values.element_size()])
    count = _CPU_PIECE if values.device.type == "cpu" else _DEVICE_PIECE
    places = torch.arange(min(count, len(values)), device=values.device) * 2 + 1
    sum_ = torch.zeros((), dtype=torch.int64, device=values.device)
    for piece in values.split(count):
        sum_ = sum_ * 31 + (piece * places[:len(piece)]).sum()
    return int(sum_) & 2**63 - 1


def rng_state() -> Dict[str, Any]:
    state: Dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        state["numpy"] = [kind, [int(key) for key in keys], *rest]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state: Dict[str, Any]) -> None:
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        import numpy
        kind, keys, *rest = state["numpy"]
        numpy.random.set_state((kind, numpy.array(keys, dtype=numpy.uint32), *rest))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


class _Stateful:
    """Two calls, as the methods that other objects have."""

    def __init__(self, save: Callable[[], Any], load: Callable[[Any], Any]) -> None:
        self.state_dict, self.load_state_dict = save, load


class Files:
    """Files of this rank, by name: write() writes them."""

    def __init__(self, write: "Callable[[], Dict[str, torch.Tensor]]") -> None:
        self.write, self.loaded = write, {}


def _stateful_dict(values: Dict[Any, Any]) -> _Stateful:
    def save() -> Any:
        return dict(values), {k: v.device.type for k, v in values.items() if isinstance(v, torch.Tensor)}

    def load(state: Any) -> None:
        saved, devices = state
        values.clear()
        values.update({k: v.to(devices[k]) if k in devices else v for k, v in saved.items()})
    return _Stateful(save, load)


def _stateful_loader(loader: Any) -> _Stateful:
    """torchdata's, which draws from the random generator where it makes its iterator, and then skips
    what its sampler gives in the sampler's epoch."""
    parts = [part for part in (loader.sampler, loader.batch_sampler, loader.dataset)
             if hasattr(part, "set_epoch") and isinstance(getattr(part, "epoch", None), int)]

    def load(state: Any) -> None:
        saved, epochs = state
        for part, epoch in zip(parts, epochs):
            part.set_epoch(epoch)
        loader.load_state_dict(saved)
        loader.state_dict()  # makes the iterator that the program asks for next
    return _Stateful(lambda: (loader.state_dict(), [part.epoch for part in parts]), load)


def generator_state(value: Any) -> Optional[_Stateful]:
    """Of a random generator."""
    numpy = sys.modules.get("numpy")
    if isinstance(value, torch.Generator):
        return _Stateful(lambda: [value.get_state()], lambda state: value.set_state(state[0]))
    if isinstance(value, random.Random):
        return _Stateful(value.getstate, value.setstate)
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        return _Stateful(lambda: bits.state, lambda state: setattr(bits, "state", state))
    return None


def _stateful(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _stateful_dict(value)
    if generator := generator_state(value):
        return generator
    if not hasattr(value, "state_dict") or not hasattr(value, "load_state_dict"):
        raise TypeError(f"state[{name!r}] has no state_dict and load_state_dict")
    return _stateful_loader(value) if isinstance(value, DataLoader) else value


class State:
    def __init__(self, objects: Dict[str, Any], rank: int, size: int, rng: bool) -> None:
        for name in objects:
            if "." in name or name.startswith("rank-") or name in (_PARAMETERS, "param_groups", "rng"):
                raise ValueError(f"state[{name!r}]: such a name is crun's own")
        self._rank, self._size, self.has_rng = rank, size, rng
        self._models = {n: v for n, v in objects.items() if isinstance(v, Module)}
        self._optimizers = {n: v for n, v in objects.items() if isinstance(v, Optimizer)}
        self._loaders = {n for n, v in objects.items() if isinstance(v, DataLoader)}
        self._files: Optional[Files] = objects.get(FILES)
        self._others = {n: _stateful(n, v) for n, v in objects.items()
                        if n not in (FILES, *self._models, *self._optimizers)}
        self.is_trainers = self._files is not None  # which knows itself what belongs to its state
        self._differing: Set[str] = set()
        self._alone: Set[str] = set()  # models that stepped with gradients that DDP has not averaged
        self._has_stages = False  # DTensors of one name that are not the same
        self._equal: Set[str] = set()  # optimizers
        self.thread = 0  # in which they step
        self._names = {id(p): f"{name}.{fqn}" for name, model in self._models.items()
                       for fqn, p in _bare(model).named_parameters()}
        for optimizer in self._optimizers.values():
            optimizer.register_step_post_hook(self._look_at_models)

    # -- saving

    def _look_at_models(self, optimizer: Optimizer, *_: Any) -> None:
        """No rank has averaged gradients after a forward within no_sync()."""
        if not isinstance(threading.current_thread(), threading._DummyThread):  # as those of autograd
            self.thread = threading.get_ident()
        for name, model in self._models.items():
            model = getattr(model, "_orig_mod", model)
            if (isinstance(model, DistributedDataParallel) and not model.require_forward_param_sync and
                    {id(p) for group in optimizer.param_groups for p in group["params"]}.intersection(
                        map(id, model.parameters()))):
                self._alone.add(name)

    def trees(self, files: bool = False, objects: bool = True) -> Tuple[Tree, Tree]:
        """What is equal on all ranks, and what is this rank's own."""
        shared, own = Tree(), Tree()
        equal = set()
        optimized = {id(p) for optimizer in self._optimizers.values()
                     for group in optimizer.param_groups for p in group["params"]}
        for name, model in self._models.items():
            parameters = set() if name in self._alone else _kept_equal(model, self._size)
            equal |= parameters
            live = _bare(model).state_dict(keep_vars=True)
            for fqn, value in live.items():
                value = value.detach() if isinstance(value, torch.Tensor) else value
                self._put(shared if id(live[fqn]) in parameters else own, own, files,
                          (name, fqn), value, id(live[fqn]) in optimized)
        for name, optimizer in self._optimizers.items():
            is_equal = all(id(p) in equal for g in optimizer.param_groups for p in g["params"])
            if is_equal:
                self._equal.add(name)
            state = optimizer.state_dict()
            for number, values in state["state"].items():
                for key, value in values.items():
                    self._put(shared if is_equal else own, own, files,
                              (name, "state", str(number), key), value, True)
            self._put(own, own, files, (name, "param_groups"), state["param_groups"])
            self._put(own, own, files, (_PARAMETERS, name), self._parameters(optimizer))
        for name, value in self._others.items() if objects else ():
            if isinstance(value, LRScheduler):
                self._put(own, own, files, (name,), value.state_dict())
            else:
                own.put((f"rank-{self._rank}", name), value.state_dict())
        for name, content in self._files.write().items() if self._files and objects else ():
            own.put((f"rank-{self._rank}", FILES, name), content)
        if self.has_rng:
            own.put((f"rank-{self._rank}", "rng"), rng_state())
        for name in self._differing & set(shared.tensors):
            path, value = shared.tensors[name] if files else shared.tensors.pop(name)
            own.put((f"rank-{self._rank}", *path), value, name in shared.optimized)
        return shared, own

    def find_differing(self, ranks: Ranks) -> List[str]:
        """What DDP would keep equal, and the program does not: frozen parameters, or what it changes
        itself; and parts of DTensors that two ranks have, as stages of a pipeline may have the same
        names. It is each rank's own from now on. By all ranks together."""
        shared, own = self.trees(objects=False)
        names = sorted(shared.tensors)
        new = set(names)
        if not ranks.differ(torch.tensor([zlib.crc32(repr(names).encode())])).any():
            sums = [_sum_of_bits(shared.tensors[name][1]) for name in names]
            new = {name for name, differs in zip(names, ranks.differ(torch.tensor(sums, dtype=torch.int64))) if differs}
        self._differing |= new
        copies: Dict[Any, Any] = {}
        for of_rank in ranks.gather({} if self._has_stages else self._copies(own)):
            new |= {place[0] for place, bits in of_rank.items() if copies.setdefault(place, bits) != bits}
        self._has_stages |= not new <= self._differing
        return sorted(new)

    def _is_copied(self, value: Any) -> bool:
        """Other ranks may have the same part of this DTensor."""
        return isinstance(value, DTensor) and not (value.device_mesh.size() == self._size and
                                                   all(p.is_shard() for p in value.placements))

    def _copies(self, own: Tree) -> Dict[Any, Any]:
        return {(c.name, c.offsets): (c.shape, str(c.tensor.dtype), *c.tensor.shape, _sum_of_bits(c.tensor))
                for c in own.chunks() if self._is_copied(own.tensors[c.name][1])}

    def sum_of_groups(self) -> int:
        """What makes optimizers step that DDP keeps equal."""
        groups = [{key: value for key, value in group.items() if key != "params"}
                  for name in sorted(self._equal) for group in self._optimizers[name].param_groups]
        return zlib.crc32(repr(groups).encode()) >> 1

    def loaders(self) -> Dict[str, bytes]:
        """Where the data loaders are."""
        return {name: save_objects(self._others[name].state_dict()) for name in self._loaders}

    def optimizers_with_other_schedules(self) -> List[str]:
        """Those that have a schedule, of which the state has none."""
        if any(isinstance(value, LRScheduler) or hasattr(value, "scheduler")
               for value in self._others.values()):
            return []
        return [name for name, optimizer in self._optimizers.items()
                if any("initial_lr" in group for group in optimizer.param_groups)]

    def gradient(self) -> Optional[torch.Tensor]:
        """One that an optimizer of the state is to use."""
        return next((p.grad for optimizer in self._optimizers.values() for group in optimizer.param_groups
                     for p in group["params"] if p.grad is not None), None)

    def knows(self, optimizer: Optimizer) -> bool:
        """Whether it is in the state, or one of the same parameters, or an object that has it."""
        known = {id(p) for o in self._optimizers.values() for g in o.param_groups for p in g["params"]}
        return (self.is_trainers or
                all(id(p) in known for group in optimizer.param_groups for p in group["params"]) or
                any(value is optimizer for other in self._others.values()
                    for value in getattr(other, "__dict__", {}).values()))

    def _put(self, tree: Tree, own: Tree, files: bool, path: Path, value: Any,
             optimized: bool = False) -> None:
        """What neither DDP nor a DTensor has of all ranks is this rank's alone; files have it also
        where others look for it. The shared section has no objects."""
        tree = tree if isinstance(value, torch.Tensor) else own
        is_stage = self._has_stages and self._is_copied(value)
        alone = tree is own and self._size > 1 and (is_stage or not isinstance(value, DTensor))
        if alone:
            own.put((f"rank-{self._rank}", *path), value, optimized)
        if not alone or files and not is_stage:
            tree.put(path, value, optimized)

    def when_optimizers_step(self, call: Any) -> None:
        for optimizer in self._optimizers.values():
            optimizer.register_step_pre_hook(lambda *_: call())

    def _parameters(self, optimizer: Optimizer) -> List[str]:
        return [type(optimizer).__name__, *(self._names.get(id(p), str(tuple(p.shape)))
                                            for group in optimizer.param_groups for p in group["params"])]

    def files_tree(self) -> Dict[str, Any]:
        """As nested dictionaries; what torch.distributed.checkpoint would take apart and
        could not put together again is bytes."""
        shared, own = self.trees(files=True)
        save_objects(own.objects)  # names what cannot be loaded
        nested: Dict[str, Any] = {}
        for tree in shared, own:
            for path, tensor in tree.tensors.values():
                _insert(nested, path, tensor)
        for name, value in own.objects.items():
            for path, content in _as_in_files(own.paths[name], value):
                _insert(nested, path, content)
        return nested

    # -- restoring

    def template(self, metadata: Any) -> Dict[str, Any]:
        """Where each saved name of this rank is to be loaded: the program's own tensors, and
        new ones for optimizers. Raises if the program's model is another one."""
        saved = metadata.state_dict_metadata
        self._paths = metadata.planner_data
        shared, own = self.trees(objects=False)
        live = {name: tensor for tree in (shared, own)
                for name, (_, tensor) in tree.tensors.items()}
        ranks = [int(n.split(".")[0][5:]) for n in saved if n.startswith("rank-")]
        old_size = max(ranks, default=0) + 1
        mine = f"rank-{self._rank % old_size}."
        self._skips_rng = self._rank >= old_size
        self._source = mine
        owned = {n.split(".", 1)[1] for n in saved if n.startswith("rank-")}
        objects = tuple(name[:-len(_OBJECT)] for name in owned if _is_bytes(name))
        flat: Dict[str, Any] = {}
        for name, entry in saved.items():
            if name.startswith("rank-") and not name.startswith(mine):
                continue
            bare = name[len(mine):] if name.startswith(mine) else name
            if bare == name and (name in owned or name.startswith(objects)):
                continue  # of each rank, or of some
            if not isinstance(entry, TensorStorageMetadata):
                flat[name] = None
            elif bare.split(".")[0] in self._models and not _is_bytes(bare):
                flat[name] = self._model_target(bare, entry, live)
            else:
                flat[name] = self._new_tensor(bare, entry, live)
        self._check_models(flat, mine, live)
        return flat

    def _model_target(self, bare: str, entry: Any, live: Dict[str, torch.Tensor]) -> torch.Tensor:
        tensor = live.get(f"rank-{self._rank}.{bare}", live.get(bare))
        if tensor is None:
            raise MemoryFault(f"the program has no {bare} any more")
        if tensor.shape != entry.size or tensor.dtype != entry.properties.dtype:
            raise MemoryFault(f"{bare} is {_kind(tensor.dtype, tensor.shape)} and was "
                              f"{_kind(entry.properties.dtype, entry.size)}")
        return tensor

    def _new_tensor(self, bare: str, entry: Any, live: Dict[str, torch.Tensor]) -> torch.Tensor:
        dtype = entry.properties.dtype
        like: Any = None
        name, *rest = bare.split(".")
        if name in self._optimizers and rest[:1] == ["state"] and not _is_bytes(bare):
            parameters = [p for g in self._optimizers[name].param_groups for p in g["params"]]
            if int(rest[1]) < len(parameters):
                like = parameters[int(rest[1])]
        if isinstance(like, DTensor) and like.shape == entry.size:
            return torch.empty_like(like, dtype=dtype, requires_grad=False)
        return torch.empty(entry.size, dtype=dtype)

    def _check_models(self, flat: Dict[str, Any], mine: str, live: Dict[str, torch.Tensor]) -> None:
        for name in live:
            bare = name.split(".", 1)[1] if name.startswith("rank-") else name
            if bare.split(".")[0] in self._models and bare not in flat and mine + bare not in flat:
                raise MemoryFault(f"the checkpoint has no {bare}")

    def check(self, objects: Dict[str, Any]) -> None:
        """That optimizers have the parameters that they had, in their order."""
        objects = {**objects, **{name[len(self._source):]: value for name, value in objects.items()
                                 if name.startswith(self._source)}}
        for name, optimizer in self._optimizers.items():
            if objects.get(f"{_PARAMETERS}.{name}") != self._parameters(optimizer):
                raise MemoryFault(f"{name} is another optimizer than the checkpoint's, or has "
                                  "other parameters")
            groups = objects.get(f"{name}.param_groups") or []
            if [len(g["params"]) for g in groups] != [
                    len(g["params"]) for g in optimizer.param_groups]:
                raise MemoryFault(f"{name} has other groups of parameters than the checkpoint's")
        for name in self._others:
            if name not in objects:
                raise MemoryFault(f"the checkpoint has no {name}")

    def load(self, flat: Dict[str, Any]) -> None:
        """What torch.distributed.checkpoint has loaded to the template."""
        nested: Dict[str, Any] = {}
        objects: Dict[str, Any] = {}
        for name, value in flat.items():
            path = tuple(self._paths.get(name, tuple(name.split("."))))
            if path and path[0] + "." == self._source:
                path, name = path[1:], name[len(self._source):]
            if isinstance(value, torch.Tensor) and _is_bytes(name):
                value = load_objects(value.numpy().data)[""]
                path, name = path[:-1], name[:-len(_OBJECT) - 1]
                objects[name] = value
            elif not isinstance(value, torch.Tensor):
                objects[name] = value
            _insert(nested, path, value)
        objects.update({f"{n}.param_groups": objects.get(f"{n}.{_GROUPS}") or
                        _with_lists(nested.get(n, {}).get("param_groups")) for n in self._optimizers})
        self.check(objects)
        for name, model in self._models.items():
            _bare(model).load_state_dict(nested.get(name, {}))  # not all of it need be in place
        for name, optimizer in self._optimizers.items():
            state = {int(k): v for k, v in nested[name].get("state", {}).items()}
            optimizer.load_state_dict({"state": state,
                                       "param_groups": objects[f"{name}.param_groups"]})
            _keep_types(optimizer, state)
        for name, value in self._others.items():
            value.load_state_dict(objects[name])
        if self._files:
            self._files.loaded = nested.get(FILES, {})
        if self.has_rng and "rng" in objects and not self._skips_rng:
            set_rng_state(objects["rng"])


def _keep_types(optimizer: Optimizer, state: "Dict[int, Dict[Any, Any]]") -> None:
    """load_state_dict converts a state to the type of its parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, values in state.items():
        live = optimizer.state[parameters[number]]
        for key, value in values.items():
            if isinstance(value, torch.Tensor) and live[key].dtype != value.dtype:
                live[key] = value.to(live[key].device)


def _as_in_files(path: Path, value: Any) -> "Iterator[Tuple[Path, Any]]":
    """Groups of parameters also in the form that others read, which does not keep all kinds of keys."""
    if path[-1] == "param_groups":
        if len(path) == 2:
            yield path, value
        path = (*path[:-1], _GROUPS)
    data = bytearray(save_objects({"": value}))
    yield (*path, _OBJECT), torch.frombuffer(data, dtype=torch.uint8)


def flat_objects(objects: Dict[str, Any], paths: Dict[str, Path]) -> "Iterator[Tuple[Path, Any]]":
    """The same of objects from memory, with the paths that files have."""
    for name, value in objects.items():
        for path, content in _as_in_files(paths.get(name, tuple(name.split("."))), value):
            if isinstance(content, list):
                for number, group in enumerate(content):
                    yield from (((*path, number, key), item) for key, item in group.items())
            else:
                yield path, content


def _is_bytes(bare: str) -> bool:
    """An object in a file: see files_tree."""
    return bare.endswith("." + _OBJECT)


def _kind(dtype: torch.dtype, shape: Any) -> str:
    return f"{str(dtype)[6:]}{list(shape)}"


def _insert(nested: Dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        nested = nested.setdefault(key, {})
    nested[path[-1]] = value


def _with_lists(value: Any) -> Any:
    """A path has a number where there was a list."""
    if not isinstance(value, dict):
        return value
    items = {key: _with_lists(item) for key, item in value.items()}
    if items and all(isinstance(key, int) for key in items):
        return [items[key] for key in sorted(items)]
    return items
