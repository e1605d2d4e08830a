# SPDX-License-Identifier: MIT
"""
A training by a framework's own trainer whose checkpoints crun keeps in memory.

    memory_trainers.py transformers|lightning FOLDER [KILL,... [models|ema|swa]]

It shuffles, drops out, accumulates gradients, evaluates, and has two epochs of four steps and a half. KILL is LIFE:RANK:STEP:WHERE, WHERE is "step" (its end), "evaluation" (of this step), "epoch" (its
end), "dump" (the checkpoint is half written) or "file" (a checkpoint of the trainer's own is). Each
rank prints where its lives began and, at the end, a digest of all that it has: parameters, random
generators, what was logged. Then it trains once more, without crun's checkpoints, and prints that.
models: transformers' own checkpoints have nothing else. ema, swa: Lightning averages the model, and
with ema, its epochs accumulate the gradients of four batches and of two.
"""
import hashlib
import json
import os
import random
import signal
import sys

import torch

import crun

KIND, FOLDER, *KILLS = sys.argv[1:]
KILLS, HOW = KILLS[0].split(",") if KILLS else [], "".join(KILLS[1:])
ENDED = []  # the training that is killed
RANK = crun.rank()


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 72  # 2 ranks, 2 batches of 4 a step

    def __getitem__(self, index):
        x = torch.randn(8, generator=torch.Generator().manual_seed(index))
        return {"x": x, "labels": x[:1] * 3}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16),
                                       torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))

    def forward(self, x, labels):
        result = self.net(x) + random.random() * 0.01
        return {"loss": (result - labels).square().mean(), "result": result}


def say(line):
    os.write(1, f"{line}\n".encode())


def die_if(step, where):
    if not ENDED and f"{crun.restarts()}:{RANK}:{step}:{where}" in KILLS:
        os.kill(os.getpid(), signal.SIGKILL)


def digest(model, history):
    whole = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if RANK == 0 or "running" not in name:  # DDP sends rank 0's buffers with the next step
            whole.update(tensor.detach().numpy().tobytes())
    say(f"digest rank={RANK} {whole.hexdigest()[:16]} {random.random()} {float(torch.rand(1))} "
        f"{hashlib.sha256(json.dumps(history, sort_keys=True).encode()).hexdigest()[:16]}")


def train_by_transformers(saved):
    import transformers
    import crun.transformers

    class Kills(transformers.TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            say(f"begins rank={RANK} step={state.global_step}")

        def on_step_end(self, args, state, control, **_):
            die_if(state.global_step, "step")

        def on_prediction_step(self, args, state, control, **_):
            die_if(state.global_step, "evaluation")

    class Trainer(transformers.Trainer):
        def _save_rng_state(self, output_dir):
            own = output_dir.startswith(saved)
            die_if(self.state.global_step, "file" if own else "dump")
            super()._save_rng_state(output_dir)

    transformers.set_seed(RANK + 1)
    arguments = transformers.TrainingArguments(
        output_dir=saved, per_device_train_batch_size=4, gradient_accumulation_steps=2, use_cpu=True,
        num_train_epochs=2, logging_steps=1, eval_strategy="epoch", save_strategy="steps",
        save_steps=6, save_total_limit=2, save_only_model=HOW == "models", lr_scheduler_type="cosine", warmup_steps=3,
        metric_for_best_model="loss", report_to=[], disable_tqdm=True, seed=3)
    model = Net()
    memory = None if ENDED else crun.transformers.Memory()
    trainer = Trainer(model, arguments, train_dataset=Numbers(),
                      eval_dataset=torch.utils.data.Subset(Numbers(), range(16)),
                      callbacks=[Kills(), memory or crun.transformers.Progress()])
    trainer.train(resume_from_checkpoint=memory and memory.restore(trainer))
    # times and speeds, and the mean of a life, differ
    digest(model, [trainer.state.best_global_step, str(trainer.state.best_model_checkpoint).replace(saved, "")] + [{name: value for name, value in entry.items() if name in (
        "loss", "grad_norm", "learning_rate", "epoch", "step", "eval_loss")}
        for entry in trainer.state.log_history])


def train_by_lightning(saved):
    import logging
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    import lightning.pytorch as lightning
    import crun.lightning

    class Kills(lightning.Callback):
        def on_train_start(self, trainer, module):
            say(f"begins rank={RANK} step={trainer.global_step}")

        def on_train_batch_end(self, trainer, *_):
            die_if(trainer.global_step, "step")

        def on_validation_batch_start(self, trainer, *_):
            die_if(trainer.global_step, "evaluation")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch):
            loss = self.net(**batch)["loss"]
            self.log("loss", loss, on_step=True, on_epoch=True)
            return loss

        def validation_step(self, batch):
            self.log("validation", self.net(**batch)["loss"], sync_dist=True)

        def on_train_epoch_end(self):
            self.trainer.strategy.barrier()  # all have saved the last step
            die_if(self.trainer.global_step, "epoch")

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), 0.01)
            return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, [1], 0.5)]

    random.seed(RANK)
    torch.manual_seed(RANK)
    module = Module()
    files = lightning.callbacks.ModelCheckpoint(saved, monitor="validation", save_top_k=2)
    averages = {"ema": lambda: [lightning.callbacks.EMAWeightAveraging(decay=0.9),
                                lightning.callbacks.GradientAccumulationScheduler({0: 4, 1: 2})],
                "swa": lambda: [lightning.callbacks.StochasticWeightAveraging(0.01)]}
    trainer = lightning.Trainer(
        accelerator="cpu", devices=crun.world_size(), strategy="ddp", max_epochs=2,
        accumulate_grad_batches=1 if HOW else 2, logger=False,
        callbacks=[*([] if ENDED else [crun.lightning.Memory(saved)]), Kills(), files,
                   *(averages[HOW]() if HOW else [])],
        enable_progress_bar=False, enable_model_summary=False)
    loader = torch.utils.data.DataLoader
    trainer.fit(module, loader(Numbers(), 4, shuffle=True),
                loader(torch.utils.data.Subset(Numbers(), range(16)), 4))
    digest(module, [sorted((name, float(value)) for name, value in trainer.callback_metrics.items()),
                    float(files.best_model_score), len(files.best_k_models), trainer.global_step])


TRAIN = {"transformers": train_by_transformers, "lightning": train_by_lightning}[KIND]
TRAIN(FOLDER + "/saved")
ENDED.append(True)
TRAIN(FOLDER + "/undisturbed")
