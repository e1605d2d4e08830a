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

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any,
                           batch_idx: int) -> None:
        self._samples += _length(batch)
        crun.progress(trainer.global_step, steps=_steps(trainer), samples=self._samples,
                      loss=_loss(trainer, outputs))
        every = self._together_every if trainer.world_size > 1 else 0
        if crun.checkpoint_wanted(together_every=every):
            self._save(trainer)

    def _save(self, trainer: Any) -> None:
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
