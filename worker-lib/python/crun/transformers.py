# SPDX-License-Identifier: MIT
"""For the Trainer of transformers: Trainer(..., callbacks=[crun.transformers.Progress()])."""
from typing import Any, Dict, Optional

from transformers import TrainerCallback

import crun


class Progress(TrainerCallback):  # type: ignore[misc]
    """Reports steps, losses and evaluations to crun, and saves when crun wants it to.

    The checkpoint is one of the trainer's own, so that
    `trainer.train(resume_from_checkpoint=True)` goes on from it. The ranks agree on it once
    in `together_every` steps.
    """

    def __init__(self, together_every: int = 10) -> None:
        self._together_every = together_every
        self._evaluation: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end_evaluation()
        crun.progress(state.global_step, steps=state.max_steps)
        every = self._together_every if args.world_size > 1 else 0
        if crun.checkpoint_wanted(together_every=every):
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        crun.checkpoint_done()

    def on_log(self, args: Any, state: Any, control: Any,
               logs: Optional[Dict[str, Any]] = None, **_: Any) -> None:
        if logs and "loss" in logs:
            crun.progress(state.global_step, loss=logs["loss"])

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._evaluation is None:
            self._evaluation = crun.evaluating()
            self._evaluation.__enter__()

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end_evaluation()

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None,
                   **_: Any) -> None:
        self._end_evaluation()

    def _end_evaluation(self) -> None:
        if self._evaluation is not None:
            self._evaluation.__exit__()
            self._evaluation = None
