#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 16 s
"""
Status pages: a worker that makes no progress is found and its job restarted, with what
every rank did told before; one that is merely slow is left alone; and the heartbeats say
how far the workers are.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, SECONDS, fail, shell_code, until  # noqa: E402
import host  # noqa: E402
import readme  # noqa: E402

CRUN = BIN / "crun"
WRITER = ROOT / "tests" / "programs" / "page_writer.py"


class Job:
    """A crun on this machine; its output is in files."""

    def __init__(self, directory, *words, workers=3):
        self.base = tempfile.mkdtemp(dir=directory)
        self.words = [CRUN, f"--nproc-per-node={workers}", *words]
        with open(self.base + "/out", "wb") as out, open(self.base + "/err", "wb") as err:
            self.popen = subprocess.Popen([str(w) for w in self.words], stdout=out,
                                          stderr=err, stdin=subprocess.DEVNULL)

    def text(self, name):
        with open(f"{self.base}/{name}", errors="replace") as f:
            return f.read()

    @property
    def out(self):
        return self.text("out")

    @property
    def err(self):
        return self.text("err")

    def expect(self, code, *patterns):
        until(lambda: self.popen.poll() is not None,
              lambda: f"the end of {self.words}:\n{self.out}{self.err}", SECONDS, pause=0.02)
        if (got := shell_code(self.popen.returncode)) != code:
            fail(f"{self.words}: exit code {got}, not {code}:\n{self.out}{self.err}")
        for pattern in patterns:
            if not re.search(pattern, self.err):
                fail(f"{self.words}: nothing matches {pattern!r} in:\n{self.err}")
        return self


def began(text):
    """[(rank, life, pid)]"""
    return [tuple(map(int, line.split()[1:])) for line in text.splitlines()
            if line.startswith("began ")]


# -- one node -------------------------------------------------------------------------


def a_worker_that_spins_is_found(directory):
    job = Job(directory, "--max-restarts=1", "--hang-timeout=2", WRITER,
              "spin@5:1", "wait@6:0", "wait@6:2")
    job.expect(0, r"rank 1 on \S+ hangs: no progress for \S+ s at step 5, training",
               r"ranks 0, 2 wait in do \(page_writer.py:\d+\); "
               r"rank 1 is in do \(page_writer.py:\d+\)\n",
               r"crun: all other ranks wait for rank 1\n",
               r"restart 1 of 1: epoch 2 formed")
    if sorted(b[:2] for b in began(job.out)) != [(r, life) for r in range(3) for life in (0, 1)]:
        fail("not all ranks began twice:", job.out)


def a_stopped_worker_is_found_and_ended(directory):
    job = Job(directory, "--hang-timeout=2", "--events-file", directory + "/events",
              WRITER, "stop@5:2", "wait@6:0", "wait@6:1")
    job.expect(1, r"rank 2 on \S+ hangs: no progress for \S+ s at step 5, training",
               r"the ranks +\| ranks 0, 1 wait in do \(page_writer.py:\d+\)",
               r"\n +\| rank 2 does not answer: stopped; it was training at step 5",
               r"crun: exit code 1\n")
    for rank, _, pid in began(job.out):
        if os.path.exists(f"/proc/{pid}"):
            fail("rank", rank, "still lives")
    with open(directory + "/events") as f:
        events = [json.loads(line) for line in f]
    if not any(e["kind"] == "stacks" and "rank 2 does not answer: stopped" in e["text"]
               for e in events):
        fail("not told in the events:", events)
    kinds = [e["kind"] for e in events]
    if kinds.count("hang") != 1 or kinds.index("hang") > kinds.index("stopping"):
        fail("not one hang before the stop:", kinds)


def one_that_never_writes_is_found_beside_others_that_do(directory):
    Job(directory, "--hang-timeout=0.5", "sh", "-c",
        f'[ $RANK = 1 ] && exec sleep 1000; python3 {WRITER} --until=0; sleep 1000').expect(
            1, r"rank 1 on \S+ hangs: nothing on its status page in the \S+ s since its start")


def silence_for_a_reason_is_no_hang(directory):
    """Evaluating takes longer than the timeout; the others wait for it."""
    job = Job(directory, "--hang-timeout=2", WRITER, "evaluate@5:1:4", "evaluate@5:0:4")
    job.expect(0)
    if job.err:
        fail("not quiet:", job.err)


def a_worker_that_is_done_may_stay(directory):
    job = Job(directory, "--hang-timeout=1", "sh", "-c",
              f'python3 {WRITER} && sleep 3', workers=2)
    job.expect(0)


def without_the_flag_nobody_is_judged(directory):
    Job(directory, WRITER, "silent@5:1:3").expect(0)


def no_page_no_judgement(directory):
    Job(directory, "--hang-timeout=1", "sleep", "3", workers=2).expect(0)


def an_agent_that_was_stopped_takes_nobody_for_hung(directory):
    job = Job(directory, "--hang-timeout=2", WRITER, "--until=300", workers=2)
    until(lambda: len(began(job.out)) == 2, "workers")
    os.kill(job.popen.pid, signal.SIGSTOP)
    time.sleep(2.6)
    os.kill(job.popen.pid, signal.SIGCONT)
    job.expect(0)


def mistakes_are_told(directory):
    for value in ("-1", "soon", "1e99", ""):
        Job(directory, f"--hang-timeout={value}", "true").expect(
            2, "--hang-timeout: .* is not auto, or a time from 0 to ")
    Job(directory, "--checkpoint-signal=KILL", "true").expect(
        2, '--checkpoint-signal: "KILL" is not a signal that can be handled')


# -- the manual's writers --------------------------------------------------------------

PAGE = "launcher/man/pytorch.md"
PYTHON_MAIN = """
import os, time
rank = int(os.environ["RANK"])

def forward(step):
    time.sleep(1000 if rank == 1 and step == 50 else 0.01)
    return 0.25

def backward(loss):
    if rank == 0 and crun.page.worker_page.step == 51:
        time.sleep(1000)

train(0, 10**9, forward, backward, lambda step: None, lambda step: None)
"""

C_MAIN = """
int main(void)
{
    int second = atoi(getenv("RANK"));
    map_progress_page();
    for (uint64_t step = 1;; step++) {
        report_progress(1, step, 0.25);
        usleep(10000);
        if (second && step == 50)
            pause();
        report_progress(4, step, 0.25);
        if (!second && step == 51)
            pause();
    }
}
"""

HANG = r"rank 1 on \S+ hangs: no progress for \S+ s at step 50, training"
STACKS = (HANG, r"rank 0 waits in backward \(w.py:\d+\); rank 1 is in forward \(w.py:\d+\)\n")
RANKS = (HANG, r"rank 0 \(pid \d+\): step 51, communicating, ",
         r"rank 1 \(pid \d+\): step 50, training, ")


def the_python_of_the_manual_works(directory):
    script = pathlib.Path(directory) / "w.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(ROOT / 'worker-lib' / 'python')!r})\n" +
                      readme.blocks("Progress and hangs", "python", PAGE)[0] + PYTHON_MAIN)
    Job(directory, "--hang-timeout=2", script, workers=2).expect(1, *STACKS)
    alone = subprocess.Popen([sys.executable, script], stdin=subprocess.DEVNULL,
                             env={**os.environ, "RANK": "2"})  # without a page
    time.sleep(0.3)
    if alone.poll() is not None:
        fail("does not run without crun")
    alone.kill()
    alone.wait()


def the_example_in_c_works(directory):
    source, program = pathlib.Path(directory) / "w.c", pathlib.Path(directory) / "w"
    example = (ROOT / "worker-lib/examples/progress.c").read_text()
    source.write_text(example[:example.index("int main(")] + C_MAIN)
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    Job(directory, "--hang-timeout=2", program, workers=2).expect(1, *RANKS)


def the_command_of_the_manual_shows_a_hang(_):
    command, = [line for line in readme.commands("Progress and hangs", PAGE)
                if "--hang-timeout=2 " in line]
    shown = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60,
                           env={**os.environ, "PATH": f"{CRUN.parent}:{os.environ['PATH']}"})
    if shown.returncode != 1 or "hangs: no progress for 2" not in shown.stderr:
        fail(command, shown)


# -- with a rendezvous to be asked ----------------------------------------------------


class Daemon:
    def __init__(self, directory):
        self.log = directory + "/crund.log"
        with open(self.log, "wb") as log:
            self.popen = subprocess.Popen([BIN / "crund", "--listen", "127.0.0.1:0"],
                                          stderr=log, stdin=subprocess.DEVNULL)
        self.address = until(self.found, "crund")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.popen.kill()
        self.popen.wait()

    def found(self):
        with open(self.log) as f:
            match = re.search(r"listening.*?(127\.0\.0\.1:\d+)", f.read())
        return match and match.group(1)

    def ask(self, *words):
        return subprocess.run([BIN / "crunctl", "-e", self.address, *words], check=True,
                              capture_output=True, text=True, timeout=SECONDS).stdout

    def node(self):
        jobs = json.loads(self.ask("status", "--json"))
        return jobs[0]["nodes"][0] if jobs and jobs[0]["nodes"] else {}


def join(daemon, *words):
    return [f"--rdzv-endpoint={daemon.address}", "--rdzv-backend=c10d", "--rdzv-id=job",
            "--nnodes=1", "--rdzv-conf=lease=3", *words]


def the_status_says_how_far_the_workers_are(directory, daemon):
    job = Job(directory, *join(daemon), WRITER, "--until=100000")
    first = until(lambda: daemon.node().get("step"), "a step in the status")
    until(lambda: daemon.node()["step"] > first, "a later step")
    node = until(lambda: daemon.node() if daemon.node()["steps_per_s"] else None,
                 "steps per second")
    if not 0 < float(node["steps_per_s"]) <= 100 or not 0 < float(node["loss"]) <= 1:
        fail("not what the workers do:", node)
    until(lambda: re.search(rf"{node['host']} .* {daemon.node()['steps_per_s']:g}\.?0* ",
                            daemon.ask("status")), "the same in the table")
    job.popen.send_signal(signal.SIGINT)
    job.expect(130)


def the_events_say_what_every_rank_did(directory, daemon):
    Job(directory, *join(daemon, "--hang-timeout=2", "--rdzv-id=hangs"), WRITER,
        "stop@5:2", "wait@6:0", "wait@6:1").expect(1)
    events = daemon.ask("events", "--rdzv-id=hangs")
    for text in ("ranks 0, 1 wait in ", "rank 2 does not answer: stopped",
                 "all other ranks wait for rank 2", "rank 2 on "):
        if text not in events:
            fail(f"{text!r} is not in:\n{events}")


STEPS = """
[ $TORCHELASTIC_RESTART_COUNT = 0 ] && from=0 to=20 || from=10 to=60
while [ $from -lt $to ]; do from=$((from + 1)); echo step $from; sleep 0.03; done
[ $to = 60 ] && until [ -e seen ]; do sleep 0.05; done
"""


def it_is_told_what_a_restart_cost(directory, daemon):
    """It fails after step 20, and goes on from the checkpoint of step 10."""
    job = Job(directory, *join(daemon, "--max-restarts=1", "--progress-pattern=step (\\d+)"),
              "sh", "-c", f"cd {directory}; {STEPS}", workers=1)
    status = until(lambda: [j for j in json.loads(daemon.ask("status", "--json"))
                            if j["last_restart"] and j["last_restart"]["steps_again"] == 10],
                   "the steps done again")[0]
    whole = sum(ms for name, ms in status["time"].items() if name != "steps_again")
    if abs(whole - status["age_ms"]) > 300 or not 0 < status["goodput"] < 1:
        fail("not the age of the job:", status)
    pathlib.Path(directory, "seen").touch()
    job.expect(0, r"crun: training again after \d+\.\d s.*; 10 steps to be done again\n",
               r"crun: productive for \d+\.\d % of \d+\.\d s, lost \d+\.\d s: .* (to the first step|for steps done again)")
    if "training again after" not in daemon.ask("events"):
        fail("not in the events:", daemon.ask("events"))


def the_first_step_is_known_before_the_next_heartbeat(directory, daemon):
    """Two minutes, that is."""
    job = Job(directory, *join(daemon, "--rdzv-conf=lease=600"), "sh", "-c",
              f"sleep 0.5; exec python3 {WRITER} --until=100000", workers=1)
    told = until(lambda: [j["time"] for j in json.loads(daemon.ask("status", "--json"))
                          if j["time"] and j["time"]["first_step_ms"]], "the first step")[0]
    if not 400 < told["first_step_ms"] < 20000:
        fail("not the time until the first step:", told)
    job.popen.send_signal(signal.SIGINT)
    job.expect(130)


# -- checkpoints that are asked for ---------------------------------------------------


def elastic(daemon, name, *words):
    return [f"--rdzv-endpoint={daemon.address}", "--rdzv-backend=c10d", f"--rdzv-id={name}",
            "--nnodes=1:2", "--rdzv-conf=last_call_timeout=0,scale=checkpoint", *words]


def two_nodes(directory, daemon, name, *words):
    """Both run in one epoch, the second having been taken in at a checkpoint."""
    crun = elastic(daemon, name, *words, WRITER, "--until=1000000")
    a = Job(directory, *crun, workers=2)
    until(lambda: len(began(a.out)) == 2, "the first node's workers")
    b = Job(directory, *crun, workers=2)
    until(lambda: len(began(a.out)) == 4 and len(began(b.out)) == 2, "all workers")
    return a, b


def end(*jobs):
    for job in jobs:
        job.popen.send_signal(signal.SIGINT)
    for job in jobs:
        job.expect(130)


def saved(job):
    """How often each rank of it has written a checkpoint."""
    return sorted(line.split()[1] for line in job.out.splitlines() if line.startswith("saved"))


def a_newcomer_is_taken_in_at_a_checkpoint(directory, daemon):
    a, b = two_nodes(directory, daemon, "grows")
    if saved(a) != ["0", "1"] or saved(b):
        fail("checkpoints of the first node and the second:", saved(a), saved(b))
    end(a, b)
    if "signalled" in a.out:
        fail("a signal that was not requested:", a.out)


def a_node_to_be_taken_away_leaves_after_a_checkpoint(directory, daemon):
    a, b = two_nodes(directory, daemon, "shrinks", "--checkpoint-signal=USR1")
    b.popen.send_signal(signal.SIGUSR1)
    b.expect(143, "SIGUSR1 from pid .*: this node will be taken away soon")
    until(lambda: len(began(a.out)) == 6, "the first node alone")
    if saved(b) != ["2", "3"] or saved(a) != ["0", "0", "1", "1"]:
        fail("checkpoints of the first node and the second:", saved(a), saved(b))
    end(a)
    # a worker that reads the request on its page may write and end before the signal comes
    for rank in (0, 1):
        if not 1 <= a.out.count(f"signalled {rank}") <= 2:
            fail("signals:", a.out)


def a_second_signal_hurries_one_node_and_not_the_job(directory, daemon):
    crun = elastic(daemon, "hurries", "--shutdown-timeout=1000", WRITER,
                   "--until=1000000", "silent@1:1")
    a = Job(directory, *crun, workers=1)
    until(lambda: len(began(a.out)) == 1, "the first node's worker")
    b = Job(directory, *crun, workers=1)
    until(lambda: re.search(r"\n\S+ +1 +1 +running .* 1 ",
                            daemon.ask("status", "--rdzv-id=hurries")),
          "a worker that will write no checkpoint")
    until(lambda: len(began(a.out)) == 2, "the first node's worker of the second epoch")
    b.popen.send_signal(signal.SIGTERM)
    until(lambda: "wants to leave" in daemon.ask("events", "--rdzv-id=hurries"),
          "SIGTERM to count")
    b.popen.send_signal(signal.SIGUSR1)
    b.popen.send_signal(signal.SIGHUP)
    b.expect(129, "a second signal: this node leaves without waiting for a checkpoint")
    until(lambda: len(began(a.out)) == 3, "the first node alone")
    end(a)


def the_last_node_to_be_taken_away_ends_the_job(directory, daemon):
    job = Job(directory, *elastic(daemon, "ends"), WRITER, "--until=1000000", workers=2)
    until(lambda: len(began(job.out)) == 2, "workers")
    job.popen.send_signal(signal.SIGUSR1)
    job.popen.send_signal(signal.SIGUSR1)
    job.expect(75, "the workers are asked for a checkpoint, then the job ends")
    if saved(job) != ["0", "1"]:
        fail("checkpoints:", saved(job))


def workers_that_know_of_no_page_are_not_waited_for(directory, daemon):
    crun = elastic(daemon, "bare", "sh", "-c", "echo began $RANK 0 $$; exec sleep 1000")
    a = Job(directory, *crun, workers=2)
    until(lambda: len(began(a.out)) == 2, "the first node's workers")
    b = Job(directory, *crun, workers=2)
    until(lambda: len(began(b.out)) == 2, "all workers")
    end(a, b)


# -- two nodes ------------------------------------------------------------------------


def all_ranks_of_both_nodes_are_told(_, cluster):
    both = [cluster[i].start(
        [CRUN, "--nnodes=2", f"--node_rank={i}", f"--master_addr={cluster[0].address}",
         "--master_port=29500", "--nproc_per_node=2", "--hang-timeout=2",
         "--max-restarts=1", WRITER, "spin@5:3", "wait@6:0", "wait@6:1", "wait@6:2"])
        for i in (0, 1)]
    for i, p in enumerate(both):
        if p.wait(60) != 0:
            fail(p, p.err)
        stacks = re.search(r"ranks 0-2 wait in do \(.*\); rank 3 is in do \(", p.err)
        if bool(stacks) != (i == 0):
            fail("not told on the node of rank 0 alone:", p.err)
        if "crun: all other ranks wait for rank 3\n" not in p.err:
            fail("the culprit is not told on each node:", p.err)
        if "rank 3 on node-1 hangs: no progress for" not in p.err:
            fail("the rank that hangs is not named:", p.err)


def the_report_of_each_node_lists_all_ranks(_, cluster):
    both = [cluster[i].start(
        [CRUN, "--nnodes=2", f"--node_rank={i}", f"--master_addr={cluster[0].address}",
         "--master_port=29501", "--nproc_per_node=2", "--hang-timeout=2",
         WRITER, "spin@5:2", "wait@6:0", "wait@6:1", "wait@6:3"]) for i in (0, 1)]
    for p in both:
        if p.wait(60) != 1:
            fail(p, p.err)
        report = p.err[p.err.find("first failure"):]
        for line in ("ranks 0, 1, 3 wait in do (page_writer.py", "rank 2 is in do (page_writer.py"):
            if f"| {line}" not in report:
                fail(f"{line!r} is not in:\n{p.err}")


ONE_NODE = [a_worker_that_spins_is_found, a_stopped_worker_is_found_and_ended,
            one_that_never_writes_is_found_beside_others_that_do,
            silence_for_a_reason_is_no_hang, a_worker_that_is_done_may_stay,
            without_the_flag_nobody_is_judged, no_page_no_judgement,
            an_agent_that_was_stopped_takes_nobody_for_hung, mistakes_are_told,
            the_python_of_the_manual_works, the_example_in_c_works,
            the_command_of_the_manual_shows_a_hang]
ASKED = [the_status_says_how_far_the_workers_are, the_events_say_what_every_rank_did,
         it_is_told_what_a_restart_cost, the_first_step_is_known_before_the_next_heartbeat,
         a_newcomer_is_taken_in_at_a_checkpoint,
         a_node_to_be_taken_away_leaves_after_a_checkpoint,
         a_second_signal_hurries_one_node_and_not_the_job,
         the_last_node_to_be_taken_away_ends_the_job,
         workers_that_know_of_no_page_are_not_waited_for]
TWO_NODES = [all_ranks_of_both_nodes_are_told, the_report_of_each_node_lists_all_ranks]


def run_one(test, *where):
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crun-progress-") as directory:
        if test in ASKED:
            with Daemon(directory) as daemon:
                test(directory, daemon)
        else:
            test(directory, *where)
    print(f"ok {test.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)


def run(tests, *where, at_once=1):
    """They mostly wait."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        running = [pool.submit(run_one, test, *where) for test in tests
                   if not sys.argv[1:] or test.__name__ in sys.argv[1:]]
        for test in running:
            test.result()


def main():
    run([*ONE_NODE, *ASKED], at_once=4)
    why = host.available()
    if why:
        print(f"skipped: {why}: hangs were looked for on one node only")
        sys.exit(77)
    with host.Cluster(2) as cluster:
        run(TWO_NODES, cluster, at_once=2)


main()
