# SPDX-License-Identifier: MIT
"""
What must hold of a chain (chain.h) and of a machine on which a job has ended, looked at
from outside. Every function returns what does not, a line each.
"""
import os
import time

from process import living, read

MASK = (1 << 64) - 1


def now_us():
    """On the clock that workers stamp their lines with."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def chain_next(value, step, epoch):
    z = value ^ (step * 0x9E3779B97F4A7C15 & MASK) ^ (epoch << 40 & MASK)
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def lines(folder, name):
    """[[microseconds, word, ...]] of a file that workers have appended to."""
    try:
        with open(f"{folder}/{name}") as f:
            # the last one may be half written
            found = [line.split() for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return []
    return [[int(words[0])] + words[1:] for words in found if words]


class Checkpoint:
    """A commit, and the whole way by which it came there."""

    def __init__(self, folder, words):
        self.at, self.epoch, self.step, self.value = words[0], *map(int, words[1:])
        self.name = f"checkpoint-{self.epoch}-{self.step}"
        with open(f"{folder}/disk/{self.name}") as f:
            head = f.readline().split()
            self.saved = int(head[0]), int(head[1])
            self.lineage = [tuple(map(int, f.readline().split())) for _ in range(int(head[2]))]

    def values(self):
        """The value at each step of the way."""
        path = [1]
        ends = [start for _, start in self.lineage[1:]] + [self.step]
        for (epoch, start), end in zip(self.lineage, ends):
            if start >= len(path):
                return path  # there is a hole
            del path[start + 1:]
            while len(path) <= end:
                path.append(chain_next(path[-1], len(path), epoch))
        return path


def check_chain(folder):
    """No fork, nothing lost that was committed, every value as it must be."""
    wrong, before = [], None
    for words in lines(folder, "commits"):
        try:
            now = Checkpoint(folder, words)
        except (OSError, ValueError, IndexError) as e:
            wrong.append(f"a committed checkpoint is gone: {words} ({e})")
            continue
        path = now.values()
        if (now.step, now.value) != now.saved or len(path) <= now.step or \
                path[now.step] != now.value:
            wrong.append(f"{now.name} does not have the value of its way {now.lineage[-5:]}")
        if before and (now.step <= before.step or len(path) <= before.step or
                       path[before.step] != before.value):
            wrong.append(f"fork: {now.name} does not follow {before.name}: "
                         f"{now.lineage[-5:]} after {before.lineage[-5:]}")
        if before and now.epoch < before.epoch:
            wrong.append(f"{now.name} was committed after {before.name}")
        before = now
    return wrong


def check_losses(folder, interval):
    """An epoch goes on from no more than one interval before the last step there was."""
    wrong = []
    steps = lines(folder, "steps")
    missed = lines(folder, "missed")
    for at, epoch, start, _ in lines(folder, "begins"):
        done = max((int(s[2]) for s in steps if s[0] < at), default=0)
        excused = interval * sum(m[0] < at and int(m[1]) > int(start) for m in missed)
        if done - int(start) > interval + excused:
            wrong.append(f"epoch {epoch} goes on from step {start}, and step {done} was done")
    return wrong


def check_epochs(folder):
    """Epochs begin in order."""
    wrong, last = [], 0
    for _, epoch, *_ in lines(folder, "begins"):
        if int(epoch) <= last:
            wrong.append(f"epoch {epoch} begins after epoch {last}")
        last = max(last, int(epoch))
    return wrong


def check_budget(folder):
    """Restarts are counted on."""
    wrong, spent, last = [], {}, 0
    for words in lines(folder, "starts"):
        spent.setdefault(int(words[2]), set()).add(int(words[6]))
    for epoch, counts in sorted(spent.items()):
        if len(counts) > 1 or min(counts) < last:
            wrong.append(f"epoch {epoch} begins with restart {counts} after {last}")
        last = max(counts)
    return wrong


def check_seen(folder):
    """What the workers have seen themselves."""
    return [" ".join(words[1:]) for words in lines(folder, "violations")]


def restarts(folder):
    return max((int(words[6]) for words in lines(folder, "starts")), default=0)


def longest_pause(steps, begin, end):
    """Seconds without a step, of the pauses that touch [begin, end] (microseconds)."""
    stamps = [s[0] for s in steps]
    pauses = [b - a for a, b in zip(stamps, stamps[1:]) if b >= begin and a <= end]
    return max(pauses, default=0) / 1e6


# -- what is left on the machine --------------------------------------------------------


def living_commands(cookie):
    """[(pid, command)] of those that have the cookie in their environment."""
    return [(pid, read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode()[:120])
            for pid in living(cookie)]


def check_processes(cookie, seconds):
    """The last of them may take so long to end."""
    end = time.monotonic() + seconds
    while (left := living_commands(cookie)) and time.monotonic() < end:
        time.sleep(0.02)
    return [f"process {pid} is left: {command}" for pid, command in left]


def check_hosts(hosts):
    wrong = []
    for host in hosts:
        wrong += [f"{host.name}: port {port} is still listened on" for port in host.listeners()]
        wrong += [f"{host.name}: cgroup {name} is left" for name in host.workers_cgroups()]
        for name in os.listdir(host.folder + "/tmp"):
            # the logs of a run; anything else should have been removed
            if not name.startswith("crun") and name != "filler":
                wrong.append(f"{host.name}: {name} is left in TMPDIR")
    return wrong


class Usage:
    """Memory and descriptors of a daemon, to be compared later."""

    RSS_GROWTH_KIB = 8192

    def __init__(self, pid):
        self.descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        with open(f"/proc/{pid}/status") as f:
            self.rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))

    def check_growth(self, now):
        wrong = []
        if now.descriptors > self.descriptors:
            wrong.append(f"crund has {now.descriptors} descriptors, "
                         f"and had {self.descriptors} before the job")
        if now.rss > self.rss + self.RSS_GROWTH_KIB:
            wrong.append(f"crund has grown from {self.rss} to {now.rss} KiB")
        return wrong
