# SPDX-License-Identifier: MIT
"""transformers' Trainer with a tiny model that starts at random. It knows nothing of crun."""
import os
import sys
import time

import torch
from transformers import (BertConfig, BertForSequenceClassification, Trainer, TrainerCallback,
                          TrainingArguments, set_seed)

STEPS = int(sys.argv[1])
RANK = os.environ.get("RANK", "0")


class Words(torch.utils.data.Dataset):
    def __init__(self, count):
        self.words = torch.randint(0, 100, (count, 12))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        words = self.words[index]
        return {"input_ids": words, "labels": words[0] % 2}


class Shown(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        time.sleep(0.02)
        if state.global_step == 1:
            os.write(1, f"first rank={RANK} pid={os.getpid()} at={time.time():.3f}\n".encode())


def main():
    set_seed(1)
    config = BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1,
                        num_attention_heads=2, intermediate_size=16)
    model = BertForSequenceClassification(config)
    arguments = TrainingArguments(
        output_dir=sys.argv[2], max_steps=2 * STEPS, per_device_train_batch_size=4,
        use_cpu=True, save_steps=STEPS, eval_strategy="steps", eval_steps=STEPS,
        report_to=[], disable_tqdm=True, logging_steps=STEPS, seed=1)
    words = Words(4 * STEPS)
    trainer = Trainer(model, arguments, train_dataset=words, eval_dataset=words,
                      callbacks=[Shown()])
    trainer.train()
    total = sum(p.double().sum().item() for p in model.parameters())
    os.write(1, f"result rank={RANK} steps={trainer.state.global_step} "
                f"sum={total:.6f}\n".encode())


main()
