# SPDX-License-Identifier: MIT
"""The job of a run of chaos: what the seed says of it, and its agents."""
import time


class Plan:
    """What the seed says of the job."""

    def __init__(self, rng, hosts, options, kinds):
        self.mode = rng.choices(["daemon", "static", "dynamic"], [8, 1, 1])[0]
        self.count = rng.randint(min(3, hosts), hosts)
        self.replicas = 1  # the loss of the host ends the job
        self.pair, self.witness = options.pairs, options.pairs and rng.choice(["", "file", "crund"])
        if self.pair:
            self.mode, self.replicas = "replicas", 2
        elif options.replicas:
            least = 5 if all(k.replicas > 3 for k in kinds) else 3
            self.mode, self.replicas = "replicas", max(least, rng.choice([3, 3, 5]))
            self.count = rng.randint(self.replicas + 1, hosts)
        self.max = max(2, self.count - rng.choice([0, 0, 0, 1]))
        self.min = rng.choice([1, 1, 1, 2, self.max]) if self.mode == "daemon" else 1
        self.lease = rng.choice([2, 2, 3, 4])
        if self.mode == "replicas" and not self.pair:  # else one node that is cut off is enough for a second job
            self.min = max(self.min, 2)
        self.workers = [rng.randint(1, 3) for _ in range(hosts)]
        self.strict = rng.random() < 0.15
        self.contained = rng.random() < 0.7
        self.ranks = rng.random() < 0.4 and self.max == self.count
        self.pace_ms = rng.choice([10, 20, 40])
        self.interval = rng.choice([3, 5, 10])
        self.on_loss = rng.choice(["exit", "exit", "stay"])
        self.logs = rng.choice([[], ["--redirects=3"], ["--tee=3"]])
        self.scale = rng.choice(["now", "now", "now", "never", "checkpoint"])
        self.backoff = rng.choice([0, 0, 2])
        self.quarantine = rng.choice([0, 0, 3])
        self.hang = rng.choice([0, 0, 3])
        self.ending = rng.choices(["finish", "interrupt", "stop", "failure", "host-lost"],
                                  [5, 1, 1, 2, 2])[0]
        if self.ending == "host-lost" and self.mode in ("daemon", "replicas"):
            self.ending = "finish"
        if self.mode == "static":
            self.ranks, self.max = True, self.count
        if self.ending == "failure":
            self.hang = 0  # hangs are not counted: a rank that waits for others looks hung, too

    def __str__(self):
        return " ".join(f"{k}={v}" for k, v in vars(self).items())


class Agent:
    """A crun that the run looks after. `codes`: how it may end before the job does."""

    def __init__(self, process):
        self.process, self.codes, self.begun = process, set(), time.monotonic()
        self.seen = False  # its end
        self.leaving = False  # told so, and not asked by another

    @property
    def alive(self):
        return self.process.poll() is None
