#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 100 s
# sanitizers: no, a Python program loads the library
"""
PyTorch programs whose checkpoints are in memory: a rank is killed in the middle of a step, then one
in the middle of a save. Each time at most one step is done again, and at the end each rank has the
bits of an undisturbed run. A job that dies for good leaves files, from which the program goes on
under torchrun. On three nodes, the crun that hosts the
rendezvous is killed with its worker: a spare goes on with the copy, and with a store of its own.
"""
import os
import re
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
import host  # noqa: E402
import process  # noqa: E402
from process import BIN, BUILD, PROGRAMS, fail, same, until  # noqa: E402
from pytorch import SECONDS, said, torch_env  # noqa: E402

TRAIN = [PROGRAMS / "memory_train.py", "--undisturbed"]
# all that it imports, so that no life does again; without a list, only the second run would have it
WARM = "--warm=torch._dynamo,torch.distributed.checkpoint,torch.distributed.fsdp"


def run(flags, *words, folder=None, launcher="crun", code=0, program=TRAIN):
    """What a training prints."""
    env = {**os.environ, **torch_env(), "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")}
    programs = {"crun": BIN / "crun", "torchrun": os.path.dirname(env["PYTHON_EXEC"]) + "/torchrun"}
    with tempfile.TemporaryDirectory() as own:
        where = ["--folder=" + (folder or own)] if program == TRAIN else []
        p = process.Process([programs[launcher], "--nproc-per-node=2", *flags, *program, *where, *words],
                            env=env)
        if p.wait(SECONDS) != code:
            fail(f"{words}: exit code {p.popen.returncode}, not {code}:\n{p.out}{p.err}")
    return p.out, p.err


def begins(out):
    """The steps that the lives of rank 0 began with."""
    return [int(n) for n in re.findall(r"begins rank=0 step=(\d+)", out)]


def check_lives(kind, out, err, *begun):
    if len(begins(out)) != len(begun) or any(
            step not in may for step, may in zip(begins(out), begun)):
        fail(f"{kind}: the lives began with steps {begins(out)}:\n{err}")


def check_end(kind, out):
    got, wanted = (sorted(line.partition(" ")[2] for line in out.splitlines() if line.startswith(name))
                   for name in ("digest ", "undisturbed "))
    if len(got) != 2 or got != wanted:
        fail(f"{kind}: not every rank has come to the end, or with other bits:\n{out}")


def ddp():
    """Its last death is for good, so the agent writes files."""
    kills = "--kill=0:1:4:step,1:0:8:writing,2:1:10:after,3:1:11:step"
    with tempfile.TemporaryDirectory() as folder:
        out, err = run([WARM, "--max-restarts=3", "--shutdown-timeout=200"], kills,
                       folder=folder, code=137)
        # a rank that ends between two steps may have saved what the other one has not yet
        check_lives("ddp", out, err, [0], [3], [7], [9, 10])
        if "1 tensors are not the same on all ranks that have them, as model.5.gain: each rank's own" not in err:
            fail("a parameter of each rank's own:", err)
        if "step 10, which was in memory, was written to files" not in err:
            fail("no files:", err)
        out, err = run(["--standalone"], "--files-every=4", folder=folder, launcher="torchrun")
        check_lives("from files", out, err, [10])
        check_end("ddp", out)
        same(sorted(os.listdir(folder)), [".crun-jobs", "step-10", "step-12"])
        with open(f"{folder}/.crun-jobs") as file:
            same(len(file.readlines()), 1)  # the first job had four lives; the second one took no step


def fsdp2():
    # a save in the background may end after the next step has begun
    out, err = run([WARM, "--max-restarts=2"], "--kind=fsdp2", "--kill=0:1:4:writing,1:0:8:step",
                   "--background")
    check_lives("fsdp2", out, err, [0], [3], [6, 7])
    check_end("fsdp2", out)


def wait_for(ps, step):
    """Two ranks wait at this step; none has a reason to end."""
    until(lambda: any(p.popen.poll() is not None for p in ps) or
          sum(line["step"] == step for line in said("waits", *ps)) == 2,
          lambda: "\n".join(p.out + p.err for p in ps), seconds=SECONDS)


def host_of_rendezvous():
    if host.available() or b"raft_apply" not in (BIN / "crun").read_bytes():
        print("SKIPPED: no network namespaces, or no libraft")
        return
    with host.Cluster(3) as cluster:
        waits = [f"{cluster.directory}/wait-at-{step}" for step in (6, 9)]
        for path in waits:
            open(path, "w").close()
        ps = []
        for node in cluster.nodes:
            ps.append(node.start(
                [BIN / "crun", "-v", WARM, "--nnodes=2", "--spares=1", "--rdzv-id=job",
                 f"--rdzv-endpoint={cluster[0].address}:29400", *TRAIN, f"--folder={cluster.directory}"],
                env={**torch_env(), "GLOO_SOCKET_IFNAME": node.interface,
                     "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")}))
            until(lambda: "node-0 joined" in ps[0].err, lambda: ps[0].err)  # so the others' rank is not 0
        wait_for(ps, "6")
        until(lambda: all("it outlives the loss of one" in p.err for p in ps), "three keep the records")
        ps[0].kill()
        os.unlink(waits[0])
        wait_for(ps[1:], "9")
        stores = [line["store"] for line in said("life", *ps[1:]) if line["epoch"] == "2"]
        os.unlink(waits[1])
        for p in ps[1:]:
            p.expect(0, "node-0 was lost; node-", seconds=SECONDS)
        out, err = "".join(p.out for p in ps[1:]), ps[1].err
        if len(stores) != 2 or len(set(stores)) != 1 or stores[0].startswith(cluster[0].address + ":"):
            fail("the stores of the second epoch:", stores, err)
        # a step whose copy is still on its way when the next one comes is not saved
        first, *again = sorted(int(line["step"]) for line in said("begins", *ps[1:]))
        if first != 0 or len(again) != 2 or len(set(again)) != 1 or not 1 <= again[0] <= 5:
            fail("the lives began with", out, err)
        check_end("ddp", out)


def live():
    """On two nodes: crunctl writes the newest step that is in memory, from which another job goes on; then
    a rank is killed while crun writes, and the files of before stay."""
    if host.available():
        print("SKIPPED: no network namespaces")
        return
    with host.Cluster(2) as cluster, tempfile.TemporaryDirectory() as folder:
        job, waits = f"live-{os.getpid()}", [f"{folder}/wait-at-{step}" for step in (6, 9)]
        for path in waits:
            open(path, "w").close()
        ps = [node.start([BIN / "crun", WARM, "--nnodes=2", "--max-restarts=1", f"--rdzv-id={job}",
                          f"--rdzv-endpoint={cluster[0].address}:29400", *TRAIN, f"--folder={folder}"],
                         env={**torch_env(), "GLOO_SOCKET_IFNAME": node.interface,
                              "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")})
              for node in cluster.nodes]
        order = ["ip", "netns", "exec", cluster[1].ns, BIN / "crunctl", "checkpoint", job]
        wait_for(ps, "6")
        p = process.Process(order)
        p.expect(0, seconds=SECONDS)
        # a step is not kept while the copies of one before are made
        written = re.match(rf"{job}: step ([1-5]), which was in memory, is in {folder} \(", p.out)
        if not written:
            fail("crunctl says", p.out, p.err)
        step = int(written[1])
        same(sorted(os.listdir(folder)), [".crun-jobs", f"step-{step}", "wait-at-6", "wait-at-9"])
        shutil.copytree(f"{folder}/step-{step}", f"{folder}/alone/step-{step}")
        os.unlink(waits[0])
        wait_for(ps, "9")
        p = process.Process(order)
        until(lambda: any(name.startswith(".new-step-") for name in os.listdir(folder)), "it writes",
              seconds=SECONDS)
        victim = next(line["pid"] for line in said("life", *ps) if line["rank"] == "1")
        os.kill(int(victim), signal.SIGKILL)
        p.expect(1, ", which is in memory, was not written to files: ", seconds=SECONDS)
        same(sorted(name for name in os.listdir(folder) if name.startswith("step-")), [f"step-{step}"])
        os.unlink(waits[1])
        for p in ps:
            p.expect(0, seconds=SECONDS)
        check_end("ddp", "".join(p.out for p in ps))
        out, err = run([WARM], folder=f"{folder}/alone")
        check_lives("from files", out, err, [step])
        check_end("ddp", out)


def two_jobs():
    """In one folder: the later one goes on from the files of the earlier one, which ends and
    writes no more, although it has a newer step in memory and a restart left."""
    env = {**os.environ, **torch_env(), "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")}

    def job(folder, *words):
        return process.Process([BIN / "crun", "--standalone", WARM, "--max-restarts=1", *TRAIN,
                                "--folder=" + folder, "--kind=plain", *words], env=env)

    def waits(p):
        until(lambda: "waits rank=0 step=6" in p.out, lambda: p.out + p.err, seconds=SECONDS)

    with tempfile.TemporaryDirectory() as folder:
        open(f"{folder}/wait-at-6", "w").close()
        first = job(folder, "--files-every=4", "--steps=1000000000")
        waits(first)
        second = job(folder)
        waits(second)
        os.unlink(f"{folder}/wait-at-6")
        first.expect(78, "another job, another program of this one, or a later start of it, now writes its checkpoints to " + folder,
                     "0 of 1 used", seconds=SECONDS)
        second.expect(0, seconds=SECONDS)
        same(begins(first.out) + begins(second.out), [0, 4])
        if "was written to files" in first.err:
            fail(first.err)
        same(sorted(os.listdir(folder)), [".crun-jobs", "step-4"])


def what_files_have():
    """What crunctl, or the ranks themselves, have written is not written once more as the job ends, and no
    line says that it was not."""
    env = {**os.environ, **torch_env(), "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")}
    for by_crunctl in True, False:
        with tempfile.TemporaryDirectory() as folder:
            job = f"has-{os.getpid()}-{by_crunctl}"
            open(f"{folder}/wait-at-6", "w").close()
            p = process.Process([BIN / "crun", f"--rdzv-id={job}", "--nproc-per-node=2", WARM, *TRAIN, "--folder=" + folder,
                                 "--kind=plain", "--steps=1000000000"], env=env)
            try:
                wait_for([p], "6")
                if by_crunctl:
                    order, said_first = [BIN / "crunctl", "checkpoint", job], "step 5, which was in memory, is in "
                    for words in said_first + folder, f"step 5 is in {folder} already, or a newer one":
                        process.Process(order).expect(0, words, seconds=SECONDS)
                    p.popen.send_signal(signal.SIGTERM)
                else:  # a step of the ranks, to which crun's own request for a checkpoint comes
                    p.popen.send_signal(signal.SIGUSR1)
                    until(lambda p=p: "SIGUSR1" in p.err, lambda p=p: p.err)
                    os.unlink(f"{folder}/wait-at-6")
                p.wait(SECONDS)
            finally:
                p.end()
            steps = sorted(int(name[5:]) for name in os.listdir(folder) if name.startswith("step-"))
            # after their save, the ranks may have made steps before they were stopped
            newer = [int(n.replace(",", "")) for n in re.findall(r"step ([0-9,]+), which was in memory, was written", p.err)]
            if "was not written" in p.err or newer != steps[1:] or by_crunctl and steps != [5]:
                fail(steps, p.out, p.err)


def dcp_calls():
    """dcp.async_save and dcp.load, called by the program, with memory as their storage."""
    out, err = run([WARM, "--max-restarts=1"], "writing", program=[PROGRAMS / "memory_dcp.py"])
    for rank in 0, 1:
        for line in f"begins rank={rank} step=3 3", f"end rank={rank} 60.0 [6.0, 6.0, 6.0] [6.0] 6":
            if line not in out.splitlines():
                fail(f"no line {line}:\n{out}{err}")


def checks():
    """What needs no launcher."""
    env = {**os.environ, **torch_env(), "PYTHONPATH": str(BUILD / "lib" / "crun" / "python")}
    p = process.Process([env["PYTHON_EXEC"], "-m", "unittest", "discover", "-p", "*_checks.py", "-s",
                         PROGRAMS / "memory_checks"], env=env)
    p.expect(0, "\nOK\n", seconds=SECONDS)


def main():
    cases = {f.__name__: f for f in (checks, ddp, fsdp2, live, what_files_have, two_jobs, host_of_rendezvous, dcp_calls)}
    if not os.environ.get("CRUN_ALL_ROUNDS") and not sys.argv[1:]:
        del cases["dcp_calls"]  # its storage is what the others have, too
        del cases["two_jobs"]  # checks() has it without a launcher
    for name in sys.argv[1:] or cases:
        cases[name]()


if __name__ == "__main__":
    main()
