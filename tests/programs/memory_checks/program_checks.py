# SPDX-License-Identifier: MIT
"""Whole programs: a restored one has the bits of one that was not disturbed, or a line says why not."""
import contextlib
import io
import json
import os
import random
import tempfile
import traceback
import unittest
from unittest import mock

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torchdata.stateful_dataloader import StatefulDataLoader

from crun.checkpoint import Checkpointer
from crun.checkpoint.loaders import Place
from section_checks import WORLD


class Dots(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((4,), index / 24)


class Life:
    """A process of a program. It makes its state anew, and restores from files what they have."""

    files_every = 0

    def __init__(self, folder, **more):
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.BatchNorm1d(4), nn.Linear(4, 4))
        self.model[3].weight = self.model[0].weight  # tied
        self.ema = torch.optim.swa_utils.AveragedModel(self.model)
        self.optim = torch.optim.Adam(self.model.parameters())
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=2)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optim, 0.1, 20)
        state = {"m": self.model, "o": self.optim, "ema": self.ema, "scaler": self.scaler,
                 "schedule": self.schedule, **more}
        state = {name: value for name, value in state.items() if value is not None}
        self.ckpt = Checkpointer(folder, state, every=0, files_every=Life.files_every)

    def train(self, x, step):
        self.scaler.scale(self.model(x).square().sum()).backward()
        self.scaler.step(self.optim)
        self.scaler.update()
        self.optim.zero_grad()
        self.schedule.step()
        self.ema.update_parameters(self.model)
        self.ckpt.step(step + 1)

    def digest(self):
        return [t.tolist() for m in (self.model, self.ema) for t in m.state_dict().values()], random.random()


def draws_ahead(folder, steps, draw=lambda: torch.rand(3, 4)):
    life = Life(folder)
    first = life.ckpt.restore()
    x = draw()
    for step in range(first, steps):
        now, x = x, draw()
        life.train(now, step)
    return life.digest()


def draws_numpy_ahead(folder, steps):
    return draws_ahead(folder, steps, lambda: torch.from_numpy(numpy.random.rand(3, 4)).float())


def draws_ahead_in_the_state(folder, steps):
    batch = {}
    life = Life(folder, batch=batch)
    first = life.ckpt.restore()
    if not batch:
        batch["x"] = torch.rand(3, 4)
    for step in range(first, steps):
        now, batch["x"] = batch["x"], torch.rand(3, 4)
        life.train(now, step)
    return life.digest()


def has_generators(folder, steps):
    own, python, bits = torch.Generator(), random.Random(1), numpy.random.default_rng(1)
    life = Life(folder, own=own, python=python, bits=bits)
    for step in range(life.ckpt.restore(), steps):
        shift = float(bits.random()) + float(numpy.random.rand()) + random.random()
        life.train(torch.rand(3, 4, generator=own) * python.random() + shift, step)
    return life.digest()


def loader_of(workers, epochs_of_sampler):
    sampler = epochs_of_sampler and torch.utils.data.DistributedSampler(Dots(), 2, 1)
    return StatefulDataLoader(Dots(), 3, shuffle=None if sampler else True, sampler=sampler or None,
                              num_workers=workers)


def epochs(folder, steps, batches, **more):
    progress = {"epoch": 0}
    life = Life(folder, progress=progress, **more)
    step = life.ckpt.restore()
    while step < steps:
        if hasattr(batches.sampler, "set_epoch"):
            batches.sampler.set_epoch(progress["epoch"])
        for x in batches:
            if step < steps:
                life.train(x, step)
                step += 1
        progress["epoch"] += 1
    return life.digest()


def has_loader(folder, steps, workers=0, epochs_of_sampler=False):
    loader = loader_of(workers, epochs_of_sampler)
    return epochs(folder, steps, loader, loader=loader)


def has_loader_of_processes(folder, steps):
    return has_loader(folder, steps, 1)


def has_distributed_sampler(folder, steps):
    return has_loader(folder, steps, 0, True)


def has_a_plain_loader(folder, steps):
    return epochs(folder, steps, torch.utils.data.DataLoader(Dots(), 3, shuffle=True))


def has_an_old_iterator(folder, steps):
    loader = loader_of(0, False)
    batches = iter(loader)
    life = Life(folder, loader=loader)
    for step in range(life.ckpt.restore(), steps):
        life.train(next(batches), step)
    return life.digest()


def has_a_schedule_elsewhere(folder, steps):
    life = Life(folder, schedule=None)
    for step in range(life.ckpt.restore(), steps):
        life.train(torch.rand(3, 4), step)
    return life.digest()


def has_an_optimizer_elsewhere(folder, steps):
    life = Life(folder, schedule=None, o=None)
    life.optim = torch.optim.Adam(life.model.parameters())
    for step in range(life.ckpt.restore(), steps):
        life.train(torch.rand(3, 4), step)
    return life.digest()


def accumulates(folder, steps):
    """A step of its own for each of two batches, of whose gradients one is lost."""
    life = Life(folder)
    for step in range(life.ckpt.restore(), steps):
        life.model(torch.rand(3, 4)).square().sum().backward()
        if step % 2:
            life.optim.step()
            life.optim.zero_grad()
        life.ckpt.step(step + 1)
    return life.digest()


class WholePrograms(unittest.TestCase):
    """One that is restored has the bits of one that was not disturbed, or a line says why not."""

    RIGHT = (draws_ahead_in_the_state, has_generators, has_loader, has_loader_of_processes,
             has_distributed_sampler)
    WRONG = {draws_ahead: "PyTorch's generator: .* not as much as between", draws_numpy_ahead: "NumPy's generator",
             has_a_plain_loader: "PyTorch's generator", has_an_old_iterator: r"state\['loader'\] is the same",
             accumulates: "gradients grow from one step to the next", has_a_schedule_elsewhere: "no schedule of o",
             has_an_optimizer_elsewhere: "not have an optimizer that steps, of type Adam:"}

    def lives(self, program, *lives):
        """What the last of them has, which ended after so many steps each, and what they said."""
        Life.files_every = lives[0]
        os.environ.update(RANK="0", WORLD_SIZE="1")
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said):
            for number, steps in enumerate(lives):
                random.seed(2)
                numpy.random.seed(2)
                torch.manual_seed(2)
                digest = program(folder, steps)
        return digest, said.getvalue()

    def test_the_bits(self):
        for program in self.RIGHT:
            with self.subTest(program=program.__name__):
                undisturbed, _ = self.lives(program, 12)
                self.assertEqual(self.lives(program, 5, 12), (undisturbed, ""))  # in the middle of an epoch

    def test_a_line_says_it(self):
        for program, line in self.WRONG.items():
            with self.subTest(program=program.__name__):
                self.assertRegex(self.lives(program, 5, 9)[1], line)


class TwoRanks(unittest.TestCase):
    """Real ones, with files."""

    def by_ranks(self, program):
        """What it returns on each."""
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for rank in range(WORLD):
                read, write = os.pipe()
                if os.fork() == 0:
                    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD))
                    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", WORLD), rank=rank,
                                            world_size=WORLD)
                    try:
                        with contextlib.redirect_stderr(io.StringIO()) as said:
                            result = program(folder, rank)
                        os.write(write, json.dumps([result, said.getvalue()]).encode())
                    except BaseException:
                        traceback.print_exc()
                    os._exit(0)
                os.close(write)
                found.append(read)
            found = [os.fdopen(fd).read() for fd in found]
            for _ in found:
                os.wait()
        return [json.loads(text) for text in found]

    def test_learning_rates_of_their_own(self):
        """As of schedules that look at a rank's own loss: parameters are each rank's own from then on."""
        def program(folder, rank):
            model = DistributedDataParallel(nn.Linear(2, 1))
            optim = torch.optim.SGD(model.parameters(), lr=0.1)
            ckpt = Checkpointer(folder, {"m": model, "o": optim}, every=0, files_every=1)
            ckpt.restore()
            for step in range(1, 7):
                optim.zero_grad()
                model(torch.ones(1, 2)).sum().backward()
                optim.step()
                if step == 4:
                    optim.param_groups[0]["lr"] += rank
                ckpt.step(step)
            old = [p.tolist() for p in model.parameters()]
            Checkpointer(folder, {"m": model, "o": optim}).restore()
            return old, [p.tolist() for p in model.parameters()]

        ranks = self.by_ranks(program)
        for (old, new), _ in ranks:
            self.assertEqual(old, new)
        self.assertIn("2 tensors are not the same on all ranks that have them", ranks[0][1])

    def test_parameters_of_their_own(self):
        """Of which the sums are as those of the other rank, or almost."""
        def program(folder, rank):
            model = DistributedDataParallel(nn.ParameterList([
                torch.ones(1), nn.Parameter(torch.zeros(WORLD), requires_grad=False),
                nn.Parameter(torch.zeros(1, dtype=torch.int64), requires_grad=False),
                nn.Parameter(torch.zeros(70000), requires_grad=False)]))
            model.module[1].data[rank] = 1
            model.module[2].data[0] = rank
            model.module[3].data[rank * (1 << 16)] = 1
            ckpt = Checkpointer(folder, {"m": model}, every=0, files_every=1)
            ckpt.step(1)
            old = [p.tolist() for p in model.parameters()]
            Checkpointer(folder, {"m": model}).restore()
            return old == [p.tolist() for p in model.parameters()]

        self.assertEqual([same for (same, _) in self.by_ranks(program)], [True, True])

    def test_stages_of_the_same_names(self):
        """Each rank's model is sharded on a mesh of its own, or is a replica that began as another one."""
        def program(folder, rank):
            mesh = init_device_mesh("cpu", (WORLD, 1), mesh_dim_names=("replicas", "shards"))
            found = []
            torch.manual_seed(rank)
            for name, on in ("stages", mesh["shards"]), ("replicas", mesh):
                model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
                fully_shard(model, mesh=on)
                optim = torch.optim.Adam(model.parameters())
                ckpt = Checkpointer(f"{folder}/{name}", {"m": model, "o": optim}, every=0, files_every=1)
                ckpt.restore()
                for step in range(1, 3):
                    optim.zero_grad()
                    model(torch.ones(1, 3) + rank).sum().backward()
                    optim.step()
                    ckpt.step(step)
                own = ckpt._state.trees()[1].tensors
                found.append({n.split(".")[0] for n, (_, t) in own.items() if isinstance(t, DTensor)} == {f"rank-{rank}"})
                old = digest_of(model, optim)
                Checkpointer(f"{folder}/{name}", {"m": model, "o": optim}).restore()
                found.append(old == digest_of(model, optim))
            return found

        def digest_of(model, optim):
            return [t.to_local().tolist() for p in model.parameters() for t in (p, optim.state[p]["exp_avg"])]

        ranks = self.by_ranks(program)
        self.assertEqual([found for found, _ in ranks], [[True] * 4] * WORLD)
        self.assertIn("tensors are not the same on all ranks that have them, as m.0.bias:", ranks[0][1])

    def test_stages_that_are_equal(self):
        """As of a model that is cut by two ranks of four: others have the same parts."""
        def program(folder, rank):
            mesh = init_device_mesh("cpu", (WORLD, 1), mesh_dim_names=("replicas", "shards"))["shards"]
            model = nn.ParameterDict({"w": nn.Parameter(torch.ones(2)), "empty": nn.Parameter(torch.ones(0))})
            ckpt = Checkpointer(folder, {"m": fully_shard(model, mesh=mesh)}, every=0, files_every=1)
            ckpt.step(1)
            return sorted(ckpt._state.trees()[1].tensors)

        self.assertEqual(self.by_ranks(program), [[["m.empty", "m.w"], ""]] * WORLD)

    def test_folders_of_their_own(self):
        def program(folder, rank):
            model = nn.Linear(2, 1)
            with mock.patch("torch.distributed.is_initialized", lambda: False), \
                    mock.patch.dict(os.environ, RANK="0", WORLD_SIZE="1"):
                Checkpointer(f"{folder}/{rank}", {"m": model}, rng=False).save_files(3)
            try:
                Checkpointer(f"{folder}/{rank}", {"m": model}, rng=False).restore()
            except ValueError as error:
                return str(error)

        for result, said in self.by_ranks(program):
            self.assertIn("no checkpoint in", str(result))
            self.assertIn("step-3 is not restored: the nodes have different folders of this name", said)


class Shuffles(torch.utils.data.Sampler):
    """Counts its epochs, and draws once in each, or for each sample."""

    def __init__(self, draws_always=False):
        self.draws_always, self.epoch = draws_always, 0

    def __len__(self):
        return 20

    def __iter__(self):
        self.epoch += 1
        order = random.Random(random.random() + self.epoch).sample(range(20), 20)
        return iter(order) if not self.draws_always else (random.randrange(20) for _ in order)


class Places(unittest.TestCase):
    """A DataLoader goes on where another one was, and draws nothing that the program would notice."""

    def loader(self, **more):
        loader = torch.utils.data.DataLoader(range(20), 4, **more)
        return loader, Place(loader)

    def goes_on(self, make, batches):
        random.seed(1)
        torch.manual_seed(1)
        old, place = self.loader(**make())
        list(old)
        iterator = iter(old)
        for _ in range(batches):
            next(iterator)
        self.assertTrue(place.is_known and not place.reason, place.reason)
        saved, rng = place.state_dict(), (random.getstate(), torch.get_rng_state())
        is_over = batches == len(old)  # then nothing more is drawn from this iterator
        left = [] if is_over else [*map(torch.Tensor.tolist, iterator)], [*map(torch.Tensor.tolist, old)]
        new, place = self.loader(**make())
        self.assertTrue(place.go_to(saved, batches))
        iterator = iter(new)
        random.setstate(rng[0])
        torch.set_rng_state(rng[1])
        place.load_now(saved)
        rest = [] if is_over else [*map(torch.Tensor.tolist, iterator)]
        self.assertEqual((rest, [*map(torch.Tensor.tolist, new)]), left)

    def test_it_goes_on_from_its_place(self):
        for workers in 0, 1:
            for make in (lambda: {"shuffle": True}, lambda: {"sampler": Shuffles()},
                         lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(3)}):
                for batches in 2, 5:
                    with self.subTest(workers=workers, batches=batches):
                        self.goes_on(lambda: {**make(), "num_workers": workers}, batches)

    def test_a_loader_that_is_set_up_again(self):
        """Its processes, and with them its iterator, stay."""
        loader = torch.utils.data.DataLoader(range(6), 1, num_workers=1, persistent_workers=True)
        place = Place(loader)
        self.assertTrue(place.go_to({**place.state_dict(), "begun": place._state()}, 2))
        self.assertEqual(len(list(loader)), 4)
        Place(loader)
        self.assertEqual(len(list(loader)), 6)

    def test_what_has_no_place_says_so(self):
        loader, place = self.loader(sampler=Shuffles(True))
        next(iterator := iter(loader))
        self.assertFalse(place.is_known)
        next(iterator)
        self.assertIn("for each batch", place.reason)
        self.assertIn("no state_dict", Place(iter([])).reason)
