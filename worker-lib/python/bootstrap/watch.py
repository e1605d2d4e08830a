# SPDX-License-Identifier: MIT
"""Shows the progress of programs that do not report any: the hooks of `crun --watch`.

`prepare` hooks the modules named in _HOOKS when they have been imported: steps by torch's
own hook for optimizers, phases (backward, collectives, data loading, saving, evaluating) by
a few functions whose code is replaced by the same code between two calls of this module.
The functions stay the same objects, and their frames, lines and names stay as they were: no
traceback, inspection or compiler sees a difference. A hook that does not fit the installed
version is left out. Nothing is written unless this process has a status page.
"""
import os
import sys
import threading
from importlib.machinery import ModuleSpec
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import page as _page
from .page import (CHECKPOINTING, COMMUNICATING, EVALUATING, HAS_SAVED, LOADING, TRAINING,
                   UNKNOWN, WATCHED)

page = _page.worker_page


# -- the line of the program that a phase began in -----------------------------------------

_LIBRARY_FOLDERS = tuple(os.path.join(os.path.dirname(os.path.abspath(path)), "")
                         for path in (os.__file__, __file__))
_LIBRARY_PARTS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

# by the id of a code object, because to hash one takes long: the object, to keep it, and
# what `where` says of each of its instructions; None: no code of the program
_codes: Dict[int, Tuple[CodeType, Optional[Dict[int, bytes]]]] = {}


def _is_library(code: CodeType) -> bool:
    path = code.co_filename
    return (path.startswith(_LIBRARY_FOLDERS) or path.startswith("<frozen ") or
            any(part in path for part in _LIBRARY_PARTS))


def _shown_path(path: str) -> str:
    program = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    for file in (os.path.abspath(program), os.path.abspath("file")):
        folder = os.path.join(os.path.dirname(file), "")
        if path.startswith(folder):
            return path[len(folder):]
    return path if path.startswith("<") else os.path.basename(path)


def _describe(frame: FrameType) -> bytes:
    text = f"{_shown_path(frame.f_code.co_filename)}:{frame.f_lineno}"
    if frame.f_code.co_name != "<module>":
        text += f" ({frame.f_code.co_name})"
    return _page.where_field(text)


def _where(frame: Optional[FrameType]) -> bytes:
    """The innermost line of the program in or outside of this frame: "train.py:91 (main)"."""
    outermost = frame
    while frame is not None:
        code = frame.f_code
        known = _codes.get(id(code))
        if known is None:
            known = _codes[id(code)] = (code, None if _is_library(code) else {})
        if known[1] is not None:
            line = known[1].get(frame.f_lasti)
            if line is None:
                line = known[1][frame.f_lasti] = _describe(frame)
            return line
        outermost = frame
        frame = frame.f_back
    return _describe(outermost) if outermost is not None else _page.NOWHERE


# -- phases ----------------------------------------------------------------------------------

_c10d: Any = None  # torch.distributed.distributed_c10d
_torch: Any = None
_had_peers = False
_is_watched = False  # the page says that it is written by hooks
_epoch_ended = False  # the data loader of the training came to its end

evaluating = False  # looked at by the code of Module.train


def _has_peers() -> bool:
    """Whether there is, or was, another rank to wait for."""
    global _had_peers
    if not _had_peers and _c10d is not None:
        try:
            group = _c10d.GroupMember.WORLD
            _had_peers = group is not None and group.size() > 1
        except Exception:
            pass
    return _had_peers


def _enter(phase: int, frame: FrameType) -> None:
    """Must be followed by page.leave(), also if the program shows its phases itself."""
    global _is_watched
    if page.program_phases:
        page.enter(page.phase, _page.NOWHERE)
        return
    if not _is_watched:
        _is_watched = True
        page.set_flags(WATCHED)
    page.enter(phase, page.where if phase == page.phase else _where(frame))


def _set_phase(phase: int, frame: FrameType) -> None:
    """The phase outside of what the program does now."""
    global evaluating
    evaluating = phase == EVALUATING
    if not page.program_phases:
        page.set_phase(phase, _where(frame))


def _train(frame: FrameType) -> None:
    """The program trains, whatever it did before."""
    global _epoch_ended
    _epoch_ended = False
    if page.phase != TRAINING and page.base_phase != TRAINING:
        _set_phase(TRAINING, frame)


def begin_backward(tensors: Any) -> None:
    global _is_stepped
    if not page.is_open:
        return
    if _saved is not None:
        _save_is_over()
    _is_stepped = False
    frame = sys._getframe(1)
    if _loss_is_due:
        _note_loss(tensors)
    _train(frame)
    _enter(COMMUNICATING if _has_peers() else TRAINING, frame)


def begin_collective(is_async: bool = False) -> None:
    """Inside a save it is part of that: other ranks may write for long."""
    if not page.is_open:
        return
    if _saved is not None:
        _save_is_over()
    waits = not is_async and not _saves.depth and _has_peers()
    _enter(COMMUNICATING if waits else page.phase, sys._getframe(1))


def begin_loading() -> None:
    if not page.is_open:
        return
    if _saved is not None:
        _save_is_over()
    frame = sys._getframe(1)
    if _epoch_ended:
        _train(frame)
    _enter(LOADING, frame)


def end_loading() -> None:
    """After the last batch of the training nobody knows what comes."""
    global _epoch_ended
    page.leave()
    if sys.exc_info()[0] is StopIteration and page.base_phase == TRAINING:
        _set_phase(UNKNOWN, sys._getframe(1))
        _epoch_ended = True


def end() -> None:
    page.leave()


def evaluation_begins(module: Any) -> None:
    """The whole model has been told to evaluate, not only a part that is not trained."""
    if _is_compiling() or not page.is_open or not _counts:
        return
    if page.is_shown_thread() and _is_most_of_model(module):
        _save_is_over()
        _set_phase(EVALUATING, sys._getframe(1))


def training_begins() -> None:
    if page.is_shown_thread():
        _train(sys._getframe(1))


def _is_most_of_model(module: Any) -> bool:
    try:
        if not module._modules:
            trained = len(module._parameters)
        else:
            trained = sum(1 for p in module.parameters() if p.requires_grad)
        return 2 * trained > _most_parameters
    except Exception:
        return False


# -- steps and loss --------------------------------------------------------------------------

_counts: Dict[int, int] = {}  # steps of each optimizer, by its id
_is_stepped = True  # a step has followed the last backward
_most_steps = 0
_most_parameters = 0  # of an optimizer
_LOSS_EVERY_NS = 200_000_000  # more often nobody looks
_loss_is_due = True
_next_loss_ns = 0
_joined_step: List[bool] = []  # in one that is made of steps of optimizers: were there any


def _is_compiling() -> bool:
    return _torch is not None and _torch.compiler.is_compiling()


def _note_loss(tensors: Any) -> None:
    """What is not in the CPU's memory is not asked for: that would wait for the device."""
    global _loss_is_due
    _loss_is_due = False
    try:
        if type(tensors) in (list, tuple) and len(tensors) == 1:
            tensors = tensors[0]
        if (type(tensors) is _torch.Tensor and tensors.is_cpu and tensors.numel() == 1 and
                not page.program_counts):
            page.report(loss=tensors.item())
    except Exception:
        pass


def _steps_before(optimizer: Any) -> int:
    """Those of earlier lives, if its state, loaded from a checkpoint, counts them."""
    try:
        step = next(iter(optimizer.state.values()))["step"]
        if isinstance(step, (int, float)) or step.is_cpu:
            return max(0, int(step) - 1)
    except Exception:
        pass
    return 0


def _note_first_step(optimizer: Any) -> int:
    global _most_parameters
    page.show_this_thread()
    try:
        parameters = sum(len(group["params"]) for group in optimizer.param_groups)
        _most_parameters = max(_most_parameters, parameters)
    except Exception:
        pass
    if not _counts:
        _note_modules()
    return _steps_before(optimizer)


def _note_modules() -> None:
    """What has been imported by now is what a warm start of this program should have."""
    note = getattr(sys.modules.get("_crun"), "note", None)
    if note:
        note()


def _count_step(optimizer: Any, frame: FrameType) -> None:
    """Of several optimizers the one with the most steps counts."""
    global _most_steps, _loss_is_due, _next_loss_ns
    steps = _counts.get(id(optimizer))
    if steps is None:
        steps = _note_first_step(optimizer)
    _counts[id(optimizer)] = steps = steps + 1
    _train(frame)
    if steps > _most_steps:
        _most_steps = steps
        if not page.program_counts:
            now = page.report_step(steps)
            if now >= _next_loss_ns:
                _loss_is_due, _next_loss_ns = True, now + _LOSS_EVERY_NS
    if _saved is not None:
        _save_is_over()
    if page.wanted:
        _answer_request()


def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    """torch calls it after a step of any optimizer."""
    global _is_stepped
    if _is_compiling() or not page.is_open:
        return
    _is_stepped = True
    if _joined_step:
        _joined_step[-1] = True
    else:
        _count_step(optimizer, sys._getframe(1))


def begin_zero_grad(optimizer: Any) -> None:
    """A compiled step calls no hooks. It was made if gradients are given up after backward."""
    global _is_stepped
    if _is_stepped or not page.is_open:
        return
    _is_stepped = True
    _count_step(optimizer, sys._getframe(1))


def begin_step() -> None:
    """A step that steps several optimizers, or one of them several times."""
    _joined_step.append(False)


def end_step(engine: Any) -> None:
    if _joined_step and _joined_step.pop() and page.is_open:
        _count_step(engine, sys._getframe(1))


# -- checkpoints -----------------------------------------------------------------------------

class _Saves(threading.local):
    """The saves that a thread is in."""

    def __init__(self) -> None:
        self.depth = 0  # of those that write a file
        self.writes: List[bool] = []
        self.wanted = 0  # when the outermost one began
        self.error: Any = None  # handled at that time


_saves = _Saves()
_saved: Optional[int] = None  # the checkpoint that was wanted when the last save began


def _is_file(target: Any) -> bool:
    """Not a buffer in memory."""
    return not hasattr(target, "getvalue")


def begin_save(target: Any = None) -> None:
    if not page.is_open:
        return
    saves = _saves
    saves.writes.append(_is_file(target))
    if not saves.writes[-1]:
        return
    saves.depth += 1
    if saves.depth == 1:
        saves.wanted = page.wanted
        saves.error = sys.exc_info()[1]
        _enter(CHECKPOINTING, sys._getframe(1))


def end_save() -> None:
    global _saved
    saves = _saves
    if not saves.writes or not saves.writes.pop():
        return
    saves.depth -= 1
    if saves.depth == 0:
        page.leave()
        if sys.exc_info()[1] is saves.error:  # it has not failed
            page.set_flags(HAS_SAVED)
            _saved = saves.wanted
        saves.error = None


def _save_is_over() -> None:
    """The program goes on. Not before this a save counts: a checkpoint can be several files,
    and be renamed when all are there."""
    global _saved
    if _saved is None or _saves.depth:
        return
    if _saved and not page.program_saves:
        page.set_saved(_saved)
    _saved = None


def _answer_request() -> None:
    """A rank that never saves has nothing to wait for; rank 0 may save for the first time."""
    if (not page.program_saves and not page.flags & HAS_SAVED and
            os.environ.get("RANK", "0") != "0"):
        page.set_saved(page.wanted)


# -- hooks -----------------------------------------------------------------------------------

class _Hook(NamedTuple):
    """A function, the call before its body and the one after it, if any."""
    function: str
    before: str
    after: Optional[str] = None


def _collectives() -> List[_Hook]:
    # with a parameter async_op: nothing is waited for where that is true
    names = ("broadcast", "all_reduce", "reduce", "all_gather", "all_gather_into_tensor",
             "gather", "scatter", "reduce_scatter", "reduce_scatter_tensor",
             "all_to_all_single", "all_to_all", "barrier")
    waiting = ("send", "recv", "all_gather_object", "gather_object", "send_object_list",
               "recv_object_list", "broadcast_object_list", "scatter_object_list",
               "monitored_barrier")
    return ([_Hook(name, "begin_collective(async_op)", "end()") for name in names] +
            [_Hook(name, "begin_collective()", "end()") for name in waiting])


def _whole_save(name: str) -> List[_Hook]:
    return [_Hook(name, "begin_save()", "end_save()")]


_HOOKS: Dict[str, List[_Hook]] = {
    "torch.autograd": [_Hook("backward", "begin_backward(tensors)", "end()")],
    "torch.utils.data.dataloader": [
        _Hook("_BaseDataLoaderIter.__next__", "begin_loading()", "end_loading()")],
    "torch.nn.modules.module": [
        _Hook("Module.eval", "evaluation_begins(self)"),
        _Hook("Module.train", "evaluating and mode and {0}.training_begins()")],
    "torch.serialization": [_Hook("save", "begin_save(f)", "end_save()")],
    "torch.optim.optimizer": [_Hook("Optimizer.zero_grad", "begin_zero_grad(self)")],
    "torch._dynamo.eval_frame": [],
    "torch.distributed.distributed_c10d": _collectives(),
    "torch.distributed.checkpoint.state_dict_saver": _whole_save("save"),
    "torch.distributed.fsdp._fully_shard._fsdp_param_group": [
        _Hook("FSDPParamGroup.wait_for_unshard", "begin_collective()", "end()")],
    "safetensors.torch": _whole_save("save_file"),
    "lightning.pytorch.trainer.trainer": _whole_save("Trainer.save_checkpoint"),
    "pytorch_lightning.trainer.trainer": _whole_save("Trainer.save_checkpoint"),
    "transformers.trainer": _whole_save("Trainer._save_checkpoint"),
    "accelerate.accelerator": _whole_save("Accelerator.save_state"),
    "deepspeed.runtime.engine": [
        *_whole_save("DeepSpeedEngine.save_checkpoint"),
        _Hook("DeepSpeedEngine._take_model_step", "begin_step()", "end_step(self)")],
}

_NAME = "_crun_watch"  # of this module among the globals of the hooked functions


class _Source:
    """The lines of a module, to compile its functions from."""

    def __init__(self, module: ModuleType) -> None:
        import tokenize
        with tokenize.open(module.__file__ or "") as file:
            self.lines = file.readlines()

    def compile(self, function: FunctionType, hook: Optional[_Hook]) -> CodeType:
        """The code of the function; with the hook's calls around its body, if given."""
        import ast
        import inspect
        old = function.__code__
        first = old.co_firstlineno
        text = "".join(inspect.getblock(self.lines[first - 1:]))
        classes = function.__qualname__.split(".")[:-1]
        head = "".join(f"{' ' * depth}class {name}:\n" for depth, name in enumerate(classes))
        tree = ast.parse(head + text)
        ast.increment_lineno(tree, first - 1 - len(classes))
        imports = [ast.alias(name) for name in _imported_names(function)]
        if imports:
            tree.body.insert(0, ast.fix_missing_locations(ast.Import(imports)))
        if hook:
            _put_calls_around(_find_definition(tree, old.co_name), hook)
        code = compile(tree, old.co_filename, "exec", dont_inherit=True,
                       flags=old.co_flags & _compiler_flags())
        return _find_code(code, old)


def _imported_names(function: FunctionType) -> List[str]:
    """The names that its module has most likely imported. The compiler makes other code for
    calls of their attributes."""
    found = []
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        home = getattr(value, "__module__", None)
        if type(value) is ModuleType or home not in (None, function.__module__):
            found.append(name)
    return found


def _compiler_flags() -> int:
    import __future__
    flags = 0
    for name in __future__.all_feature_names:
        flags |= getattr(__future__, name).compiler_flag
    return flags & ~0x10  # "nested", whose flag means another thing in code


def _find_definition(tree: Any, name: str) -> Any:
    import ast
    return next(node for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef) and node.name == name)


def _find_code(code: CodeType, like: CodeType) -> CodeType:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if (const.co_name, const.co_firstlineno) == (like.co_name, like.co_firstlineno):
                return const
            try:
                return _find_code(const, like)
            except LookupError:
                pass
    raise LookupError(like.co_name)


def _put_calls_around(definition: Any, hook: _Hook) -> None:
    import ast
    body = definition.body
    doc = body[:1] if ast.get_docstring(definition, clean=False) is not None else []
    rest = body[len(doc):]

    def call(text: str) -> Any:
        statement = ast.parse(f"{_NAME}.{text.format(_NAME)}").body[0]
        for node in ast.walk(statement):
            if hasattr(node, "lineno"):
                ast.copy_location(node, rest[0])
        return statement

    if hook.after:
        guarded = ast.Try(body=rest, handlers=[], orelse=[], finalbody=[call(hook.after)])
        rest = [ast.copy_location(guarded, rest[0])]
    definition.body = [*doc, call(hook.before), *rest]


def _same(a: CodeType, b: CodeType, *names: str) -> bool:
    return all(getattr(a, name) == getattr(b, name) for name in names)


def _find_function(module: ModuleType, name: str) -> FunctionType:
    import inspect
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    return inspect.unwrap(found)


def _replace_code(module: ModuleType, source: _Source, hook: _Hook) -> None:
    function = _find_function(module, hook.function)
    if function.__globals__ is not module.__dict__:
        raise LookupError(f"{hook.function} is defined elsewhere")
    old = function.__code__
    if not _same(old, source.compile(function, None), "co_code", "co_names", "co_varnames"):
        raise LookupError(f"{hook.function} is not what its source says")
    new = source.compile(function, hook)
    if not _same(old, new, "co_varnames", "co_freevars", "co_cellvars", "co_argcount",
                 "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_firstlineno"):
        raise LookupError(f"{hook.function} would change")
    if hasattr(old, "co_qualname"):
        new = new.replace(co_qualname=old.co_qualname)
    module.__dict__[_NAME] = sys.modules[__name__]
    function.__code__ = new


def _keep_from_compiler(skip_code: Any) -> None:
    """torch.compile leaves the functions of this module and of the page as they are."""
    for functions in (globals(), vars(_page), vars(_page.Page)):
        for function in functions.values():
            function = getattr(function, "fget", function)
            if isinstance(function, FunctionType):
                skip_code(function.__code__)


left_out: List[str] = []  # hooks that do not fit, and why, for tests


def _hook_module(module: ModuleType) -> None:
    global _torch, _c10d
    try:
        if module.__name__.startswith("torch."):
            _torch = sys.modules.get("torch")
        if module.__name__ == "torch.distributed.distributed_c10d":
            _c10d = module
        if module.__name__ == "torch.optim.optimizer":
            module.register_optimizer_step_post_hook(after_step)
        if module.__name__ == "torch._dynamo.eval_frame":
            _keep_from_compiler(module.skip_code)
        source = _Source(module)
    except Exception as e:
        left_out.append(f"{module.__name__}: {e!r}")
        return
    for hook in _HOOKS[module.__name__]:
        try:
            _replace_code(module, source, hook)
        except Exception as e:
            left_out.append(f"{module.__name__}.{hook.function}: {e!r}")


# -- when a module has been imported -----------------------------------------------------------

class _HookedSpec(ModuleSpec):
    """The spec of a module to hook, until it has been imported.

    The import system takes back `_initializing` after the code of the module has run. So
    nothing of this module is on the stack while it runs, which tracebacks would show.
    """

    @property
    def _initializing(self) -> bool:
        return self.__dict__.get("_initializing", False)

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__dict__["_initializing"] = value
        if value:
            return
        self.__class__ = ModuleSpec  # type: ignore[assignment]
        module = sys.modules.get(self.name)
        if type(module) is ModuleType:
            _hook_module(module)


_HookedSpec.__name__ = _HookedSpec.__qualname__ = "ModuleSpec"


class _Finder:
    """Has the other finders look for the modules to hook."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if name not in _HOOKS:
            return None
        for finder in sys.meta_path:
            find = None if finder is _Finder else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if type(spec) is ModuleSpec:
                    spec.__class__ = _HookedSpec
                return spec
        return None


def prepare() -> None:
    """Hooks what has been imported, and the rest once it is imported."""
    if _Finder in sys.meta_path:
        return
    sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
    for name in _HOOKS:
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if type(module) is ModuleType and not getattr(spec, "_initializing", False):
            _hook_module(module)


def start() -> None:
    """In a worker: the hooks write to its page."""
    prepare()
    page.open()
