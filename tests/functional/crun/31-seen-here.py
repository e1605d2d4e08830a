#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 8 s
# sanitizers: no, 47-live-api and 31-crunctl-logs ask the same socket
"""
Jobs of this machine are seen and steered by the socket that each crun has in the run
folder: without a port, by name or pid, also while they wait, hang or are killed, and for a
while after their end.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unicodedata

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (END_OF_LIST, HEADER, HELLO, PREFACE, RANK_LOGS, SHOW_LOGS,  # noqa: E402
                     WELCOME, frame)
from launch import CRUN, CRUNCTL, Place, sh, with_place  # noqa: E402
from process import BIN, SECONDS, free_port, matches, run, same, until  # noqa: E402

CRUND = str(BIN / "crund")
STRANGER = 65534
SLEEP = ["sleep", "60"]


class Here(Place):
    """A place with a run folder of its own."""

    def __init__(self):
        super().__init__()
        self.run = os.path.join(self.path, "run")
        self.env["CRUN_RUNTIME_DIR"] = self.run

    def ctl(self, *words, **options):
        p = subprocess.run([CRUNCTL, *words], env=options.get("env", self.env), timeout=SECONDS,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return p.returncode, p.stdout.decode()

    def jobs(self, state="running"):
        return [j for j in json.loads(self.ctl("status", "--json")[1]) if j["state"] == state]

    def begin(self, *words, **options):
        p = self.start(CRUN, *words, stdin=subprocess.DEVNULL, **options)
        until(lambda: os.path.exists(os.path.join(self.run, f"{p.pid}.json")) or p.poll(),
              lambda: f"a record of {words}: {p.poll()}")
        return p

    def stop(self, p, word=None):
        code, said = self.ctl("stop", "--now", word or str(p.pid))
        same(code, 0)
        matches(said, rf"^{word or '.+'}: stopping\n$")
        self.end(p, 143)


def one_node(p):
    job = p.begin("--nproc-per-node=2", *SLEEP)
    same(sorted(os.listdir(p.run)), [f"{job.pid}.{end}" for end in ("events", "json", "sock")])
    same(os.stat(p.run).st_mode & 0o7777, 0o700)
    for words in ((), ("sleep",), (str(job.pid),)):
        code, said = p.ctl("status", *words)
        same(code, 0)
        assert "sleep" in said and "running" in said, said
    code, said = p.ctl("events")
    matches(said, "sleep .*epoch 1 formed: 1 node, 2 workers")
    same(p.ctl("stacks", "sleep")[0], 0)
    matches(p.ctl("drain", "sleep", "0")[1], "fewer than 1 node would remain")
    matches(p.ctl("stop", "other")[1], 'no job "other" on this machine')
    p.stop(job, "sleep")
    same(os.listdir(p.run), ["ended"])


def of_several_one_is_named(p):
    one = p.begin(*SLEEP)
    two = p.begin(*sh("sleep 1000; :"))
    code, said = p.ctl("stop")
    same(code, 2)
    assert f"sleep (pid {one.pid})" in said and f"sh (pid {two.pid})" in said, said
    p.stop(two, "sh")
    p.stop(one)


def ended_jobs_are_kept(p):
    logs = os.path.join(p.path, "logs")
    p.crun(["--log-dir", logs, *sh("echo oh no >&2; exit 3")], 3)
    p.crun(["true"], 0)  # too short to be seen, on an idle machine
    code, said = p.ctl("status", "sh")
    same(code, 0)
    assert "exit code 3" in said and "| oh no" in said and "first failure" in said, said
    matches(p.ctl("events", "sh")[1], "sh .*formed(.|\n)*failed(.|\n)*done")
    same([json.loads(line)["kind"] for line in p.ctl("events", "sh", "--json")[1].splitlines()],
         ["joined", "formed", "failed", "stopping", "done"])
    folder = os.path.join(logs, next(d for d in os.listdir(logs) if not d.startswith("latest")))
    with open(os.path.join(folder, "report.txt"), encoding="utf-8") as f:
        assert "exit code 3" in f.read()
    with open(os.path.join(folder, "events.jsonl"), encoding="utf-8") as f:
        same(json.loads(f.read().splitlines()[-1])["kind"], "done")
    same([j["exit_code"] for j in p.jobs("done") if j["name"] == "sh"], [3])
    matches(p.ctl("stop", "sh")[1], 'job "sh" has ended already')
    same(p.ctl("events"), (0, "no job runs; name one of those that have ended\n"))


def the_clock_is_set_back(p):
    """By an hour, while a job runs."""
    p.crun(sh("sleep 0.2; exit 3"), 3)
    ended = os.path.join(p.run, "ended")
    path = os.path.join(ended, next(f for f in os.listdir(ended) if f.endswith(".json")))
    with open(path, encoding="utf-8") as f:
        record = json.load(f)
    record["started_ms"] += 3600 * 1000
    with open(path, "w", encoding="utf-8") as f:
        json.dump(record, f)
    ran = float(re.search(r"failed +\S+ s ago +(\S+) s ", p.ctl("status")[1])[1])
    assert 0.2 <= ran < 60, ran


def only_the_newest_are_kept(p):
    p.crun(sh("exit 3"), 3)
    ended = os.path.join(p.run, "ended")
    record = next(f for f in os.listdir(ended) if f.endswith(".json"))
    for i in range(1, 41):  # older ones
        for end in ("json", "events"):
            with open(os.path.join(ended, f"{i}-7.{end}"), "w", encoding="utf-8") as f:
                f.write('{"pid":7}')
    p.file("run/ended/mine.txt", "mine")
    p.crun(sh("exit 4"), 4)
    same(len(p.ctl("status")[1].splitlines()), 23)
    job = p.begin(*SLEEP)
    matches(p.ctl("status")[1], r"sleep +running.*\n(.*\n)+.*RESULT.*\n(.*failed.*\n){5}and 15 older: crunctl status --all\n$")
    matches(p.ctl("status", "--all")[1], r"sleep +running.*\n(.*\n)+.*RESULT.*\n(.*failed.*\n){20}$")
    p.stop(job)
    left = os.listdir(ended)
    same(len([f for f in left if f.endswith(".json")]), 20)
    same(len([f for f in left if f.endswith(".events")]), 20)
    assert record in left and "mine.txt" in left, left


def killed(p):
    job = p.begin(*SLEEP)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    last = time.time() - 7200  # nobody looked since
    for file in os.listdir(p.run):
        os.utime(os.path.join(p.run, file), (last, last))
    since = time.strftime("%H:%M", time.localtime(last))
    for _ in range(2):  # found, and found again
        code, said = p.ctl("status")
        same((code, said.count("its crun was killed")), (0, 1))
        matches(said, f"sleep +killed +at {since} or later +its crun")  # no RAN FOR
    told, = p.jobs("killed")
    same({told[key] for key in ("epoch", "node_count", "spare_count", "worker_count", "restarts",
                                "max_restarts", "exit_code", "ended", "state_ms")}, {None})
    matches(p.ctl("events", "sleep")[1], "formed")
    same(os.listdir(p.run), ["ended"])


def stopped(p):
    """Ctrl-Z suspends a crun: crunctl says so at once, and what resumes it."""
    hung = [p.begin(*SLEEP) for _ in range(2)]
    lively = p.begin(*sh("sleep 1000; :"))
    for job in hung:
        os.kill(job.pid, signal.SIGSTOP)
    code, said = p.ctl("status", "--timeout=1000")
    stop_code, stop_said = p.ctl("stop", "--timeout=1000", str(hung[0].pid))
    for job in hung:
        os.kill(job.pid, signal.SIGCONT)
    same((code, stop_code), (0, 69))
    same(len(re.findall("^sleep +suspended +pid", said, re.M)), 2)
    for job in hung:
        matches(said, f'"sleep" is suspended: fg in its shell, or kill -CONT {job.pid}')
    matches(stop_said, f"is suspended: .*kill -CONT {hung[0].pid}")
    matches(said, "sh +running")
    for job in [*hung, lively]:
        p.stop(job)


def many(p):
    jobs = [p.start(CRUN, *SLEEP, stdin=subprocess.DEVNULL) for _ in range(20)]
    until(lambda: len(p.jobs()) == 20, lambda: f"20 jobs: {len(p.jobs())}")
    took = []
    for _ in range(5):
        begun = time.monotonic()
        same(p.ctl("status")[0], 0)
        took.append(time.monotonic() - begun)
    print(f"status of 20 jobs: {min(took) * 1000:.1f} ms")
    for job in jobs:
        job.terminate()
    for job in jobs:
        p.end(job, 143)


def a_vanished_socket_comes_back(p):
    job = p.begin(*SLEEP)
    name = os.path.join(p.run, f"{job.pid}.sock")
    os.rename(p.run, os.path.join(p.path, "aside"))  # as a logout removes it
    until(lambda: os.path.exists(name), "a new socket")
    until(lambda: len(p.jobs()) == 1, "its record, which is written after the socket is there")
    p.stop(job)


def a_flood_harms_nothing(p):
    """Connections that say nothing, or nonsense, are bounded and give way."""
    job = p.begin(*SLEEP)
    with contextlib.ExitStack() as stack:
        for i in range(200):
            s = stack.enter_context(socket.socket(socket.AF_UNIX))
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                s.connect(os.path.join(p.run, f"{job.pid}.sock"))
                s.send((b"", b"CRUN\r\n\x1a\n", b"GET / HTTP/1.0\r\n\r\n")[i % 3])
        until(lambda: len(p.jobs()) == 1, "a status beside a flood")
        assert len(os.listdir(f"/proc/{job.pid}/fd")) < 150
    p.stop(job)


def two_nodes(p):
    """Also by the node that does not host the rendezvous; one job is not shown twice."""
    key = os.path.join(p.path, "key")
    same(p.ctl("keygen", key)[0], 0)
    other = {**p.env, "CRUN_RUNTIME_DIR": os.path.join(p.path, "other")}
    for flags in ((), ("--key-file", key)):
        endpoint = f"127.0.0.1:{free_port()}"
        nodes = [p.start(CRUN, *flags, "--nnodes=2", f"--node-rank={rank}",
                         f"--rdzv-endpoint={endpoint}", *SLEEP, env=env,
                         stdin=subprocess.DEVNULL)
                 for rank, env in ((0, p.env), (1, other))]
        for env in (p.env, other):
            until(lambda env=env: "2 workers on 2 nodes" in p.ctl("status", env=env)[1],
                  "a job of two nodes")
        same(p.ctl("stacks", "sleep", "0", env=other)[0], 0)
        matches(p.ctl("events", "sleep", env=other)[1], "epoch 1 formed: 2 nodes")
        same(p.ctl("stop", "--now", "sleep", env=other), (0, "sleep: stopping\n"))
        for node in nodes:
            p.end(node, 143)
        matches(p.ctl("status", "sleep", env=other)[1], "stopped (.|\\n)*by crunctl")
        matches(p.ctl("events", "sleep", env=other)[1], "formed(.|\n)*done")


def a_job_that_waits(p):
    endpoint = f"127.0.0.1:{free_port()}"
    host = p.begin("--nnodes=2", "--node-rank=0", f"--rdzv-endpoint={endpoint}", *SLEEP)
    matches(p.ctl("status")[1], "sleep +(forming|waiting)")
    second = p.begin("--nnodes=2", "--node-rank=1", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
                     "true")
    code, said = p.ctl("status", "true")
    same(code, 1)
    matches(said, "waits for its rendezvous")
    second.send_signal(signal.SIGTERM)
    p.end(second, 143)
    matches(p.ctl("status", "true")[1], "not started")
    p.stop(host)


def with_a_crund(p):
    """Its jobs are asked for through a crun of theirs, or at its port by their names."""
    endpoint = f"127.0.0.1:{free_port()}"
    daemon = p.start(CRUND, "--listen", endpoint, stdin=subprocess.DEVNULL)
    # else a node hosts the rendezvous there
    until(lambda: p.ctl("-e", endpoint, "status")[0] == 0, "the crund")
    nodes = [p.start(CRUN, "--nnodes=2", "--rdzv-id=exp", f"--rdzv-endpoint={endpoint}", *SLEEP,
                     stdin=subprocess.DEVNULL) for _ in range(2)]
    until(lambda: "2 workers on 2 nodes" in p.ctl("status")[1], lambda: p.ctl("status"))
    same(len(p.jobs()), 1)
    matches(p.ctl("-e", endpoint, "status", "exp")[1], "exp +running")
    same(p.ctl("stop", "--now", "exp"), (0, "exp: stopping\n"))
    for node in nodes:
        p.end(node, 143)
    daemon.terminate()
    p.end(daemon, 0)


def nodes_of_one_machine_are_one_job(p):
    endpoint = f"127.0.0.1:{free_port()}"
    nodes = [p.start(CRUN, "--nnodes=2", f"--rdzv-endpoint={endpoint}", *SLEEP,
                     stdin=subprocess.DEVNULL) for _ in range(2)]
    until(lambda: "2 workers on 2 nodes" in p.ctl("status")[1], "a job of two nodes")
    same(len(p.jobs()), 1)
    code, said = p.ctl("drain", "sleep", "0")
    matches(said, "fewer than 2 nodes would remain")
    same(p.ctl("stop", "--now"), (0, "sleep: stopping\n"))
    for node in nodes:
        p.end(node, 143)


def a_drained_node_is_told_who_asked(p):
    endpoint = f"127.0.0.1:{free_port()}"
    nodes = [p.start(CRUN, "--nnodes=1:2", f"--node-rank={rank}", "--rdzv-conf=last_call_timeout=5",
                     f"--rdzv-endpoint={endpoint}", *SLEEP, stdin=subprocess.DEVNULL)
             for rank in range(2)]
    until(lambda: "2 workers on 2 nodes" in p.ctl("status")[1], "a job of two nodes")
    same(p.ctl("drain", "sleep", "1")[0], 0)
    p.end(nodes[1], 0, "this node has left the job: crunctl drain")
    same(p.ctl("stop", "--now"), (0, "sleep: stopping\n"))
    p.end(nodes[0], 143)


def on_hosts(p):
    """The launcher's socket leads to the job, also where that listens on no port."""
    rsh = p.file("rsh", "#!/bin/sh\n"
                 'while :; do case $1 in -o | -l | -p) shift 2 ;; -*) shift ;; *) break ;; esac; done\n'
                 "export CRUN_RUNTIME_DIR=$CRUN_TEST_RUN-$1; shift; exec sh -c \"$*\"\n")
    env = {**p.env, "CRUN_TEST_RUN": p.run}
    for hosts, count in (("a", 1), ("a,b", 2)):
        launcher = p.start(CRUN, "-H", hosts, f"--rsh={rsh}", "--nproc-per-node=1", *SLEEP,
                           stdin=subprocess.DEVNULL, env=env)
        until(lambda count=count: f"on {count} node" in p.ctl("status", "sleep")[1],
              lambda: p.ctl("status"))
        same(os.listdir(p.run + "-a") != [], True)
        matches(p.ctl("events", str(launcher.pid))[1], "epoch 1 formed")
        same(p.ctl("stop", "--now"), (0, "sleep: stopping\n"))
        p.end(launcher, 143)
        matches(p.ctl("status")[1], "sleep +stopped")


def of_another_user(p):
    """Nothing of this user's is shown to others; what they plant is neither used nor removed."""
    if os.geteuid() != 0:
        return
    job = p.begin(*SLEEP)
    os.chmod(p.path, 0o755)
    os.chmod(p.run, 0o755)  # even then
    for command in (["status"], ["stop", str(job.pid)]):
        said = subprocess.run([CRUNCTL, *command], env=p.env, user=STRANGER, group=STRANGER,
                              extra_groups=[], stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.STDOUT).stdout.decode()
        assert "running" not in said, said
    with socket.socket(socket.AF_UNIX) as s:  # with the mode gone, the kernel's word is left
        os.chmod(os.path.join(p.run, f"{job.pid}.sock"), 0o777)
        pid = os.fork()
        if pid == 0:
            try:
                os.setuid(STRANGER)
                s.connect(os.path.join(p.run, f"{job.pid}.sock"))
                s.send(b"CRUN\r\n\x1a\n" + b"\0" * 8)
                os._exit(0 if s.recv(1) == b"" else 1)
            except ConnectionResetError:
                os._exit(0)
            finally:
                os._exit(2)
        same(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
    os.chmod(p.run, 0o700)
    p.stop(job)
    planted = os.path.join(p.path, "planted")
    os.mkdir(planted, 0o700)
    os.chown(planted, STRANGER, STRANGER)
    env = {**p.env, "CRUN_RUNTIME_DIR": planted}
    p.crun(["sleep", "0.2"], 0, "crunctl will not find this job", env=env)
    same(os.listdir(planted), [])
    same(p.ctl("status", env=env),
         (0, f"crunctl: {planted} is not a folder of yours alone: no crun can be found by it; "
             "set CRUN_RUNTIME_DIR for crun and crunctl\nno jobs\n"))


STEERS = "\x1b[2J\x1b]0;x\a\x9b31m\u202e\r\n$(touch pwned)`id`'\""


def plant(folder, name, record=None, events=None, sock=None):
    """The files of a job that no crun has written."""
    os.makedirs(folder, 0o700, exist_ok=True)
    if record is not None:
        with open(f"{folder}/{name}.json", "w") as f:
            f.write(record if isinstance(record, str) else json.dumps(record))
    if events is not None:
        with open(f"{folder}/{name}.events", "w") as f:
            f.writelines(json.dumps(event) + "\n" for event in events)
    if sock is not None:
        sock.bind(f"{folder}/{name}.sock")
        sock.listen(16)


def steers(text):
    return [c for c in text if c not in "\n\t" and (unicodedata.category(c) in ("Cc", "Cs") or
                                                   c == "\u202e")]


def planted_records(p):
    """Whatever a record says, nothing of it steers a terminal or breaks crunctl."""
    ended, huge = f"{p.run}/ended", 1e300
    odd = {"run_id": STEERS, "name": STEERS, "program": STEERS, "log_dir": STEERS,
           "instance": STEERS, "rendezvous": STEERS, "report": STEERS, "pid": huge,
           "started_ms": huge, "nodes": huge, "workers": -huge,
           "result": {"state": STEERS, "reason": STEERS, "text": STEERS, "exit_code": huge,
                      "ended_ms": huge, "restarts": huge, "epoch": huge, "step": huge}}
    event = {"number": 1, "time_ms": 1, "job": STEERS, "epoch": 1, "kind": STEERS,
             "host": STEERS, "text": STEERS}
    plain = {**odd, "name": "plain", "run_id": "plain", "pid": 7, "nodes": 1e12}
    os.mkdir(p.run, 0o700)
    plant(ended, "17-1", odd)
    plant(ended, "17-2", {**odd, "pid": 1e14})
    plant(ended, "17-3", plain, [event, {**event, "number": huge, "time_ms": huge,
                                         "epoch": huge}, 7, []])
    plant(p.run, "4", {**plain, "name": STEERS, "run_id": "y",
                        "pid": os.getpid(), "result": None})
    with socket.socket(socket.AF_UNIX) as s:
        plant(p.run, "5", {**plain, "name": STEERS, "run_id": "x", "instance": "",
                              "pid": 5, "result": 7}, sock=s)
        plant(p.run, "6", "[" * 2000)
        plant(p.run, "7", "x" * (1 << 20))
        os.mkfifo(f"{p.run}/8.json")
        os.symlink("/etc/passwd", f"{p.run}/9.json")
        os.mkdir(f"{p.run}/10.json")
        for words in (["status"], ["status", "--json"], ["status", "plain"], ["events", "plain"],
                      ["status", "--json", "plain"], ["events", "--json", "plain"],
                      ["logs", "plain"], ["stop"]):
            code, said = p.ctl(*words)
            same((words, steers(said), "runtime error" in said, code in (0, 1, 2, 69)),
                 (words, [], False, True))
            matches(said, 'plain|silent|several|"job"')
    for i in range(300):  # 128 KB, and 4 MB once they are parsed
        plant(ended, f"18-{i}", '{"pid": 1, "x": [' + ",".join(["0"] * 64000) + "]}")
    pid = os.posix_spawn(CRUNCTL, [CRUNCTL, "status"], p.env,
                         file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    same((status, usage.ru_maxrss < 300 << 10), (0, True))


def serve_nonsense(listener, says):
    """A process that answers each crunctl so; None: not at all."""
    pid = os.fork()
    while pid == 0:
        with contextlib.suppress(OSError):
            s, _ = listener.accept()
            data = s.recv(len(PREFACE)) and s.recv(65536)
            while data and says:
                s.sendall(says(HEADER.unpack_from(data)))
                data = s.recv(65536)
            s.recv(1)
    return pid


def endless_pages(header):
    if header[1] == HELLO:
        return frame(WELCOME, {"version": 3, "software": "crund"}, header[3])
    if header[1] == SHOW_LOGS:
        return (frame(RANK_LOGS, {"kind": "missing", "host": "a"}, header[3]) +
                frame(END_OF_LIST, {"next": "1"}, header[3]))
    return frame(END_OF_LIST, {"next": "1"}, header[3])


def planted_sockets(p):
    """A process that says nothing, nonsense or too much keeps crunctl for a while only."""
    says = [None, lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", lambda _: os.urandom(4096),
            lambda _: HEADER.pack(0xffffffff, WELCOME, 0, 1, 0, bytes(16)),
            endless_pages]
    with contextlib.ExitStack() as stack:
        for i, words in enumerate(says):
            s = stack.enter_context(socket.socket(socket.AF_UNIX))
            plant(p.run, str(i + 1), {"pid": i + 1, "name": f"job{i}", "run_id": f"job{i}"}, sock=s)
            stack.callback(end_child, serve_nonsense(s, words))
        code, said = p.ctl("status", "job4")
        same(code, 69)
        matches(said, "its list does not end")
        matches(p.ctl("logs", "--stdout", "job4")[1], "a does not show its output")
        code, said = p.ctl("status")
        same((code, len(re.findall("silent +pid", said))), (0, len(says)))


def planted_doubles(p):
    """To root, what a user writes into a record hides no job of another user, nor is executed."""
    if os.geteuid() != 0:
        return
    planted, name = "/tmp/crun-61001", os.path.basename(p.path)
    env = {**p.env, "CRUN_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": p.path}  # empty: not set
    p.run = os.path.join(p.path, "crun")
    job = p.begin(f"--rdzv-id={name}", *SLEEP, env=env)
    log_dir = os.path.join(p.path, "logs")
    os.makedirs(f"{log_dir}/attempt_0/0")
    p.file("logs/attempt_0/0/stdout.log", "of root\n", 0o600)
    try:
        with socket.socket(socket.AF_UNIX) as s:
            plant(planted, "5", {"pid": job.pid, "name": name, "run_id": name, "host": True,
                                 "launcher": True, "started_ms": 9e14, "reach_host": "h1",
                                 "reach_rsh": f"touch {p.path}/executed",
                                 "reach_command": "true\n"}, sock=s)
            plant(f"{planted}/ended", "7-7", {"pid": 7, "name": f"{name}.ended",
                                              "run_id": "x", "log_dir": log_dir})
            for entry in ("", "5.json", "5.sock", "ended", "ended/7-7.json"):
                os.chown(f"{planted}/{entry}", 61001, 61001)
            running = [j["pid"] for j in json.loads(p.ctl("status", "--json", env=env)[1])
                       if j["name"] == name and j["state"] == "running"]
            same((running, os.path.exists(f"{p.path}/executed")), ([job.pid], False))
            matches(p.ctl("stop", name, env=env)[1], "several jobs")
            code, said = p.ctl("logs", f"{name}.ended", env=env)
            same((code != 0, "of root" in said), (True, False))
            with socket.socket(socket.AF_UNIX) as silent:
                plant(planted, "6", {"pid": 1, "name": f"{name}.silent", "run_id": "y"}, sock=silent)
                os.chown(f"{planted}/6.json", 61001, 61001)
                os.chown(f"{planted}/6.sock", 61001, 61001)
                os.seteuid(61001)  # whose socket it is when it begins to listen
                silent.listen(16)
                os.seteuid(0)
                matches(p.ctl("events", f"{name}.silent", env=env)[1], "did not answer in time")
            for end in ("json", "sock"):
                os.unlink(f"{planted}/6.{end}")
            same(p.ctl("stop", "--now", str(job.pid), env=env), (0, f"{name}: stopping\n"))
            p.end(job, 143)
            same(sorted(os.listdir(planted)), ["5.json", "5.sock", "ended"])
        p.ctl("status", env=env)  # its socket refuses now
        same(sorted(os.listdir(planted)), ["5.json", "5.sock", "ended"])
    finally:
        shutil.rmtree(planted)


def end_child(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


TESTS = [with_place(Here, test) for test in (
    one_node,
    of_several_one_is_named,
    ended_jobs_are_kept,
    only_the_newest_are_kept,
    killed,
    the_clock_is_set_back,
    stopped,
    many,
    a_vanished_socket_comes_back,
    a_flood_harms_nothing,
    two_nodes,
    a_job_that_waits,
    with_a_crund,
    nodes_of_one_machine_are_one_job,
    a_drained_node_is_told_who_asked,
    on_hosts,
    of_another_user,
    planted_records,
    planted_sockets,
    planted_doubles,
)]

if __name__ == "__main__":
    run(TESTS)
