# SPDX-License-Identifier: MIT
"""
Ways in which a training goes wrong, for scripts/bench/faults: one function each, in one table.

A program of load/faulty.py calls `strike` at its places; at the fault's place and step the ranks
in `ranks` run its function. The line that a launcher must name ends with "# here", or it is that
of the program with the mark LINE, as "# loads backward". `word`, a pattern, is what it must say where no line can be known.
"""
import asyncio
import ctypes
import fcntl
import inspect
import multiprocessing
import os
import queue
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

RANK = int(os.environ.get("RANK", "0"))
AT_STEP = 20
HOURS = 36000
WORK_S = 0.02  # of each rank in each step
SLOWER = 10
TORCH = "ddp", "fsdp", "lightning", "transformers"
PYTHON = (*TORCH, "jax")
ALL = (*PYTHON, "train")
LOOPS = "ddp", "fsdp"  # whose loop is the program's own


class Fault:
    def __init__(self, function, kind, at, programs, ranks, world, line, word, signo, limit):
        self.name, self.what = function.__name__, " ".join((function.__doc__ or "").split())
        self.function, self.kind, self.at, self.programs = function, kind, at, programs
        self.ranks, self.world = ranks, world
        self.line, self.word, self.signo, self.limit = line, word, signo, limit
        self.ranks_named = ranks if ranks else () if world == 2 else (1,)

    def places(self, program):
        """["file:line"] of which one must be named; none: the word must be."""
        if self.word:
            return []
        if self.line:
            lines, first = open(program).read().splitlines(), 1
        else:
            lines, first = inspect.getsourcelines(self.function)
        file = os.path.basename(program if self.line else __file__)
        return [f"{file}:{number}" for number, text in enumerate(lines, first)
                if (self.line or "here") in marks_of(text)]


def marks_of(text):
    """Of a line of a program: "# loads backward"."""
    marks = text.rpartition("# ")[2].split()
    return marks if set(marks) <= {"here", "loads", "backward", "saves"} else []


FAULTS = {}


def fault(kind, at="step", programs=PYTHON, ranks=(1,), world=2, line=None, word=None, signo=None,
          limit=30):
    def add(function):
        FAULTS[function.__name__] = Fault(function, kind, at, programs, ranks, world, line, word,
                                          signo, limit)
        return function
    return add


def strike(place, step=AT_STEP):
    """What the loss is multiplied by, unless the rank does something worse."""
    wanted = FAULTS.get(os.environ.get("FAULT", ""))
    if (not wanted or wanted.at != place or step < AT_STEP or
            wanted.ranks and RANK not in wanted.ranks or
            os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"):
        return 1.0
    note_time()
    factor = wanted.function()
    return 1.0 if factor is None else factor


def note_time():
    try:
        with open(os.environ["FAULT_FILE"], "x") as f:
            f.write(f"{time.monotonic()}\n")
    except FileExistsError:
        pass


# -- ranks that stand still ------------------------------------------------------------------

@fault("hang")
def sleeps():
    """sleeps"""
    time.sleep(HOURS)  # here


@fault("hang")
def spins():
    """a Python loop without an end"""
    while True:  # here
        pass  # here


@fault("hang")
def regex():
    """a regular expression that takes for ever"""
    re.match(r"(a+)+$", 60 * "a" + "b")  # here


@fault("hang")
def native():
    """a deadlock in C"""
    mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex), lock(mutex)  # here


@fault("hang")
def native_gil():
    """a deadlock in C that holds the interpreter's lock"""
    mutex, lock = ctypes.create_string_buffer(64), ctypes.PyDLL(None).pthread_mutex_lock
    lock(mutex), lock(mutex)  # here


def take(first, second, both):
    with first:
        both.wait()
        with second:
            time.sleep(HOURS)


@fault("hang")
def two_locks():
    """a deadlock of two locks and two threads"""
    one, other, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
    threading.Thread(target=take, args=(other, one, both), daemon=True).start()
    with one:
        both.wait()
        other.acquire()  # here


@fault("hang")
def one_lock():
    """takes a lock that it has"""
    lock = threading.Lock()
    with lock, lock:  # here
        pass


def dies():
    raise ValueError("a thread has failed")


@fault("hang")
def dead_thread():
    """waits for a thread that has died of an exception"""
    results = queue.Queue()
    threading.Thread(target=dies, daemon=True).start()
    results.get()  # here


@fault("hang")
def joins():
    """joins a thread that never ends"""
    thread = threading.Thread(target=time.sleep, args=(HOURS,), daemon=True)
    thread.start()
    thread.join()  # here


@fault("hang")
def future():
    """waits for a future that is never completed"""
    Future().result()  # here


@fault("hang")
def pool():
    """tasks of a pool of one thread wait for each other"""
    threads = ThreadPoolExecutor(1)
    threads.submit(lambda: threads.submit(int).result()).result()  # here


@fault("hang")
def event_loop():
    """an asyncio loop waits for an event"""
    async def wait():
        await asyncio.Event().wait()
    asyncio.run(wait())  # here


@fault("hang")
def child_command():
    """waits for a command that does not end"""
    subprocess.run(["sleep", str(HOURS)])  # here


@fault("hang", programs=TORCH)  # jax warns of forks
def child_process():
    """waits for a forked process that took over a held lock"""
    def work():
        lock.acquire()  # here
    lock = threading.Lock()
    with lock:
        child = multiprocessing.get_context("fork").Process(target=work, daemon=True)
        child.start()
        child.join()


@fault("hang")
def polls():
    """polls for a file that another job should have written"""
    while not os.path.exists("/nonexistent/ready"):
        time.sleep(0.1)  # here


@fault("hang")
def fifo():
    """reads a file of a storage that does not answer (a FIFO)"""
    path = tempfile.mktemp()
    os.mkfifo(path)
    open(path).read()  # here


def mount_dead_storage():
    """A FUSE file system whose server never answers; it goes with this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder, fd = tempfile.mkdtemp(), os.open("/dev/fuse", os.O_RDWR)
    words = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    if (libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 1 << 18 | 1 << 14, None) or
            libc.mount(b"fuse", folder.encode(), b"fuse", 0, words)):
        raise OSError(ctypes.get_errno(), "a FUSE file system cannot be mounted")
    return folder


@fault("hang")
def fuse():
    """the kernel waits for a file system (FUSE), state D"""
    folder = mount_dead_storage()
    os.listdir(folder)  # here


@fault("hang")
def vfork():
    """starts a program of a file system that hangs, state D"""
    folder = mount_dead_storage()
    subprocess.run([folder + "/program"])  # here


@fault("hang")
def flock():
    """waits for the lock of a file that is held elsewhere"""
    with tempfile.NamedTemporaryFile() as one, open(one.name) as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(other, fcntl.LOCK_EX)  # here


@fault("hang")
def object_store():
    """reads from a server that takes the connection and never answers"""
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname()).recv(1)  # here


@fault("hang", word="stopped", programs=ALL, signo=signal.SIGSTOP)
def stopped():
    """is stopped by a signal (SIGSTOP)"""
    os.kill(os.getpid(), signal.SIGSTOP)


@fault("hang", word="frozen")
def frozen():
    """is frozen by a cgroup"""
    folder = os.environ["FAULT_FREEZER"]
    for name, value in (("cgroup.procs", os.getpid()), ("freezer.state", "FROZEN")):
        with open(f"{folder}/{name}", "w") as f:
            f.write(str(value))
    time.sleep(HOURS)


# -- phases ----------------------------------------------------------------------------------

@fault("hang", at="load", programs=TORCH)
def loads():
    """its data loader reads a sample for ever"""
    time.sleep(HOURS)  # here


@fault("hang", at="child", programs=TORCH)
def loader_child():
    """a process of its data loader hangs"""
    time.sleep(HOURS)  # here


@fault("hang", at="child", programs=TORCH, line="loads")
def loader_child_stopped():
    """a process of its data loader is stopped (SIGSTOP)"""
    os.kill(os.getpid(), signal.SIGSTOP)


@fault("hang", at="backward", programs=TORCH)
def backward_hook():
    """a hook hangs within backward"""
    time.sleep(HOURS)  # here


@fault("hang", at="save", programs=TORCH, ranks=(0,), line="saves")
def saves():
    """rank 0 writes a checkpoint to a storage that does not answer"""
    os.unlink(os.environ["FAULT_CHECKPOINT"])
    os.mkfifo(os.environ["FAULT_CHECKPOINT"])


@fault("hang", at="evaluate", programs=LOOPS)
def evaluates():
    """hangs in an evaluation"""
    time.sleep(HOURS)  # here


@fault("silence", at="start", programs=("ddp", "fsdp", "jax"))
def starts():
    """hangs before it joins the others"""
    time.sleep(HOURS)  # here


@fault("hang", at="first", programs=PYTHON)
def first_step():
    """hangs before its first step"""
    time.sleep(HOURS)  # here


@fault("hang", at="end", programs=("ddp", "fsdp"))
def ends():
    """hangs when the training is done"""
    time.sleep(HOURS)  # here


# -- collectives -----------------------------------------------------------------------------

def torch_distributed():
    import torch
    import torch.distributed
    return torch.distributed, torch.ones(1)


@fault("hang", programs=TORCH, world=3, ranks=())
def other_collective():
    """calls another collective than the other two"""
    dist, one = torch_distributed()
    if RANK == 1:
        dist.all_reduce(one)  # here
    else:
        dist.barrier()


@fault("hang", programs=TORCH, world=3, line="backward")
def skips():
    """skips a collective of the other two"""


@fault("hang", programs=TORCH, world=3)
def receives():
    """receives what no rank sends"""
    dist, one = torch_distributed()
    dist.recv(one, 0, tag=77)  # here


@fault("hang", programs=TORCH, world=3)
def new_group():
    """makes a group alone"""
    dist, _ = torch_distributed()
    dist.new_group([0, 1])  # here


@fault("hang", programs=TORCH)
def store_key():
    """waits for a key in the store that no rank sets"""
    dist, _ = torch_distributed()
    dist.distributed_c10d._get_default_store().get("never")  # here


@fault("hang", programs=TORCH, ranks=())
def ring():
    """all ranks receive first, none sends"""
    dist, one = torch_distributed()
    dist.recv(one, 1 - RANK, tag=77)  # here


@fault("hang", ranks=())
def all_hang():
    """all ranks read from a storage that does not answer"""
    path = tempfile.mktemp()
    os.mkfifo(path)
    open(path).read()  # here


@fault("exit", at="unused", programs=("ddp",))
def unused():
    """does not use a part of the model"""


@fault("exit", programs=("ddp", "fsdp"))
def leaves_group():
    """leaves the process group and fails then"""
    dist, one = torch_distributed()
    dist.destroy_process_group()
    dist.all_reduce(one)  # here


@fault("hang", at="step", programs=("ddp", "fsdp"))
def peer_times_out():
    """sleeps, and the other rank's collective times out first"""
    time.sleep(HOURS)  # here


# -- ends ------------------------------------------------------------------------------------

@fault("exit")
def raises():
    """raises an exception"""
    raise ValueError("a bad sample")  # here


@fault("exit", ranks=())
def all_raise():
    """all ranks raise an exception"""
    raise ValueError("a bad flag")  # here


@fault("exit", word=r"code:? 3\b")
def exits():
    """exits with a code"""
    sys.exit(3)


@fault("exit", word=r"code:? 7\b")
def exits_at_once():
    """ends without a clean-up (os._exit)"""
    os._exit(7)


@fault("exit", word="exit")
def exits_early():
    """ends early, with exit code 0"""
    sys.exit(0)


@fault("signal", programs=ALL, word="SIGABRT", signo=signal.SIGABRT)
def aborts():
    """aborts, as by an assertion in C"""
    os.abort()


@fault("signal", programs=ALL, word="SIGSEGV", signo=signal.SIGSEGV)
def crashes():
    """reads a wild pointer"""
    ctypes.string_at(8)


@fault("signal", word="SIGBUS")
def bus_error():
    """reads a shared memory that has been cut"""
    with tempfile.TemporaryFile() as f:
        import mmap
        f.truncate(4096)
        memory = mmap.mmap(f.fileno(), 4096)
        f.truncate(0)
        memory[0]


@fault("signal", programs=ALL, word="SIGKILL", signo=signal.SIGKILL)
def killed():
    """is killed (kill -9)"""
    os.kill(os.getpid(), signal.SIGKILL)


@fault("signal", word="SIGTERM")
def terminated():
    """gets a SIGTERM from outside the job"""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


@fault("signal", word="SIGKILL")
def out_of_memory():
    """takes more memory than its cgroup has"""
    with open(os.environ["FAULT_MEMORY"] + "/cgroup.procs", "w") as f:
        f.write(str(os.getpid()))
    hoard = []
    while True:
        hoard.append(bytearray(b"x" * (1 << 20)))


@fault("exit")
def no_memory():
    """is refused memory (MemoryError)"""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))
    bytearray(1 << 40)  # here


@fault("exit")
def disk_full():
    """writes to a disk that is full"""
    with open("/dev/full", "w") as f:
        f.write("x")
        f.flush()  # here


@fault("exit")
def descriptors():
    """runs out of descriptors"""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    files = []
    while True:
        files.append(os.open("/dev/null", os.O_RDONLY))  # here


@fault("exit")
def breakpoint_left():
    """a breakpoint was forgotten"""
    import pdb
    pdb.set_trace()
    time.sleep(0.01)  # here


@fault("exit", at="start", ranks=())
def import_fails():
    """all ranks import a module that there is not"""
    import no_such_module  # noqa: F401  # here


@fault("exit", at="child", programs=TORCH)
def loader_raises():
    """a process of its data loader raises"""
    raise ValueError("a bad sample")  # here


@fault("exit", at="child", programs=TORCH, word="is killed by signal")
def loader_killed():
    """a process of its data loader is killed (out of memory)"""
    os.kill(os.getpid(), signal.SIGKILL)


# -- wrong numbers and slow ranks ------------------------------------------------------------

@fault("nan", programs=TORCH, ranks=(), word="NaN")
def nan_loss():
    """the loss is NaN from now on"""
    return float("nan")


@fault("straggler", programs=LOOPS, limit=45)
def slow():
    """computes 10 times slower"""
    time.sleep(SLOWER * WORK_S)  # here


@fault("straggler", at="load", programs=LOOPS, limit=45)
def slow_loader():
    """loads its data 10 times slower"""
    time.sleep(SLOWER * WORK_S)  # here
