# SPDX-License-Identifier: MIT
"""
The hooks of --watch in one process without a crun, as unittest. Run it by a Python that has
torch:

    watch_checks.py
"""
import inspect
import io
import os
import pathlib
import pickle
import sys
import tempfile
import threading
import traceback
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import watch_cost  # noqa: E402

watch, p = watch_cost.load_watch()
watch.prepare()
import torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

page = p.worker_page


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


class Hooks(unittest.TestCase):
    def setUp(self):
        self.file = watch_cost.new_page()
        page.close()
        watch._counts.clear()
        watch._most_steps = watch._most_parameters = watch._next_loss_ns = 0
        watch._had_peers = watch._is_watched = watch.evaluating = watch._epoch_ended = False
        watch._loss_is_due = watch._is_stepped = True
        watch._saved = None
        page.program_counts = page.program_phases = page.program_saves = False
        self.assertTrue(page.open(self.file.name))
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, optimizer=None):
        self.model(torch.ones(1, 2)).sum().backward()
        (optimizer or self.optimizer).step()

    def phase(self):
        return p.PHASES[page.phase]

    def where(self):
        return page.where.rstrip(b"\0").decode()

    def test_every_hook_fits(self):
        import torch.distributed.checkpoint  # noqa: F401
        self.assertEqual(watch.left_out, [])

    def test_the_recorders_variables_have_the_names_that_torch_knows(self):
        import torch.distributed  # noqa: F401
        given = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "pipe", "TORCH_NCCL_TRACE_BUFFER_SIZE": "7"}
        renamed = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "pipe", "TORCH_FR_BUFFER_SIZE": "7"}
        is_new = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)
        with unittest.mock.patch.dict(os.environ, given):
            watch.start()
            self.assertEqual({name: value for name, value in os.environ.items()
                              if name in {**given, **renamed}}, renamed if is_new else given)

    def test_nothing_is_written_before_a_training(self):
        self.model.eval()
        self.model.train()
        torch.save({}, io.BytesIO())
        content = pathlib.Path(self.file.name).read_bytes()
        self.assertEqual(content[8:], bytes(4088))

    def test_steps_and_loss(self):
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.fill_(0.5)
        for steps in range(1, 4):
            self.step()
            self.assertEqual((page.step, self.phase()), (steps, "training"))
            if steps == 1:
                self.assertEqual(page._doubles[p._LOSS], 2.0)
        self.assertIn("(step)", self.where())
        self.assertTrue(page.flags & p.WATCHED)

    def test_the_optimizer_with_most_steps_counts(self):
        other = torch.optim.Adam(self.model.parameters())
        for _ in range(3):
            self.step(other)
            self.step(other)
            self.step()
        self.assertEqual(page.step, 6)

    def test_accumulated_and_skipped_gradients(self):
        for _ in range(4):
            self.model(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.assertEqual(page.step, 1)

    def test_steps_of_earlier_lives(self):
        adam = torch.optim.Adam(self.model.parameters())
        for _ in range(5):
            self.step(adam)
        state = adam.state_dict()
        watch._counts.clear()
        watch._most_steps = 0
        again = torch.optim.Adam(self.model.parameters())
        again.load_state_dict(state)
        self.step(again)
        self.assertEqual(page.step, 6)

    def first_step(self):
        return memoryview(pathlib.Path(self.file.name).read_bytes()).cast("Q")[31]

    def test_the_place_of_the_first_step(self):
        adam = torch.optim.Adam(self.model.parameters())
        self.step()  # of SGD, which counts none
        self.assertEqual(self.first_step(), p.UNPLACED)
        self.step(adam)
        self.assertEqual(self.first_step(), p.UNPLACED)  # SGD is not behind
        state = adam.state_dict()
        for parameter in state["state"].values():
            parameter["step"] = torch.tensor(41.0)
        again = torch.optim.Adam(self.model.parameters())
        again.load_state_dict(state)
        self.step(again)
        self.assertEqual((page.step, self.first_step()), (42, 42))
        self.step(again)
        self.assertEqual((page.step, self.first_step()), (43, 42))

    def test_a_step_that_makes_room_for_a_state_counts_not(self):
        import torch.distributed.checkpoint.state_dict as state_dict
        adam = torch.optim.Adam(self.model.parameters())
        _, state = state_dict.get_state_dict(self.model, adam)
        self.assertEqual((page.step, self.first_step()), (0, 0))
        for parameter in state["state"].values():
            parameter["step"] = torch.tensor(41.0)
        state_dict.set_optimizer_state_dict(self.model, adam, state)
        self.step(adam)
        self.assertEqual((page.step, self.first_step()), (42, 42))

    def test_a_compiled_step_counts(self):
        step = torch.compile(self.optimizer.step, backend="eager")
        for steps in range(1, 4):
            self.model(torch.ones(1, 2)).sum().backward()
            step()
            self.optimizer.zero_grad()
            self.assertEqual(page.step, steps)

    def test_the_compiler_sees_no_difference(self):
        @torch.compile(backend="eager", fullgraph=True)
        def evaluate():
            self.model.eval()
            result = self.model(torch.ones(1, 2)).sum()
            self.model.train()
            return result

        @torch.compile(backend="eager")
        def train():
            self.model(torch.ones(1, 2)).sum().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

        self.step()
        evaluate()
        for _ in range(3):
            train()
        self.assertEqual(self.phase(), "training")

    def test_evaluating(self):
        self.step()
        self.model[0].eval()  # a part
        self.assertEqual(self.phase(), "training")
        self.model.eval()
        self.assertEqual(self.phase(), "evaluating")
        self.assertEqual(self.where(), f"{os.path.basename(__file__)}:"
                         f"{line_of(self.test_evaluating, 'self.model.eval')} (test_evaluating)")
        for _ in DataLoader(torch.zeros(2, 1)):
            self.assertEqual(self.phase(), "evaluating")
        self.model.train()
        self.assertEqual(self.phase(), "training")
        self.model.eval()
        self.step()
        self.assertEqual(self.phase(), "training")

    def test_loading(self):
        seen = []

        class Numbers(torch.utils.data.Dataset):
            def __len__(self):
                return 2

            def __getitem__(_, index):
                seen.append((self.phase(), self.where()))
                return index

        self.step()
        batches = iter(DataLoader(Numbers()))
        next(batches)
        next(batches)
        line = line_of(self.test_loading, "next(batches)")
        name = os.path.basename(__file__)
        self.assertEqual(seen, [("loading", f"{name}:{n} (test_loading)")
                                for n in (line, line + 1)])
        self.assertEqual(self.phase(), "training")
        self.assertRaises(StopIteration, next, batches)
        self.assertEqual(self.phase(), "unknown")
        self.step()
        self.assertEqual(self.phase(), "training")

    def test_backward_communicates_if_there_are_others(self):
        seen = []
        self.model[0].weight.register_hook(lambda grad: seen.append(self.phase()))
        self.step()
        watch._had_peers = True
        self.step()
        self.assertEqual(seen, ["training", "communicating"])
        self.assertEqual(self.phase(), "training")

    def test_saves(self):
        self.step()
        torch.save({}, io.BytesIO())
        self.assertFalse(page.flags & p.HAS_SAVED)
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(RuntimeError):
                torch.save({}, folder + "/no/such")
            self.assertFalse(page.flags & p.HAS_SAVED)
            torch.save({}, folder + "/a")
            self.assertTrue(page.flags & p.HAS_SAVED)
            with open(folder + "/b", "wb") as file:
                torch.save({}, file)
        self.assertEqual(self.phase(), "training")

    def ask(self, number):
        page._words[p._SAVE] = number

    def test_a_request_is_met_once_the_program_goes_on(self):
        self.step()
        with tempfile.TemporaryDirectory() as folder:
            self.ask(1)
            torch.save({}, folder + "/a")
            self.assertEqual(page.wanted, 1)  # a second file may follow
            torch.save({}, folder + "/b")
            self.step()
            self.assertEqual(page.wanted, 0)

    def test_a_save_that_had_begun_meets_no_request(self):
        class Asks:
            def __reduce__(_):
                self.ask(1)
                return int, ()

        self.step()
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"a": Asks()}, folder + "/a")
            self.step()
            self.assertEqual(page.wanted, 1)

    def test_a_rank_that_never_saves(self):
        for rank, wanted in (("0", 1), ("1", 0)):
            os.environ["RANK"] = rank
            self.ask(1)
            self.step()
            self.assertEqual(page.wanted, wanted)
        del os.environ["RANK"]

    def test_a_save_in_another_thread(self):
        self.step()
        self.ask(1)
        with tempfile.TemporaryDirectory() as folder:
            thread = threading.Thread(target=torch.save, args=({}, folder + "/a"))
            thread.start()
            thread.join()
        self.step()
        self.assertEqual((page.wanted, self.phase()), (0, "training"))

    def test_the_program_wins(self):
        page.program_counts = True
        page.report(step=70)
        self.step()
        self.assertEqual(page.step, 70)

    def test_the_functions_are_what_they_were(self):
        self.assertTrue(inspect.getsource(torch.save).startswith("def save("))
        self.assertIs(pickle.loads(pickle.dumps(torch.save)), torch.save)
        self.assertEqual(list(inspect.signature(torch.nn.Module.train).parameters),
                         ["self", "mode"])
        try:
            torch.autograd.backward(torch.zeros(1))
        except RuntimeError as e:
            frames = traceback.extract_tb(e.__traceback__)
        self.assertEqual([f.name for f in frames][1], "backward")
        self.assertIn("run_backward(", frames[1].line)
        self.assertNotIn("watch", "".join(f.filename for f in frames[1:]))


if __name__ == "__main__":
    watch_cost.print_cost(20, 10)  # before torch is compiled with
    unittest.main()
