#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 45 s
# sanitizers: no, Slurm's daemons take most of the time, and other tests run the same code
"""
crun on a real Slurm of a controller and three nodes: steps, batch jobs, allocations, signals,
limits, requeueing, lost nodes. The cases run side by side, because they mostly wait.
"""
import os
import pathlib
import re
import signal
import sys
import threading
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, fail, same  # noqa: E402
import readme  # noqa: E402
import slurm  # noqa: E402
from slurm import until  # noqa: E402

CRUN = BIN / "crun"
PAIR = ["-N2", "--nodelist=n1,n2"]
SRUN = ["srun", *PAIR]
SHOW = "echo rank=$RANK world=$WORLD_SIZE node=$(hostname) run=$TORCHELASTIC_RUN_ID"

# It goes on until SIGTERM (or SIGUSR1 with "usr1"), and then takes `seconds` for a checkpoint.
WORKER = """
import os, signal, socket, sys, time
name, seconds, end = sys.argv[1], float(sys.argv[2]), False
me = f"{name}-{os.environ['RANK']}"
def save(*_):
    global end
    end = True
signal.signal(signal.SIGTERM, save)
if "usr1" in sys.argv:
    signal.signal(signal.SIGUSR1, save)
print(f"rank={os.environ['RANK']} world={os.environ['WORLD_SIZE']} node={socket.gethostname()} "
      f"run={os.environ['TORCHELASTIC_RUN_ID']} restart={os.environ.get('SLURM_RESTART_COUNT')} "
      f"resumed={os.path.exists(me)}", flush=True)
while not end and not os.path.exists(f"{name}-enough"):
    time.sleep(0.02)
if end:
    done = time.monotonic() + seconds
    while time.monotonic() < done:
        time.sleep(0.02)
    open(me, "w").close()
"""


def sh(script):
    return ["sh", "-c", script]


def worker(name, seconds=0.2, *words):
    return ["python3", "-SE", "worker.py", name, seconds, *words]


def line(*words):
    """The words as one line of a batch script."""
    return " ".join(map(str, words))


def facts(text):
    """{"rank": ..., ...} of each line of a worker, by rank."""
    lines = (dict(word.split("=", 1) for word in said.split())
             for said in text.splitlines() if said.startswith("rank="))
    return sorted(lines, key=lambda fact: int(fact["rank"]))


def check_world(text, count, nodes=("n1", "n2")):
    """The workers are one job: `count` of them, the first on the first node, and so on."""
    each = count // len(nodes)
    wanted = [(str(r), str(count), nodes[r // each]) for r in range(count)]
    if [(f["rank"], f["world"], f["node"]) for f in facts(text)] != wanted:
        fail("not one job of", count, "workers on", nodes, ":\n" + text)


def until_up(cluster, job, count):
    until(lambda: len(facts(cluster.output(job))) >= count,
          lambda: f"{count} workers of job {job}: {cluster.job(job)}\n{cluster.output(job)}")


def check_saved(cluster, name, count, said):
    """Every rank has written its checkpoint."""
    for rank in range(count):
        if not (pathlib.Path(cluster.directory) / f"{name}-{rank}").exists():
            fail(f"rank {rank} of {name} has no checkpoint:\n{said}")


# -- steps, batch jobs, allocations ---------------------------------------------------


def srun_is_one_job(cluster):
    p = cluster.start(*SRUN, "--gres=gpu:2", CRUN, "--nproc_per_node=2", *sh(SHOW))
    p.expect(0)
    check_world(p.out, 4)
    same(len({fact["run"] for fact in facts(p.out)}), 1)


def a_worker_has_a_place_of_its_own(cluster):
    """Programs that ask Slurm, as JAX does, are the rank that crun says, on its node."""
    show = ("echo rank=$RANK world=$WORLD_SIZE node=$(hostname) proc=$SLURM_PROCID "
            "tasks=$SLURM_NTASKS local=$SLURM_LOCALID id=$SLURM_NODEID job=$SLURM_JOB_ID "
            "step=$SLURM_STEP_NUM_TASKS$SLURM_GTIDS$(env | grep ^PMI)")
    p = cluster.start(*SRUN, "--mpi=pmi2", CRUN, "--nproc_per_node=2", *sh(show))
    p.expect(0)
    check_world(p.out, 4)
    same([[f[name] for name in ("proc", "tasks", "local", "id", "step")] for f in facts(p.out)],
         [[str(r), "4", str(r % 2), str(r // 2), ""] for r in range(4)])
    if "" in {fact["job"] for fact in facts(p.out)}:
        fail("no SLURM_JOB_ID:", p.out)


def batch_job_with_srun(cluster):
    job = cluster.sbatch(line("exec srun", CRUN, "--nproc_per_node=2", "sh show"), *PAIR)
    same(cluster.until_ended(job)["JobState"], "COMPLETED")
    check_world(cluster.output(job), 4)


def two_tasks_on_a_node_are_refused(cluster):
    p = cluster.start(*SRUN, "--ntasks-per-node=2", CRUN, *sh(SHOW))
    p.expect(2, "--ntasks-per-node=1")
    same(facts(p.out), [])


def one_node_needs_nothing(cluster):
    p = cluster.start("srun", "-N1", "--nodelist=n1", CRUN, "--nproc_per_node=2", *sh("exit 5"))
    p.expect(5)
    p = cluster.start("salloc", "-N1", "--nodelist=n1", CRUN, "--nproc_per_node=2", *sh(SHOW))
    p.expect(0)
    check_world(p.out, 2, ["n1"])


def batch_job_without_srun(cluster):
    job = cluster.sbatch(line("exec", CRUN, "--nproc_per_node=2", "sh show"), *PAIR)
    same(cluster.until_ended(job)["JobState"], "COMPLETED")
    check_world(cluster.output(job), 4)
    cluster.until_said(job, "srun")


def salloc_without_srun(cluster):
    p = cluster.start("salloc", *PAIR, CRUN, "--nnodes=1:2", "--nproc_per_node=2", *sh(SHOW))
    p.expect(0, "srun")
    check_world(p.out, 4)


def interactive_shell_starts_srun(cluster):
    """LaunchParameters=use_interactive_step: the shell of salloc is a step of one node."""
    p = cluster.start("salloc", *PAIR, "srun", "--interactive", "--preserve-env", "-N1", "-n1",
                      CRUN, "--nproc_per_node=2", *sh(SHOW))
    p.expect(0, "srun")
    check_world(p.out, 4)


def two_jobs_on_the_same_nodes(cluster):
    jobs = [cluster.start(*SRUN, CRUN, "--nproc_per_node=1", *worker(f"pair{i}"))
            for i in range(2)]
    until(lambda: all(len(facts(p.out)) == 2 for p in jobs),
          lambda: "two jobs side by side: " + "".join(p.out + p.err for p in jobs))
    for i, p in enumerate(jobs):
        (pathlib.Path(cluster.directory) / f"pair{i}-enough").touch()
        p.expect(0)
        check_world(p.out, 2)


def steps_of_a_job_side_by_side(cluster):
    step = line("srun --overlap", CRUN, "--nproc_per_node=1")
    job = cluster.sbatch("\n".join(
        f"{step} {line(*worker('steps'))} >steps{i}.out 2>&1 & a{i}=$!" for i in range(2))
        + "\nwait $a0 && wait $a1", *PAIR)
    outputs = [pathlib.Path(cluster.directory) / f"steps{i}.out" for i in range(2)]

    def said(path):
        return path.read_text() if path.exists() else ""
    until(lambda: all(len(facts(said(path))) == 2 for path in outputs),
          lambda: "two steps side by side: " + "".join(map(said, outputs)))
    (pathlib.Path(cluster.directory) / "steps-enough").touch()
    same(cluster.until_ended(job)["JobState"], "COMPLETED")
    for path in outputs:
        check_world(said(path), 2)


def tasks_of_an_array(cluster):
    job = cluster.sbatch(line("exec srun --mpi=pmi2", CRUN, "--nproc_per_node=1", *worker("array")),
                         *PAIR, "--array=0-1", "--output=array-%a.out")
    paths = [pathlib.Path(cluster.directory) / f"array-{i}.out" for i in range(2)]
    until(lambda: all(p.exists() and len(facts(p.read_text())) == 2 for p in paths),
          lambda: "two tasks of an array: " + cluster.ask("squeue"))
    (pathlib.Path(cluster.directory) / "array-enough").touch()
    cluster.until_ended(job)
    for path in paths:
        check_world(path.read_text(), 2)


# -- ends -----------------------------------------------------------------------------


def the_exit_code_is_the_workers(cluster):
    job = cluster.sbatch(line("exec srun", CRUN, "sh fail"), *PAIR)
    end = cluster.until_ended(job)
    same((end["JobState"], end["ExitCode"]), ("FAILED", "7:0"))
    said = cluster.output(job)
    same(said.count("formed"), 1)
    if said.count("first failure") != 1:
        fail("not one report of the failure:\n" + said)


def sigusr1_asks_to_requeue(cluster):
    """scancel --signal=USR1 does what #SBATCH --signal=USR1@60 does at that time."""
    job = cluster.sbatch(line("exec srun", CRUN, "--nproc_per_node=2", *worker("usr1", 1)), *PAIR)
    until_up(cluster, job, 4)
    cluster.ask("scancel", "--signal=USR1", job)
    end = cluster.until_ended(job)
    same((end["JobState"], end["ExitCode"]), ("FAILED", "75:0"))
    check_saved(cluster, "usr1", 4, cluster.output(job))


def sigusr1_of_the_batch_script(cluster):
    """What #SBATCH --signal=B:USR1@60 does to a script whose last line is exec crun."""
    job = cluster.sbatch(line("exec", CRUN, "--nproc_per_node=1", *worker("batch")), *PAIR)
    until_up(cluster, job, 2)
    cluster.ask("scancel", "--batch", "--signal=USR1", job)
    end = cluster.until_ended(job)
    same((end["JobState"], end["ExitCode"]), ("FAILED", "75:0"))
    check_saved(cluster, "batch", 2, cluster.output(job))


def script_of_the_readme(cluster):
    """It is submitted as it stands there; the time limit comes early."""
    at = pathlib.Path(cluster.directory) / "readme"
    at.mkdir()
    (at / "job.sh").write_text(readme.blocks("Slurm, Kubernetes, ssh", "sh")[0])
    (at / "train.py").write_text(WORKER.replace(
        "name, seconds, end = sys.argv[1], float(sys.argv[2]), False",
        "name, seconds, end = 'readme', 1, False"))
    said = cluster.ask("env", f"PATH={BIN}:{os.environ['PATH']}", "sbatch", "--parsable",
                       f"--chdir={at}", f"--output={at}/out", *PAIR[1:], at / "job.sh")
    job = said.strip()

    def until_ranks(count):
        until(lambda: (at / "out").exists() and len(facts((at / "out").read_text())) >= count,
              lambda: f"{count} ranks: {said} {cluster.job(job)}\n{(at / 'out').read_text()}")
    until_ranks(4)
    end_in(cluster, job, 310)
    until_ranks(8)
    (at / "readme-enough").touch()
    same(cluster.until_ended(job)["JobState"], "COMPLETED")
    found = facts((at / "out").read_text())
    same([f["resumed"] for f in found if f["restart"] == "1"], ["True"] * 4)


def deadline_requeues(cluster):
    """Slurm 22.05 does not tell the end of the job; newer ones set SLURM_JOB_END_TIME."""
    job = cluster.sbatch("\n".join([
        '[ "$SLURM_RESTART_COUNT" ] || export SLURM_JOB_END_TIME=$(($(date +%s) + 8))',
        line("srun", CRUN, "--nproc_per_node=2", *worker("deadline")),
        "code=$?",
        "echo code $code",
        "[ $code != 75 ] || scontrol requeue $SLURM_JOB_ID",
        "exit $code"]), *PAIR)
    until_up(cluster, job, 8)
    (pathlib.Path(cluster.directory) / "deadline-enough").touch()
    same(cluster.until_ended(job)["JobState"], "COMPLETED")
    said = cluster.output(job)
    same(re.findall("^code .*", said, re.M), ["code 75", "code 0"])
    same([fact["resumed"] for fact in facts(said) if fact["restart"] == "1"], ["True"] * 4)


def scancel_leaves_checkpoints(cluster):
    job = cluster.sbatch(line("srun", CRUN, "--nproc_per_node=2", *worker("cancel", 2)), *PAIR)
    until_up(cluster, job, 4)
    cluster.ask("scancel", job)
    same(cluster.until_ended(job)["JobState"], "CANCELLED")
    until(lambda: "cancel-3" in os.listdir(cluster.directory), "the last checkpoint")
    check_saved(cluster, "cancel", 4, cluster.output(job))


def ctrl_c_of_srun(cluster):
    p = cluster.start(*SRUN, CRUN, "--nproc_per_node=1", *worker("ctrl-c"))
    until(lambda: len(facts(p.out)) == 2, lambda: p.out + p.err)
    for _ in range(2):  # srun itself asks for the second one, within a second
        os.kill(p.pid, signal.SIGINT)
        time.sleep(0.1)
    if p.wait() == 0:
        fail("srun ends with 0:", p.out + p.err)


def suspended_job_goes_on(cluster):
    if not cluster.cgroups:
        print("not seen here whether a job is suspended: no cgroups of version 1")
        return
    job = cluster.sbatch(line("exec srun", CRUN, "--nproc_per_node=1", *worker("suspend")), *PAIR)
    until_up(cluster, job, 2)
    cluster.ask("scontrol", "suspend", job)
    until(lambda: cluster.is_frozen(job), "the step is frozen")
    cluster.ask("scontrol", "resume", job)
    (pathlib.Path(cluster.directory) / "suspend-enough").touch()
    same(cluster.until_ended(job)["JobState"], "COMPLETED")


def memory_limit_is_named(cluster):
    if not cluster.cgroups:
        print("no memory limits here: no cgroups of version 1 that this test may use")
        return
    hog = "import time; x = bytearray(300 << 20); time.sleep(60)"
    p = cluster.start("srun", "-N1", "--nodelist=n1", "--mem=100", CRUN, "--nproc_per_node=1",
                      "python3", "-SE", "-c", hog)
    p.expect(1, "killed by SIGKILL, out of memory")  # Slurm's code, not crun's 137


def time_limit_leaves_checkpoints(cluster):
    """KillWait is 10 s: each rank has its 5 s, on the node that is signalled twice, too."""
    job = cluster.sbatch(line("srun", CRUN, "--nproc_per_node=2", *worker("limit", 5)), *PAIR)
    until_up(cluster, job, 4)
    end_in(cluster, job, 1)
    same(cluster.until_ended(job)["JobState"], "TIMEOUT")
    check_saved(cluster, "limit", 4, cluster.output(job))


def end_in(cluster, job, seconds):
    """The controller looks at the limits of time every 30 s."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + seconds))
    said = cluster.ask("scontrol", "update", f"JobId={job}", f"EndTime={at}")
    if said:
        fail(said)


def requeued_job_resumes(cluster):
    job = cluster.sbatch(line("srun", CRUN, "--nproc_per_node=2", *worker("requeue")), *PAIR)
    until_up(cluster, job, 4)
    cluster.ask("scontrol", "requeue", job)
    until_up(cluster, job, 8)
    (pathlib.Path(cluster.directory) / "requeue-enough").touch()
    same(cluster.until_ended(job)["JobState"], "COMPLETED")
    found = facts(cluster.output(job))
    same([fact["resumed"] for fact in found if fact["restart"] == "1"], ["True"] * 4)
    same(len({fact["run"] for fact in found}), 2)


def lost_host(cluster):
    """The crun of the first node, which hosts the rendezvous, is killed: the job goes on."""
    p = cluster.start("srun", "-N3", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", CRUN, "-v",
                      "--nnodes=2:3", "--nproc_per_node=1", *worker("first"))
    until(lambda: len(facts(p.out)) == 3 and p.err.count("it outlives the loss of one") >= 3,
          lambda: p.out + p.err)
    cluster[1].kill(re.search(r": n1 joined \(pid (\d+)", p.err)[1])
    until(lambda: [f["world"] for f in facts(p.out)].count("2") == 2, lambda: p.out + p.err)
    (pathlib.Path(cluster.directory) / "first-enough").touch()
    p.wait()
    if not re.search("n1 was lost; n[23] hosts the rendezvous now", p.err):
        fail(p.err)


def lost_node(cluster):
    """The job of two to three nodes goes on with two."""
    lost_host(cluster)  # while there are three
    p = cluster.start("srun", "-N3", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", CRUN,
                      "--nnodes=2:3", "--nproc_per_node=1", *worker("lost"))
    until(lambda: len(facts(p.out)) == 3, lambda: p.out + p.err)
    cluster[3].lose()
    until(lambda: [f["world"] for f in facts(p.out)].count("2") == 2, lambda: p.out + p.err)
    (pathlib.Path(cluster.directory) / "lost-enough").touch()
    until(lambda: "n3" in p.err, lambda: p.err)
    p.wait()


CASES = [
    script_of_the_readme, sigusr1_of_the_batch_script,
    requeued_job_resumes, deadline_requeues, time_limit_leaves_checkpoints, lost_node,
    scancel_leaves_checkpoints, sigusr1_asks_to_requeue, memory_limit_is_named,
    srun_is_one_job, a_worker_has_a_place_of_its_own, two_tasks_on_a_node_are_refused, one_node_needs_nothing,
    batch_job_with_srun, batch_job_without_srun, salloc_without_srun,
    interactive_shell_starts_srun, two_jobs_on_the_same_nodes, steps_of_a_job_side_by_side,
    tasks_of_an_array, the_exit_code_is_the_workers, ctrl_c_of_srun, suspended_job_goes_on,
]


def run_case(case, cluster, failed):
    begun = time.monotonic()
    try:
        case(cluster)
        print(f"ok {case.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
    except (SystemExit, AssertionError) as e:
        failed.append(f"{case.__name__}: {e}")
    except BaseException as e:
        failed.append(f"{case.__name__}: {e!r}")
        raise


def run_cases(cases, cluster):
    """Why cases have failed. The threads do not outlive a test that is told to end."""
    failed = []
    threads = [threading.Thread(target=run_case, args=(case, cluster, failed), daemon=True)
               for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def main():
    slurm.need()
    cases = [c for c in CASES if not sys.argv[1:] or c.__name__ in sys.argv[1:]]
    with slurm.Cluster() as cluster:
        at = pathlib.Path(cluster.directory)
        (at / "worker.py").write_text(WORKER)
        (at / "show").write_text(SHOW + "\n")
        (at / "fail").write_text("[ $RANK = 0 ] || exit 7; sleep 30\n")
        failed = run_cases(cases, cluster)
    if failed:
        fail("\n\n".join(failed))


main()
