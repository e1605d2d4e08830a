# SPDX-License-Identifier: MIT
"""
A training by JAX, Lightning or transformers, as their users write it, with the signal handlers that
these install by default. Each rank prints a line as load/torch-train.py does with its first step.
"""
import time

BEGAN = time.monotonic_ns()

import os  # noqa: E402
import sys  # noqa: E402

PAUSE_S = 0.02
STEPS = 10**6


class Clock:
    """Of the phases until the first step."""

    def __init__(self):
        self.imported = self.built = time.monotonic_ns()
        self.steps = 0

    def step(self):
        self.steps += 1
        if self.steps == 1:
            facts = dict(rank=os.environ["RANK"], pid=os.getpid(),
                         restarts=os.environ["TORCHELASTIC_RESTART_COUNT"], began=BEGAN,
                         imported=self.imported, grouped=self.built, built=self.built,
                         step=time.monotonic_ns())
            sys.stdout.write(" ".join(["first", *(f"{k}={v}" for k, v in facts.items())]) + "\n")
            sys.stdout.flush()
        time.sleep(PAUSE_S)


def train_jax():
    import jax
    import jax.numpy as jnp
    import numpy
    clock = Clock()
    jax.distributed.initialize()
    clock.built = time.monotonic_ns()
    update = jax.pmap(lambda w, x: w - 0.01 * jax.lax.pmean(jax.grad(
        lambda w: jnp.mean((x @ w) ** 2))(w), "i"), "i")
    # as from a checkpoint and a data loader: jnp.ones would be two more programs to compile
    w, x = numpy.ones((1, 64), numpy.float32), numpy.ones((1, 32, 64), numpy.float32)
    for _ in range(STEPS):
        w = update(w, x)
        w.block_until_ready()
        clock.step()


def train_lightning():
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    clock = Clock()

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 1)

        def training_step(self, batch, _):
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Stamp(lightning.Callback):
        def on_train_start(self, *_):
            clock.built = time.monotonic_ns()

        def on_train_batch_end(self, *_):
            clock.step()

    lightning.Trainer(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp",
                      max_steps=STEPS, logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False,
                      callbacks=[Stamp()]).fit(Net(), DataLoader(TensorDataset(torch.rand(4096, 64)), 32))


def train_transformers():
    import torch
    import transformers
    clock = Clock()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 1)

        def forward(self, x):
            return {"loss": self.layer(x).square().mean()}

    class Stamp(transformers.TrainerCallback):
        def on_train_begin(self, *_, **__):
            clock.built = time.monotonic_ns()

        def on_step_end(self, *_, **__):
            clock.step()

    transformers.Trainer(
        Net(), transformers.TrainingArguments(
            output_dir=sys.argv[2], max_steps=STEPS, use_cpu=True, save_strategy="no",
            report_to=[], disable_tqdm=True, logging_strategy="no", remove_unused_columns=False),
        train_dataset=[{"x": torch.rand(64)} for _ in range(4096)], callbacks=[Stamp()]).train()


{"jax": train_jax, "lightning": train_lightning, "transformers": train_transformers}[sys.argv[1]]()
