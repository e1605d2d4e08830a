# SPDX-License-Identifier: MIT
"""
    faulty.py ddp|fsdp|lightning|transformers|jax

A small training in which $FAULT of load/faults.py happens. Nothing in it knows of a launcher,
unless FAULT_HEARTBEATS is set: then it sends those of nvidia-resiliency-ext.
"""
import os
import sys
import time

import faults
from faults import AT_STEP, RANK, WORK_S, strike

FAULT = faults.FAULTS.get(os.environ.get("FAULT"))
CHECKPOINT = os.environ["FAULT_CHECKPOINT"]
STEPS = 100000
BATCH = 4


def is_at(place):
    return FAULT is not None and FAULT.at == place


def skips_barrier(step):
    """The other ranks have one more collective."""
    return FAULT and FAULT.name == "skips" and RANK != 1 and step == AT_STEP


def heartbeats():
    if "FAULT_HEARTBEATS" not in os.environ:
        return lambda: None
    import nvidia_resiliency_ext.fault_tolerance as ft
    client = ft.RankMonitorClient()
    client.init_workload_monitoring()
    return client.send_heartbeat


# -- torch -------------------------------------------------------------------------------------

def torch_parts():
    import torch

    class Samples(torch.utils.data.Dataset):
        read = 0

        def __len__(self):
            return STEPS * BATCH

        def __getitem__(self, index):
            self.read += 1
            if self.read % BATCH == 0:
                strike("load", self.read // BATCH)
                strike("child", self.read // BATCH)
            return {"x": torch.full((8,), float(index % 3)), "labels": torch.ones(1)}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
            self.spare = torch.nn.Linear(8, 8) if is_at("unused") else None
            self.step = 0

        def forward(self, x, labels):
            self.step += 1
            factor = strike("step", self.step)
            if is_at("first"):
                strike("first")
            if self.training and skips_barrier(self.step):
                torch.distributed.barrier()
            time.sleep(WORK_S)
            hidden = self.first(x)
            if self.spare and not (RANK == 1 and self.step >= AT_STEP):
                hidden = self.spare(hidden)
            elif self.spare and self.step == AT_STEP:
                faults.note_time()
            loss = (self.last(hidden) - labels).square().mean() * factor
            if is_at("backward") and RANK == 1 and self.step >= AT_STEP:
                hidden.register_hook(lambda _: strike("backward") and None)
            return {"loss": loss}

    def loader():
        return torch.utils.data.DataLoader(Samples(), batch_size=BATCH,
                                           num_workers=1 if is_at("child") else 0)
    return torch, Model(), Samples, loader


def save(torch, model, step):
    if step % AT_STEP == 0 and RANK == 0 and is_at("save"):
        open(CHECKPOINT, "ab").close()
        strike("save", step)
        torch.save(model.state_dict(), CHECKPOINT)  # saves


def evaluate(torch, model, batch):
    model.eval()
    with torch.no_grad():
        strike("evaluate")
        model(**batch)
    model.train()


def train_in_loop(wrap):
    import datetime
    import torch.distributed as dist
    torch, model, _, loader = torch_parts()
    strike("start")
    beat = heartbeats()
    short = {"timeout": datetime.timedelta(seconds=0.5)} if FAULT and FAULT.name == "peer_times_out" else {}
    dist.init_process_group("gloo", **short)
    model = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step, batch in enumerate(loader(), 1):  # loads
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()  # backward
        optimizer.step()
        beat()
        save(torch, model, step)
        if is_at("evaluate") and step == AT_STEP:
            evaluate(torch, model, batch)
        if is_at("end") and step == AT_STEP:
            break
    dist.destroy_process_group()
    strike("end")


def train_ddp():
    from torch.nn.parallel import DistributedDataParallel
    train_in_loop(DistributedDataParallel)


def train_fsdp():
    import torch
    from torch.distributed.fsdp import fully_shard
    mesh = torch.distributed.device_mesh

    def wrap(model):
        cpus = mesh.init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
        return fully_shard(model, mesh=cpus)
    train_in_loop(wrap)


def train_lightning():
    import lightning.pytorch as pl
    torch, model, _, loader = torch_parts()

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, _):
            return self.model(**batch)["loss"]

        def on_train_batch_end(self, *_):
            save(torch, self.model, self.global_step)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.001)

    trainer = pl.Trainer(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
                         strategy="ddp", max_steps=STEPS, logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False,
                         default_root_dir=os.path.dirname(CHECKPOINT))
    trainer.fit(Module(), loader())  # loads backward


def train_transformers():
    import transformers
    torch, model, samples, _ = torch_parts()

    class Saves(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            save(torch, model, state.global_step)

    arguments = transformers.TrainingArguments(
        output_dir=os.path.dirname(CHECKPOINT), per_device_train_batch_size=BATCH, use_cpu=True,
        max_steps=STEPS, save_strategy="no", report_to=[], disable_tqdm=True,
        dataloader_num_workers=1 if is_at("child") else 0)
    trainer = transformers.Trainer(model, arguments, train_dataset=samples(), callbacks=[Saves()])
    trainer.train()  # loads backward


# -- JAX ---------------------------------------------------------------------------------------

def train_jax():
    import jax
    strike("start")
    jax.distributed.initialize()
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(jax.devices(), "ranks")
    shards = NamedSharding(mesh, PartitionSpec("ranks"))

    @jax.jit
    def update(weights, batch):
        loss, slope = jax.value_and_grad(lambda w: jnp.mean((batch @ w - 1) ** 2))(weights)
        return weights - 0.001 * slope, loss

    weights = jax.device_put(jnp.ones(8), NamedSharding(mesh, PartitionSpec()))
    batch = jax.make_array_from_process_local_data(shards, jnp.ones((BATCH, 8)))
    strike("first")
    for step in range(1, STEPS):
        strike("step", step)
        time.sleep(WORK_S)
        weights, loss = update(weights, batch)
        print(f"step {step} loss {float(loss):.3f}", flush=True)


globals()["train_" + sys.argv[1]]()
