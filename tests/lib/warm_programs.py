# SPDX-License-Identifier: MIT
"""
The programs that are run from the command line and out of a template, to be compared to the
letter. Each prints what it can find out about itself, but nothing that differs by nature
between two runs of it, such as a pid.
"""
import dataclasses
from typing import Dict, List, Optional


@dataclasses.dataclass
class Program:
    name: str
    files: Dict[str, str]  # by path; "train.py" is the program, or the name of its folder
    arguments: List[str] = dataclasses.field(default_factory=list)
    module: Optional[str] = None  # python -m
    run_path: bool = False
    modules: str = "argparse,asyncio,json,logging,multiprocessing,random,tempfile,uuid,ssl"
    needs: str = ""  # a module: without it the program is left out
    env: Dict[str, Optional[str]] = dataclasses.field(default_factory=dict)  # None: unset
    streams: str = "pipe"  # or "file", "pty"
    stdin: bytes = b""
    ranks: int = 1
    ranks_differ: bool = False  # each rank's output is unlike the other's
    place: str = ""  # the programs of one place are workers of one template, which is dear
    interrupt: int = 0  # sent once the program has printed "ready"
    before: str = ""  # code that the process runs before it executes Python

    def is_plain(self):
        """Whether it can run under crun as it is."""
        return not (self.needs or self.stdin or self.interrupt or self.ranks_differ or
                    self.streams != "pipe" or self.name == "folder")


PROGRAMS: List[Program] = []


def program(name, source, more=None, **options):
    if not more and not set(options) - {"arguments", "ranks", "stdin", "interrupt", "ranks_differ"}:
        options["place"] = "plain"
    else:  # a template of its own, which imports less
        options.setdefault("modules", "argparse,json,random,tempfile")
    PROGRAMS.append(Program(name, {"train.py": source.lstrip("\n"), **(more or {})}, **options))


# -- the command ------------------------------------------------------------------------

ARGUMENTS = ["a b", "", "ä€😀", "--flag=x", "-", "--", "'\"$HOME", "\n", "${local_rank}"]

program("arguments", """
import sys
print(ascii(sys.argv), ascii(sys.orig_argv[1:] if hasattr(sys, "orig_argv") else ""))
print(ascii(open("/proc/self/cmdline").read()))
""", arguments=ARGUMENTS, ranks=2)

program("path", """
import os, sys
print(sys.path, sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix, os.getcwd())
print([p for p in sys.path_importer_cache if not p.startswith(sys.base_prefix)], sys.path_hooks and len(sys.path_hooks), sys.meta_path)
import beside
""", {"beside.py": "print('imported', __name__, __file__)\n"}, modules="argparse,json")

program("main-module", """
import sys
import __main__
for name in ("__name__", "__file__", "__spec__", "__loader__", "__cached__", "__package__",
             "__doc__", "__builtins__"):
    print(name, str(getattr(__main__, name, "-")).split(" at 0x")[0])
print(sorted(vars(__main__)), __main__ is sys.modules["__main__"])
""")

program("flags", """
import sys, warnings
print(sys.flags, sys.warnoptions, sys._xoptions, sys.dont_write_bytecode, sys.implementation)
print(sys.argv, sys.gettrace(), sys.getprofile(), sys.getrecursionlimit(),
      sys.getswitchinterval(), sys.pycache_prefix, sys.platlibdir, sys.getdlopenflags())
print(sys.excepthook, sys.displayhook, sys.unraisablehook, sys.breakpointhook)
print([str(f) for f in warnings.filters])
""", env={"PYTHONWARNINGS": "error::SyntaxWarning,ignore::ImportWarning",
          "PYTHONOPTIMIZE": "1", "PYTHONDONTWRITEBYTECODE": "1"})

program("module-package", "", {
    "pkg/__init__.py": "print('package', __name__, __path__)\n",
    "pkg/__main__.py": """
import sys
from . import part
from .part import value
print(sys.argv, __name__, __package__, __spec__.name, __file__, value, sys.path[:2])
print(open("/proc/self/cmdline").read().split("\\0")[1:])
""", "pkg/part.py": "print('part', __name__)\nvalue = 7\n"}, module="pkg", arguments=["x", "y z"])

program("module", "", {"pkg/__init__.py": "", "pkg/train.py": """
import sys
from .part import value
print(sys.argv, __name__, __package__, __spec__.name, value)
raise RuntimeError("of a module")
""", "pkg/part.py": "value = 7\n"}, module="pkg.train")

program("module-missing", "", module="no_such_module")

program("run-path", """
import sys, os
print(sys.argv, sys.path[:2], __name__, __file__, __spec__, __package__)
raise ValueError("below runpy")
""", run_path=True, arguments=["x"])

program("folder", "app", {"app/__main__.py": """
import sys
import inside
print(sys.path[0].endswith("/app"), __file__.endswith("app/__main__.py"), __package__ == "")
""", "app/inside.py": "print('inside', __name__)\n"}, arguments=["x"])

# -- ends and tracebacks ----------------------------------------------------------------

program("exception", """
def inner(n):
    return 1 / n

def outer():
    try:
        inner(0)
    except ZeroDivisionError as error:
        raise KeyError("outer") from error

try:
    outer()
except KeyError:
    raise RuntimeError("while handling")
""")

program("exception-group", """
import sys
class Odd(Exception):
    def __str__(self):
        raise ValueError("in __str__")
if sys.version_info >= (3, 11):
    error = ExceptionGroup("two", [ValueError(1), TypeError("x")])
    error.add_note("a note")
    raise error
raise Odd
""")

program("syntax-error", "print('never')\ndef f(:\n    pass\n")

program("import-error", "import json\nimport no_such_module_of_mine\n")

program("name-error", "import logging\nlogging.warn1ng('x')\n")

program("recursion", "def f(n):\n    return f(n + 1)\nf(0)\n")

program("error-in-library", "import json\njson.loads('{')\n")

program("thread-exception", """
import threading
def run():
    raise ValueError("in a thread")
t = threading.Thread(target=run)
t.start()
t.join()
print(threading.active_count(), t.name, threading.main_thread().name)
""")

program("atexit", """
import atexit, threading, time
atexit.register(print, "registered first")
atexit.register(print, "registered last")
over = threading.Event()
threading.Thread(target=lambda: (over.wait(), time.sleep(0.05), print("thread ends"))).start()
class Late:
    def __del__(self):
        print("deleted")
late = Late()
print("main ends", flush=True)
over.set()
""")

for ending in ("5", "'a text'"):
    program(f"sys-exit-{ending}", f"import sys\nprint('ends')\nsys.exit({ending})\n")

program("os-exit", "import atexit, os\natexit.register(print, 'never')\nprint('x')\nos._exit(17)\n")

program("error-at-exit", "import atexit\natexit.register(lambda: 1 / 0)\n")

for signo in ("SIGKILL", "SIGSEGV", "SIGPIPE"):
    program(f"killed-{signo}", f"""
import os, signal
print("before", flush=True)
os.kill(os.getpid(), signal.{signo})
print("after")
""", before="no core")

program("keyboard-interrupt", """
import signal, sys, time
print(signal.getsignal(signal.SIGINT), flush=True)
print("ready", flush=True)
try:
    time.sleep(60)
finally:
    print("finally")
""", interrupt=2)

program("terminated", "import time\nprint('ready', flush=True)\ntime.sleep(60)\n", interrupt=15)

# -- processes --------------------------------------------------------------------------

program("process", """
import os, resource, signal, threading
print(open("/proc/self/comm").read(), os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())
print(open(f"/proc/{os.getppid()}/comm").read(), os.environ["DRIVER"] == str(os.getppid()))
for name in sorted(vars(resource)):
    if name.startswith("RLIMIT_"):
        print(name, resource.getrlimit(getattr(resource, name)))
old = os.umask(0o22)
print(oct(old), os.getcwd(), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0))
print({s.name: str(signal.getsignal(s)) for s in signal.Signals}, signal.set_wakeup_fd(-1))
status = dict(l.split(":", 1) for l in open("/proc/self/status").read().splitlines())
for name in ("SigBlk", "SigIgn", "SigCgt", "ShdPnd", "Threads", "NoNewPrivs", "TracerPid",
             "Umask", "CapEff", "Seccomp", "Groups"):
    print(name, status[name].strip())
print(sorted(os.listdir("/proc/self/task")) == [str(os.getpid())], threading.active_count())
print(threading.get_native_id() == os.getpid() == threading.main_thread().native_id)
print(threading.get_ident() == threading.main_thread().ident, signal.getitimer(0))
import ctypes
died = ctypes.c_int()
print(ctypes.CDLL(None).prctl(2, ctypes.byref(died)), died.value)
""", before="ignore SIGHUP")

program("descriptors", """
import os
for name in sorted(os.listdir("/proc/self/fd"), key=int):
    try:
        link = os.readlink("/proc/self/fd/" + name)
    except OSError:
        continue
    print(name, link.partition(":")[0], os.get_inheritable(int(name)))
""")

program("environment", """
import os, posix, subprocess
for name in sorted(os.environ):
    print(name, ascii(os.environ[name]))
print(list(os.environ) == [e.partition("=")[0] for e in
                           subprocess.run(["env"], stdout=-1, text=True).stdout.splitlines()])
print(posix.environ == dict(os.environb), type(os.environ), os.getenv("RANK"))
with open("/proc/self/environ", "rb") as f:
    print(sorted(e for e in f.read().split(b"\\0") if not e.startswith((b"CRUN_", b"PYTHONPATH"))))
os.environ["NEW"] = "x"
print(subprocess.run(["sh", "-c", "echo $NEW $RANK"], stdout=-1).stdout)
""", env={"SPACES": "a b", "EMPTY": "", "UNICODE": "ä€", "EQUALS": "a=b=c"}, ranks=2)

for language in ("C", "C.UTF-8", None):
    program(f"locale-{language}", """
import locale, os, sys
print(locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(False), sys.flags.utf8_mode)
print(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), os.environ.get("LC_CTYPE"))
for s in (sys.stdin, sys.stdout, sys.stderr):
    print(s.encoding, s.errors)
""", env={"LANG": language, "LC_ALL": None, "LC_CTYPE": None})

program("multiprocessing", """
import multiprocessing, os, sys
class Thing:
    def __init__(self, n):
        self.n = n
def work(thing):
    return thing.n * 2, type(thing).__module__, __name__, multiprocessing.current_process().name
def fail():
    raise ValueError("in a child")
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            print(method, [r[:2] for r in pool.map(work, [Thing(1), Thing(2)])])
        p = context.Process(target=sys.exit, args=(3, ))
        p.start()
        p.join()
        print(p.exitcode, p.name)
        queue = context.Queue()
        queue.put("through a queue")
        print(queue.get())
    print(multiprocessing.current_process().name, multiprocessing.parent_process(),
          multiprocessing.active_children(), multiprocessing.get_start_method())
""")

program("multiprocessing-child-fails", """
import multiprocessing
def fail():
    raise ValueError("in a child")
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        p = multiprocessing.get_context(method).Process(target=fail, name=method)
        p.start()
        p.join()
        print(p.exitcode)
""")

program("subprocess", """
import os, subprocess, sys
code = "import sys, os; print(sys.argv, sys.path[1:], 'PYTHONPATH' in os.environ, [n for n in os.environ if n.startswith('CRUN')])"
print(subprocess.run([sys.executable, "-c", code, "x"], stdout=-1, text=True).stdout)
pid = os.fork()
if pid == 0:
    print("forked", flush=True)
    os._exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")

program("concurrent", """
import asyncio, concurrent.futures
async def work(n):
    await asyncio.sleep(0.001)
    p = await asyncio.create_subprocess_exec("sh", "-c", f"exit {n}")
    return await p.wait()
async def main():
    return await asyncio.gather(*(work(n) for n in range(3)))
print(asyncio.run(main()))
def square(n):
    return n * n
if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        print(list(pool.map(square, range(4))))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        print(list(pool.map(square, range(4))))
""", modules="asyncio,concurrent.futures.process,concurrent.futures.thread")

program("pickle-main", """
import copyreg, pickle
class Point:
    class Inner:
        pass
    def __init__(self, x):
        self.x = x
data = pickle.dumps([Point(3), Point.Inner(), Point])
print(data)
print(pickle.loads(data)[0].x, Point.__module__, Point.Inner.__qualname__)
""")

# -- standard streams -------------------------------------------------------------------

STREAMS = r"""
import os, sys
def facts(name):
    s = getattr(sys, name)
    raw = getattr(s.buffer, "raw", s.buffer)
    return (name, s is getattr(sys, f"__{name}__"), s.mode, s.name, s.encoding, s.errors,
            s.newlines, s.line_buffering, s.write_through, s.isatty(), s.seekable(), s.fileno(),
            type(s.buffer).__name__, repr(raw), raw.name, s.closed, s.buffer.mode)
for name in ("stdin", "stdout", "stderr"):
    print(facts(name))
print(repr(sys.stdin.readline()), repr(os.read(0, 10) if "few" in sys.argv else None))
print(repr(sys.stdin.read()))
print("to stderr", file=sys.stderr)
sys.stdout.write("no newline")
os.write(1, b"|after it|\n")
sys.stdout.buffer.write(b"bytes\n")
os.system("echo from a shell; echo to its stderr >&2")
print("end\r\nä", flush=True)
"""

for streams in ("pipe", "file", "pty"):
    program(f"streams-{streams}", STREAMS, streams=streams,
            stdin=b"first line\r\nsecond\nthird \xff" if streams != "pty" else b"typed\n\x04\x04")

program("streams-buffered", STREAMS, streams="file", stdin=b"x" * 20000 + b"\n" + b"y" * 9000,
        env={"PYTHONIOENCODING": "latin-1:replace"})

program("stdin-shared", """
import subprocess, sys
print(repr(input()))
print(subprocess.run(["cat"], stdout=-1).stdout[:20])
""", stdin=b"for the program\n" + b"for cat\n" * 10000)

program("broken-pipe", """
import os, sys
r, w = os.pipe()
os.close(r)
os.dup2(w, 1)
print("to a closed pipe")
""")

program("logging", """
import logging
logging.warning("before any configuration")
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(processName)s %(message)s")
logging.info("configured")
logging.getLogger("a.b").error("with %s", "arguments")
record = logging.makeLogRecord({})
print(0 <= record.relativeCreated < 5000, logging.root.handlers, logging.lastResort)
print(sorted(logging.root.manager.loggerDict))
""", modules="logging,logging.handlers,multiprocessing")

# -- random state -----------------------------------------------------------------------

program("random", """
import os, random, tempfile, uuid, secrets, multiprocessing
print(random.random(), uuid.uuid4(), next(tempfile._get_candidate_names()), secrets.token_hex(4),
      bytes(multiprocessing.current_process().authkey).hex())
random.seed(1)
""", ranks=3, ranks_differ=True)

program("random-seeded", """
import random
random.seed(7)
print(random.random(), random.sample(range(100), 5))
""", ranks=2)

program("random-numpy", """
import numpy
print(numpy.random.rand(), numpy.random.default_rng().random())
""", modules="numpy.random", needs="numpy", ranks=3, ranks_differ=True)

program("numpy", """
import numpy
numpy.random.seed(3)
a = numpy.random.rand(300, 300)
print((a @ a).sum(), numpy.linalg.inv(a).sum(), numpy.random.rand(), numpy.geterr())
""", modules="numpy", needs="numpy", ranks=2)

program("hash-seed", "print(hash('a text'), {'a', 'b', 'c', 'd'})\n",
        env={"PYTHONHASHSEED": "12345"}, ranks=2)

program("gc", "import gc\nprint(gc.isenabled(), gc.get_threshold(), gc.garbage, gc.get_debug())\n")

# -- the environment of the user --------------------------------------------------------

program("noisy-module", """
print("program begins")
import noisy
print(noisy.value)
""", {"lib/noisy.py": """
import os, sys, warnings
value = 3
"""}, env={"PYTHONPATH": "lib"}, modules="noisy")

program("own-sitecustomize", """
import sys
print(sys.modules["sitecustomize"].__file__, sys.custom, sys.path[1])
""", {"site/sitecustomize.py": "import sys\nsys.custom = 'yes'\n"}, env={"PYTHONPATH": "site"})

program("broken-sitecustomize", "import sys\nprint('sitecustomize' in sys.modules)\n",
        {"site/sitecustomize.py": "1 / 0\n"}, env={"PYTHONPATH": "site"})

program("no-sitecustomize", """
import sys
print([name for name in sys.modules if "custom" in name], "PYTHONPATH" in __import__("os").environ)
""")

program("own-usercustomize", "import sys\nprint('usercustomize' in sys.modules)\n",
        env={"PYTHONNOUSERSITE": "1"})

program("pythonpath", """
import os, sys
print(os.environ["PYTHONPATH"], sys.path)
import mine
""", {"one/mine.py": "print(__file__)\n", "two/mine.py": "print('wrong')\n"},
        env={"PYTHONPATH": "one:two"})

program("shadowed-library", """
import colorsys
print(colorsys.__file__.endswith("train/colorsys.py") or colorsys.__file__)
import wave2
""", {"colorsys.py": "print('the program has its own')\n", "lib/wave2.py": "import colorsys\n"},
        env={"PYTHONPATH": "lib"}, modules="wave2,json")

program("module-changes-environment", """
import changes
import os
print(os.environ["ADDED"], os.environ["RANK"], "REMOVED" in os.environ)
""", {"lib/changes.py": """
import os
os.environ["ADDED"] = "by an import"
os.environ.pop("REMOVED", None)
"""}, env={"PYTHONPATH": "lib", "REMOVED": "x"}, modules="changes")

program("traced", """
import sys
sys.settrace(lambda *a: None)
sys.setrecursionlimit(500)
import traceback
traceback.print_stack()
import inspect
print([f.function for f in inspect.stack()], sys._getframe().f_back)
""")

program("faulthandler", "import faulthandler\nprint(faulthandler.is_enabled())\n",
        env={"PYTHONFAULTHANDLER": "1"})

# -- torch ------------------------------------------------------------------------------

OF_TORCH = {"modules": "torch", "needs": "torch", "place": "torch", "env": {"OMP_NUM_THREADS": "2"}}

program("torch", """
import torch, torch.distributed as dist, os
from torch.utils.data import DataLoader, Dataset
class Squares(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, i):
        return torch.tensor(i * i), torch.utils.data.get_worker_info().num_workers
torch.manual_seed(int(os.environ["RANK"]))
print(torch.rand(2), torch.initial_seed(), torch.get_num_threads(), torch.is_grad_enabled(),
      torch.get_default_dtype(), torch.cuda.is_available(), torch.cuda.is_initialized())
model = torch.nn.Linear(64, 64)
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    loss = model(torch.ones(128, 64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
a = torch.ones(800, 800)
print((a @ a).sum().item(), a.sum().item())
print([batch[0].tolist() for batch in DataLoader(Squares(), 4, shuffle=True, num_workers=2)])
torch.nn.Linear(3, 4)(torch.ones(5))
""", **OF_TORCH)

program("torch-unseeded", """
import torch
print(torch.initial_seed(), torch.rand(1, dtype=torch.float64).item())
""", ranks=2, ranks_differ=True, **OF_TORCH)
