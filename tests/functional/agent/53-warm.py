#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 25 s
# sanitizers: no, test_guard_template has the guard do the same
"""
Workers that are forked from a template, under real agents: whose children they are, that a
template that was killed is replaced, that everything ends with crun or its guard, and what
is left after kills at random moments.

  53-warm.py [KILLS] [SEED]     30 kills; by hand: 200 and more
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import (  # noqa: E402
    BIN, PROGRAMS, children, lives, living, stat_of, until)

KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
WORKERS = 2
FOLDER = tempfile.mkdtemp(prefix="warm-")


def interpreter():
    """The interpreter itself: what is in PATH may be a script that looks for it."""
    return os.path.realpath(sys.executable)


class Launch:
    count = 0

    def __init__(self, *arguments, flags=(), cgroup=True, modules="fractions", **more):
        Launch.count += 1
        self.log = os.path.join(FOLDER, f"log-{Launch.count}")
        self.messages = os.path.join(FOLDER, f"messages-{Launch.count}")
        self.cookie = f"WARM_TEST={os.getpid()}.{Launch.count}".encode()
        env = {**os.environ, "WARM_LOG": self.log, "PYTHON_EXEC": interpreter(),
               "WARM_TEST": self.cookie.decode().partition("=")[2],
               "XDG_CACHE_HOME": FOLDER, "TMPDIR": FOLDER, **more}
        if not cgroup:
            env["CRUN_NO_CGROUP"] = "1"
        with open(self.messages, "w") as out:
            self.agent = subprocess.Popen(
                [BIN / "crun", "-v", f"--warm={modules}", f"--nproc-per-node={WORKERS}",
                 "--max-restarts=100000", "--restart-backoff=0", *flags,
                 PROGRAMS / "warm_worker.py", *arguments],
                env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.agent.kill()
        self.agent.wait()
        until(lambda: not living(self.cookie), lambda: f"left: {living(self.cookie)}")

    def said(self):
        with open(self.messages) as f:
            return f.read()

    def facts(self):
        """What workers have written, each line whole."""
        try:
            with open(self.log) as f:
                return [json.loads(line) for line in f if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def epoch(self, number):
        """The facts of all workers of an epoch, once they are there."""
        def all_of_it():
            facts = [fact for fact in self.facts() if fact["epoch"] == number]
            return facts if len(facts) == WORKERS else None
        return until(all_of_it, lambda: f"epoch {number}: {self.facts()} {self.said()}")

    def last_epoch(self):
        return max((fact["epoch"] for fact in self.facts()), default=0)

    def guard(self):
        below = children(self.agent.pid)
        for pid in below + [grandchild for pid in below for grandchild in children(pid)]:
            if stat_of(pid).name == "crun-guard":
                return pid
        return None

    def template(self):
        """Of the guard's children that which no message calls a worker."""
        ready = [line for line in self.said().splitlines() if "template of the workers is ready" in line]
        return int(ready[-1].rpartition("pid=")[2]) if ready else None

    def await_template(self, times):
        until(lambda: self.said().count("template of the workers is ready") >= times,
              lambda: f"no template: {self.said()}")
        return self.template()


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except (ProcessLookupError, TypeError):
        return False


def test_workers_are_the_guards(cgroup):
    with Launch(cgroup=cgroup) as launch:
        facts = launch.epoch(1)
        guard = launch.guard()
        for fact in facts:
            assert fact["warm"] and fact["parent"] == guard and fact["session"] == fact["pid"], fact
            if cgroup and "no cgroup" not in launch.said():
                assert fact["cgroup"][0].endswith("/workers"), fact
        assert sorted(fact["rank"] for fact in facts) == list(range(WORKERS))


def test_it_exits_as_ever():
    with Launch("0.01", flags=["--max-restarts=0"]) as launch:
        assert launch.agent.wait(60) == 0, launch.said()
    with Launch("nonsense", flags=["--max-restarts=0"]) as launch:
        assert launch.agent.wait(60) == 1, launch.said()
        assert "ValueError" in launch.said(), launch.said()


def test_restart_is_warm_and_quick(cgroup):
    took = []
    with Launch(cgroup=cgroup) as launch:
        for epoch in range(1, 12):
            victim = random.choice(launch.epoch(epoch))
            killed = time.monotonic()
            kill(victim["pid"])
            facts = launch.epoch(epoch + 1)
            assert all(fact["warm"] for fact in facts), launch.said()
            took.append(max(fact["began"] for fact in facts) - killed)
    took.sort()
    print(f"restart, {'cgroup' if cgroup else 'session'}: from the kill to both workers' first "
          f"line: median {took[len(took) // 2] * 1000:.1f} ms, worst {took[-1] * 1000:.1f} ms")


def test_a_killed_template_is_replaced():
    with Launch() as launch:
        first = launch.await_template(1)
        launch.epoch(1)
        kill(first)
        until(lambda: "template of the workers was killed by SIGKILL" in launch.said(), launch.said)
        second = launch.await_template(2)
        assert second != first
        kill(launch.facts()[0]["pid"])
        assert all(fact["warm"] for fact in launch.epoch(2)), launch.said()
        # while there is none, workers start cold
        kill(second)
        kill(launch.facts()[-1]["pid"])
        launch.epoch(3)
        launch.await_template(3)


def test_a_template_that_dies_is_tried_again():
    """The first workers start cold, and those after a restart come out of it."""
    with open(os.path.join(FOLDER, "deadly.py"), "w") as f:
        f.write("import os\nos.kill(os.getpid(), 9)\n")
    with Launch(modules="deadly,fractions", PYTHONPATH=FOLDER) as launch:
        assert not any(fact["warm"] for fact in launch.epoch(1)), launch.said()
        launch.await_template(1)
        assert "killed by SIGKILL" in launch.said(), launch.said()
        assert "leave deadly out" in launch.said(), launch.said()
        kill(launch.facts()[0]["pid"])
        assert all(fact["warm"] for fact in launch.epoch(2)), launch.said()


READERS = {
    "librandom.py": "import random, uuid\nfree, session = random.Random(), uuid.uuid4().hex\n",
    "libcopy.py": "import os\nsettings = {k.lower(): v for k, v in os.environ.items()}\n",
    "liblaunched.py": """
import os, sys
assert not hasattr(sys, "operators"), "they are registered already"
sys.operators = 1
rank = int(os.environ["RANK"])
""",
    "liblock.py": "import multiprocessing\nlock = multiprocessing.Lock()\n",
    "train.py": """
import json, os, sys, time
import libcopy, liblaunched, liblock, librandom
assert liblock.lock.acquire(timeout=0), "another worker has it"
fact = [os.environ["RANK"], libcopy.settings["rank"], str(liblaunched.rank),
        librandom.session, librandom.free.random()]
log, attempt = os.environ["WARM_LOG"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
with open(log, "a") as file:
    file.write(json.dumps(fact) + "\\n")
while len(open(log).readlines()) < 2 * (attempt + 1):
    time.sleep(0.005)
sys.exit(attempt == 0)
"""}


def test_the_second_run_gets_what_the_first_got():
    """The first has no list of modules, and imports all of them in its workers."""
    folder = os.path.join(FOLDER, "readers")
    os.mkdir(folder)
    os.mkdir(folder + "/app")
    for name, text in READERS.items():
        with open(os.path.join(folder, "app" if name == "train.py" else "", name), "w") as f:
            f.write(text)
    facts = []
    for run in range(2):
        log = f"{folder}/log-{run}"
        r = subprocess.run(
            [BIN / "crun", "-v", "--warm", f"--nproc-per-node={WORKERS}", "--max-restarts=1",
             "--restart-backoff=0", folder + "/app/train.py"], capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "WARM_LOG": log, "PYTHON_EXEC": interpreter(), "XDG_CACHE_HOME": folder,
                 "PYTHONPATH": folder})
        with open(log) as f:
            facts += [json.loads(line) for line in f]
        assert r.returncode == 0 and len(facts) == 2 * WORKERS * (run + 1), r.stderr
    assert r.stderr.count("started warm") == 2 * WORKERS, r.stderr
    for name in "libcopy", "liblaunched", "liblock":
        assert f"leave {name} out: " in r.stderr, r.stderr
    assert "leave librandom out" not in r.stderr, r.stderr
    for rank, copied, launched, *_ in facts:
        assert rank == copied == launched, facts
    for field in 3, 4:
        assert len({fact[field] for fact in facts}) == len(facts), facts


def test_where_it_has_no_effect_a_line_says_why():
    script = os.path.join(FOLDER, "python")
    with open(script, "w") as f:
        f.write(f'#!/bin/sh\nexec {interpreter()} "$@"\n')
    os.chmod(script, 0o755)
    for words, env, why in [
            (["--warm", "/bin/true"], {}, "--warm has no effect: /bin/true is not a Python program"),
            (["--watch", "/bin/true"], {}, "--watch has no effect: /bin/true is not"),
            (["--hang-timeout=9", "/bin/true"], {}, None),
            (["--warm", "--no-python", "/bin/true"], {}, "--warm has no effect with --no-python"),
            (["--warm", "--preflight", PROGRAMS / "warm_worker.py"], {},
             "--warm has no effect with --preflight"),
            (["--warm", PROGRAMS / "warm_worker.py"], {"PYTHON_EXEC": script},
             f"--warm has no effect: {script} is a script that starts Python")]:
        r = subprocess.run([BIN / "crun", "--dry-run", *words], capture_output=True, text=True,
                           env={**os.environ, "PYTHON_EXEC": interpreter(), **env}, check=True)
        assert r.stderr.count("\n") == (1 if why else 0) and (why or "") in r.stderr, r.stderr
        assert "CRUN_NOTE_MODULES" not in r.stdout, r.stdout


def test_the_interpreter_behind_a_shim_is_the_template():
    os.mkdir(os.path.join(FOLDER, "shims"))
    shim = os.path.join(FOLDER, "shims", "python3")
    with open(shim, "w") as f:
        f.write(f'#!/bin/sh\nexec {interpreter()} "$@"\n')
    os.chmod(shim, 0o755)
    r = subprocess.run([BIN / "crun", "--dry-run", "--warm", PROGRAMS / "warm_worker.py"],
                       capture_output=True, text=True, check=True,
                       env={**os.environ, "PYTHON_EXEC": shim})
    assert r.stderr == "" and shim not in r.stdout, r.stderr + r.stdout
    assert "CRUN_NOTE_MODULES" in r.stdout, r.stdout


def test_without_the_bootstrap_python_starts_as_ever():
    """As if crun had been copied alone."""
    alone = os.path.join(FOLDER, "bin")
    os.mkdir(alone)
    shutil.copy(BIN / "crun", alone)
    with open(os.path.join(FOLDER, "ok.py"), "w") as f:
        f.write("import os; print('PYTHONPATH' in os.environ, 'CRUN_BOOTSTRAP' in os.environ)\n")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    r = subprocess.run([alone + "/crun", "--warm", os.path.join(FOLDER, "ok.py")],
                       capture_output=True, text=True, check=True, env=env)
    assert r.stdout == "False False\n", r.stdout
    assert r.stderr.count("\n") == 1 and "there is no " in r.stderr, r.stderr


def test_it_ends_with_crun_and_with_its_guard(cgroup):
    for victim in "agent", "guard":
        with Launch(cgroup=cgroup) as launch:
            template = launch.await_template(1)
            pids = [fact["pid"] for fact in launch.epoch(1)]
            if victim == "agent":
                launch.agent.kill()
            else:
                kill(launch.guard())
            until(lambda: not any(map(lives, [template, *pids])), f"{victim}: not all have ended")
            if victim == "guard":
                launch.await_template(2)
                assert all(fact["parent"] == launch.guard() for fact in launch.epoch(2))


def cpu_ns(pid):
    with open(f"/proc/{pid}/schedstat") as f:
        return int(f.read().split()[0])


def memory_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Private_Dirty"))


def test_idle_it_uses_no_cpu():
    with Launch() as launch:
        template = launch.await_template(1)
        launch.epoch(1)
        time.sleep(0.2)
        before = [cpu_ns(pid) for pid in (template, launch.guard())]
        time.sleep(1)
        spent = [cpu_ns(pid) - b for pid, b in zip((template, launch.guard()), before)]
        assert max(spent) < 5_000_000, f"template and guard ran for {spent} ns of a second"


def test_kills_at_random_moments():
    """Workers, templates and guards. Each rank of an epoch starts once at most, and all of the
    last epoch are there; what is killed again and again does not grow."""
    rng = random.Random(SEED)
    print(f"seed {SEED}", flush=True)
    with Launch() as launch:
        launch.epoch(1)
        hits = dict.fromkeys(["worker", "template", "guard"], 0)
        guard, sizes = None, []
        while sum(hits.values()) < KILLS:
            victim = rng.choices(list(hits), [6, 3, 1])[0]
            time.sleep(rng.random() ** 3 * 0.3)
            if guard != launch.guard():
                guard, sizes = launch.guard(), []
            if guard and rng.random() < 0.3:
                try:
                    sizes.append(memory_kib(guard))
                except OSError:
                    pass
            if victim == "worker":
                facts = launch.facts()
                hit = facts and kill(rng.choice(facts[-WORKERS:])["pid"])
            elif victim == "template":
                hit = kill(launch.template())
            else:
                hit = kill(guard)
            hits[victim] += bool(hit)
            if len(sizes) > 4:
                # one of the first may be of a guard that has just been executed
                assert sizes[-1] <= max(sizes[:3]) + 512, f"the guard grows: {sizes} KiB"
        # it comes to rest
        last = until(lambda: launch.last_epoch() if settled(launch) else None,
                     launch.said)
        starts = [(fact["epoch"], fact["rank"]) for fact in launch.facts()]
        twice = {start for start in starts if starts.count(start) > 1}
        assert not twice, f"started twice: {twice}"
        alive = [fact["pid"] for fact in launch.epoch(last)]
        until(lambda: all(stat_of(pid).parent == launch.guard() for pid in alive), launch.said)
        template, before = until(lambda: template_memory(launch), launch.said)
        for _ in range(20):
            epoch = launch.last_epoch()
            kill(launch.epoch(epoch)[0]["pid"])
            launch.epoch(epoch + 1)
        assert launch.template() == template, launch.said()
        grown = memory_kib(template) - before
        print(f"killed {hits}; {last} epochs; 20 groups more cost the template {grown} KiB")
        assert grown < 1024, f"the template grows: {grown} KiB"


def template_memory(launch):
    """(pid, memory), or None while one that was killed is replaced."""
    pid = launch.template()
    try:
        return pid, memory_kib(pid)
    except OSError:
        return None


def settled(launch):
    """All of the last epoch live, and there is a template."""
    facts = [fact for fact in launch.facts() if fact["epoch"] == launch.last_epoch()]
    template = launch.template()
    return (len(facts) == WORKERS and template and lives(template)
            and all(lives(fact["pid"]) for fact in facts))


def main():
    for cgroup in True, False:
        test_workers_are_the_guards(cgroup)
        test_restart_is_warm_and_quick(cgroup)
        test_it_ends_with_crun_and_with_its_guard(cgroup)
    test_it_exits_as_ever()
    test_a_killed_template_is_replaced()
    test_a_template_that_dies_is_tried_again()
    test_the_second_run_gets_what_the_first_got()
    test_where_it_has_no_effect_a_line_says_why()
    test_the_interpreter_behind_a_shim_is_the_template()
    test_without_the_bootstrap_python_starts_as_ever()
    test_idle_it_uses_no_cpu()
    test_kills_at_random_moments()


try:
    main()
finally:
    shutil.rmtree(FOLDER)
