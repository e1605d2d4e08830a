#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 60 s
# sanitizers: no, JAX takes most of the time
"""
JAX programs under crun: jax.distributed.initialize() without arguments makes one world of all
workers, on one node, on two, under Slurm, and again after a rank was killed. What users have set
stays, and programs that do not import JAX see nothing of it. What cannot be had is said loudly,
and the exit code is 77.

    BUILD=build tests/functional/torch/64-jax.py
"""
import contextlib
import importlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import types

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
import host  # noqa: E402
import readme  # noqa: E402
import slurm  # noqa: E402
from process import BIN, ROOT, Process, fail, free_port, run, same, skip, until  # noqa: E402

SECONDS = 120
PAGE = "launcher/man/jax.md"
CRUN = str(BIN / "crun")
OWN_FOLDERS = [str(ROOT / "worker-lib/python" / name) for name in ("bootstrap", "crun")]

# psum is compiled, so it needs devices of all processes
PROGRAM = """
import os, signal, struct, sys, time
import jax
from jax.experimental.multihost_utils import process_allgather
jax.distributed.initialize()
page = os.open(os.environ["CRUN_PROGRESS"], os.O_RDWR)
def saves_together():
    return bool(struct.unpack("I", os.pread(page, 4, 60))[0] & 128)
before = saves_together()
import jax.numpy as jnp
gathered = process_allgather(jnp.array([jax.process_index() + 1]))
summed = jax.pmap(lambda x: jax.lax.psum(x, "i"), "i")(jnp.ones(jax.local_device_count()))
print(f"jax {jax.process_index()}/{jax.process_count()} gathered={gathered.ravel().tolist()} "
      f"sum={int(summed[0])} rank={os.environ['RANK']} "
      f"restart={os.environ['TORCHELASTIC_RESTART_COUNT']} pid={os.getpid()} "
      f"at={os.environ['JAX_COORDINATOR_ADDRESS']}", flush=True)
if sys.argv[1:] and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    folder, rank = sys.argv[1], os.environ["RANK"]
    def save(*_):
        with open(f"{folder}/0.pid") as file:
            other = file.read()
        while os.path.exists(f"/proc/{other}"):
            time.sleep(0.01)
        print("the other one has ended", flush=True)
        os._exit(0)
    if rank == "2":
        signal.signal(signal.SIGTERM, save)
        os.pwrite(page, struct.pack("I", 3), 12)  # a checkpoint of its own is being written
    with open(f"{folder}/{rank}.pid", "w") as file:
        file.write(str(os.getpid()))
    print(f"rank {rank} saves together: {before}, {saves_together()}", flush=True)
    time.sleep(1000)
"""
# a world of one each, as the arguments say
EXPLICIT = """
import os, sys, jax
jax.distributed.initialize("127.0.0.1:" + sys.argv[1 + int(os.environ["RANK"])], 1, 0)
print(f"jax {jax.process_index()}/{jax.process_count()}", flush=True)
"""
DEVICES = """
import os, sys
if sys.argv[1:]:
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
import jax
from jax._src.xla_bridge import CUDA_VISIBLE_DEVICES
jax.distributed.initialize()
print(f"rank {os.environ['RANK']} has {CUDA_VISIBLE_DEVICES.value}", flush=True)
"""
PLAIN = """
import json, os, subprocess, sys
child = [sys.executable, "-c", "import os; print(os.environ.get('PYTHONPATH'))"]
print(json.dumps({"path": sys.path, "modules": sorted(sys.modules), "mine": hasattr(sys, "mine"),
                  "PYTHONPATH": os.environ.get("PYTHONPATH"),
                  "child": subprocess.run(child, stdout=subprocess.PIPE, text=True).stdout}))
"""
LINE = re.compile(r"jax (?P<index>\d+)/(?P<count>\d+) gathered=(?P<gathered>\[.*\]) "
                  r"sum=(?P<sum>\d+) rank=(?P<rank>\d+) restart=(?P<restart>\d+) pid=(?P<pid>\d+) "
                  r"at=(?P<at>\S+)")


class Place:
    def __init__(self, venv, directory):
        self.directory = pathlib.Path(directory)
        self.python = f"{venv}/bin/python"
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith(("JAX_", "PYTHON")) and "_proxy" not in name.lower()}
        self.env.update(PYTHON_EXEC=self.python, JAX_PLATFORMS="cpu", XDG_CACHE_HOME=directory)
        for name, text in (("program.py", PROGRAM), ("explicit.py", EXPLICIT), ("plain.py", PLAIN),
                           ("devices.py", DEVICES)):
            (self.directory / name).write_text(text)
        self.program = str(self.directory / "program.py")

    def crun(self, *words, **env):
        return Process([CRUN, *map(str, words)], env={**self.env, **env}, start_new_session=True)


def said(text):
    return [m.groupdict() for m in LINE.finditer(text)]


def is_one_world(lines, count, restart=0):
    """Each process has the rank that crun gave it, and all have met. Returns its coordinator."""
    lines = [line for line in lines if int(line["restart"]) == restart]
    same(sorted(int(line["index"]) for line in lines), list(range(count)))
    for line in lines:
        same((line["index"], int(line["count"])), (line["rank"], count))
        same((json.loads(line["gathered"]), int(line["sum"])), (list(range(1, count + 1)), count))
    coordinators = {line["at"] for line in lines}
    same(len(coordinators), 1)
    return coordinators.pop()


def all_workers_of_a_node_are_one_world(place):
    for count, words in ((2, [place.python]), (4, ["--watch"]), (1, [])):
        p = place.crun(f"--nproc-per-node={count}", *words, place.program)
        p.expect(0, seconds=SECONDS)
        is_one_world(said(p.out), count)


def two_jobs_of_a_host_are_two_worlds(place):
    jobs = [place.crun("--nproc-per-node=2", place.program) for _ in range(2)]
    for p in jobs:
        p.expect(0, seconds=SECONDS)
    if len({is_one_world(said(p.out), 2) for p in jobs}) != 2:
        fail("two jobs have one coordinator")


def a_world_forms_anew_after_a_rank_was_killed(place):
    """A rank with JAX's handler of SIGTERM ends at once; one with its own has the time that it needs."""
    for count, words in ((2, []), (3, ["--warm=jax"])):
        p = place.crun(f"--nproc-per-node={count}", "--max-restarts=1", *words, place.program,
                       place.directory)
        until(lambda: p.out.count("saves together") == count, lambda: f"{count} lines: {p}", SECONDS)
        os.kill(int((place.directory / "1.pid").read_text()), 9)
        p.expect(0, seconds=SECONDS)
        if is_one_world(said(p.out), count, 0) == is_one_world(said(p.out), count, 1):
            fail("the coordinator of the world before:", p.out)
        same(sorted(line for line in p.out.splitlines() if "together" in line),
             ["rank 0 saves together: True, True", "rank 1 saves together: True, True",
              "rank 2 saves together: True, False"][:count])
        # JAX's client may see the end of rank 0 before rank 2 does, and ends the process
        if count == 3 and "the other one has ended" not in p.out and \
                "JAX distributed service detected fatal errors" not in p.err:
            fail("rank 2 has not outlived rank 0:", p)


def what_a_user_has_set_stays(place):
    mine = f"127.0.0.1:{free_port()}"
    p = place.crun("--nproc-per-node=2", place.program, JAX_COORDINATOR_ADDRESS=mine)
    p.expect(0, seconds=SECONDS)
    same(is_one_world(said(p.out), 2), mine)
    p = place.crun("--nproc-per-node=2", place.directory / "explicit.py", free_port(), free_port())
    p.expect(0, seconds=SECONDS)
    same([line for line in p.out.splitlines() if line.startswith("jax")], ["jax 0/1"] * 2)


def each_worker_has_its_device(place):
    """Unless devices are too few, or shared out by the program or its user."""
    for flags, words, env, devices in (
            ([], [], {"CUDA_VISIBLE_DEVICES": "5,7"}, "0 1"),
            (["--warm=jax"], [], {"CUDA_VISIBLE_DEVICES": "5,7"}, "0 1"),
            (["--virtual-local-rank"], [], {"CUDA_VISIBLE_DEVICES": "5,7"}, "all all"),
            ([], ["5,6"], {"CUDA_VISIBLE_DEVICES": "5,7"}, "all all"),
            ([], [], {"CUDA_VISIBLE_DEVICES": "5"}, "all all"),
            ([], [], {"CUDA_VISIBLE_DEVICES": "5,7", "JAX_LOCAL_DEVICE_IDS": "1"}, "1 1")):
        p = place.crun("--nproc-per-node=2", *flags, place.directory / "devices.py", *words, **env)
        p.expect(0, seconds=SECONDS)
        same(sorted(line for line in p.out.splitlines() if line.startswith("rank")),
             [f"rank {rank} has {device}" for rank, device in enumerate(devices.split())])


def an_exception_ends_a_process_at_once(place):
    """JAX would wait for the others at the end, for five minutes, and they wait for it. Nor has JAX's
    handler of SIGTERM a time after the last failure."""
    raises = place.directory / "raises.py"
    raises.write_text(PROGRAM + """
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    raise ValueError("a bad sample")
if os.environ["RANK"] == "1":
    sys.exit(3)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    jax.pmap(lambda x: jax.lax.psum(x, "i"), "i")(jnp.ones(jax.local_device_count()))
time.sleep(1000)
""")
    p = place.crun("--nproc-per-node=2", "--max-restarts=1", raises)
    p.expect(3, "rank 1 on ", " exited with code 1", "ValueError: a bad sample", "first failure   rank 1 ",
             "exit code 3", seconds=SECONDS)
    same([seconds for seconds in re.findall(r"stopped in (\S+) s", p.err) if float(seconds) >= 5], [])


# What JAX's state is without JAX: `left` is printed if this process has left the others.
LEAVES = """
import contextlib, sys, threading, types
sys.modules["_crun"] = package = types.ModuleType("_crun")
package.__path__ = [sys.argv.pop(), sys.argv.pop()]
from _crun import jax_cluster
class State:
    client = None
jax = types.ModuleType("jax._src.distributed")
jax.global_state = State()
State.client = object()
sys.modules[jax.__name__] = jax
threading._register_atexit(lambda: print("left" if jax.global_state.client is None else "there", flush=True))
jax_cluster.start()
jax_cluster.note_exits()
def main(code):
    try:
        sys.exit(code)
    finally:
        print(end="")
"""


def a_process_that_fails_leaves_the_others(place):
    """One that ends well waits for them, whatever it has caught before."""
    for text, code, wanted in (("main(3)", 3, "left"), ("main('no data')", 1, "left"),
                               ("raise ValueError", 1, "left"), ("main(0)", 0, "there"),
                               ("main(None)", 0, "there"), ("", 0, "there"),
                               ("with contextlib.suppress(SystemExit): main(3)", 0, "there"),
                               ("t = threading.Thread(target=main, args=[3]); t.start(); t.join()", 0, "there"),
                               ("import pickle\ntry: main(3)\nexcept SystemExit as e:"
                                " assert type(pickle.loads(pickle.dumps(e))) is SystemExit", 0, "there")):
        script = place.directory / "leaves.py"
        script.write_text(LEAVES + text + "\n")
        done = subprocess.run([place.python, script, *OWN_FOLDERS],
                              env=place.env, capture_output=True, text=True)
        same((text, done.returncode, done.stdout), (text, code, wanted + "\n"))


def a_proxy_is_named(place):
    p = place.crun("--nproc-per-node=1", place.program, https_proxy="http://127.0.0.1:9",
                   no_proxy="127.0.0.1")
    p.expect(0, seconds=SECONDS)
    if "crun: https_proxy" in p.err:
        fail(p)
    p = place.crun("--nproc-per-node=2", place.program, https_proxy="http://127.0.0.1:9")
    until(lambda: p.err.count("crun: https_proxy is set, and no_proxy does not name 127.0.0.1") == 1,
          lambda: f"a line about the proxy: {p}", SECONDS)
    p.end()


def the_coordinator_is_awaited(_):
    """By the other ranks: gRPC, which comes too early, tries again after a second."""
    sys.modules["_crun"] = package = types.ModuleType("_crun")
    package.__path__ = OWN_FOLDERS
    wait = importlib.import_module("_crun.jax_cluster").wait_for_coordinator
    for address in ("", "127.0.0.1", "nowhere.invalid:1", "[::1:x"):
        wait(address)
    with socket.socket() as coordinator:
        coordinator.bind(("127.0.0.1", 0))
        rank = threading.Thread(target=wait, args=[f"127.0.0.1:{coordinator.getsockname()[1]}"])
        rank.start()
        rank.join(0.3)
        same(rank.is_alive(), True)
        coordinator.listen()
        rank.join(20)
        same(rank.is_alive(), False)


def a_program_without_jax_sees_nothing(place):
    own = place.directory / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.mine = True\n")
    script = place.directory / "plain.py"
    for path in (None, "", str(own), f"{own}:/nowhere"):
        env = {} if path is None else {"PYTHONPATH": path}
        alone = subprocess.run([place.python, "-u", script], env={**place.env, **env},
                               stdout=subprocess.PIPE, text=True, check=True)
        p = place.crun("--nproc-per-node=1", script, **env)
        p.expect(0)
        same(json.loads(p.out), json.loads(alone.stdout))


def the_page_is_true(place):
    first, = readme.blocks("A first program", "python", PAGE)
    shown, = readme.blocks("A first program", "console", PAGE)
    explicit, = readme.blocks("How it works", "python", PAGE)
    (place.directory / "first").mkdir()
    script = place.directory / "first" / "program.py"
    script.write_text(first)
    for command in (readme.commands("A first program", PAGE) +
                    readme.commands("Restarts and hangs", PAGE)):
        p = Process(["bash", "-c", command], cwd=script.parent, start_new_session=True,
                    env={**place.env, "PATH": f"{BIN}:{os.environ['PATH']}"})
        p.expect(0, seconds=SECONDS)
        same(sorted(line for line in p.out.splitlines() if line.startswith("process")),
             shown.splitlines())
    script.write_text("import os\n" + first.replace("jax.distributed.initialize()", explicit))
    p = place.crun("--nproc-per-node=2", "--no-python", "sh", "-c", f"{place.python} {script}")
    p.expect(0, *shown.splitlines(), seconds=SECONDS)


def two_nodes_are_one_world(place):
    with host.Cluster(2) as cluster:
        hosts = place.directory / "hosts"  # JAX's gloo looks for the address of the host's name
        hosts.write_text("127.0.0.1 localhost\n" + "".join(
            f"{node.address} {node.name}\n" for node in cluster.nodes))
        subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
        words = ["--nnodes=2", f"--rdzv-endpoint={cluster[0].address}:29400", "--nproc-per-node=2"]
        nodes = [node.start([CRUN, *words, place.program], env=place.env)
                 for node in cluster.nodes]
        for p in nodes:
            p.expect(0, seconds=SECONDS)
        at = is_one_world([line for p in nodes for line in said(p.out)], 4)
        same(at.split(":")[0], cluster[0].address)
        pods = [node.start([CRUN, "--nproc-per-node=1", place.program], env={
            **place.env, "JAX_PROCESS_ID": str(i), "JAX_NUM_PROCESSES": "2",
            "JAX_COORDINATOR_ADDRESS": f"{cluster[0].address}:6666", "JAX_COORDINATOR_PORT": "6666"})
                for i, node in enumerate(cluster.nodes)]  # of Kubeflow's JAX policy
        for p in pods:
            p.expect(0, seconds=SECONDS)
        same(is_one_world([line for p in pods for line in said(p.out)], 2) in (
            at, f"{cluster[0].address}:6666"), False)


def a_step_of_slurm_is_one_world(place):
    with slurm.Cluster() as cluster:
        p = cluster.start("srun", "-N2", CRUN, "--nproc-per-node=1", place.program, env=place.env)
        p.expect(0, seconds=SECONDS)
        is_one_world(said(p.out), 2)


def jax_venv():
    found = subprocess.run([ROOT / "scripts" / "jax-venv"], stdout=subprocess.PIPE, text=True)
    if found.returncode == 77:
        skip("PyPI cannot be reached", "no JAX program was run under crun")
    if found.returncode:
        fail("scripts/jax-venv")
    return found.stdout.strip()


HERE = [all_workers_of_a_node_are_one_world, two_jobs_of_a_host_are_two_worlds,
        a_world_forms_anew_after_a_rank_was_killed, what_a_user_has_set_stays,
        each_worker_has_its_device, an_exception_ends_a_process_at_once,
        a_process_that_fails_leaves_the_others, a_proxy_is_named, the_coordinator_is_awaited,
        a_program_without_jax_sees_nothing, the_page_is_true]


def main():
    venv = jax_venv()
    why = host.available()
    if not why:
        host.enclose()
    with contextlib.ExitStack() as stack:
        directory = subprocess.run(["mktemp", "-d"], stdout=subprocess.PIPE, text=True).stdout.strip()
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        place = Place(venv, directory)
        run(HERE, place)
        if why:
            skip(f"several nodes on one machine: {why}", "no JAX program was run on two nodes")
        run([two_nodes_are_one_world], place)
        if not all(shutil.which(name) for name in ("slurmctld", "slurmd", "srun")):
            skip("Slurm is not installed", "no JAX program was run under it")
        run([a_step_of_slurm_is_one_world], place)


if __name__ == "__main__":
    main()
