#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 50 s
# sanitizers: no, test_timeout_culprit, test_stuck and 31-crunctl-logs run the code
"""
A hang is explained: each rank's line, those that do the same together, and the rank that all
others wait for. The programs have no torch, but a module with the names of its collectives;
67-hang-explained.py of tests/functional/torch has the real ones. crunctl stacks does so at
any time, without a stop that is felt, also for a program of the worker library.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, SECONDS, Process, fail, free_port, slowdown, until  # noqa: E402
import host  # noqa: E402

RANKS_OF_FIGURE = 64
FIGURE_S = 1.0
STOP_MS_MAX = 50

COLLECTIVES = """
import time
def all_reduce(tensor=None, async_op=False):
    time.sleep(1000)
def barrier():  # not as in torch: has no async_op, and is left alone
    time.sleep(1000)
"""

WORKER = """
import ctypes, mmap, os, struct, sys, threading, time
sys.path.insert(0, sys.argv[1])
from torch.distributed.distributed_c10d import all_reduce, barrier

how, victim = sys.argv[2], int(sys.argv[3])
rank = int(os.environ["RANK"])
page = mmap.mmap(os.open(os.environ["CRUN_PROGRESS"], os.O_RDWR), 4096)
locks = threading.Lock(), threading.Lock()

def progress(step):
    page[8:12] = struct.pack("I", 11)
    page[12:24] = struct.pack("=IQ", 1, step)
    page[8:12] = struct.pack("I", 12)

def load_image():
    time.sleep(1000)  # loader

def take(first, second, both):
    with locks[first]:
        both.wait()
        with locks[second]:  # lock
            pass

def deadlock():
    both = threading.Barrier(2)
    threading.Thread(target=take, args=(1, 0, both), daemon=True).start()
    take(0, 1, both)

def wait_in_kernel():
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    ctypes.PyDLL(None).vfork() or time.sleep(1000)  # vfork

def freeze():
    for line in sys.argv[4:]:
        path, value = line.split("=")
        with open(path, "w") as f:
            f.write(value.replace("PID", str(os.getpid())))
    time.sleep(1000)

def backward():
    all_reduce()  # waits

print("began", rank, os.getpid(), flush=True)
progress(1)
if rank == victim:
    {"loader": load_image, "deadlock": deadlock, "freeze": freeze, "kernel": wait_in_kernel,
     "collective": lambda: barrier(), "none": backward}[how]()
backward()
"""


class Here:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.flags = []  # of all runs
        site = self.directory / "lib" / "site-packages"
        package = site / "torch" / "distributed"
        package.mkdir(parents=True)
        (package.parent / "__init__.py").touch()
        (package / "__init__.py").touch()
        (package / "distributed_c10d.py").write_text(COLLECTIVES)
        self.script = self.directory / "train.py"
        self.script.write_text(WORKER)
        self.words = [self.script, site]

    def line(self, mark):
        lines = WORKER.splitlines()
        return 1 + next(i for i, line in enumerate(lines) if line.endswith("# " + mark))

    def crun(self, flags, *words):
        command = [BIN / "crun", *self.flags, *flags, *self.words, *words]
        return Process([str(w) for w in command], start_new_session=True,
                       env={**os.environ, "XDG_CACHE_HOME": str(self.directory)})


def expect(p, code, *patterns):
    if p.wait() != code:
        fail(p, "exit code", p.popen.returncode, p.err)
    for pattern in patterns:
        if not re.search(pattern, p.err):
            fail(f"nothing matches {pattern!r} in:\n{p.err}")


HANG = ["--nproc-per-node=3", "--hang-timeout=2"]


def a_rank_in_its_loader_is_named(here):
    waits, loads = here.line("waits"), here.line("loader")
    expect(here.crun(HANG, "loader", 1), 1,
           rf"ranks 0, 2 wait in all_reduce \(train.py:{waits}, in backward\); "
           rf"rank 1 is in load_image \(train.py:{loads}\)\n",
           r"crun: all other ranks wait for rank 1\n",
           r"failed: rank 1 on \S+ hangs: ",
           rf"what +.* load_image \(train.py:{loads}\)\n",
           rf"\| +load_image \(\S+/train.py:{loads}\)\n")


def a_rank_in_another_collective_is_named(here):
    expect(here.crun(HANG, "collective", 2), 1,
           rf"ranks 0, 1 wait in all_reduce \(train.py:{here.line('waits')}, in backward\); "
           r"rank 2 waits in barrier \(train.py:\d+, in <lambda>\)\n",
           r"crun: rank 2 and the others wait for each other in different calls\n")


def a_deadlock_of_two_locks_is_named(here):
    lock = here.line("lock")
    expect(here.crun(HANG, "deadlock", 0), 1,
           rf"rank 0 is in take \(train.py:{lock}\), a thread in take \(train.py:{lock}\)",
           r"crun: all other ranks wait for rank 0\n")


def a_rank_that_waits_in_the_kernel_is_named(here):
    """In state D no signal reaches its main thread, but another one can write its stack."""
    expect(here.crun(HANG, "kernel", 1), 1,
           rf"; rank 1 is in wait_in_kernel \(train.py:{here.line('vfork')}\)\n",
           r"crun: all other ranks wait for rank 1\n")


GIVES_UP = """
import os, time
def load():
    time.sleep(1000)
if os.environ["RANK"] == "1":
    load()
raise RuntimeError("Timed out waiting 500ms for recv operation to complete")
"""


def a_rank_that_others_gave_up_waiting_for_is_named(here):
    """Their library's own timeout is over before crun's; the cause has not ended."""
    program = here.directory / "gives_up.py"
    program.write_text(GIVES_UP)

    def start(grace):
        return Process([str(BIN / "crun"), "--nproc-per-node=3", "--watch",
                        f"--failure-grace={grace}", str(program)], start_new_session=True)

    expect(start(2), 1,
           r"crun: ranks 0, 2 have ended; rank 1 is in load \(gives_up.py:4\)\n",
           r"failed: rank 1 on \S+ hangs: all other ranks wait for it; it is in load \(gives_up.py:4\)\n",
           r"rank 0: exit code 1, .*Timed out waiting.*: a consequence\n")
    p = start(0)
    expect(p, 1, r"failed: rank [02] on \S+ exited with code 1\n")
    if "rank 1 is in load" in p.err:
        fail("blamed without a wait for the cause:", p.err)


def a_frozen_rank_is_named(here):
    freezer = pathlib.Path("/sys/fs/cgroup/freezer") / f"crun-test-{os.getpid()}"
    try:
        freezer.mkdir()
    except OSError as e:
        print(f"skip: a frozen rank: no cgroup can be made: {e}")
        return
    try:
        p = here.crun(HANG, "freeze", 1, f"{freezer}/cgroup.procs=PID",
                      f"{freezer}/freezer.state=FROZEN")
        until(lambda: "does not answer" in p.err, lambda: p.err)
        (freezer / "freezer.state").write_text("THAWED")  # only so can it be killed
        expect(p, 1, r"rank 1 does not answer: frozen; it was training at step 1\n",
               r"crun: all other ranks wait for rank 1\n")
    finally:
        (freezer / "freezer.state").write_text("THAWED")
        until(lambda: not (freezer / "cgroup.procs").read_text(), "an empty cgroup")
        freezer.rmdir()


def forks_of_a_template_are_explained(here):
    here.flags = ["--warm=fractions", "-v"]
    try:
        a_rank_in_its_loader_is_named(here)
        a_deadlock_of_two_locks_is_named(here)
        job = any_rank_is_shown_at_any_time(here)
    finally:
        here.flags = []
    if job.process.err.count("started warm") != 3:
        fail("not warm:", job.process.err)


def a_frozen_rank_does_not_keep_the_job(here):
    freezer = pathlib.Path("/sys/fs/cgroup/freezer") / f"crun-test-{os.getpid()}"
    try:
        freezer.mkdir()
    except OSError as e:
        print(f"skip: a rank that stays frozen: no cgroup can be made: {e}")
        return
    state = freezer / "freezer.state"
    try:
        p = here.crun([*HANG, "--failure-grace=1"], "freeze", 1, f"{freezer}/cgroup.procs=PID",
                      f"{state}=FROZEN")
        expect(p, 1, rf"rank 1 \(pid \d+\) cannot be killed while it is frozen: see {state}\n")
    finally:
        state.write_text("THAWED")
        until(lambda: not (freezer / "cgroup.procs").read_text(), "an empty cgroup")
        freezer.rmdir()


# -- crunctl stacks ---------------------------------------------------------------------


class Job:
    def __init__(self, here, flags, *words, command=None):
        self.address = f"127.0.0.1:{free_port()}"
        flags = [f"--rdzv-endpoint={self.address}", "--rdzv-backend=c10d", "--rdzv-id=x",
                 "--nnodes=1", *flags]
        self.process = here.crun(flags, *words) if command is None else Process(
            [str(w) for w in (BIN / "crun", *flags, *command)], start_new_session=True)

        until(lambda: self.run().returncode == 0, lambda: self.run().stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill(signal.SIGTERM)
        self.process.wait(60)
        self.process.end()

    def run(self, *words):
        return subprocess.run([BIN / "crunctl", "-e", self.address, "stacks", *words],
                              capture_output=True, text=True, timeout=SECONDS)

    def ask(self, *words, code=0):
        p = self.run(*words)
        if p.returncode != code:
            fail("crunctl stacks", words, p)
        return p.stdout if code == 0 else p.stderr


def any_rank_is_shown_at_any_time(here):
    with Job(here, ["--nproc-per-node=3", "--watch"], "loader", 1) as job:
        until(lambda: job.process.out.count("began") == 3, "workers")
        until(lambda: "rank 1 is in load_image" in job.ask() and
              "ranks 0, 2 wait in all_reduce" in job.ask(), job.ask)
        if "all other ranks wait for rank 1\n" not in job.ask():
            fail("no culprit:", job.ask())
        one, = json.loads(job.ask("1", "--json"))
        if one["ranks"] != [1] or one["kind"] != "python" or one["waits"]:
            fail("not rank 1 alone:", one)
        if len(json.loads(job.ask("0-1", "2", "--json"))) != 2:
            fail("not two groups")
        if job.ask("7") != "no such rank\n":
            fail("a rank that there is not:", job.ask("7"))
        if "is not a rank" not in job.ask("0", "x", code=2):
            fail("x is a rank?")
    return job


def faulthandler_and_forks_are_left_alone(here):
    program = here.directory / "own.py"
    program.write_text("""
import faulthandler, os, signal, sys, time
assert not faulthandler.is_enabled() and not sys.flags.dev_mode
assert "CRUN_STACKS" not in os.environ
faulthandler.register(signal.SIGUSR1, file=sys.stderr)
os.kill(os.getpid(), signal.SIGUSR1)
pid = os.fork()
if not pid:
    fds = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
           if os.path.exists(f"/proc/self/fd/{fd}")]
    status = open("/proc/self/status").read()
    caught = int(status.split("SigCgt:")[1].split()[0], 16)
    os._exit(any("crun-stacks" in fd for fd in fds) or caught >> 59 & 1)
assert os.waitpid(pid, 0)[1] == 0
""")
    p = Process([str(BIN / "crun"), "--watch", str(program)], start_new_session=True)
    expect(p, 0, r"own.py\", line 6 in <module>")


def a_signal_of_the_programs_own_is_left_alone(here):
    """It has replaced the handler of crun, and the descriptor is no file of crun any more."""
    program = here.directory / "handler.py"
    program.write_text("""
import mmap, os, signal, struct, time
signal.signal(60, lambda *_: print("signalled", flush=True))
page = mmap.mmap(os.open(os.environ["CRUN_PROGRESS"], os.O_RDWR), 4096)
page[240:244] = struct.pack("i", 1)
print("began", os.getpid(), flush=True)
while True:
    time.sleep(0.01)
""")
    with Job(here, ["--watch"], command=[program]) as job:
        began = until(lambda: re.search(r"began (\d+)\n", job.process.out), "the worker")
        until(lambda: "rank 0: " in job.ask(), job.ask)
        os.kill(int(began[1]), 60)
        until(lambda: "signalled" in job.process.out, "a signal that was sent")
        if job.process.out.count("signalled") != 1:
            fail("crunctl stacks has sent a signal, too:", job.process.out)


def children_of_a_rank_are_shown(here):
    """One that is in the program's code, none that waits for work."""
    program = here.directory / "loader.py"
    program.write_text("""
import multiprocessing, time
def load_image():
    time.sleep(1000)  # hangs
def main():
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    children = [fork.Process(target=load_image), fork.Process(target=queue.get)]
    [child.start() for child in children]
    print("began", flush=True)
    children[0].join()
main()
""")
    with Job(here, ["--watch"], command=[program]) as job:
        until(lambda: "began" in job.process.out, "the worker")
        until(lambda: "a child in load_image (loader.py:4)" in job.ask(), job.ask)
        text = job.ask()
        if text.count("a child in") != 1 or not re.search(
                r"child process\n +load_image \(\S*loader.py:4\)\n", text):
            fail("not its children alone:", text)


def nobody_feels_it(here):
    program = here.directory / "clock.py"
    program.write_text("""
import threading, time
for _ in range(20):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("began", flush=True)
last, most = time.monotonic(), 0
while True:
    now = time.monotonic()
    if now - last > most:
        most = now - last
        print(f"{most * 1000:.1f}", flush=True)
    last = now
""")
    with Job(here, ["--watch"], command=[program]) as job:
        until(lambda: "began" in job.process.out, "the worker")
        time.sleep(0.5)
        least = 1e9
        for _ in range(20):  # others use this machine, too: the shortest counts
            lines = len(job.process.out)
            job.ask()
            time.sleep(0.05)
            new = job.process.out[lines:].split()
            least = min(least, float(new[-1]) if new else 0)
        if least > STOP_MS_MAX:
            fail(f"the worker stood still for {least} ms")


def a_program_of_the_worker_library_is_shown(here):
    with Job(here, ["--nproc-per-node=2"], command=[
            "--no-python", "sh", "-c",
            f"[ $RANK = 1 ] && exec sleep 1000; exec {BIN}/coll-bench -b 4096"]) as job:
        until(lambda: "rank 1: process sleeping" in job.ask(), job.ask)
    with Job(here, ["--nproc-per-node=3"], command=[
            "--no-python", BIN / "coll-bench", "-b", "4096", "-n", "1000000"]) as job:
        shown = r"ranks? [012](, [12]|-2)*: in all_reduce 1024 x f32 sum #\d+; process "
        until(lambda: re.search(shown, job.ask()), job.ask)
        if any("wait for each other" in job.ask() for _ in range(8)):
            fail("a job that goes on is no deadlock")


def sixty_four_ranks_are_merged_and_shown_in_a_second(here):
    took = []
    with Job(here, [f"--nproc-per-node={RANKS_OF_FIGURE}", "--watch"], "loader", 5) as job:
        until(lambda: job.process.out.count("began") == RANKS_OF_FIGURE, "workers", 120)
        text = until(lambda: (t := job.ask()).count("\nranks ") == 0 and
                     re.search(r"ranks 0-4, 6-63 wait in all_reduce", t) and t, job.ask)
        slowness = slowdown()
        for _ in range(5):
            start = time.monotonic()
            text = job.ask()
            took.append(time.monotonic() - start)
    if "all other ranks wait for rank 5\n" not in text:
        fail("not merged:", text)
    print(f"stacks of {RANKS_OF_FIGURE} ranks: {min(took):.3f} to {max(took):.3f} s")
    if min(took) > FIGURE_S * slowness:
        fail("too slow:", took)


# -- without a status page ----------------------------------------------------------------

STEPS = """
import atexit, os, time
rank, i = int(os.environ["RANK"]), 0
while rank < 2 or i < 3:
    i += 1
    print(f"step = {i}, loss 0.5" if i < 5 else f"step={i}", end="\\n" if i < 5 else "\\r", flush=True)
    if rank == 1 and i == 5:
        time.sleep(1000)
    time.sleep(0.05)
atexit.register(time.sleep, 1000)  # as JAX, which waits for the other ranks
"""


def steps_are_read_from_the_output(here):
    script = here.directory / "steps.py"
    script.write_text(STEPS)
    p = Process([str(BIN / "crun"), "--nproc-per-node=3", "--hang-timeout=2",
                 r"--progress-pattern=step[ =]+(\d+)", str(script)],
                start_new_session=True)
    expect(p, 1, r"rank 1 on \S+ hangs: no progress for \S+ s at step 5, training")
    for pattern in ("step(", "step", "[(]1"):
        p = Process([str(BIN / "crun"), f"--progress-pattern={pattern}", "true"])
        expect(p, 2, r"^crun: --progress-pattern: \"[^\n]*\n$")


def silence_of_all_ranks_is_told_once(here):
    program = here.directory / "quiet.py"
    program.write_text("import time\ndef idle():\n    time.sleep(1000)\nidle()\n")
    with Job(here, ["--nproc-per-node=2", "--watch", "--silence-warning=2"],
             command=[program]) as job:
        text = r"crun: nothing moves on any rank for \S+ s: ranks 0, 1 are in idle \(quiet.py:3\)\n"
        until(lambda: re.search(text, job.process.err), lambda: job.process.err)
        time.sleep(2)
        if len(re.findall(text, job.process.err)) != 1:
            fail("not once:", job.process.err)
    busy = here.directory / "busy.py"
    busy.write_text("import os, time\nif os.environ['RANK'] == '0':\n    time.sleep(1000)\n"
                    "while True:\n    pass\n")
    with Job(here, ["--nproc-per-node=2", "--silence-warning=1"], command=[busy]) as job:
        time.sleep(4)
        if "nothing moves" in job.process.err:
            fail("one rank computes:", job.process.err)
    modules = here.words[1]  # a module of the program's own folder is not imported
    (modules / "slow_module.py").write_text("import time\ntime.sleep(3)\n")
    done = here.directory / "done.py"
    done.write_text("import slow_module\n")
    p = Process([str(BIN / "crun"), "--warm=slow_module", "--silence-warning=1", str(done)],
                start_new_session=True, env={**os.environ, "PYTHONPATH": str(modules),
                                             "XDG_CACHE_HOME": str(here.directory)})
    expect(p, 0)
    if "nothing moves" in p.err:
        fail("no rank runs yet:", p.err)


# -- several nodes ----------------------------------------------------------------------


def a_node_that_does_not_answer_is_named(here, cluster):
    crun = [BIN / "crun", "--nnodes=2", f"--master_addr={cluster[0].address}",
            "--master_port=29500", "--nproc_per_node=1", "--watch"]
    both = [cluster[i].start([*crun, f"--node_rank={i}", *here.words, "loader", "1"])
            for i in (0, 1)]

    def ask():
        asked = cluster[0].start([BIN / "crunctl", "-e", f"{cluster[0].address}:29500", "stacks"])
        asked.wait(60)
        return asked.out

    until(lambda: "rank 0 waits in" in (t := ask()) and "rank 1 is in load_image" in t, ask)
    os.kill(both[1].popen.pid, signal.SIGSTOP)
    text = ask()
    os.kill(both[1].popen.pid, signal.SIGCONT)
    if "node node-1 did not answer\n" not in text or "rank 0 waits in" not in text:
        fail("the node is not named:", text)
    for p in both:
        p.kill(signal.SIGTERM)


def main():
    with tempfile.TemporaryDirectory(prefix="crun-stacks-") as directory:
        here = Here(directory)
        for test in (a_rank_in_its_loader_is_named, a_rank_in_another_collective_is_named,
                     a_deadlock_of_two_locks_is_named,
                     a_rank_that_waits_in_the_kernel_is_named,
                     a_rank_that_others_gave_up_waiting_for_is_named, a_frozen_rank_is_named,
                     a_frozen_rank_does_not_keep_the_job,
                     any_rank_is_shown_at_any_time, forks_of_a_template_are_explained,
                     faulthandler_and_forks_are_left_alone,
                     a_signal_of_the_programs_own_is_left_alone,
                     children_of_a_rank_are_shown, nobody_feels_it, a_program_of_the_worker_library_is_shown,
                     steps_are_read_from_the_output, silence_of_all_ranks_is_told_once,
                     sixty_four_ranks_are_merged_and_shown_in_a_second):
            test(here)
            print("ok", test.__name__)
        why = host.available()
        if why:
            print(f"skipped: {why}: only one node was asked")
            sys.exit(77)
        with host.Cluster(2) as cluster:
            a_node_that_does_not_answer_is_named(here, cluster)
        print("ok a_node_that_does_not_answer_is_named")


main()
