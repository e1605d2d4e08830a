# SPDX-License-Identifier: MIT
"""Shows the progress of programs that do not report any: the hooks of `crun --watch`.

`prepare` hooks the modules named in _HOOKS when they have been imported: steps by torch's
own hook for optimizers, phases (backward, collectives, data loading, saving, evaluating) by
a few functions whose code is replaced by the same code between two calls of this module.
The functions stay the same objects, and their frames, lines and names stay as they were: no
traceback, inspection or compiler sees a difference. A hook that does not fit the installed
version is left out. Nothing is written unless this process has a status page.
"""
import atexit
import os
import sys
import threading
from types import FrameType, FunctionType, ModuleType
from typing import Any, Dict, List, Optional

from . import import_watch, program_line
from . import page as _page
from .hooked_code import Hook, Source, hook_function
from .page import (CHECKPOINTING, COMMUNICATING, EVALUATING, HAS_SAVED, LOADING, TRAINING,
                   UNKNOWN, WATCHED)
from .program_line import innermost

page = _page.worker_page


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
    page.enter(phase, page.where if phase == page.phase else innermost(frame))


def _set_phase(phase: int, frame: FrameType) -> None:
    """The phase outside of what the program does now."""
    global evaluating
    evaluating = phase == EVALUATING
    if not page.program_phases:
        page.set_phase(phase, innermost(frame))


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


def _steps_before(optimizer: Any) -> Optional[int]:
    """Those of earlier lives, if its state, loaded from a checkpoint, counts them."""
    try:
        step = next(iter(optimizer.state.values()))["step"]
        if isinstance(step, (int, float)) or step.is_cpu:
            return max(0, int(step) - 1)
    except Exception:
        pass
    return None


def _note_first_step(optimizer: Any) -> Optional[int]:
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
        before = _note_first_step(optimizer)
        steps = before or 0
        if steps >= _most_steps and not page.program_counts:
            page.set_first_step(_page.UNPLACED if before is None else before + 1)
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
    if _is_compiling() or not page.is_open or _is_preparing:
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


_is_preparing = False  # an optimizer makes a step that gives it the state to load into


def begin_preparing() -> None:
    global _is_preparing
    _is_preparing = True


def end_preparing() -> None:
    global _is_preparing
    _is_preparing = False


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


# -- torch's flight recorder ---------------------------------------------------------

_RECORDER_NAMES = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "TORCH_FR_BUFFER_SIZE",
                   "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "TORCH_FR_DUMP_TEMP_FILE"}
_RECORDER_RENAMED = (2, 8)  # the release from which torch warns of the old names


def _rename_recorder_variables() -> None:
    """crun does not know which torch the program has, and sets those that all know."""
    if _c10d is None or "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" not in os.environ:
        return
    version = str(_torch.__version__).split(".")
    if (int(version[0]), int(version[1])) >= _RECORDER_RENAMED:
        for old, new in _RECORDER_NAMES.items():
            if old in os.environ and new not in os.environ:
                os.environ[new] = os.environ.pop(old)


# -- hooks -----------------------------------------------------------------------------------

def _collectives() -> List[Hook]:
    # with a parameter async_op: nothing is waited for where that is true
    names = ("broadcast", "all_reduce", "reduce", "all_gather", "all_gather_into_tensor",
             "gather", "scatter", "reduce_scatter", "reduce_scatter_tensor",
             "all_to_all_single", "all_to_all", "barrier")
    waiting = ("send", "recv", "all_gather_object", "gather_object", "send_object_list",
               "recv_object_list", "broadcast_object_list", "scatter_object_list",
               "monitored_barrier")
    return ([Hook(name, "begin_collective(async_op)", "end()") for name in names] +
            [Hook(name, "begin_collective()", "end()") for name in waiting])


def _whole_save(name: str) -> List[Hook]:
    return [Hook(name, "begin_save()", "end_save()")]


_HOOKS: Dict[str, List[Hook]] = {
    "torch.autograd": [Hook("backward", "begin_backward(tensors)", "end()")],
    "torch.utils.data.dataloader": [
        Hook("_BaseDataLoaderIter.__next__", "begin_loading()", "end_loading()")],
    "torch.nn.modules.module": [
        Hook("Module.eval", "evaluation_begins(self)"),
        Hook("Module.train", "evaluating and mode and {0}.training_begins()")],
    "torch.serialization": [Hook("save", "begin_save(f)", "end_save()")],
    "torch.optim.optimizer": [Hook("Optimizer.zero_grad", "begin_zero_grad(self)")],
    "torch._dynamo.eval_frame": [],
    "torch.distributed.distributed_c10d": _collectives(),
    "torch.distributed.checkpoint.state_dict": [
        Hook("_init_optim_state", "begin_preparing()", "end_preparing()")],
    "torch.distributed.checkpoint.state_dict_saver": _whole_save("save"),
    "torch.distributed.fsdp._fully_shard._fsdp_param_group": [
        Hook("FSDPParamGroup.wait_for_unshard", "begin_collective()", "end()")],
    "safetensors.torch": _whole_save("save_file"),
    "lightning.pytorch.trainer.trainer": _whole_save("Trainer.save_checkpoint"),
    "pytorch_lightning.trainer.trainer": _whole_save("Trainer.save_checkpoint"),
    "transformers.trainer": _whole_save("Trainer._save_checkpoint"),
    "accelerate.accelerator": _whole_save("Accelerator.save_state"),
    "deepspeed.runtime.engine": [
        *_whole_save("DeepSpeedEngine.save_checkpoint"),
        Hook("DeepSpeedEngine._take_model_step", "begin_step()", "end_step(self)")],
}

def _keep_from_compiler(skip_code: Any) -> None:
    """torch.compile leaves the functions of this module and of the page as they are."""
    for functions in (globals(), vars(program_line), vars(_page), vars(_page.Page)):
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
            _rename_recorder_variables()
        if module.__name__ == "torch.optim.optimizer":
            module.register_optimizer_step_post_hook(after_step)
        if module.__name__ == "torch._dynamo.eval_frame":
            _keep_from_compiler(module.skip_code)
        source = Source(module)
    except Exception as e:
        left_out.append(f"{module.__name__}: {e!r}")
        return
    for hook in _HOOKS[module.__name__]:
        try:
            hook_function(module, source, hook, sys.modules[__name__])
        except Exception as e:
            left_out.append(f"{module.__name__}.{hook.function}: {e!r}")


def _begin_end() -> None:
    """The interpreter ends, which takes seconds with torch. A training in another thread
    goes on until then."""
    if getattr(sys, "last_value", None) is not None:
        page.set_flags(_page.RAISED)
    if page.is_shown_thread() and not page.is_blank:
        page.set_phase(_page.DONE, _page.NOWHERE)


def prepare() -> None:
    """Hooks what has been imported, and the rest once it is imported."""
    import_watch.begin(_HOOKS, _hook_module)


def start() -> None:
    """In a worker: the hooks write to its page."""
    prepare()
    _rename_recorder_variables()
    page.open()
    if hasattr(threading, "_register_atexit"):  # before other threads are waited for
        threading._register_atexit(_begin_end)
    atexit.register(_begin_end)
