#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# takes: 15 s
# sanitizers: no, it runs Python code only
"""
The template of workers: what it imports, what it leaves out, when it ends; the notes of it.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import SECONDS, fail, matches, run, same, until  # noqa: E402
from template import BOOTSTRAP, PROGRAM, PYTHON, bootstrap_env, with_place  # noqa: E402


def left_out(make, reason, good="x = 1\n", **libraries):
    """A template without the module liba, which says the reason once and then no more."""
    place = make(libgood=good, **libraries)
    template = place.template("liba,libgood")
    same(template.wait_ready(), True)
    matches(template.said, rf"^warm starts leave liba out: {reason}\n$")
    same(place.worker(template), ("libgood\n", 0))
    again = place.template("liba,libgood")
    same(again.wait_ready(), True)
    same(again.said, "")
    same(place.worker(again), ("libgood\n", 0))
    same(len(place.cached("left-out")), 1)


# -- what cannot be shared by a fork ----------------------------------------------------


@with_place
def a_thread_is_left_out(make):
    left_out(make, r"it leaves a thread running \(worker\)", liba="""
import threading, time
threading.Thread(target=time.sleep, args=(1000, ), daemon=True, name="worker").start()
""")


@with_place
def a_thread_that_python_does_not_know_is_left_out(make):
    left_out(make, "it leaves a thread running that a fork does not end", liba="""
import _thread, time
_thread.start_new_thread(time.sleep, (1000, ))
""")


@with_place
def a_thread_that_a_fork_can_do_without_is_not_left_out(make):
    place = make(libgood="""
import _thread, ctypes, time
named = _thread.allocate_lock()
named.acquire()
def work():
    ctypes.CDLL(None).prctl(15, b"jemalloc_bg_thd", 0, 0, 0)
    named.release()
    time.sleep(1000)
_thread.start_new_thread(work, ())
named.acquire()
""")
    template = place.template("libgood")
    same((template.wait_ready(), template.said), (True, ""))
    same(place.worker(template), ("libgood\n", 0))


@with_place
def a_socket_is_left_out(make):
    left_out(make, "it leaves a socket open", liba="import socket\ns = socket.socket()\n")


@with_place
def a_file_is_left_out(make):
    left_out(make, "it leaves /.*/libgood.py open",
             liba="import os\nf = open(os.path.dirname(__file__) + '/libgood.py')\n")


@with_place
def a_package_is_left_out_as_a_whole(make):
    place = make(libgood="")
    place.write("lib/liba/__init__.py", "import socket\ns = socket.socket()\n")
    place.write("lib/liba/one.py", "")
    place.write("lib/liba/two.py", "")
    template = place.template("liba.one,liba.two,libgood")
    same(template.wait_ready(), True)
    same(template.said, "warm starts leave liba out: it leaves a socket open\n")
    same(place.worker(template), ("libgood\n", 0))


@with_place
def a_child_is_left_out_and_killed(make):
    place = make(liba="""
import subprocess
p = subprocess.Popen(["sleep", "1000"])
open(__file__ + ".pid", "w").write(str(p.pid))
""")
    template = place.template("liba")
    same(template.wait_ready(), True)
    same(template.said, "warm starts leave liba out: it leaves a process running\n")
    with open(place.path + "/lib/liba.py.pid") as file:
        same(os.path.exists(f"/proc/{file.read()}"), False)


@with_place
def a_module_that_reads_the_rank_is_left_out(make):
    left_out(make, "liba reads RANK", liba="import os\nrank = os.environ.get('RANK', '0')\n")
    left_out(make, "liba reads LOCAL_RANK", liba="import os\nrank = 'LOCAL_RANK' in os.environ\n")


@with_place
def a_module_may_read_what_all_workers_have(make):
    place = make(libgood="import os\nassert dict(os.environ.items())['LOCAL_WORLD_SIZE'] == '2'\n")
    place.env["LOCAL_WORLD_SIZE"] = "2"
    template = place.template("libgood")
    same(template.wait_ready(), True)
    same(template.said, "")
    same(place.worker(template, RANK="1"), ("libgood\n", 0))


@with_place
def a_module_that_imports_the_programs_own_is_left_out(make):
    place = make(liba="import libmine\n", libgood="")
    place.write("app/libmine.py", "")
    template = place.template("liba,libgood")
    same(template.wait_ready(), True)
    same(template.said, "warm starts leave liba out: it imports libmine of the program's folder\n")
    same(place.worker(template), ("libgood\n", 0))


@with_place
def a_module_that_crashes_is_left_out_by_the_next_template(make):
    place = make(liba="import ctypes\nctypes.string_at(0)\n", libgood="")
    template = place.template("libgood,liba")
    same(template.wait_ready(), False)
    same(template.popen.wait(), -signal.SIGSEGV)
    next_one = place.template("libgood,liba")
    same(next_one.wait_ready(), True)
    same(next_one.said, "warm starts leave liba out: the interpreter dies: Segmentation fault\n")
    same(place.worker(next_one), ("libgood\n", 0))


@with_place
def a_module_that_hangs_is_left_out_by_the_next_template(make):
    place = make(liba="import time\ntime.sleep(1000)\n", libgood="")
    same(place.template("liba", limit=1).wait_ready(), False)
    next_one = place.template("liba,libgood", limit=1)
    same(next_one.wait_ready(), True)
    same(next_one.said, "warm starts leave liba out: it takes too long\n")


@with_place
def the_marker_of_a_killed_template_does_not_stay(make):
    place = make(liba="import time\ntime.sleep(1000)\n", libgood="")
    killed = place.template("liba")

    def markers():
        folder = place.path + "/cache/crun"
        return [os.path.join(folder, name) for name in os.listdir(folder)
                if "importing" in name] if os.path.isdir(folder) else []

    until(markers, "an import")
    killed.popen.kill()
    killed.popen.wait()
    old = os.rename(markers()[0], markers()[0] + "0") or markers()  # of another guard
    same(place.template("libgood").wait_ready(), True)
    same(markers(), old)
    os.utime(old[0], (time.time() - 86400, ) * 2)
    same(place.template("libgood").wait_ready(), True)
    same(markers(), [])


@with_place
def a_killed_template_blames_no_module(make):
    place = make(liba="import time\ntime.sleep(0.5)\n")
    first = place.template("liba")
    until(lambda: any("importing" in name for name in os.listdir(place.path + "/cache/crun"))
          if os.path.isdir(place.path + "/cache/crun") else False, "an import")
    first.popen.kill()
    first.popen.wait()
    second = place.template("liba")
    same(second.wait_ready(), True)
    same(second.said, "")
    same(place.worker(second), ("liba\n", 0))
    same([n for n in os.listdir(place.path + "/cache/crun") if "importing" in n], [])


# -- what imports read ------------------------------------------------------------------

# What differs between workers or attempts, and is kept where it cannot be renewed.
LEFT_OUT = {
    "libcopy": ("import os\nall_of_it = dict(os.environ)\n", "libcopy keeps all variables"),
    "libvalue": ("import os\nthree = [v for v in os.environ.values() if v == '3']\n",
                 "libvalue reads RANK"),
    "libbytes": ("import os\nrank = os.environb.get(b'RANK', b'0')\n", "libbytes reads RANK"),
    "libnative": ("import ctypes\nread = ctypes.CDLL(None).getenv\nread.restype = ctypes.c_char_p\n"
                  "rank = read(b'LOCAL_RANK') or b'0'\n", "its C code reads LOCAL_RANK"),
    "libfails": ("import os\nimport libhalf\nos.environ['NO_SUCH_VARIABLE']\n",
                 "its import fails: KeyError: 'NO_SUCH_VARIABLE'"),
    "libexits": ("import sys\nsys.exit(3)\n", "its import fails: SystemExit: 3"),
    "libport": ("import random\nport = random.randint(20000, 30000)\n",
                "it draws random numbers by random"),
    "libtoken": ("import secrets\nclass Client:\n    token = secrets.token_hex(24)\n",
                 "libtoken draws random numbers"),
    "liblock": ("import multiprocessing\nlock = multiprocessing.Lock()\n",
                "it shares memory with all forks"),
    "libmap": ("import mmap\nmemory = mmap.mmap(-1, 4096)\n", "it shares memory with all forks"),
}


@with_place
def what_differs_between_workers_is_left_out(make):
    place = make(libhalf="", libgood="import os\nmine = {k: v for k, v in os.environ.items() "
                                     "if v and k.startswith('MINE_')}\nhas = 'RANK' in [*os.environ]\n",
                 **{name: text for name, (text, _) in LEFT_OUT.items()})
    names = ",".join([*LEFT_OUT, "no_such_module", "libgood"])
    template = place.template(names)
    same(template.wait_ready(), True)
    same(template.said.splitlines(),
         [f"warm starts leave {name} out: {reason}" for name, (_, reason) in LEFT_OUT.items()])
    same(place.worker(template, RANK="3"), ("libgood\n", 0))
    again = place.template(names)
    same((again.wait_ready(), again.said), (True, ""))


DRAWN = """
import datetime, os, random, time, uuid
free, fixed, late = random.Random(), random.Random(5), random.Random(int(time.time()))
unique = uuid.uuid4()
name = uuid.uuid4().hex
key = f"key-{uuid.uuid4()}"
secret = os.urandom(24)
began, began_ns, ticks = time.time(), time.time_ns(), time.monotonic()
day = datetime.datetime.now()
pid = os.getpid()
how = {".txt": open}
"""
# numpy's, as far as they matter; and an object that finds out what it is when it is asked for it
GENERATORS = """
import os, secrets
class SeedSequence:
    def __init__(self, entropy=None):
        self.entropy = secrets.randbits(128) if entropy is None else entropy
class BitGenerator:
    def __init__(self, entropy=None):
        self.seed_seq = SeedSequence(entropy)
class Lazy:
    __class__ = property(lambda self: os.environ["RANK"])
free, fixed, lazy = BitGenerator(), BitGenerator(1 << 127), Lazy()
"""
SHOW_DRAWN = """
import os, random, time
import liba, libb
from numpy.random import bit_generator
print(bit_generator.free.seed_seq.entropy, liba.free.random(), liba.late.random(), liba.unique, liba.name, liba.key, liba.secret,
      liba.began, liba.began_ns, liba.ticks, str(liba.day).replace(" ", "T"), liba.pid, random.random())
print(bit_generator.fixed.seed_seq.entropy, liba.fixed.random(), liba.pid == os.getpid(), 0 <= time.time() - liba.began < 60,
      liba.key == libb.key, liba.key[:4], liba.unique.version, liba.how)
"""


@with_place
def what_imports_draw_is_drawn_again_by_each_worker(make):
    place = make(SHOW_DRAWN, liba=DRAWN, libb="from liba import key\n")
    place.write("lib/numpy/random/bit_generator.py", GENERATORS)
    template = place.template("numpy.random.bit_generator,liba,libb")
    same((template.wait_ready(), template.said), (True, ""))
    outputs = [place.worker(template) for _ in range(3)]
    outputs.append((subprocess.run(place.command, env=place.env, capture_output=True, text=True,
                                   check=True).stdout, 0))
    same({code for _, code in outputs}, {0})
    drawn = [output.splitlines()[0].split() for output, _ in outputs]
    for values in zip(*drawn):
        same(len(set(values)), len(drawn))
    same(len({output.splitlines()[1] for output, _ in outputs}), 1)


@with_place
def a_seed_that_an_import_gives_stays(make):
    place = make("import random, liba\nprint(random.random())\n", liba="import random\nrandom.seed(7)\n")
    template = place.template("liba")
    same((template.wait_ready(), template.said), (True, ""))
    same(place.worker(template),
         (subprocess.run(place.command, env=place.env, capture_output=True, text=True).stdout, 0))


@with_place
def what_imports_read_of_files_is_compared(make):
    """And a module that changes while others are imported is not the one that was imported."""
    place = make(libmodule="", liba=f"""
import os
here = os.path.dirname(__file__) + "/"
config = open(here + "config").read()
plugins = os.listdir(here + "plugins")
extra = os.path.exists(here + "extra")
old = open("/proc/self/stat").read()
open(here + "written", "w").close()
""", libedits="""
import libmodule, os
if not os.path.exists(libmodule.__file__ + ".edited"):
    open(libmodule.__file__ + ".edited", "w").close()
    os.utime(libmodule.__file__, (1, 1))
""")
    config = place.write("lib/config", "1")
    place.write("lib/plugins/one", "")

    def changes(path):
        same(place.worker(template), ("no worker", None))
        same(template.said, f"{place.path}/lib/{path} has changed: the next workers start cold\n")

    def begin(names):
        begun = place.template(names)
        same((begun.wait_ready(), begun.said), (True, ""))
        return begun

    template = begin("liba,libmodule,libedits")
    changes("libmodule.py")
    template = begin("liba,libmodule,libedits")
    same(place.worker(template), ("liba libedits libmodule\n", 0))
    place.write("lib/plugins/__pycache__/one.pyc", "")
    place.write("lib/written", "more")
    same(place.worker(template), ("liba libedits libmodule\n", 0))
    os.utime(config, (1, 1))
    changes("config")
    template = begin("liba")
    place.write("lib/plugins/two", "")
    changes("plugins")
    template = begin("liba")
    place.write("lib/extra", "")
    changes("extra")


@with_place
def a_variable_that_differs_after_all_is_noticed(make):
    place = make(liba="import os\ncolour = os.environ.get('COLOUR')\n", libgood="")
    template = place.template("liba,libgood")
    same(template.wait_ready(), True)
    same(place.worker(template), ("liba libgood\n", 0))
    same(place.worker(template, COLOUR="red"), ("no worker", None))
    same((template.socket.recv(64), template.wait_ready()), (b"again", True))
    same(template.said, "warm starts leave liba out: it reads COLOUR, which differs between workers\n")
    same(place.worker(template, COLOUR="red"), ("libgood\n", 0))


# -- what is imported -------------------------------------------------------------------


@with_place
def the_modules_of_the_last_run_are_imported(make):
    place = make("import liba, libmine\n" + PROGRAM, liba="import libb\n", libb="", libc="")
    place.write("app/libmine.py", "")
    env = bootstrap_env(place.env, CRUN_BOOTSTRAP="watch", CRUN_NOTE_MODULES=1)
    subprocess.run(place.command, env=env, stdout=subprocess.DEVNULL, check=True)
    names = place.cached("modules")
    same([name for name in names if name.startswith("lib")], ["libb", "liba"])
    place.write("app/train.py", PROGRAM)
    template = place.template()
    same(template.wait_ready(), True)
    same(place.worker(template), ("liba libb\n", 0))


@with_place
def modules_that_are_noted_meanwhile_are_imported(make):
    place = make("import liba\n" + PROGRAM, liba="", libb="")
    template = place.template()
    same(template.wait_ready(), True)
    pid = template.popen.pid
    same(place.worker(template, CRUN_NOTE_MODULES="1"), ("liba\n", 0))
    same((template.socket.recv(64), template.wait_ready()), (b"again", True))
    place.write("app/train.py", PROGRAM)
    same(place.worker(template), ("liba\n", 0))
    same((template.popen.pid, template.popen.poll(), template.said), (pid, None, ""))


@with_place
def a_program_that_fails_does_not_replace_the_list(make):
    place = make("import liba\n", liba="")
    env = bootstrap_env(place.env, CRUN_BOOTSTRAP="watch", CRUN_NOTE_MODULES=1)
    subprocess.run(place.command, env=env, check=True)
    noted = place.cached("modules")
    place.write("app/train.py", "1 / 0\n")
    same(subprocess.run(place.command, env=env, stderr=subprocess.DEVNULL).returncode, 1)
    same(place.cached("modules"), noted)


@with_place
def a_folder_that_cannot_be_written_is_no_matter(make):
    place = make(liba="import socket\ns = socket.socket()\n", libgood="")
    place.env["XDG_CACHE_HOME"] = "/proc/nowhere"
    template = place.template("liba,libgood")
    same(template.wait_ready(), True)
    same(place.worker(template), ("libgood\n", 0))
    env = bootstrap_env(place.env, CRUN_BOOTSTRAP="watch", CRUN_NOTE_MODULES=1)
    same(subprocess.run(place.command, env=env, stderr=subprocess.PIPE,
                        stdout=subprocess.DEVNULL).stderr, b"")


@with_place
def what_imports_print_each_worker_prints(make):
    place = make("print('program')\n", liba="""
import os, sys
print("printed")
os.system("echo from a shell")
print("error", file=sys.stderr)
""")
    template = place.template("liba")
    same(template.wait_ready(), True)
    same(template.said, "")
    for _ in range(2):
        same(place.worker(template), ("printed\nfrom a shell\nerror\nprogram\n", 0))


# -- its life ---------------------------------------------------------------------------


@with_place
def a_changed_file_ends_it(make):
    place = make(liba="")
    template = place.template("liba")
    same(template.wait_ready(), True)
    same(place.worker(template), ("liba\n", 0))
    place.write("lib/liba.py", "x = 2\n")
    os.utime(place.path + "/lib/liba.py", (1, 1))
    same(place.worker(template), ("no worker", None))
    same(template.popen.wait(SECONDS), 0)
    matches(template.said, "^/.*/liba.py has changed: the next workers start cold\n$")


@with_place
def another_command_is_refused(make):
    place = make(liba="")
    template = place.template("liba")
    same(template.wait_ready(), True)
    right, place.command = place.command, [*place.command[:-1], place.write("app/other.py", "")]
    same(place.worker(template), ("no worker", None))
    place.command = right
    same(place.worker(template), ("liba\n", 0))


@with_place
def a_worker_that_is_not_told_to_go_leaves(make):
    place = make("print('never')\n", liba="")
    template = place.template("liba")
    same(template.wait_ready(), True)
    with tempfile.TemporaryFile() as out, open(os.devnull) as null:
        w = template.request(place.command, bootstrap_env(place.env), [null.fileno(), out.fileno(),
                                                                       out.fileno()])
        same(w.wait_pid() > 0, True)
        w.channel.close()
        same(w.wait(), 0)
        same(os.fstat(out.fileno()).st_size, 0)


@with_place
def its_command_is_shown_to_the_last(make):
    """The C library calls raise(SIGSTOP) when the interpreter has ended."""
    place = make("""
import ctypes, signal
libc = ctypes.CDLL(None)
libc.__cxa_atexit(getattr(libc, "raise"), ctypes.c_void_p(signal.SIGSTOP), None)
""")
    template = place.template("json")
    same(template.wait_ready(), True)
    with open(os.devnull, "r+") as null:
        w = template.request(place.command, bootstrap_env(place.env), [null.fileno()] * 3)
        same(w.wait_pid() > 0, True)
        w.go()
    os.waitid(os.P_PID, w.pid, os.WSTOPPED)
    with open(f"/proc/{w.pid}/cmdline") as file:
        same(file.read().split("\0")[:-1], place.command)
    os.kill(w.pid, signal.SIGKILL)
    same(w.wait(), -signal.SIGKILL)


@with_place
def a_batch_is_forked_at_once(make):
    place = make(liba="")
    template = place.template("liba")
    same(template.wait_ready(), True)
    os.kill(template.popen.pid, signal.SIGSTOP)
    with tempfile.TemporaryFile() as out, open(os.devnull) as null:
        workers = [template.request(place.command, bootstrap_env(place.env),
                                    [null.fileno(), out.fileno(), out.fileno()])
                   for _ in range(8)]
        os.kill(template.popen.pid, signal.SIGCONT)
        for w in workers:
            same(w.wait_pid() > 0, True)
            w.go()
        same([w.wait() for w in workers], [0] * 8)
        out.seek(0)
        same(out.read().replace(b"\n", b""), b"liba" * 8)  # -u writes newlines apart


@with_place
def it_ends_with_the_guard_and_costs_nothing_until_then(make):
    place = make(liba="")
    template = place.template("liba")
    same(template.wait_ready(), True)

    def ticks():
        with open(f"/proc/{template.popen.pid}/stat") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))

    before = ticks()
    time.sleep(0.3)
    same(ticks(), before)
    template.socket.shutdown(socket.SHUT_RDWR)
    same(template.popen.wait(SECONDS), 0)


@with_place
def a_template_never_runs_the_program(make):
    place = make("open('ran', 'w')\n")
    place.write("app/ctypes.py", "")
    template = place.template("json")
    same(template.wait_ready(), False)
    same(template.popen.wait(SECONDS), 1)
    matches(template.said, "the program's folder has a module ctypes of its own")
    same(os.path.exists(place.path + "/app/ran"), False)


@with_place
def a_template_without_the_bootstrap_never_runs_the_program(make):
    """The interpreter reports an error in sitecustomize.py, or ignores that there is none, and
    goes on."""
    place = make("open('ran', 'w')\n")
    copy = place.path + "/bootstrap"

    def refuses(said):
        template = place.template("json", bootstrap=copy)
        same(template.wait_ready(), False)
        same(template.popen.wait(SECONDS), 1)
        matches(template.said, said)
        same(os.path.exists(place.path + "/app/ran"), False)

    refuses("^no bootstrap\n$")
    for name, text, said in (("sitecustomize.py", "1 +\n", "(?s)SyntaxError.*no bootstrap\n$"),
                             ("sitecustomize.py", "1 / 0\n", "(?s)Division.*no bootstrap\n$"),
                             ("command.py", "1 / 0\n", "^crun: cannot start programs warm: Zero"),
                             ("template.py", "1 +\n", "^crun: cannot start programs warm: Syn")):
        shutil.copytree(BOOTSTRAP, copy)
        place.write("bootstrap/" + name, text)
        refuses(said)
        shutil.rmtree(copy)


@with_place
def a_template_that_begins_again_without_the_bootstrap_never_runs_the_program(make):
    place = make("open('ran', 'w')\n", liba="")
    shutil.copytree(BOOTSTRAP.parent, place.path + "/python")
    bootstrap = place.path + "/python/bootstrap"
    place.write("lib/libb.py", f"import os, shutil, socket\ns = socket.socket()\n"
                               f"shutil.rmtree({bootstrap!r})\n")
    template = place.template("liba,libb", bootstrap=bootstrap)
    same(template.wait_ready(), False)
    same(template.popen.wait(SECONDS), 1)
    matches(template.said, "no bootstrap\n$")
    same(os.path.exists(place.path + "/app/ran"), False)


@with_place
def an_empty_path_stays_empty(make):
    place = make("import os, sys\nprint(repr(os.environ['PYTHONPATH']), os.getcwd() in sys.path[1:])\n")
    place.env["PYTHONPATH"] = ""
    env = bootstrap_env(place.env, CRUN_BOOTSTRAP="watch")
    same(subprocess.run(place.command, env=env, capture_output=True, text=True,
                        cwd=place.path + "/app").stdout, "'' False\n")
    template = place.template("json")
    same(template.wait_ready(), True)
    same(place.worker(template), ("'' False\n", 0))


@with_place
def a_sitecustomize_that_reads_the_rank_keeps_workers_cold(make):
    place = make(sitecustomize="import os\nos.environ.get('RANK')\n")
    template = place.template("json")
    same(template.wait_ready(), False)
    matches(template.said, "in sitecustomize, sitecustomize reads RANK\n")


if not PYTHON:
    fail("there is no python3")
run([value for value in list(globals().values())
     if callable(value) and getattr(value, "__qualname__", "") == "with_place.<locals>.called"])
