# SPDX-License-Identifier: MIT
"""
A training by a framework's own trainer whose checkpoints crun keeps in memory.

    memory_trainers.py transformers FOLDER [KILL,...]

It shuffles, drops out, accumulates gradients, evaluates, and has two epochs of four steps and a half. KILL is LIFE:RANK:STEP:WHERE, WHERE is "step" (its end), "evaluation" (of this step), "dump"
(the checkpoint is half written) or "file" (a checkpoint of the trainer's own is). Each rank prints
where its lives began and, at the end, a digest of all that it has: parameters, random generators,
what was logged.
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
KILLS = KILLS[0].split(",") if KILLS else []
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
    if f"{crun.restarts()}:{RANK}:{step}:{where}" in KILLS:
        os.kill(os.getpid(), signal.SIGKILL)


def digest(model, history):
    whole = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if RANK == 0 or "running" not in name:  # DDP sends rank 0's buffers with the next step
            whole.update(tensor.detach().numpy().tobytes())
    say(f"digest rank={RANK} {whole.hexdigest()[:16]} {random.random()} {float(torch.rand(1))} "
        f"{hashlib.sha256(json.dumps(history, sort_keys=True).encode()).hexdigest()[:16]}")


def train_by_transformers():
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
            own = output_dir.startswith(FOLDER + "/saved")
            die_if(self.state.global_step, "file" if own else "dump")
            super()._save_rng_state(output_dir)

    transformers.set_seed(RANK + 1)
    arguments = transformers.TrainingArguments(
        output_dir=FOLDER + "/saved", per_device_train_batch_size=4, gradient_accumulation_steps=2, use_cpu=True,
        num_train_epochs=2, logging_steps=1, eval_strategy="epoch", save_strategy="steps",
        save_steps=6, save_total_limit=2, lr_scheduler_type="cosine", warmup_steps=3,
        metric_for_best_model="loss", report_to=[], disable_tqdm=True, seed=3)
    model = Net()
    memory = crun.transformers.Memory()
    trainer = Trainer(model, arguments, train_dataset=Numbers(),
                      eval_dataset=torch.utils.data.Subset(Numbers(), range(16)),
                      callbacks=[Kills(), memory])
    trainer.train(resume_from_checkpoint=memory.restore(trainer))
    # times and speeds, and the mean of a life, differ
    digest(model, [trainer.state.best_global_step, trainer.state.best_model_checkpoint] + [{name: value for name, value in entry.items() if name in (
        "loss", "grad_norm", "learning_rate", "epoch", "step", "eval_loss")}
        for entry in trainer.state.log_history])


train_by_transformers()
