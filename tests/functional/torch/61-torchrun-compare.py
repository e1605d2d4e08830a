#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 12 s
# sanitizers: no, 16, 17 and 19 have crun do the same
"""The same command lines under PyTorch's torchrun and under crun.

Every worker writes down its arguments and its whole environment. These are compared
variable by variable, rank by rank and start by start, with the logs, what reached the
console, and success or failure. What may differ is listed in ALLOWED, with the reason.
Skipped where PyTorch cannot be had.
"""
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, ROOT, free_ports  # noqa: E402
from pytorch import torch_venv  # noqa: E402

CRUN = str(BIN / "crun")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

# Variables that only one of the two sets, or that differ.
ALLOWED = {
    "NODE_RANK": "crun's own",
    "CRUN_RUN_ID": "crun's own",
    "CRUN_EPOCH": "crun's own",
    "CRUN_INSTANCE": "crun's own",
    "CRUN_MEMORY": "crun's own",
    "CRUN_PROGRESS": "crun's own",
    "CRUN_LAUNCH": "crun's own",
    "JAX_COORDINATOR_ADDRESS": "for JAX",
    "JAX_NUM_PROCESSES": "for JAX",
    "JAX_PROCESS_ID": "for JAX",
    "PROBE_DIR": "where this test's worker writes",
}

# Each worker waits for all others, so that none is stopped before it has written.
# what crun keeps of a job, in addition
OWN_LOGS = {"RUN/events.jsonl", "RUN/report.txt"}

PROBE = r'''
import json, os, sys, time
env = dict(os.environ)
out = env["PROBE_DIR"]
start = int(env["TORCHELASTIC_RESTART_COUNT"])
name = "%s/%d.%s.json" % (out, start, env["RANK"])
with open(name + ".new", "w") as f:
    json.dump({"argv": sys.argv[1:], "env": env, "file": __file__, "main": __name__,
               "cwd": os.getcwd(), "session": os.getsid(0) == os.getpid()}, f)
os.rename(name + ".new", name)
# whole lines: unbuffered, print writes each of its arguments by itself
sys.stdout.write("out of rank %s %s\n" % (env["RANK"], "apple" if env["RANK"] == "0" else "pear"))
sys.stderr.write("err of rank %s\n" % env["RANK"])
sys.stdout.flush()
for i in range(4000):
    if all(os.path.exists("%s/%d.%d.json" % (out, start, r))
           for r in range(int(env["WORLD_SIZE"]))):
        break
    time.sleep(0.005)
time.sleep(0.3) # torchrun reads what it tees ten times a second
sys.exit(int(env.get("PROBE_EXIT", "0")) if start < int(env.get("PROBE_FAILS", "0")) else 0)
'''

Case = collections.namedtuple("Case", "name nodes env logs console")


def cases(port):
    static = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port[0]}"]
    dynamic = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port[1]}",
               "--rdzv-id=pair", "--local-addr=127.0.0.1", "--max-restarts=2"]
    three = ["--nnodes=3", "--master_addr=127.0.0.1", f"--master_port={port[2]}",
             "--max_restarts=1"]
    fails = {"PROBE_EXIT": "3", "PROBE_FAILS": "1"}
    return [
        Case("plain", [["--nproc-per-node=2", "--log-dir=logs", "-r", "0:1,1:2",
                        "--role=trainer", "probe.py", "${local_rank}", "$local_rank",
                        "$${local_rank}", "a b", "", "--nnodes=9", "--", "-v"]], {}, True, True),
        Case("module, tee, restart",
             [["--standalone", "--nproc_per_node=2", "--max-restarts=1", "--log_dir", "logs",
               "-t", "3", "--local-ranks-filter=1", "--duplicate-stdout-filters=x,,y,pear",
               "-m", "probe", "--", "x"]],
             fails, True, True),
        Case("no python, virtual local rank, failure",
             [["--nproc-per-node", "2", "--no-python", "--virtual-local-rank",
               "--redirects=3", "--log-dir=logs", "--signals-to-handle=SIGTERM,SIGUSR1",
               "./probe", "--x=${local_rank}"]],
             {"PROBE_EXIT": "3", "PROBE_FAILS": "9", "CUDA_VISIBLE_DEVICES": "4, 7,9",
              "OMP_NUM_THREADS": "3", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, True, False),
        Case("one worker, a port, run path",
             [[f"--master-port={port[3]}", "--run-path",
               os.path.join(os.getcwd(), "probe.py"), "y"]], {}, False, True),
        Case("static", [static + ["--node-rank=0", "--nproc-per-node=2", "probe.py"],
                        static + ["--node-rank=1", "--nproc-per-node=2", "--tee=3",
                                  "--log-line-prefix-template=${hostname}-$rank|${x}$$ ",
                                  "probe.py"]],
             {}, False, True),
        Case("static, unequal, restart",
             [three + [f"--node_rank={n}", f"--nproc_per_node={w}", f"--role={r}", "probe.py"]
              for n, w, r in ((0, 1, "a"), (1, 3, "b"), (2, 2, "a"))], fails, False, False),
        Case("c10d, unequal, restart",
             [dynamic + ["--nproc-per-node=2", "probe.py"],
              dynamic + ["--nproc-per-node=1", "probe.py"]], fails, False, False),
    ]


failures = 0


def fail(text):
    global failures
    failures += 1
    print("FAIL:", text)


def files_of(directory):
    os.makedirs(directory)
    for name, text in (("probe.py", PROBE), ("probe", '#!/bin/sh\nexec "$PYTHON_EXEC" '
                                                      'probe.py "$@"\n')):
        with open(os.path.join(directory, name), "w") as f:
            f.write(text)
        os.chmod(os.path.join(directory, name), 0o755)


def commands_of(launcher, case, directory, base):
    """(words, environment) for each node, in a folder of the case."""
    files_of(directory)
    probes = os.path.join(directory, "probes")
    os.mkdir(probes)
    env = {**base, **case.env, "PROBE_DIR": probes, "TMPDIR": directory,
           "PYTHONPATH": directory}
    return [([launcher, *[w.replace(os.getcwd(), directory) for w in words]], env)
            for words in case.nodes]


def run_torchruns(venv, lines, directory, base):
    """All cases at a time, by tests/lib/torchruns.py: PyTorch is imported once for them all."""
    folders = [f"{directory}/torchrun{i}" for i in range(len(lines))]
    nodes = [{"words": words, "env": env, "folder": folder}
             for case, folder in zip(lines, folders)
             for words, env in commands_of(f"{venv}/bin/torchrun", case, folder, base)]
    done = subprocess.run(
        [f"{venv}/bin/python", "-W", "ignore", os.path.join(ROOT, "tests/lib/torchruns.py")],
        input=json.dumps(nodes), env=base, stdout=subprocess.PIPE, text=True, timeout=600)
    found = iter(json.loads(done.stdout))
    return [([tuple(next(found)) for _ in case.nodes], folder + "/probes", folder)
            for case, folder in zip(lines, folders)]


def run_case(case, directory, base):
    """Under crun: one process for each node."""
    nodes = [subprocess.Popen(words, env=env, cwd=directory, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
             for words, env in commands_of(CRUN, case, directory, base)]
    # the pipes are small, and nothing here fills one
    results = []
    for node in nodes:
        try:
            out, err = node.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            node.kill()
            out, err = node.communicate()
            err += "\n(killed by the test)"
        results.append((node.returncode, out, err))
    return results, directory + "/probes", directory


def read_probes(probes, directory):
    """{(start, rank): what the worker has written}, this case's folder left out."""
    found = {}
    for name in os.listdir(probes):
        m = re.fullmatch(r"(\d+)\.(\d+)\.json", name)
        if m:
            with open(os.path.join(probes, name)) as f:
                text = f.read().replace(directory, "DIR")
            found[int(m[1]), int(m[2])] = json.loads(text)
    return found


def normal_environment(env, case):
    """What differs from run to run replaced by what it is."""
    env = dict(env)
    words = " ".join(case.nodes[0])
    run_id = env.get("TORCHELASTIC_RUN_ID", "")
    if "master" not in words and "endpoint" not in words:
        env["MASTER_ADDR"] = "HOST"
    if "master" not in words:
        if not re.fullmatch(r"[1-9]\d{0,4}", env["MASTER_PORT"]):
            fail(f"{case.name}: MASTER_PORT={env['MASTER_PORT']}")
        env["MASTER_PORT"] = "PORT"
    if "rdzv-id" not in words:
        if len(case.nodes) == 1 and "master" not in words and not UUID.fullmatch(run_id):
            fail(f"{case.name}: TORCHELASTIC_RUN_ID={run_id}")
        env["TORCHELASTIC_RUN_ID"] = "ID" if len(case.nodes) == 1 else run_id
    env["TORCHELASTIC_ERROR_FILE"] = normal_path(env["TORCHELASTIC_ERROR_FILE"], run_id)
    return env


def normal_path(path, run_id):
    """<log dir>/<id>_<random>/attempt_0/0/error.json; without --log-dir it has any name."""
    path = re.sub(re.escape(run_id) + r"_[^/]+", "RUN", path)
    # crun's is absolute: a worker that changes its directory finds it all the same
    path = re.sub(r"^logs/", "DIR/logs/", path)
    return re.sub(r"^DIR/(?!logs/)[^/]+/", "DIR/ANY/", path)


def by_place(probes):
    """As read_probes, by the place on the node: nodes of a dynamic rendezvous may come
    in any order, but ranks must follow from it."""
    places = {}
    for (start, rank), probe in probes.items():
        env = probe["env"]
        key = start, int(env["LOCAL_WORLD_SIZE"]), int(env["LOCAL_RANK"])
        if key in places or rank != int(env["ROLE_RANK"]):
            fail(f"c10d: {key} is there twice")
        places[key] = probe
    for start in {key[0] for key in places}:
        first = 0
        for group in sorted((p for k, p in places.items() if k[0] == start),
                            key=lambda p: int(p["env"]["RANK"])):
            if int(group["env"]["RANK"]) != first:
                fail(f"c10d: rank {first} is missing")
            first += 1
    for probe in places.values():
        for name in ("RANK", "ROLE_RANK", "GROUP_RANK"):
            probe["env"].pop(name)
    return places


def compare_probes(case, theirs, ours):
    if "c10d, unequal" in case.name:
        theirs, ours = by_place(theirs), by_place(ours)
    if set(theirs) != set(ours):
        fail(f"{case.name}: (start, rank): {sorted(theirs)} with torchrun, "
             f"{sorted(ours)} with crun")
    for key in sorted(set(theirs) & set(ours)):
        a, b = theirs[key], ours[key]
        for what in ("argv", "file", "main", "cwd", "session"):
            if what == "session" and "run path" in case.name:
                continue # there torchrun's workers are forks in its own session
            if a[what] != b[what]:
                fail(f"{case.name} {key}: {what} is {a[what]} with torchrun, {b[what]} "
                     "with crun")
        compare_environments(f"{case.name} {key}", normal_environment(a["env"], case),
                             normal_environment(b["env"], case))


def compare_environments(where, theirs, ours):
    for name in sorted(set(theirs) | set(ours)):
        if name not in ALLOWED and theirs.get(name) != ours.get(name):
            fail(f"{where}: {name} is {theirs.get(name)!r} with torchrun, "
                 f"{ours.get(name)!r} with crun")


def log_files(directory):
    """{path below the run's folder: text, or None for a folder}; one run a folder."""
    found = {}
    base = os.path.join(directory, "logs")
    for here, folders, files in os.walk(base):
        for name in files + folders:
            path = os.path.join(here, name)
            if name.startswith("latest-"):
                continue # crun's own, a link
            short = re.sub(r"^[^/]+", "RUN", os.path.relpath(path, base))
            found[short] = None
            if name in files:
                with open(path) as f:
                    found[short] = sorted(f.read().splitlines())
    return found


def compare_logs(case, theirs, ours):
    for path in sorted((set(theirs) | set(ours)) - OWN_LOGS):
        if path not in ours or path not in theirs:
            fail(f"{case.name}: only {'torchrun' if path in theirs else 'crun'} has "
                 f"{path} among its logs")
        elif theirs[path] != ours[path]:
            fail(f"{case.name}: {path} has {theirs[path]} with torchrun, {ours[path]} "
                 "with crun")


def of_workers(text):
    """The workers' lines, in any order; both launchers add their own lines."""
    return sorted(line for line in text.splitlines()
                  if re.search(r"\b(out|err) of rank \d+", line) and
                  not line.startswith(("crun:", " ")))


def compare(case, theirs, ours):
    for node, ((a, a_out, a_err), (b, b_out, b_err)) in enumerate(zip(theirs[0], ours[0])):
        if (a == 0) != (b == 0):
            fail(f"{case.name}: node {node}: exit code {a} with torchrun: {a_err}\n"
                 f"{b} with crun: {b_err}")
        if not case.console:
            continue
        for stream, x, y in (("output", a_out, b_out), ("error", a_err, b_err)):
            if of_workers(x) != of_workers(y):
                fail(f"{case.name}: node {node}: standard {stream} has {of_workers(x)} "
                     f"with torchrun, {of_workers(y)} with crun")
    compare_probes(case, read_probes(*theirs[1:]), read_probes(*ours[1:]))
    if case.logs:
        compare_logs(case, log_files(theirs[2]), log_files(ours[2]))


def main():
    venv = torch_venv("crun was not compared with torchrun")
    directory = os.path.realpath(tempfile.mkdtemp())
    os.chdir(directory)
    base = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": directory, "LC_ALL": "C.UTF-8",
            "PYTHON_EXEC": f"{venv}/bin/python", "KEPT": "yes"}
    lines = cases(free_ports(4))
    try:
        theirs = run_torchruns(venv, lines, directory, base)
        for i, case in enumerate(lines):
            before = failures
            ours = run_case(case, f"{directory}/crun{i}", base)
            compare(case, theirs[i], ours)
            if failures > before:
                print("\n".join(e for _, _, e in ours[0]))
    finally:
        if "KEEP" not in os.environ:
            shutil.rmtree(directory)
    sys.exit(1 if failures else 0)


main()
