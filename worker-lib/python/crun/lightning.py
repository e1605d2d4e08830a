# SPDX-License-Identifier: MIT
"""For Lightning's Trainer: Trainer(callbacks=[crun.lightning.Progress()])."""
import math
import os
import sys
from typing import Any, Optional

import crun

if "pytorch_lightning" in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


# Lightning itself does not resume them within an epoch: hooks that begin it are left out
_NOT_RESUMED = {"BaseFinetuning", "StochasticWeightAveraging"}


class Progress(Callback):  # type: ignore[misc]
    """Reports steps, losses and evaluations to crun, and saves when crun wants it to.

    The checkpoint is `last.ckpt` in the folder of the trainer's ModelCheckpoint, so that
    `trainer.fit(..., ckpt_path="last")` goes on from it, or the file given here. The ranks
    agree on it once in `together_every` batches.
    """

    def __init__(self, path: Optional[str] = None, together_every: int = 10) -> None:
        self._path = path
        self._together_every = together_every
        self._evaluation: Any = None
        self._samples = 0

    # -- steps

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        crun._page.restored_step = trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any,
                           batch_idx: int) -> None:
        self._samples += _length(batch)
        crun.progress(trainer.global_step, steps=_steps(trainer), samples=self._samples,
                      loss=_loss(trainer, outputs))
        self._save_if_wanted(trainer)

    def _save_if_wanted(self, trainer: Any) -> None:
        every = self._together_every if trainer.world_size > 1 else 0
        if crun.checkpoint_wanted(together_every=every):
            with crun.checkpointing():
                trainer.save_checkpoint(self._path or _last_checkpoint(trainer))
            crun.checkpoint_done()

    # -- evaluations

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin_evaluation()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._end_evaluation()

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin_evaluation()

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        self._end_evaluation()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end_evaluation()

    def _begin_evaluation(self) -> None:
        if self._evaluation is None:
            self._evaluation = crun.evaluating()
            self._evaluation.__enter__()

    def _end_evaluation(self) -> None:
        if self._evaluation is not None:
            self._evaluation.__exit__()
            self._evaluation = None


class Memory(Progress):
    """Has a checkpoint in memory each `every` steps, and goes on from it by itself:

        Trainer(callbacks=[crun.lightning.Memory()]).fit(...)

    In files they are `step-N` in `folder` (`crun-memory` in default_root_dir), one each
    `files_every` steps and when crun wants one; `keep` stay.
    """

    def __init__(self, folder: Optional[str] = None, every: int = 1, files_every: int = 0,
                 keep: int = 2) -> None:
        super().__init__()
        self._folder, self._how = folder, {"every": every, "files_every": files_every, "keep": keep}
        self._fit: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit" or self._fit:
            return
        kinds = {kind.__name__ for kind in type(trainer.strategy).__mro__}
        if "DeepSpeedStrategy" in kinds or not kinds & {"DDPStrategy", "SingleDeviceStrategy"}:
            return self._say(trainer, f"nothing in memory with {type(trainer.strategy).__name__}: it takes one "
                             "process, or DDP")
        for callback in trainer.callbacks:
            if _NOT_RESUMED.intersection(kind.__name__ for kind in type(callback).__mro__):
                return self._say(trainer, f"nothing in memory with {type(callback).__name__}: Lightning itself does "
                                 "not resume it within an epoch; its own checkpoints are as without crun")
        from .checkpoint import Checkpointer  # imports torch.distributed.checkpoint
        from .checkpoint.fit import Fit
        folder = self._folder or os.path.join(trainer.default_root_dir, "crun-memory")
        self._fit = Fit(trainer, lambda state: Checkpointer(folder, state, **self._how),
                        lambda text: self._say(trainer, text))

    def _say(self, trainer: Any, text: str) -> None:
        if trainer.is_global_zero:
            print(f"crun.lightning: {text}", file=sys.stderr, flush=True)

    def _save_if_wanted(self, trainer: Any) -> None:
        if not self._fit:  # else its Checkpointer looks
            super()._save_if_wanted(trainer)


def _steps(trainer: Any) -> Optional[int]:
    steps = trainer.estimated_stepping_batches
    return int(steps) if 0 < steps < math.inf else None


def _loss(trainer: Any, outputs: Any) -> Optional[float]:
    """From the memory of a GPU only as often as Lightning itself looks at it."""
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
    if loss is None or getattr(loss, "numel", lambda: 1)() != 1:
        return None
    if getattr(loss, "is_cpu", True) or trainer.global_step % trainer.log_every_n_steps == 0:
        return float(loss)
    return None


def _length(batch: Any) -> int:
    """Its samples, where that is plain to see."""
    if isinstance(batch, dict):
        batch = next(iter(batch.values()), None)
    elif isinstance(batch, (list, tuple)):
        batch = batch[0] if batch else None
    shape = getattr(batch, "shape", ())
    return int(shape[0]) if len(shape) else 0


def _last_checkpoint(trainer: Any) -> str:
    folder = getattr(trainer.checkpoint_callback, "dirpath", None) or trainer.default_root_dir
    return os.path.join(folder, "last.ckpt")
