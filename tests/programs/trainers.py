# SPDX-License-Identifier: MIT
"""
A small training with a framework's trainer, evaluations and checkpoints included.

    trainers.py lightning|transformers FOLDER [--callback] [--slurm]

With --callback it reports its progress by the package crun. With --slurm Lightning is told that
it runs under Slurm, and wants to handle SIGUSR1. Ends when there is FOLDER/over.
"""
import os
import sys
import time

KIND, FOLDER = sys.argv[1:3]
CALLBACK, SLURM = "--callback" in sys.argv, "--slurm" in sys.argv
STEP_SECONDS, EVALUATE_EVERY = 0.02, 20
RANK = os.environ["RANK"]

import torch  # noqa: E402


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, index):
        return {"x": torch.full((4,), float(index % 3)), "labels": torch.ones(1)}


def is_over():
    time.sleep(STEP_SECONDS)
    return os.path.exists(FOLDER + "/over")


def tell(what, step):
    os.write(1, f"{what} rank={RANK} step={step} pid={os.getpid()}\n".encode())


def train_by_lightning():
    import lightning.pytorch as pl

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, _):
            if self.trainer.strategy.reduce_boolean_decision(is_over(), all=False):
                self.trainer.should_stop = True
            return (self.layer(batch["x"]) - 1).square().mean()

        def validation_step(self, batch, _):
            self.layer(batch["x"])

        def on_train_start(self):
            tell("began", self.trainer.global_step)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    if CALLBACK:
        import crun.lightning
        # of the two only the callback saves
        callbacks = [crun.lightning.Progress(),
                     pl.callbacks.ModelCheckpoint(dirpath=FOLDER + "/checkpoints",
                                                  every_n_epochs=1000)]
    else:
        callbacks = [pl.callbacks.ModelCheckpoint(dirpath=FOLDER + "/checkpoints", save_last=True,
                                                  every_n_train_steps=20)]
    plugins = []
    if SLURM:
        from lightning.pytorch.plugins.environments import SLURMEnvironment
        plugins = [SLURMEnvironment()]
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    trainer = pl.Trainer(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
                         num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), strategy="ddp",
                         max_steps=1000000, val_check_interval=EVALUATE_EVERY,
                         limit_val_batches=2, logger=False, enable_progress_bar=False,
                         enable_model_summary=False, callbacks=callbacks,
                         default_root_dir=FOLDER, plugins=plugins)
    last = FOLDER + "/checkpoints/last.ckpt"
    trainer.fit(Model(), loader, loader, ckpt_path=last if os.path.exists(last) else None)
    tell("done", trainer.global_step)


def train_by_transformers():
    import transformers

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, labels):
            result = self.layer(x)
            return {"loss": (result - labels).square().mean(), "result": result}

    class EndsWhenOver(transformers.TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            tell("began", state.global_step)

        def on_step_end(self, args, state, control, **_):
            over = torch.tensor(int(is_over()))
            if torch.distributed.is_initialized():
                torch.distributed.all_reduce(over)
            control.should_training_stop = bool(over)

    callbacks = [EndsWhenOver()]
    if CALLBACK:
        import crun.transformers
        callbacks.append(crun.transformers.Progress())
    arguments = transformers.TrainingArguments(
        output_dir=FOLDER + "/checkpoints", per_device_train_batch_size=4, use_cpu=True,
        max_steps=1000000, logging_steps=5, eval_strategy="steps", eval_steps=EVALUATE_EVERY,
        save_strategy="no" if CALLBACK else "steps", save_steps=20, save_total_limit=2,
        report_to=[], disable_tqdm=True)
    trainer = transformers.Trainer(Model(), arguments, train_dataset=Numbers(),
                                   eval_dataset=torch.utils.data.Subset(Numbers(), range(8)),
                                   callbacks=callbacks)
    saved = os.path.isdir(FOLDER + "/checkpoints") and any(
        name.startswith("checkpoint-") for name in os.listdir(FOLDER + "/checkpoints"))
    trainer.train(resume_from_checkpoint=True if saved else None)
    tell("done", trainer.state.global_step)


if KIND == "lightning":
    train_by_lightning()
else:
    train_by_transformers()
