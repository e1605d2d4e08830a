#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 11 s
# no root: nothing may be left behind without a cgroup either
"""
crun as a person and a machine meet it: exit codes, Ctrl-C and other signals, standard
input, what a worker finds around itself, restarts. After
each check nothing of it lives, and no file or cgroup of it is left.
"""
import concurrent.futures
import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from launch import CRUN, CRUNCTL, DUTIFUL, TIMEOUT, Place, Terminal, sh  # noqa: E402
from process import (  # noqa: E402
    PROGRAMS, SANITIZED, free_port, read, same, stat_of, until)


# -- exit codes -----------------------------------------------------------------------


def exit_codes(p):
    p.crun(["true"], 0)
    p.crun(sh("exit 7"), 7, "exit code 7, as rank 0's")
    p.crun(sh("kill -SEGV $$"), 139, "killed by SIGSEGV")
    p.crun(["--max-restarts=2", *sh("exit 4")], 4, "restart 2 of 2", "2 of 2 used")
    p.crun([], 2, "a program is missing (crun -h)")
    p.crun(["-v", "--log-dir", "train.py"], 2, 'missing: --log-dir took "train.py" (crun -h)')
    p.crun(["--log-dir=logs"], 2, "a program is missing (crun -h)")
    p.crun(["--nproc", "1", "true", "--no-such"], 0)  # a unique prefix
    p.crun(["--no-such", "true"], 2, "unknown flag --no-such")


def programs_that_cannot_be_executed(p):
    again = "--max-restarts=3"
    p.crun([again, "./none"], 2, "./none: no such file")
    p.file("plain", "#!/bin/sh\n", mode=0o644)
    p.crun([again, "./plain"], 2, "not executable")
    p.file("garbage", "garbage")
    p.crun([again, "./garbage"], 1, "neither a program", "0 of 3 used")
    p.file("lost", "#!/no/interpreter -u\n")
    p.crun([again, "./lost"], 127, "crun: ./lost asks for /no/interpreter: No such file")
    p.file("windows", "#!/bin/sh\r\necho $0\r\n")
    p.crun([again, "./windows"], 126, 'has Windows line ends: its first line asks for "/bin/sh\\r"')
    p.file("env", "#!/usr/bin/env python3\r\nprint()\r\n")
    p.crun([again, "./env"], 126, 'asks for "/usr/bin/env python3\\r"')
    p.file("fine", "#! /bin/sh -e\n:\r\n")
    p.crun([again, "./fine"], 127, "./fine: 2: ")


# -- signals --------------------------------------------------------------------------

DEAF = "trap '' INT TERM HUP QUIT; echo ready; while :; do sleep 0.02; done"


def signals_end_the_job(p):
    for signo, name in ((signal.SIGINT, "INT"), (signal.SIGTERM, "TERM"),
                        (signal.SIGHUP, "HUP"), (signal.SIGQUIT, "QUIT")):
        with open(os.path.join(p.path, name), "wb") as out:
            c = p.start(CRUN, *sh(DUTIFUL), stdin=subprocess.DEVNULL, stdout=out)
        until(lambda: b"ready" in read(out.name), "ready", TIMEOUT)
        c.send_signal(signo)
        p.end(c, 128 + signo)
        if f"got {name}".encode() not in read(out.name):
            raise AssertionError(f"the worker did not get {name}: {read(out.name)}")


def the_deaf_are_killed_after_the_grace(p):
    c = p.start(CRUN, "--shutdown-timeout=0.2", *sh(DEAF), stdin=subprocess.DEVNULL)
    same(c.stdout.readline(), b"ready\n")
    c.send_signal(signal.SIGTERM)
    p.end(c, 143)


def the_stopped_are_ended(p):
    c = p.start(CRUN, "--shutdown-timeout=0.2", *sh("echo $$; kill -STOP $$"),
                stdin=subprocess.DEVNULL)
    pid = int(c.stdout.readline())
    until(lambda: stat_of(pid).state == "T", "stopped", TIMEOUT)
    c.send_signal(signal.SIGTERM)
    p.end(c, 143)


def a_second_term_takes_no_grace_away(p):
    c = p.start(CRUN, *sh("trap 'echo got TERM; until [ -e go ]; do sleep 0.02; done;"
                          " echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done"),
                stdin=subprocess.DEVNULL)
    same(c.stdout.readline(), b"ready\n")
    c.send_signal(signal.SIGTERM)
    same(c.stdout.readline(), b"got TERM\n")
    c.send_signal(signal.SIGTERM)
    p.file("go")
    same(c.stdout.readline(), b"saved\n")
    p.end(c, 143)


def ctrl_c_once(p):
    t = Terminal(p, "--nproc-per-node=2", *sh(DUTIFUL))
    t.wait_for(b"ready")
    t.wait_for(b"ready\r\nready")
    t.type(b"\x03")
    t.end(130)
    if b"stopping 2 workers" not in t.said or b"got INT" not in t.said:
        raise AssertionError(t.said)


class Bash(Terminal):
    program = ("bash", "--norc")


def ctrl_c_ends_a_loop(p):
    """A shell goes on with its loop unless the program that it waits for dies of SIGINT."""
    loop = f"for i in 1 2 3; do echo run-$i; {CRUN} sh -c 'echo up; exec sleep 1000'; done"
    script = Bash(p, "-c", loop + "; echo over")
    typed = Bash(p, "-i")
    typed.type(loop.encode() + b"\n")
    for t in script, typed:
        t.wait_for(b"up\r\n")
        t.type(b"\x03")
    typed.wait_for(b"^C")
    typed.type(b"echo code-$?\n")
    typed.wait_for(b"code-130")
    typed.type(b"exit 7\n")
    typed.end(7)
    script.end(130)
    same([b"run-2" in t.said or b"over\r" in t.said for t in (script, typed)], [False, False])


def ignored_ctrl_c(p):
    """As in the background of a script: whoever sends it sees an exit code."""
    c = p.start("sh", "-c", "trap '' INT; exec \"$@\"", "sh", CRUN,
                *sh("echo ready; exec sleep 1000"), stdin=subprocess.DEVNULL)
    same(c.stdout.readline(), b"ready\n")
    c.send_signal(signal.SIGINT)
    c.communicate()
    same(c.returncode, 130)


def ctrl_c_twice(p):
    t = Terminal(p, *sh(DEAF))
    t.wait_for(b"ready")
    t.type(b"\x03")
    t.wait_for(b"Ctrl-C again to kill")
    t.type(b"\x03")
    t.end(130)


def the_standing_of_the_job_is_shown(p):
    writer = os.path.join(PROGRAMS, "page_writer.py")
    steps = [writer, "--until", "100000", "--step", "0.01"]
    t = Terminal(p, "--nproc-per-node=2", "python3", *steps)
    t.wait_for(b"crun: 1 node, 2 workers \xc2\xb7 step ")
    t.wait_for(b" steps/s")
    t.type(b"\x03")
    t.end(130)
    c = p.start(CRUN, "python3", writer, "--until", "200", "--step", "0.01",
                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if b"step" in c.stderr.read():
        raise AssertionError("a standing line where there is no terminal")
    p.end(c, 0)


def a_dumb_terminal_gets_lines_alone(p):
    t = Terminal(p, "--nproc-per-node=2", *sh(DUTIFUL), term="dumb")
    t.wait_for(b"ready\r\nready")
    t.type(b"\x03")
    t.end(130)
    if b"stopping 2 workers, 25 s to finish\r\n" not in t.said or b"\033" in t.said:
        raise AssertionError(t.said)


def ctrl_z_without_a_shell_does_nothing(p):
    t = Terminal(p, *sh(DUTIFUL))
    t.wait_for(b"ready")
    t.type(b"\x1a")
    t.type(b"\x03")
    t.end(130)


def a_terminal_that_closes(p):
    t = Terminal(p, *sh(DUTIFUL))
    t.wait_for(b"ready")
    t.hang_up()
    t.end(129)


def nohup(p):
    c = p.start("nohup", CRUN, *sh("echo ready; read x; exit 5"), stdin=subprocess.PIPE)
    same(c.stdout.readline(), b"ready\n")
    c.send_signal(signal.SIGHUP)
    c.stdin.write(b"go\n")
    p.end(c, 5)


def other_signals_as_asked(p):
    """As torchrun: those of the list are passed on and end the job; others kill crun."""
    script = "trap 'echo got USR1; exit 0' USR1; echo ready; while :; do sleep 0.02; done"
    c = p.start(CRUN, "--signals-to-handle=SIGUSR1", *sh(script),
                stdin=subprocess.DEVNULL)
    same(c.stdout.readline(), b"ready\n")
    c.send_signal(signal.SIGUSR1)
    p.end(c, 128 + signal.SIGUSR1, "got USR1", "stopping 1 worker")


# -- what workers leave behind --------------------------------------------------------


def daemons_are_gone(p):
    daemon = "setsid sh -c 'exec <&- >&- 2>&-; sleep 1000 & sleep 1000' & "
    p.crun(["--shutdown-timeout=0.3", "--nproc-per-node=2", *sh(daemon + "exit 0")], 0)
    p.nothing_is_left()
    p.crun(["--failure-grace=0.3", *sh(daemon + "sleep 0.01; exit 3")], 3)


def daemons_that_obey_cost_no_grace(p):
    # the shell is a daemon; what it waits for comes up when the shell has ended
    p.crun(["--shutdown-timeout=2", *sh("setsid sh -c 'sleep 1000 <&- >&- 2>&-; :' <&- >&- 2>&- & exit 0")],
           0)


def what_a_worker_leaves(p):
    """It goes on for a while, and is then ended, which a line and an event tell."""
    events = p.file("events", "")
    begin = [f"--events-file={events}", "--nproc-per-node=2", "--shutdown-timeout=20"]
    script = f"exec >&- 2>&-; until [ -e go ]; do sleep 0.02; done; touch done.$RANK"
    c = p.start(CRUN, *begin, *sh(f"({script}) & exit 0"), stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE)
    p.file("go")
    same((c.communicate()[1], c.returncode), (b"", 0))
    same([os.path.exists(f"{p.path}/done.{i}") for i in (0, 1)], [True, True])
    line = "rank 1 left 1 process (sleep): ended, as it still ran after 0.2 s"
    p.crun([begin[0], "--nproc-per-node=2", "--shutdown-timeout=1",
            *sh("[ $RANK = 0 ] || sleep 1000 >/dev/null 2>&1 & exit 0")], 0, f"crun: {line}")
    same([json.loads(text)["text"] for text in read(events).decode().splitlines()
          if '"leftover"' in text], [line])


def a_guard_that_hangs(p):
    """By crun's words, as with pkill -f, it is not found."""
    c = p.start(CRUN, "--shutdown-timeout=0.2", *sh("echo ready; exec sleep 1000"),
                stdin=subprocess.DEVNULL)
    same(c.stdout.readline(), b"ready\n")
    guard = [int(pid) for pid in p.living()
             if read(f"/proc/{pid}/comm") == b"crun-guard\n"]
    same([read(f"/proc/{pid}/cmdline").strip(b"\0") for pid in guard], [b"crun-guard"])
    os.kill(guard[0], signal.SIGSTOP)
    c.send_signal(signal.SIGTERM)
    p.end(c, 143, "ending their guard")


def pipes_that_are_held(p):
    p.crun(["--shutdown-timeout=5", *sh("setsid sleep 1000 & echo said")], 0, "said")


# -- standard input -------------------------------------------------------------------


def standard_input(p):
    for flags, out in (([], "x\n"), (["--nproc-per-node=2"], "x\n"),
                       (["--stdin=0"], "x\n"), (["--stdin=none"], ""),
                       (["--nproc-per-node=2", "--stdin=all"], "x\n")):
        given = p.file("given", "x\n")
        with open(given) as f:
            same(p.crun([*flags, "cat"], 0, stdin=f), out)


def standard_input_after_a_restart(p):
    """A file is read again; of a pipe, the rest, with a line."""
    program = sh("[ $CRUN_EPOCH = 1 ] && { head -n 1; exit 1; }; wc -l; wc -l")
    line = b"crun: rank 0 goes on reading standard input where the last attempt stopped"
    lines = "x\n" * 9999

    def end(stdin, text=None):
        c = p.start(CRUN, "--max-restarts=1", *program, stdin=stdin, stderr=subprocess.PIPE)
        out, err = c.communicate(text)
        same((c.returncode, out.split()[0]), (0, b"x"))
        return out.split()[1:], err.count(line)
    with open(p.file("lines", "skipped\n" + lines)) as f:
        os.lseek(f.fileno(), len("skipped\n"), os.SEEK_SET)
        same(end(f), ([b"9999", b"0"], 0))
    (rest, _), told = end(subprocess.PIPE, lines.encode())
    same((int(rest) < 9999, told), (True, 1))


# -- a job of two nodes, steered ------------------------------------------------------


def two_nodes(p, nnodes, *words):
    port = free_port()
    pair = [p.start(CRUN, f"--nnodes={nnodes}", f"--node_rank={i}", "--master_addr=127.0.0.1",
                    f"--master_port={port}", "--rdzv-id=pair", *words,
                    stdin=subprocess.DEVNULL) for i in (0, 1)]
    for c in pair:
        same(c.stdout.readline(), b"ready\n")
    return f"127.0.0.1:{port}", pair


def steered_from_outside(p):
    endpoint, pair = two_nodes(p, "2", *sh(DUTIFUL))
    said = p.end(p.start(CRUNCTL, "status", "-e", endpoint), 0)
    for text in ("pair", "running", "2 workers on 2 nodes"):
        if text not in said:
            raise AssertionError(f"{text!r} is not in:\n{said}")
    if "cgroup" not in said and "session+warden" not in said:
        raise AssertionError(f"how the workers are held is not in:\n{said}")
    p.end(p.start(CRUNCTL, "stop", "-e", endpoint), 0)
    for c in pair:
        p.end(c, 143, "formed: 2 nodes, 2 workers", "stopping 2 workers on 2 nodes")


def builds_that_differ_are_told(p):
    """A copy whose commit is another one works with this one."""
    port, words = free_port(), sh("echo ready; while [ ! -e go ]; do sleep 0.05; done")
    program = read(CRUN)
    # the longest: other messages have the version alone
    own = max(re.findall(rb"crun \d+\.\d+\.\d+(?: \([0-9a-f]+\))?\0", program), key=len)
    other = re.sub(rb"[0-9a-f]{3}(?=\)?\0)|\d(?=\0)", lambda m: m[0].translate(
        bytes.maketrans(b"0123456789abcdef", b"123456789abcdef0")), own)
    patched, crun = p.file("patched", ""), p.file("other-crun", "", mode=0o755)
    with open(patched, "wb") as f:
        f.write(program.replace(own, other))
    # a child that another thread forks would keep a program that is open here busy
    subprocess.run(["cp", patched, crun], check=True)
    pair = [p.start(program, "--nnodes=2", f"--node_rank={i}", "--master_addr=127.0.0.1",
                    f"--master_port={port}", "--rdzv-id=pair", *words, stdin=subprocess.DEVNULL)
            for i, program in enumerate((CRUN, crun))]
    for c in pair:
        same(c.stdout.readline(), b"ready\n")
    said = p.end(p.start(CRUNCTL, "status", "-e", f"127.0.0.1:{port}"), 0)
    line = "the builds of its nodes differ: "
    if line not in said or other.decode()[:-1] not in said or own.decode()[:-1] not in said:
        raise AssertionError(said)
    p.file("go", "")
    for c in pair:
        p.end(c, 0, "crun: " + line)


def a_rendezvous_that_is_not_there(p):
    port = free_port()
    lone = p.start(CRUN, "--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1",
                   f"--master_port={port}", "true", stdin=subprocess.DEVNULL)
    said = lone.stderr.readline().decode()
    if not said.startswith(f"crun: waiting for the rendezvous (127.0.0.1:{port}: ") \
            or "refused" not in said or " s left" not in said:
        raise AssertionError(said)
    p.crun(["--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1",
            f"--master_port={port}", "true"], 0)
    p.end(lone, 0, "formed: 2 nodes")


def a_wait_for_more_nodes_than_needed(p):
    lone = p.start(CRUN, "--nnodes=1:4", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
                   "--rdzv-conf=last_call_timeout=9", "true", stdin=subprocess.DEVNULL)
    said = lone.stderr.readline().decode() + lone.stderr.readline().decode()
    if not re.search(r"1 of 4 joined · starts in [0-9] s\ncrun: rendezvous 127.0.0.1:\d+ is "
                     r"loopback: other machines cannot connect\n", said):
        raise AssertionError(said)
    p.end(lone, 0, "formed: 1 node, 1 worker,")


def a_node_that_fails_has_no_last_words(p):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        c = p.start(CRUN, f"--master-port={taken.getsockname()[1]}", "true",
                    stdin=subprocess.DEVNULL)
        out, err = c.communicate(timeout=TIMEOUT)
        same((c.returncode, out), (1, b""))
        if b"is in use by" not in err or b"it said" in err:
            raise AssertionError(err)


# -- a worker's world -----------------------------------------------------------------


def a_workers_world(p):
    show = ("grep -E 'Sig(Ign|Blk)' /proc/self/status; ls /proc/self/fd; umask; "
            "ulimit -Sn; ulimit -Hn; pwd; ps -o sid= -p $$ | grep -qw $$ && echo own")

    def odd():
        os.umask(0o31)
        resource.setrlimit(resource.RLIMIT_NOFILE, (333, 444))
    got = p.crun(sh(show), 0, preexec_fn=odd, restore_signals=True).split()
    # 32 and 33 belong to glibc: a process started by posix_spawn, as by make, ignores them
    got[3] = f"{int(got[3], 16) & ~(3 << 31):016x}"
    same(got, ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16, "0", "1", "2", "3", "0031",
               "333", "444", p.path, "own"])


def the_environment(p):
    for workers, omp in ((1, None), (2, "1")):
        env = {k: v for k, v in p.env.items() if k != "OMP_NUM_THREADS"}
        out = p.crun([f"--nproc-per-node={workers}", "--max-restarts=3", "--redirects=0",
                      *sh("[ $RANK != 0 ] || env")], 0, env=env)
        got = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        wanted = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(workers),
                  "LOCAL_WORLD_SIZE": str(workers), "GROUP_RANK": "0",
                  "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default", "ROLE_RANK": "0",
                  "ROLE_WORLD_SIZE": str(workers), "NODE_RANK": "0", "CRUN_EPOCH": "1",
                  "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "3",
                  "TORCHELASTIC_USE_AGENT_STORE": "True",
                  "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "OMP_NUM_THREADS": omp}
        same({k: got.get(k) for k in wanted}, wanted)


# -- reports and restarts -------------------------------------------------------------


def error_files(p):
    own = os.path.join(p.path, "own.json")
    for text in ('{"message":{"message":"Oops: both","extraInfo":{"py_callstack":'
                 '"Traceback\\n  Oops: both","timestamp":"1"}}}',
                 '{"message":"Oops: both","timestamp":1}'):
        given = p.file("given.json", text)
        p.crun([f"--log-dir={p.path}/logs",
                *sh(f"cat {given} > $TORCHELASTIC_ERROR_FILE; exit 9")], 9, "Oops: both",
               env=dict(p.env, TORCHELASTIC_ERROR_FILE=own))
        told = json.loads(read(own))["message"]
        same(told["message"], "Oops: both" if "extraInfo" in text else "exit code 9")
        same((told["extraInfo"]["py_callstack"][-10:], told["errorCode"]), ("Oops: both", 9))
    p.crun(sh("exit 3"), 3, "nothing on standard error")


def nothing_of_a_worker_steers_the_terminal(p):
    """ESC, BEL, DEL and U+009B, which some terminals take as ESC [."""
    events = os.path.join(p.path, "events")
    steer = r"\u001b[2J\u0007\u009b31m\u007f"
    given = p.file("given.json", '{"message":{"message":"Oops%s","extraInfo":{'
                   '"py_callstack":"Traceback\\n  at%s","timestamp":"1"}}}' %
                   (steer, steer))
    for script in (f"cat {given} > $TORCHELASTIC_ERROR_FILE; exit 9",
                   r"printf 'Oops \302\2331m\302\205 \033[2J\a' >&2; exit 9"):
        crun = p.start(CRUN, f"--log-dir={p.path}/logs", "--redirects=3",
                       f"--events-file={events}", *sh(script),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        shown = b"".join(crun.communicate(timeout=TIMEOUT)) + read(events)
        same((crun.returncode, b"Oops" in shown), (9, True))
        same(re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown.decode()), [])
    same(json.loads(read(events).splitlines()[1])["text"][-14:],
         "Oops" + json.loads(f'"{steer}"'))


def restarts_and_events(p):
    log = os.path.join(p.path, "events")
    out = p.crun(["--max-restarts=20", "--restart-backoff=0", f"--events-file={log}",
                  *sh("echo $TORCHELASTIC_RESTART_COUNT $CRUN_EPOCH; exit 1")], 1,
                 "restart 20 of 20")
    same(out, "".join(f"{i} {i + 1}\n" for i in range(21)))
    kinds = [json.loads(line)["kind"] for line in read(log).splitlines()]
    same((kinds.count("formed"), kinds.count("failed"), kinds[-1]), (21, 21, "done"))


def nothing_grows(p):
    """Descriptors and memory of crun after 350 restarts, by which time the
    rendezvous' list of events is full, and after 100 more."""
    hold = [os.path.join(p.path, n) for n in ("350", "450")]  # the restarts that wait
    for name in hold:
        os.mkfifo(name)
    c = p.start(CRUN, "--max-restarts=500", "--restart-backoff=0", *sh(
        "n=$TORCHELASTIC_RESTART_COUNT; [ ! -p $n ] || read x < $n; exit 1"),
        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    figures = []
    for name in hold:
        with open(name, "w") as f:  # waits for the reader
            figures.append((len(os.listdir(f"/proc/{c.pid}/fd")), next(
                int(line.split()[1]) for line in
                read(f"/proc/{c.pid}/smaps_rollup").decode().splitlines()
                if line.startswith("Pss_Anon") or line.startswith("Anonymous"))))
            f.write("go\n")
    (fds, kib), (fds_later, kib_later) = figures
    p.end(c, 1)
    if fds_later > fds + 4:  # some are on their way out when crun is looked at
        raise AssertionError(f"{fds} descriptors have become {fds_later}")
    if not SANITIZED and kib_later > kib + 200:
        raise AssertionError(f"{kib} KiB have become {kib_later}")


# The longest waits come first: they decide how long the test takes.
CHECKS = [
    a_wait_for_more_nodes_than_needed, a_rendezvous_that_is_not_there,
    the_standing_of_the_job_is_shown, a_guard_that_hangs,
    exit_codes, programs_that_cannot_be_executed, signals_end_the_job,
    the_deaf_are_killed_after_the_grace, the_stopped_are_ended,
    a_second_term_takes_no_grace_away, ctrl_c_once, ctrl_c_ends_a_loop, ignored_ctrl_c, ctrl_c_twice, other_signals_as_asked,
    a_dumb_terminal_gets_lines_alone, ctrl_z_without_a_shell_does_nothing,
    a_terminal_that_closes, nohup,
    what_a_worker_leaves, daemons_are_gone, daemons_that_obey_cost_no_grace, standard_input,
    standard_input_after_a_restart,
    steered_from_outside, builds_that_differ_are_told, a_node_that_fails_has_no_last_words,
    the_environment, error_files, nothing_of_a_worker_steers_the_terminal, nothing_grows,
]
# They measure time, or change the umask in a fork, which needs one thread.
CHECKS_ALONE = [pipes_that_are_held, restarts_and_events, a_workers_world]


def run(check):
    """Whether it passes; prints its failure and its seconds in one write."""
    said = ""
    began = time.monotonic()
    try:
        with contextlib.closing(Place()) as place:
            check(place)
            place.nothing_is_left()
    except (Exception, SystemExit) as e:
        said = f"FAILED: {check.__name__}: {type(e).__name__}: {e}\n"
    sys.stdout.write(f"{said}{check.__name__}: {time.monotonic() - began:.2f} s\n")
    sys.stdout.flush()
    return not said


def main():
    def wanted(checks):
        return [c for c in checks if not sys.argv[1:] or c.__name__ in sys.argv[1:]]

    with concurrent.futures.ThreadPoolExecutor(6) as pool:  # they mostly wait
        passed = list(pool.map(run, wanted(CHECKS)))
    passed += map(run, wanted(CHECKS_ALONE))
    return not all(passed)


if __name__ == "__main__":
    sys.exit(main())
