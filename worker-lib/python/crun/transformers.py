# SPDX-License-Identifier: MIT
"""For the Trainer of transformers: Trainer(..., callbacks=[crun.transformers.Progress()])."""
import copy
import glob
import json
import os
import sys
import zipfile
from typing import Any, Dict, Optional, Tuple

from transformers import TrainerCallback

import crun

from .checkpoint.files_in_memory import TrainerCheckpoints


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


class Memory(Progress):
    """Has the trainer's checkpoints in memory as well, one each `every` steps:

        memory = crun.transformers.Memory()
        trainer = Trainer(..., callbacks=[memory])
        trainer.train(resume_from_checkpoint=memory.restore(trainer))

    They are those that the trainer would write after a step, with its logs and evaluations.
    """

    def __init__(self, every: int = 1, together_every: int = 10) -> None:
        super().__init__(together_every)
        self._every, self._epoch_ends = every, False
        self._memory: Any = None

    def restore(self, trainer: Any) -> Optional[str]:
        """The folder of the newest checkpoint that is whole, in memory or in files, if any is."""
        self._trainer, self._trainer_does = trainer, trainer._maybe_log_save_evaluate
        trainer._maybe_log_save_evaluate = self._after_a_step
        every = self._every
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:  # all ranks write into one folder
            every = 0
            if trainer.args.process_index == 0:
                print("crun.transformers: nothing in memory with FSDP or DeepSpeed: it takes one process, or DDP",
                      file=sys.stderr, flush=True)
        self._memory = TrainerCheckpoints(os.path.join(trainer.args.output_dir, "crun-memory"),
                                          every, self._write)
        in_files, newest = self._memory.agreed(_newest_in_files(trainer.args))
        step, folder = self._memory.restore(newest)
        return os.path.join(folder, f"checkpoint-{step}") if step else in_files

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._memory is None:
            raise RuntimeError("crun.transformers.Memory: call its restore(trainer) first")

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._epoch_ends = True

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        super().on_save(args, state, control, **more)
        if not args.save_only_model:  # from which no training goes on
            self._memory.is_in_files(state.global_step)

    def _after_a_step(self, *words: Any, **more: Any) -> None:
        self._trainer_does(*words, **more)
        ends, self._epoch_ends = self._epoch_ends, False
        state = self._trainer.state
        if ends or not float(state.epoch).is_integer():  # else the epoch's evaluation comes
            self._memory.step(state.global_step)

    def _write(self, folder: str) -> None:
        trainer, args = self._trainer, self._trainer.args
        trainer.args = copy.copy(args)
        trainer.args.output_dir = folder
        trainer.args.push_to_hub = trainer.args.save_only_model = False
        trainer.args.save_strategy = "no"  # the best one is not there
        try:
            trainer._save_checkpoint(trainer.model_wrapped, None)
        finally:
            trainer.args = args


def _newest_in_files(args: Any) -> Tuple[Optional[str], int]:
    """A trainer that is killed leaves one that is not whole, from which it would go on with
    another optimizer."""
    whole = [(_ranks_of(path) == args.world_size, int(path.rsplit("-", 1)[1]), path)
             for path in glob.glob(os.path.join(glob.escape(args.output_dir), "checkpoint-*"))
             if path.rsplit("-", 1)[1].isdecimal() and _ranks_of(path)]
    is_of_all, step, path = max(whole, default=(False, 0, None))
    return path, step if is_of_all else 0


def _ranks_of(path: str) -> int:
    """Those with random generators in a checkpoint; 0: it is not whole."""
    files = glob.glob(os.path.join(glob.escape(path), "rng_state*.pth"))
    try:
        with open(os.path.join(path, "trainer_state.json")) as file:
            json.load(file)
    except (OSError, ValueError):
        return 0
    return len(files) if all(zipfile.is_zipfile(file) for file in files) else 0
