#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 80 s
# sanitizers: no, 25 has crun do the same
"""
Lightning's and transformers' trainers, the newest of PyPI: with the callback of the package
crun they save when crun asks for a checkpoint; unmodified and under `crun --watch` they continue
from it, and their steps are shown. 66-watch takes a node in at such a checkpoint. A trainer whose
checkpoints are in memory has the bits of an undisturbed one after each death of a rank. Launchers that start torchrun as a module start crun. What cannot be had is said loudly, and the exit code
is 77.

    BUILD=build tests/functional/torch/68-trainers.py [TEST...]
"""
import glob
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
import process  # noqa: E402
from process import BIN, BUILD, PROGRAMS, ROOT, fail, run, skip, until  # noqa: E402
from pytorch import Here, SECONDS, said  # noqa: E402


def environment():
    found = subprocess.run([ROOT / "scripts" / "frameworks-venv"], stdout=subprocess.PIPE, text=True)
    if found.returncode == 77:
        skip("PyPI cannot be reached", "no trainer of Lightning or transformers was run under crun")
    if found.returncode:
        fail("scripts/frameworks-venv")
    return {"PYTHON_EXEC": found.stdout.strip() + "/bin/python", "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT / "worker-lib" / "python")}


def step_shown(address):
    jobs = json.loads(subprocess.run([BIN / "crunctl", "-e", address, "status", "--json"],
                                     check=True, capture_output=True, text=True).stdout)
    return jobs[0]["nodes"][0].get("step") or 0 if jobs and jobs[0]["nodes"] else 0


def saves_on_request(start, shown, *words):
    """Its steps are shown, and crun ends with 75 once the callback has saved."""
    job = start("--", "--callback", *words)
    began = until(lambda: said("began", job), lambda: job.err, SECONDS)
    if "--slurm" in words:  # Lightning leaves alone what is ignored
        for signo in (signal.SIGUSR1, signal.SIGUSR2):
            os.kill(int(began[0]["pid"]), signo)
    until(lambda: shown() > 5, lambda: f"steps: {job.err}", SECONDS)
    job.kill(signal.SIGUSR1)
    if job.wait(SECONDS) != 75:
        fail("exit code", job.popen.returncode, job.err)


def continues_unmodified(start, shown, folder):
    """From what the callback has saved, and its steps are shown."""
    job = start("--watch", "--")
    began = until(lambda: said("began", job), lambda: job.err, SECONDS)
    step = int(began[0]["step"])
    if step < 5:
        fail("not from the checkpoint of the callback:", began)
    until(lambda: shown() > step + 5, lambda: f"steps: {job.err}", SECONDS)
    pathlib.Path(folder, "over").touch()
    if job.wait(SECONDS) != 0:
        fail("exit code", job.popen.returncode, job.err)


def trains(kind, *words, **more):
    variables = {**environment(), **more}
    here = Here()
    with tempfile.TemporaryDirectory(prefix="crun-trainers-") as folder:
        variables.update(TMPDIR=folder, XDG_CACHE_HOME=folder)
        try:
            crund = here.start([BIN / "crund", "--listen", "127.0.0.1:0"])
            address = until(lambda: re.search(r"listening.*?(127\.0\.0\.1:\d+)", crund.err),
                            "crund", SECONDS)[1]

            def start(*words):
                at = words.index("--")
                return here.start(
                    [BIN / "crun", "--nnodes=1", "--nproc-per-node=1", "--rdzv-backend=c10d",
                     f"--rdzv-endpoint={address}", "--rdzv-id=trainer", *words[:at],
                     PROGRAMS / "trainers.py", kind, folder, *words[at + 1:]], env=variables)

            saves_on_request(start, lambda: step_shown(address), *words)
            continues_unmodified(start, lambda: step_shown(address), folder)
        finally:
            here.end()


def a_step_of_slurm():
    name = socket.gethostname()
    return {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_JOB_NAME": "train",
            "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NNODES": "1",
            "SLURM_JOB_NUM_NODES": "1", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0",
            "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1",
            "SLURM_NODELIST": name, "SLURM_JOB_NODELIST": name, "SLURM_STEP_NODELIST": name,
            "SLURMD_NODENAME": name}


def lightning_that_handles_the_signals_of_slurm_saves_and_is_watched():
    trains("lightning", "--slurm", **a_step_of_slurm())


def transformers_saves_and_is_watched():
    trains("transformers")


def goes_on_from_memory(kind, modules, kills, steps, *how, ranks=2):
    """The lives of rank 0 begin with these steps, and all ends as in a training without them. No life
    imports the modules again. Returns what crun said."""
    with tempfile.TemporaryDirectory() as folder:
        job = process.Process([BIN / "crun", f"--nproc-per-node={ranks}", "--warm=torch._dynamo," + modules,
                               "--max-restarts=4", PROGRAMS / "memory_trainers.py", kind, folder, kills, *how],
                              env={**os.environ, **environment(), "TMPDIR": folder,
                                   "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")})
        if job.wait(SECONDS) != 0:
            fail("exit code", job.popen.returncode, job.err)
        left = glob.glob(folder + "/crun-*-*-*") + glob.glob(folder + "/saved/crun-memory/*")
        if left:
            fail("left:", left)
    begun = re.findall(r"begins rank=0 step=(\d+)", job.out)
    if begun != [*steps, "0"]:
        fail("the lives began with steps", begun, job.err)
    digests = [line for line in job.out.splitlines() if line.startswith("digest")]
    if len(digests) != 2 * ranks or len(set(digests)) != ranks:
        fail("other bits:", digests)
    return job.err


def transformers_goes_on_from_memory():
    goes_on_from_memory("transformers", "transformers.trainer,torch.distributed.checkpoint",
                        "0:1:3:dump,1:0:5:evaluation,2:1:6:file,3:0:8:step",
                        ["0", "2", "4", "5", "7"])


def transformers_saves_models_only():
    """No training goes on from them: the end of the job writes the step that is in memory."""
    with tempfile.TemporaryDirectory() as folder:
        job = process.Process([BIN / "crun", "--shutdown-timeout=200", PROGRAMS / "memory_trainers.py",
                               "transformers", folder, "0:0:7:step", "models"],
                              env={**os.environ, **environment(), "TMPDIR": folder,
                                   "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")})
        job.expect(137, "step 6, which was in memory, was written to files", seconds=SECONDS)


def lightning_goes_on_from_memory():
    goes_on_from_memory("lightning", "lightning.pytorch,torch.distributed.checkpoint",
                        "0:1:3:step,1:0:5:evaluation,2:1:5:epoch,3:0:8:step",
                        ["0", "2", "4", "5", "7"])


def lightning_averages_and_accumulates():
    """Steps are counted, not the batches whose gradients they gather."""
    said = goes_on_from_memory("lightning", "lightning.pytorch,torch.distributed.checkpoint",
                               "0:0:3:step,1:0:7:step,2:0:9:step", ["0", "2", "6", "8"], "ema", ranks=1)
    if re.findall(r"memory, (.*) to be done again", said) != 3 * ["1 step"]:
        fail("steps done again:", said)


def lightning_averages_that_none_resumes():
    with tempfile.TemporaryDirectory() as folder:
        job = process.Process([BIN / "crun", PROGRAMS / "memory_trainers.py", "lightning", folder, "", "swa"],
                              env={**os.environ, **environment(), "TMPDIR": folder,
                                   "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")})
        job.expect(0, "nothing in memory with StochasticWeightAveraging: ", seconds=SECONDS)


WHO = """import os, sys
print(os.environ["RANK"], os.environ["WORLD_SIZE"], *sys.argv[1:], "CRUN_PROGRESS" in os.environ,
      sys.prefix, *[name for name in ("CRUN_AS_TORCHRUN", "PYTHONPATH") if name in os.environ])
"""
AS_TORCHRUN = (
    ("accelerate", "launch", "--multi_gpu", "--num_processes=2", "--num_machines=1",
     "--mixed_precision=no", "--dynamo_backend=no", "who.py", "x", "--y"),
    ("fabric", "run", "--devices=2", "--accelerator=cpu", "--strategy=ddp", "who.py", "x", "--y"),
    ("python", "-um", "torch.distributed.run", "--nproc-per-node=2", "who.py", "x", "--y"),
    ("sh", "-c", "python -m torch.distributed.launch --nproc-per-node=2 who.py x --y"))


def what_starts_torchrun_starts_crun():
    """accelerate, Lightning Fabric and others never look for a command torchrun."""
    venv = pathlib.Path(environment()["PYTHON_EXEC"]).parents[1]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "who.py").write_text(WHO)
        env.update(PATH=f"{venv}/bin:{env['PATH']}", HOME=folder, PYTHONWARNINGS="ignore")
        for command in AS_TORCHRUN:
            done = subprocess.run([BIN.resolve() / "crun", "as-torchrun", *command], cwd=folder,
                                  env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            lines = sorted(line for line in done.stdout.splitlines() if " x --y " in line)
            own = " --local-rank=%d" if "launch --nproc" in command[-1] else ""
            if done.returncode or lines != [f"{rank} 2{own and own % rank} x --y True {venv}" for rank in (0, 1)]:
                fail(command, done.returncode, done.stdout, done.stderr)


run([lightning_that_handles_the_signals_of_slurm_saves_and_is_watched,
     transformers_saves_and_is_watched, transformers_goes_on_from_memory, transformers_saves_models_only,
     lightning_goes_on_from_memory, lightning_averages_and_accumulates,
     lightning_averages_that_none_resumes, what_starts_torchrun_starts_crun])
