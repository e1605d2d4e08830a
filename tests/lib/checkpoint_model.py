# SPDX-License-Identifier: MIT
"""
What each load must give: random sequences of lives that save, load, roll back, change and die,
for tests/programs/checkpoint-ranks.c, and a model of what their folders contain. It knows
worker.h and crun-worker(3) alone: the newest save that is complete is found, whole, or a load is
refused and changes nothing.
"""
import dataclasses
import random

JUNK = 4000  # the values after a save
NO_STEP = 999999
WITHOUT_OPTIM, WITHOUT_SAMPLER, OTHER_STEP = 1, 2, 4
EXCHANGED = 6  # names that two ranks have in another order
LOST = {"peer_lost", "aborted", "timeout"}


class Wrong(Exception):
    """kind: what is wrong, the same for each sequence in which it is."""

    def __init__(self, kind, text=""):
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclasses.dataclass(frozen=True)
class Config:
    size: int = 1
    shard: int = 0
    optim: int = 0
    order: int = 0
    model: int = 0
    names: int = 0
    seed: int = 0
    own: int = 0
    keep: int = 3

    def line(self, job):
        return f"life {job} " + " ".join(map(str, dataclasses.astuple(self)))

    def shards(self):
        return self.shard == 1 and self.size > 1 and self.optim > 1


@dataclasses.dataclass
class Save:
    """One that may be found. sure: it must be."""
    number: int
    step: int
    config: Config
    generation: int
    optim: int  # the kind whose state is in it
    steps: int
    seed: int
    sure: bool = False
    pending: bool = True
    damaged: bool = False


# -- sequences -------------------------------------------------------------------------


def change(r, c):
    """The program as it is started the next time."""
    def new(odds, field, values):
        return {field: r.choice(values)} if r.random() < odds else {}

    return dataclasses.replace(
        c, **new(0.5, "size", (1, 2, 2, 3, 4)), **new(0.2, "shard", (0, 1, 2)),
        **new(0.12, "order", (0, 1, 2)), **new(0.1, "optim", range(5)),
        **new(0.07, "model", range(4)), **new(0.08, "seed", (0, 7, 8)))


def random_life(r, config, numbers, state):
    """state: the step at which the training is, and the step of each save."""
    ops, handles = [], {}

    def open_one(folder):
        if len(handles) < 6:
            handles[len(handles)] = folder
            ops.append(("open", len(handles) - 1, folder, r.randrange(2)))

    open_one(0)
    if r.random() < 0.25:
        open_one(1)
    if r.random() < 0.75:
        ops.append(("load", 0, 0, 0))
    if r.random() < 0.35:
        die = r.randrange(1, 8)
    else:
        die = 99
    for turn in range(r.randrange(2, 8)):
        h, p = r.choice(list(handles)), r.random()
        what = (r.random() < 0.06) * WITHOUT_OPTIM + (r.random() < 0.04) * WITHOUT_SAMPLER
        if turn == die:
            ops.append(("die", r.randrange(config.size), r.randrange(1, 14)))
        if p < 0.55 and numbers:
            number = numbers.pop(0)
            state["step"] += r.choice((0, 1, 1, 1, 10))
            state[number] = state["step"]
            what += (r.random() < 0.03) * OTHER_STEP
            ops.append(("save", h, state["step"], number, r.randrange(3), what))
        elif p < 0.67:
            ops.append(("load", h, 0, what))
        elif p < 0.82 and len(state) > 1:
            number = r.choice([n for n in state if n != "step"][-4:])
            state["step"] = state[number]
            ops.append(("load", h, number, what))
        elif p < 0.94:
            ops.append(("wait", h))
        elif p < 0.97:
            open_one(handles[h])
        else:
            ops.append(("close", h))
    ops.append(("end", int(r.random() < 0.2)))
    return ops


def random_sequence(seed):
    r = random.Random(seed)
    config = Config(size=r.choice((1, 2, 2, 3, 4)), shard=r.choice((0, 1, 1, 2)),
                    optim=r.choice((0, 1, 2, 2, 3, 3, 4)), seed=r.choice((0, 7, 7)),
                    names=r.randrange(1, 7) if r.random() < 0.05 else 0,
                    own=int(r.random() < 0.002), keep=r.choice((1, 2, 3)))
    numbers, state, lives = list(range(2, 24)), {"step": 10}, []
    for _ in range(r.randrange(2, 5)):
        lives.append((config, random_life(r, config, numbers, state)))
        if len(state) > 1 and r.random() < 0.08:
            lives.append(("damage", r.choice([n for n in state if n != "step"][-2:]),
                          r.randrange(1000)))
        config = change(r, config)
    return lives


# a rank that is quick opens a folder to which another still writes
REOPENED = [(Config(size=4, shard=1, optim=2), [
    ("open", 0, 0, 0), ("save", 0, 31, 2, 0, 0), ("close", 0),
    ("open", 1, 0, 1), ("load", 1, 0, 0), ("end", 0)])] * 4


# -- the model -------------------------------------------------------------------------


def fit(save, config, optim, seed):
    """Whether a load by this program must give the save: "yes", "no" (refused), or "maybe"."""
    s = save.config
    if (s.model, s.names) != (config.model, config.names) or seed and seed != save.seed:
        return "no"
    if save.optim == optim:
        return "yes"
    if optim > 1 and {optim, save.optim} != {3, 4} or optim == 1 and save.optim > 1:
        return "no"
    return "maybe"  # Adam and AdamW have the same state, and so have SGD and none


class Folder:
    def __init__(self):
        self.saves, self.generation = [], 0

    def newest(self):
        """The saves of which a load may give one; whether there may be none."""
        found, place = [], 0
        for s in reversed(self.saves):
            place += 1
            if s.damaged:
                continue
            found.append(s)
            # an older one may have been removed
            if s.sure and place <= s.config.keep:
                return found, False
        return found, True

    def of_file(self, number):
        """The same for the file of a save."""
        found = [s for s in self.saves if s.number == number]
        return found, not any(s.sure for s in found if s in self.saves[-s.config.keep:])

    def settle(self, found):
        """A load has found it: what is newer was never complete, unless it still arrives."""
        at = self.saves.index(found)
        self.saves = self.saves[:at + 1] + [s for s in self.saves[at + 1:] if s.pending or s.damaged]
        found.sure = True


class Life:
    """What the ranks have seen in one life, compared with the model."""

    def __init__(self, folders, config, ops, said):
        self.folders, self.config, self.ops = folders, config, ops
        self.said = said  # {rank: {op: words}}
        self.left = {rank for rank in said if "left" in said[rank]}
        self.handles, self.doubtful = {}, []
        self.now = {"values": "1", "buffer": "1", "sampler": "1", "extra": "1", "optim": 100}

    def check(self):
        begun = {words[0] for rank in self.said.values() for op, words in rank.items()
                 if op == "begin"}
        if begun != {self.begins()}:
            raise Wrong("the names are not refused" if "ok" in begun else
                        "a program does not begin", begun)
        if begun != {"ok"}:
            return
        for at, op in enumerate(self.ops):
            words = [rank[at] for rank in self.said.values() if at in rank]
            if words and op[0] not in ("end", "die"):
                getattr(self, op[0])(words, *op[1:])
        for handle in self.handles.values():
            self.end_pending(handle, len(self.left) == self.config.size)
        for save in self.doubtful:
            save.pending = False

    def begins(self):
        if self.config.names == EXCHANGED:
            return "ok" if self.config.size == 1 else "mismatch"
        return "bad_argument" if self.config.names else "ok"

    # what all ranks have said, or None if one of them is gone
    def verdict(self, words, call):
        said = {w[0] if w else "" for w in words}
        if len(words) < self.config.size or said & LOST or "" in said:
            return None
        if len(said) > 1:
            raise Wrong(f"the ranks do not agree on a {call}", sorted(said))
        return said.pop()

    def end_pending(self, handle, sure):
        for s in handle["pending"]:
            s.pending = False
            s.sure = s.sure or sure
        handle["pending"] = []

    def open(self, words, h, folder, blocking):
        verdict = self.verdict(words, "open")
        own = self.config.own and self.config.size > 1
        if verdict not in ("bad_argument" if own else "ok", None):
            raise Wrong("an open is not refused" if own else "an open is refused", verdict)
        if own:
            return
        f = self.folders[folder]
        f.generation += 1
        for other in self.handles.values():
            if other["folder"] is f:  # it may be too late for them
                self.doubtful += other["pending"]
                other["pending"] = []
        self.handles[h] = {"folder": f, "blocking": blocking, "pending": [],
                           "generation": f.generation}

    def stale(self, handle):
        return handle["generation"] != handle["folder"].generation

    def save(self, words, h, step, number, steps, what):
        handle, c = self.handles.get(h), self.config
        if not handle or ["closed"] in words:
            return
        self.now = {"values": str(JUNK), "buffer": str(JUNK), "sampler": str(number),
                    "extra": str(number), "optim": number * 100 + steps}
        verdict = self.verdict(words, "save")
        optim = 0 if what & WITHOUT_OPTIM else c.optim
        s = Save(number, step, c, handle["generation"], optim, steps,
                 0 if what & WITHOUT_SAMPLER else c.seed)
        stale, other = self.stale(handle), what & OTHER_STEP and c.size > 1
        if stale and not handle["blocking"] and verdict == "ok":
            return  # the write fails later
        wanted = {"stale", "mismatch"} if stale and other else \
            {"stale" if stale else "mismatch" if other else "ok"}
        if verdict not in wanted | {None}:
            raise Wrong("a save is refused" if wanted == {"ok"} else "a save is not refused",
                        f"{verdict}, not {wanted}")
        if wanted != {"ok"}:
            return
        handle["folder"].saves.append(s)
        handle["pending"].append(s)
        if handle["blocking"]:
            self.end_pending(handle, verdict == "ok")
            self.is_there(words, verdict)

    def is_there(self, words, verdict):
        facts = [dict(w.split("=") for w in rank[1:]) for rank in words]
        if verdict == "ok" and any(f["new"] == "0" for f in facts if f):
            raise Wrong("it is said to be on the disk, and is not")
        # rank 0 removes the others when its part is written
        if any(int(f["sets"]) > self.config.keep + self.config.shards() for f in facts[:1] if f):
            raise Wrong("more are kept than asked for", facts)

    def wait(self, words, h):
        handle = self.handles.get(h)
        if not handle or ["closed"] in words:
            return
        verdict = self.verdict(words, "wait")
        if self.stale(handle) and verdict == "stale":
            handle["pending"] = []
        elif verdict not in ("ok", None):
            raise Wrong("a wait fails", verdict)
        if verdict == "ok" and handle["pending"]:
            self.is_there(words, verdict)
            self.end_pending(handle, True)

    def close(self, words, h):
        handle = self.handles.get(h)
        if handle and ["closed"] not in words:
            self.end_pending(handle, self.verdict(words, "close") == "ok")

    def load(self, words, h, number, what):
        handle = self.handles.get(h)
        if not handle or ["closed"] in words or ["unknown"] in words:
            return
        verdict = self.verdict(words, "load")
        if verdict is None:
            return
        facts = [dict(w.split("=") for w in rank[1:] if "=" in w) for rank in words]
        if any(f != facts[0] for f in facts):
            raise Wrong("the ranks have different states after a load", facts)
        facts = facts[0]
        if not self.stale(handle):
            self.end_pending(handle, True)  # it counts
        of = next((f for f in self.folders if f.of_file(number)[0]), handle["folder"])
        found, none = of.of_file(number) if number else of.newest()
        optim = 0 if what & WITHOUT_OPTIM else self.config.optim
        seed = 0 if what & WITHOUT_SAMPLER else self.config.seed
        if verdict == "ok":
            self.loaded(handle, facts, found, optim, seed, number)
        else:
            may = {"mismatch": {fit(s, self.config, optim, seed) for s in found} & {"no", "maybe"},
                   "not_found": none, "corrupt": none and any(s.damaged for s in of.saves)}
            self.refused(verdict, facts, may.get(verdict), found)
        if "optim" in facts:
            self.now["optim"] += 1

    def loaded(self, handle, facts, found, optim, seed, number):
        s = next((s for s in found if str(s.number) == facts["values"]), None)
        if not s:
            raise Wrong("a load gives other parameters" if "/" in facts["values"] + "-" and
                        not facts["values"].isdigit() else "a load gives an older save"
                        if not number else "a file has another save",
                        f"{facts}, not of {[s.number for s in found]}")
        if fit(s, self.config, optim, seed) == "no" or s.damaged:
            raise Wrong("a load is not refused", f"save {s.number}")
        if not number:
            handle["folder"].settle(s)
        self.now.update(values=facts["values"], buffer=facts["values"], extra=facts["values"])
        if seed and s.seed:
            self.now["sampler"] = facts["values"]
        if optim > 1:
            self.now["optim"] = s.number * 100 + s.steps
        if facts["step"] != str(s.step):
            raise Wrong("a load gives another step", f"{facts}, not {s.step}")
        self.compare(facts, "a load mixes saves")

    def refused(self, verdict, facts, may, found):
        if not may:
            raise Wrong(f"a load is refused: {verdict}", f"it may give {found}")
        if facts["step"] != str(NO_STEP):
            raise Wrong("a refused load changes the step")
        self.compare(facts, "a refused load changes something")

    def compare(self, facts, what):
        for fact in ("values", "buffer", "sampler", "extra", "optim"):
            if fact in facts and facts[fact] != str(self.now[fact]):
                raise Wrong(f"{what}: {fact}", f"{facts}, not {self.now}")


# -- playing ---------------------------------------------------------------------------


def read_life(text):
    said = {}
    for line in text.split("\n"):
        rank, _, rest = line.partition(" ")
        words = rest.split()
        if not words:
            continue
        mine = said.setdefault(int(rank), {})
        if words[0].isdigit():
            mine[int(words[0])] = words[1:]
        else:
            mine[words[0]] = words[1:]
    return said


def play(driver, lives):
    """Raises Wrong. driver(lines, end): what the program says until that line."""
    folders = [Folder(), Folder()]
    for life in lives:
        if life[0] == "damage":
            hit = driver([" ".join(map(str, life))], ("damaged", "no")).endswith("damaged\n")
            for s in (s for f in folders for s in f.saves if s.number == life[1] and hit):
                s.damaged, s.sure = True, False
            continue
        config, ops = life
        lines = [" ".join(map(str, op)) for op in ops]
        said = read_life(driver(["life", *lines, "go"], ("done",), config))
        if any(words[0] not in ("9",) for rank in said.values()
               for op, words in rank.items() if op == "killed"):
            raise Wrong("a rank crashes", said)
        Life(folders, config, ops, said).check()


def parts_of(lives):
    """Each way to leave something out."""
    for i in range(len(lives)):
        yield lives[:i] + lives[i + 1:]
    for i, life in enumerate(lives):
        if life[0] == "damage":
            continue
        for k, op in enumerate(life[1]):
            if op[0] == "open" and any(o[1] == op[1] for o in life[1][k + 1:]
                                       if o[0] not in ("open", "die", "end")):
                continue
            yield lives[:i] + [(life[0], life[1][:k] + life[1][k + 1:])] + lives[i + 1:]
    for field, value in ("size", 1), ("size", 2), ("shard", 0), ("optim", 2), ("seed", 0), \
                        ("order", 0):
        simpler = [life if life[0] == "damage" else
                   (dataclasses.replace(life[0], **{field: value}), life[1]) for life in lives]
        if simpler != lives:
            yield simpler


def smallest(try_out, lives, kind, tries=300):
    """A sequence of the same kind from which nothing can be left out."""
    again = True
    while again:
        again = False
        for part in parts_of(lives):
            tries -= 1
            if tries < 0:
                return lives
            wrong = try_out(part)
            if wrong and wrong.kind == kind:
                lives, again = part, True
                break
    return lives
