# SPDX-License-Identifier: MIT
"""What a training program tells its crun, and asks it.

    import crun

    for step, batch in enumerate(batches, first):
        loss = train(batch)
        crun.progress(step, steps=last, loss=loss, samples=seen)
        if crun.checkpoint_wanted():
            save(step)
            crun.checkpoint_done()

    with crun.evaluating():
        evaluate()

Nothing here needs crun: without it, and in processes that a worker starts, progress goes
nowhere and no checkpoint is wanted. `crun --watch` follows programs that use torch without
any of this; what the program reports itself counts more than what it sees.

`crun.lightning.Progress` and `crun.transformers.Progress` are callbacks for these trainers.
"""
import os
import sys
from typing import Any, Optional, SupportsFloat, Union

# if --watch has opened the page in this process, its writer is the only one
if "_crun.page" in sys.modules:
    sys.modules[__name__ + ".page"] = sys.modules["_crun.page"]
from . import page  # noqa: E402
from ._record import record  # noqa: E402

__all__ = ["progress", "done", "training", "evaluating", "checkpointing", "communicating",
           "loading", "checkpoint_wanted", "checkpoint_within", "checkpoint_done", "record",
           "is_present", "rank", "local_rank", "world_size", "local_world_size", "node",
           "nodes", "restarts", "max_restarts", "epoch", "job"]

_page: Any = page.worker_page
_page.open()

_PHASES = {name: number for number, name in enumerate(page.PHASES) if number}


def is_present() -> bool:
    """Whether this is a worker of crun that has a status page."""
    return bool(_page.open())


# -- progress --------------------------------------------------------------------------------


def _line(depth: int) -> bytes:
    """The line of the program, so many calls outside of this function."""
    frame = sys._getframe(depth + 1)
    name = os.path.basename(frame.f_code.co_filename)
    return bytes(page.where_field(f"{name}:{frame.f_lineno} ({frame.f_code.co_name})"))


def progress(step: int, *, steps: Optional[int] = None,
             loss: Union[None, float, SupportsFloat] = None, samples: Optional[int] = None,
             phase: Optional[str] = None) -> None:
    """This many steps are done, in all lives of the job; of `steps` in all, if known.

    The loss is a number, or has one element; one in the memory of a GPU makes the program
    wait for that GPU. `samples` were seen by this rank in this life. The phase is that of
    the program outside of all `with` blocks below: "training" unless given here.
    """
    if not _page.open():
        return
    is_restored = step == _page.restored_step  # and its first step, of several batches, is not over
    if not _page.program_counts and step > 0:
        _page.program_counts = True
        _page.set_first_step(int(step) + is_restored)
    _page.report(None if is_restored else step, steps, samples, None if loss is None else float(loss))
    if phase is not None:
        _page.program_phases = True
        _page.set_flags(0, page.WATCHED)
        _page.set_phase(_PHASES[phase], _line(1))
    elif _page.base_phase == page.UNKNOWN:
        _page.set_phase(page.TRAINING, _line(1))
    _answer_request()


def done() -> None:
    """The training is over; what the program still does is no hang."""
    if _page.open():
        _page.program_phases = True
        _page.set_flags(0, page.WATCHED)
        _page.set_phase(page.DONE, _line(1))


class _Phase:
    """A phase of the program: a context manager."""

    def __init__(self, phase: int) -> None:
        self._phase = phase
        self._entered = False

    def __enter__(self) -> None:
        global _number
        if self._phase == page.CHECKPOINTING and _number is None:
            _number = _page.wanted
        self._entered = _page.open() and _page.enter(self._phase, _line(1))

    def __exit__(self, *error: Any) -> None:
        if self._entered:
            _page.leave()


def training() -> _Phase:
    """A with block that trains, inside of one that does something else."""
    return _Phase(page.TRAINING)


def evaluating() -> _Phase:
    """A with block that evaluates: it may take as long as many steps."""
    return _Phase(page.EVALUATING)


def checkpointing() -> _Phase:
    """A with block that writes a checkpoint: it may take as long as many steps."""
    return _Phase(page.CHECKPOINTING)


def communicating() -> _Phase:
    """A with block that waits for other ranks, which are to blame if it hangs."""
    return _Phase(page.COMMUNICATING)


def loading() -> _Phase:
    """A with block that loads data: it may take as long as many steps."""
    return _Phase(page.LOADING)


# -- checkpoints on request ------------------------------------------------------------------

_has_asked = False
_questions = 0  # of all ranks together
_number: Optional[int] = None  # wanted when the checkpoint began; None: not known


def checkpoint_wanted(*, together_every: int = 0) -> bool:
    """Whether crun wants a checkpoint now, before it changes the nodes of the job.

    To be asked after each step. The ranks get to know of it within a step of each other. If
    they save together, they must agree to: with `together_every=10`, and torch.distributed,
    they do in each tenth call, which all of them must make, and the others return False.
    """
    global _has_asked, _number, _questions
    if not _page.open():
        return False
    _has_asked = _page.program_saves = True
    wanted = _page.wanted
    if together_every:
        _questions += 1
        if _questions % together_every:
            return False
        if not _is_true_anywhere(wanted != 0):
            return False
        wanted = _page.wanted  # those that did not know may know by now
        _number = wanted or None
        return True
    _number = wanted
    return wanted != 0


def _is_true_anywhere(value: bool) -> bool:
    """Of the ranks of torch.distributed, if it is in use."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_initialized():
        return value
    if distributed.get_world_size() == 1:
        return value
    import torch
    device = "cuda" if "nccl" in distributed.get_backend() else "cpu"
    answer = torch.tensor([int(value)], device=device)
    distributed.all_reduce(answer, distributed.ReduceOp.MAX)
    return bool(answer.item())


def checkpoint_within() -> float:
    """The seconds that crun waits for the checkpoint, from when it wanted it."""
    return float(_page.wanted_within) if _page.open() else 0.0


def checkpoint_done() -> None:
    """The checkpoint is safe. Every rank says so, also those that write none of it.

    It is what crun wanted if it began after crun did: after checkpoint_wanted() was asked,
    or with checkpointing() was begun, the last time before.
    """
    global _number
    if not _page.open():
        return
    _page.set_flags(page.HAS_SAVED)
    number = _page.wanted if _number is None else _number
    if number:
        _page.set_saved(number)
    _number = None


def _answer_request() -> None:
    """A rank that never asks nor saves has nothing that crun could wait for."""
    if (not _has_asked and _page.wanted and rank() != 0 and
            not _page.flags & page.HAS_SAVED):
        _page.set_saved(_page.wanted)


# -- what crun, or torchrun, has said ----------------------------------------------------------


def _variable(name: str, otherwise: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return otherwise


def rank() -> int:
    """This worker among all of the job; 0 without a launcher."""
    return _variable("RANK", 0)


def local_rank() -> int:
    """This worker among those of its node."""
    return _variable("LOCAL_RANK", 0)


def world_size() -> int:
    """The workers of the job; 1 without a launcher."""
    return _variable("WORLD_SIZE", 1)


def local_world_size() -> int:
    """The workers of this node."""
    return _variable("LOCAL_WORLD_SIZE", 1)


def node() -> int:
    """This node among those of the job."""
    return _variable("GROUP_RANK", 0)


def nodes() -> int:
    """The nodes of the job. They may be fewer or more after a restart."""
    return _variable("GROUP_WORLD_SIZE", 1)


def restarts() -> int:
    """How often the job was restarted after a failure; 0 in its first life."""
    return _variable("TORCHELASTIC_RESTART_COUNT", 0)


def max_restarts() -> int:
    """How often it may be."""
    return _variable("TORCHELASTIC_MAX_RESTARTS", 0)


def epoch() -> int:
    """The number of this life of the job: it grows with each start of the workers, also with
    those that are not counted as restarts. Under torchrun, restarts() + 1."""
    return _variable("CRUN_EPOCH", restarts() + 1)


def job() -> str:
    """The name of the job (--rdzv-id); "" without a launcher."""
    return os.environ.get("TORCHELASTIC_RUN_ID", "")
