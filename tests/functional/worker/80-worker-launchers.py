#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 6 s
# sanitizers: no, test_environment has what each launcher says, 70 the same calls
"""
One binary of the worker library under every launcher there is here: crun, torchrun, Open
MPI, MPICH and Slurm start coll-bench, whose every result must be right. Those that are
not installed are named and left out.
"""
import glob
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, fail, free_port  # noqa: E402

BENCH = str(BIN / "coll-bench")
SIZES = ["--check", "--json", "--min-bytes=4", "--max-bytes=256K", "--factor=256", "--iterations=3"]


def run(command, seconds=120, **env):
    """(exit code, standard output, standard error)"""
    clean = {k: v for k, v in os.environ.items()
             if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    try:
        p = subprocess.run(command, capture_output=True, text=True, timeout=seconds,
                           stdin=subprocess.DEVNULL, env={**clean, **env})
    except subprocess.TimeoutExpired as late:
        fail(command, "still runs after", seconds, "s:", late.stdout, late.stderr)
    return p.returncode, p.stdout, p.stderr


def torchrun():
    cache = os.environ.get("CRUN_INTEROP_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "crun-interop")
    found = glob.glob(f"{cache}/torch-*/complete")
    return os.path.dirname(sorted(found)[-1]) + "/bin/torchrun" if found else None


def launchers(ranks):
    """{name: command before the program, or None where it is not here}"""
    torch = torchrun()
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    os.environ.update(root)
    return {
        "crun": [str(BIN / "crun"), f"--nproc_per_node={ranks}"],
        "torchrun": torch and [torch, "--no-python", f"--nproc_per_node={ranks}",
                               "--master_addr=127.0.0.1", f"--master_port={free_port()}"],
        "mpirun.openmpi": shutil.which("mpirun.openmpi") and [
            "mpirun.openmpi", "--oversubscribe", "-n", str(ranks)],
        "mpiexec.hydra": shutil.which("mpiexec.hydra") and [
            "mpiexec.hydra", "-n", str(ranks)],
    }


def results(said, command):
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    if not rows:
        fail(command, "said nothing:", said)
    for row in rows:
        if row["errors"] != 0:
            fail(command, "has errors:", row)
    return [(r["op"], r["ranks"], r["backend"], r["bytes"]) for r in rows]


def same_results_under_every_launcher():
    ranks, expected = 3, None
    for name, launcher in launchers(ranks).items():
        if not launcher:
            print(f"skipped: {name} is not installed")
            continue
        for backend in ("shm", "tcp"):
            command = launcher + [BENCH, *SIZES, f"--backend={backend}"]
            code, out, err = run(command)
            if code != 0:
                fail(command, "exit code", code, out, err)
            found = [row[:2] + row[3:] for row in results(out, command)]
            expected = expected or found
            if found != expected or f'"backend": "{backend}"' not in out:
                fail(command, "is another world:", found, "not", expected)
        print(f"{name}: ok")


def every_operation_is_right():
    crun = launchers(4)["crun"]
    for op in ("all_reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all",
               "barrier", "sendrecv"):
        for more in (["--own-buffers"], ["--backend=tcp"], ["--dtype=bf16"]):
            command = crun + [BENCH, "--op", op, *SIZES, *more]
            code, out, err = run(command)
            if code != 0:
                fail(command, "exit code", code, out, err)
            results(out, command)


def every_type_and_reduction_is_right():
    crun = launchers(2)["crun"]
    for dtype in ("f32", "f64", "f16", "bf16", "i32", "i64", "u8"):
        for reduce in ("sum", "mean", "min", "max", "product"):
            command = crun + [BENCH, *SIZES, f"--dtype={dtype}", f"--reduce={reduce}"]
            code, out, err = run(command)
            if reduce == "mean" and dtype in ("i32", "i64", "u8"):
                if code == 0 or "integers have no mean: use the sum" not in err:
                    fail(command, "exit code", code, out, err)
                continue
            if code != 0:
                fail(command, "exit code", code, out, err)
            results(out, command)


def mistakes_are_one_line():
    for flags, words in (
            (["--op=foo"], '--op: "foo" is not all_reduce'),
            (["--bytes=3x"], '--bytes: "3x" is not a number of bytes'),
            (["--bytes=-1"], '--bytes: "-1" is not a number of bytes'),
            (["--bytes=99999999G"], "is not a number of bytes"),
            (["--dtype=f8"], '--dtype: "f8" is not f32'),
            (["--min=8", "--max=4"], "--min-bytes is more than --max-bytes"),
            (["--iterations=0"], "--iterations"),
            (["all_reduce"], 'unexpected argument "all_reduce"'),
            (["--itterations=3"], "did you mean --iterations")):
        code, out, err = run([BENCH, *flags])
        if code != 2 or out or len(err.splitlines()) != 1 or words not in err:
            fail(flags, "gave exit code", code, out, err)
    code, out, err = run([BENCH, "--backend=foo"])
    if code != 1 or len(err.splitlines()) != 1 or '"foo"' not in err:
        fail("--backend=foo gave", code, out, err)
    code, out, err = run([BENCH, "--help"])
    if code != 0 or "--own-buffers" not in out:
        fail("--help gave", code, out, err)


for test in (mistakes_are_one_line, every_type_and_reduction_is_right,
             every_operation_is_right, same_results_under_every_launcher):
    test()
    print("ok", test.__name__)
