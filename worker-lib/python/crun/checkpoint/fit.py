# SPDX-License-Identifier: MIT
"""What Lightning's Trainer has between two batches, on each rank.

Its own checkpoint has no place of a data loader, no random generators, and nothing of an epoch's
metrics; and its loops do what comes at the end of an epoch twice or not at all, if they go on from
there. So Lightning loads what its checkpoint has, and the rest is put in place when all of its hooks
before the next batch are over.
"""
import builtins
import sys
import warnings
from collections import defaultdict, deque
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import torch

from .checkpointer import Checkpointer
from .loaders import Place
from .state import FILES, Files, rng_state, set_rng_state

_NOT_SAVED = ("state_dict", "optimizer_states", "lr_schedulers", "hparams_name", "hyper_parameters", "hparams_type",
              "datamodule_hparams_name", "datamodule_hyper_parameters", "datamodule_hparams_type")
_OF_CALLBACKS = "_last_global_step_saved", "_last_checkpoint_saved", "_defer_save_until_validation"
_OF_LOGGERS = "_progress_bar_metrics", "_logged_metrics", "_callback_metrics", "_current_fx", "_first_loop_iter"
_OF_METRICS = "_update_count", "_computed", "_forward_cache"
_OF_META = ("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph", "add_dataloader_idx",
            "dataloader_idx", "metric_attribute")
_OF_DDP = ("require_forward_param_sync",)  # False with an optimization of its own: buffers stay the rank's
_OF_SYNC = "_should", "rank_zero_only"


def _wrap(owner: Any, name: str, call: "Callable[..., Any]") -> None:
    """call(original, ...) instead."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *words: call(original, *words))


def _get(thing: Any, names: Any) -> Dict[str, Any]:
    return {name: getattr(thing, name) for name in names if hasattr(thing, name)}


def _addresses(tensors: Dict[str, Any]) -> Set[int]:
    return {t.data_ptr() for t in tensors.values() if isinstance(t, torch.Tensor)}


def _metric_state(metric: Any) -> Dict[str, Any]:
    state = _get(metric, (*metric._defaults, *_OF_METRICS))
    return {name: list(value) if isinstance(value, list) else value for name, value in state.items()}


def _metrics(module: Any) -> Iterator[Tuple[str, Any]]:
    """Those of torchmetrics, whose states are in no state_dict."""
    return ((name, m) for name, m in module.named_modules() if hasattr(m, "_defaults") and hasattr(m, "compute"))


def _is_lightnings(method: Any) -> bool:
    return method.__module__.startswith(("lightning.", "pytorch_lightning."))


def _mark(value: Any) -> Any:
    """What differs after a change, as far as that is quickly seen; None: no plain value."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return value._version
    return (len(value),) if isinstance(value, (list, dict, set, deque)) else None


def _marks(trainer: Any) -> Dict[str, Any]:
    """Of attributes of the program that are in no checkpoint."""
    module = trainer.lightning_module
    root = next(kind for kind in type(module).__mro__ if kind.__name__ == "LightningModule")
    lightnings, name = set(vars(root())), type(module).__name__
    owners = {}
    if _is_lightnings(type(module).on_save_checkpoint):
        owners = {".".join((name, *path.split("."))).rstrip("."): m for path, m in module.named_modules()
                  if not hasattr(m, "_defaults")}
    owners.update({type(c).__name__: c for c in trainer.callbacks if not c.__module__.startswith("crun.") and
                   not _is_lightnings(type(c)) and _is_lightnings(type(c).state_dict)})
    return {f"{owner}.{key}": _mark(value) for owner, thing in owners.items()
            for key, value in vars(thing).items() if owner != name or key not in lightnings}


def _results_state(results: Any) -> Dict[str, Any]:
    """What self.log() has gathered."""
    return {key: {"meta": _get(m.meta, _OF_META), "sync": _get(m.meta.sync, _OF_SYNC),
                  "reduce": [m.meta.reduce_fx.__name__, m.meta.reduce_fx in (sum, max, min)],
                  "is_tensor": m.is_tensor, "has_reset": m.has_reset, "state": _metric_state(m)}
            for key, m in results.items() if m.meta.sync.group is None}


def _load_results(trainer: Any, results: Any, saved: Dict[str, Any]) -> None:
    kinds: Any = sys.modules[type(results).__module__]
    results.clear()
    for key, value in saved.items():
        name, is_builtin = value["reduce"]
        meta = kinds._Metadata(reduce_fx=getattr(builtins if is_builtin else torch, name), **value["meta"])
        meta.sync = kinds._Sync(fn=trainer.strategy.reduce, **value["sync"])
        metric = kinds._ResultMetric(meta, value["is_tensor"])
        vars(metric).update(value["state"], has_reset=value["has_reset"])
        if not value["is_tensor"]:
            metric.value = trainer.lightning_module.get_submodule(meta.metric_attribute)
        results[key] = metric.to(trainer.strategy.root_device)


def _has_processes(loader: Any) -> bool:
    """Or had them in a life before, and makes them when it is asked."""
    place = getattr(loader, "crun_place", None)
    return getattr(loader, "_iterator", None) is not None or bool(place and place.makes_processes_again)


class Fit:
    """Saves after each step of a fit and, before its first one, restores. make(state) makes the
    Checkpointer."""

    def __init__(self, trainer: Any, make: "Callable[[Dict[str, Any]], Checkpointer]",
                 say: "Callable[[str], None]") -> None:
        self._trainer, self._make, self._say = trainer, make, say
        self._loop, self._epoch = trainer.fit_loop, trainer.fit_loop.epoch_loop
        self._memory: Optional[Checkpointer] = None
        self._files = Files(self._gradients)
        self._loaded: Any = None  # until the first batch
        self._places: List[Place] = []
        self._is_setting_up, self._has_processes = False, []
        self._said: Set[str] = set()
        self._looked: Optional[Tuple[int, Dict[str, Any]]] = (-1, {})
        _wrap(trainer._checkpoint_connector, "restore_training_state", self._restore)
        _wrap(trainer.strategy, "process_dataloader", self._process_loader)
        _wrap(self._loop, "setup_data", self._set_up_data)
        _wrap(self._epoch, "on_run_start", self._begin)
        _wrap(self._epoch, "on_advance_end", self._end_batch)

    # -- saving

    def state_dict(self) -> Dict[str, Any]:
        trainer, evaluation = self._trainer, self._epoch.val_loop
        checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        own = _addresses(trainer.strategy.lightning_module_state_dict())
        return {
            "checkpoint": {name: value for name, value in checkpoint.items() if name not in _NOT_SAVED or
                           name == "state_dict" and not _addresses(value) <= own},  # a hook gives averages
            "callbacks": [_get(callback, _OF_CALLBACKS) for callback in trainer.callbacks],
            "loggers": _get(trainer._logger_connector, _OF_LOGGERS),
            "results": _results_state(self._epoch._results),
            "metrics": {name: _metric_state(m) for name, m in _metrics(trainer.lightning_module)},
            "accumulates": trainer.accumulate_grad_batches, "should_stop": trainer.should_stop,
            "model": _get(trainer.strategy.model, _OF_DDP),
            "places": [place.state_dict() for place in self._places],
            "evaluated": dict(evaluation._seen_batches_per_dataloader),
            "has_processes": [_has_processes(loader) for loader in
                              getattr(evaluation._combined_loader, "flattened", [])] or self._has_processes}

    def _gradients(self) -> Dict[str, torch.Tensor]:
        """With an optimization of its own, a program may add to them in the next batch."""
        module = self._trainer.lightning_module
        return {} if module.automatic_optimization else {
            name: p.grad for name, p in module.named_parameters() if p.grad is not None}

    def _end_batch(self, original: Any, fetcher: Any) -> None:
        """What was evaluated after it is over, too."""
        original(fetcher)
        if self._memory is None or (self._trainer.lightning_module.automatic_optimization and
                                    self._epoch._should_accumulate()):
            return
        if any(place.drawn is not None and place.drawn[0] for place in self._places):
            self._say_once("the data loader's processes draw random numbers: after a failure they draw those "
                           "of the epoch's beginning again")
        is_end = self._epoch._num_ready_batches_reached()
        reason = None if is_end else self._no_place()
        if reason:
            self._say_once(f"memory has ends of epochs only: {reason}")
        elif is_end or all(place.is_known for place in self._places):
            self._memory.step(self._trainer.global_step)
        self._look()

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._say(text)
        self._said.add(text)

    def _look(self) -> None:
        """At what changes from one step to the next, once."""
        if self._looked is None:
            return
        epoch, old = self._looked
        new = _marks(self._trainer)
        self._looked = None if epoch == self._trainer.current_epoch else (self._trainer.current_epoch, new)
        changed = [name for name, mark in new.items() if old.get(name, mark) != mark]
        if changed and not self._looked:
            self._say(f"{changed[0]} changes with the steps and is in no checkpoint: after a failure it begins anew")

    def _no_place(self) -> Optional[str]:
        if type(self._loop._data_fetcher).__name__ != "_PrefetchDataFetcher":
            return "training_step takes an iterator"
        for place in self._places:
            if place.reason:
                return f"the data loader {place.reason}"
        batches = self._epoch.batch_progress.current.ready
        if len(self._places) > 1 and any(place.batches() < batches for place in self._places):
            return "one of the data loaders begins again within the epoch"
        return None

    # -- restoring

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self._loaded = state

    def _restore(self, original: Any) -> None:
        original()
        trainer = self._trainer
        if self._memory:
            self._memory = None
            return self._say("a second fit has no checkpoints in memory")
        self._memory = self._make({
            "model": trainer.strategy.model, "trainer": self, FILES: self._files,
            **{f"optimizer-{i}": optimizer for i, optimizer in enumerate(trainer.optimizers)},
            **{f"schedule-{i}": config.scheduler for i, config in enumerate(trainer.lr_scheduler_configs)}})
        if self._memory.restore(max(1, trainer.global_step)):
            self._rng = rng_state()
            self._load()

    def _load(self) -> None:
        trainer, saved, connector = self._trainer, self._loaded, self._trainer._checkpoint_connector
        connector._loaded_checkpoint = {**connector.dump_checkpoint(weights_only=False), **saved["checkpoint"]}
        trainer.lightning_module.on_load_checkpoint(connector._loaded_checkpoint)
        connector.restore_datamodule()
        connector.restore_callbacks()
        connector.restore_precision_plugin_state()
        connector.restore_loops()
        for callback, values in zip(trainer.callbacks, saved["callbacks"]):
            vars(callback).update(values)
        self._has_processes = saved["has_processes"]
        self._versions = self._parameter_versions()
        self._max_steps = self._epoch.max_steps
        if 0 <= self._max_steps <= trainer.global_step:  # the end of its last epoch is still to come
            self._epoch.max_steps = trainer.global_step + 1
        warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before the epoch ended")

    def _parameter_versions(self) -> int:
        return sum(p._version for p in self._trainer.lightning_module.parameters())

    def _set_up_data(self, original: Any) -> None:
        old, self._places, self._is_setting_up = self._places, [], True
        original()
        self._is_setting_up = False
        if not self._places and old:
            self._places = old
            if self._loaded:  # something has trained before, as to find a learning rate
                for number in range(len(old)):
                    self._go_to_place(number)
                iter(self._loop._data_fetcher)

    def _process_loader(self, original: Any, loader: Any) -> Any:
        """Each one that Lightning takes, before it has an iterator."""
        loader = original(loader)
        if not self._is_setting_up:  # for an evaluation
            if self._has_processes and self._has_processes.pop(0) and getattr(loader, "persistent_workers", False):
                Place(loader).makes_processes_again = True
        elif not (hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")):
            self._places.append(Place(loader))
            if self._loaded:
                self._go_to_place(len(self._places) - 1)
        elif self._loaded:
            for sampler in (loader.sampler, loader.batch_sampler):
                if hasattr(sampler, "set_epoch"):  # Lightning does it later
                    sampler.set_epoch(self._loop.epoch_progress.current.processed)
        return loader

    def _go_to_place(self, number: int) -> None:
        saved = self._loaded["places"]
        skip = self._epoch.batch_progress.current.ready
        if number < len(saved) and not self._places[number].go_to(saved[number], skip):
            self._say("an epoch has other batches than before the failure: those that are left of this one are "
                      "not what was left of it")

    def _begin(self, original: Any, fetcher: Any) -> None:
        original(fetcher)
        if self._loaded is None:
            return
        saved, self._loaded = self._loaded, None
        trainer, module, evaluation = self._trainer, self._trainer.lightning_module, self._epoch.val_loop
        if self._parameter_versions() != self._versions:
            self._say("a hook before the first step, as on_train_start, has changed the model that was restored")
        for loop in (self._loop, self._epoch, evaluation):
            loop.on_iteration_done()  # all that comes now is as without a restart
        self._epoch.max_steps, trainer.should_stop = self._max_steps, saved["should_stop"]
        trainer.accumulate_grad_batches = saved["accumulates"]
        for name, p in module.named_parameters():
            p.grad = self._files.loaded.get(name)
        self._files.loaded = {}
        vars(trainer.strategy.model).update(saved["model"])
        vars(trainer._logger_connector).update(saved["loggers"])
        _load_results(trainer, self._epoch._results, saved["results"])
        for name, metric in _metrics(module):
            for key, value in saved["metrics"].get(name, {}).items():
                setattr(metric, key, value)
            metric.to(trainer.strategy.root_device)
        evaluation._seen_batches_per_dataloader = defaultdict(int, saved["evaluated"])
        for place, value in zip(self._places, saved["places"]):
            place.load_now(value)
        set_rng_state(self._rng)
