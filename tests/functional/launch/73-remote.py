#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 15 s
# sanitizers: no, 75-remote-hosts has the launcher do the same
"""One command starts the nodes of a job on several hosts. In the place of ssh stands a script that
executes the command here, as a user of its own home directory."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from launch import CRUN, CRUNCTL, TIMEOUT, Place, Terminal, with_place  # noqa: E402
from process import ROOT, lives, matches, read, run, same, slowdown, stat_of, until  # noqa: E402

# The hosts are h1, h2 and so on; others fail as real ones do. fakessh/HOST is the home of each.
FAKE = r'''#!/bin/sh
cd "$(dirname "$0")" || exit 255
for host; do case $host in -*|[A-Z]*=*) ;; *) break ;; esac; done
while [ "$1" != "$host" ]; do shift; done; shift
echo "$$ $host $*" >>calls
[ ! -e cut ] || { printf '\n@crun-end@\n{"result": {"sta'; exit 0; }
[ ! -e down ] || { echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }
case $host in
slow*) sleep 0.05 ;;
closed*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
key*) echo "$host: Permission denied (publickey)." >&2; exit 255 ;;
changed*) echo "Host key verification failed." >&2; exit 255 ;;
busy*) mkdir "$host.busy" 2>/dev/null && {
       echo "kex_exchange_identification: read: Connection reset by peer" >&2; exit 255; } ;;
hangs*) exec sleep 1000 ;;
chatty*) printf 'Welcome to %s!\n* no newline' "$host"; echo "a motd" >&2 ;;
csh*) exec tcsh -f -c "$*" ;;
fish*) exec fish -c "$*" ;;
esac
export HOME="$PWD/home.$host"; mkdir -p "$HOME"
unset XDG_CACHE_HOME XDG_STATE_HOME XDG_CONFIG_HOME
[ -z "$APART" ] || { export CRUN_RUNTIME_DIR="$PWD/run.$host"; mkdir -p -m 700 "$CRUN_RUNTIME_DIR"; }
exec sh -c "exec $*"
'''

# A host that speaks the frames, but not as a far side does: its name says how.
LIAR = r'''#!/usr/bin/env python3
import json, os, struct, sys
HELLO, LISTENING, EXITED = 64, 66, 70
host = sys.argv[-2]

def frame(kind, body=b""):
    return struct.pack("<IBI", len(body), kind, 0) + body

def hello(addresses):
    return frame(HELLO, json.dumps({"version": os.environ["CRUN_TEST_VERSION"], "channel": 1,
                                    "host": "liar", "addresses": addresses}).encode())

good, port = hello(["127.0.0.1"]), struct.pack("<H", 4711)
os.write(1, b"%crun-agent-1%\n" + {
    "twice": good + frame(HELLO, b"{}") + frame(LISTENING, port),
    "early": frame(LISTENING, port),
    "many": hello(["127.0.0.1"] * 17),
    "ended": good + frame(LISTENING, port) + frame(EXITED, b"\3"),
}[host])
while os.read(0, 65536):
    pass
'''

# A connection that stops after its first bytes, until the file "go" is there.
THIN = r'''#!/usr/bin/env python3
import os, time
passed = 0
while data := os.read(0, 4096):
    passed += len(data)
    while passed > 30000 and not os.path.exists("go"):
        time.sleep(0.02)
    os.write(1, data)
'''


def make_place():
    p = Place()
    p.rsh = p.file("fakessh", FAKE)
    p.env["XDG_CONFIG_HOME"] = f"{p.path}/config"
    return p


def on(p, hosts, *words):
    return ["--rsh", p.rsh, "-H", hosts, *words]


def calls(p):
    return read(f"{p.path}/calls").decode().splitlines()


def written(p, name, count):
    def look():
        lines = read(f"{p.path}/{name}").decode().split()
        return lines if len(lines) == count else None
    return until(look, f"{count} words in {name}", TIMEOUT)


def test_every_rank_runs_with_its_words(p):
    words = ["a b", "'\"", "$HOME", "\\", "*", "", "new\nline", "!x", "#"]
    out = p.crun(on(p, "h1:2,slow2:1,chatty3:1,csh4:1,fish5:1", "-x", "EXTRA=a 'b'",
                    "python3", "-c", "import os, sys; e = os.environ; sys.stdout.write('%s/%s %s %s %r %s %s\\n'"
                    " % (e['RANK'], e['WORLD_SIZE'], e['GROUP_RANK'], e['LOCAL_RANK'], sys.argv[1:],"
                    " e['EXTRA'], os.getcwd()))", *words), 0)
    ranks = [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 2, 0), (4, 3, 0), (5, 4, 0)]
    same(sorted(out.splitlines()), sorted(
        f"{rank}/6 {node} {local} {words!r} a 'b' {p.path}" for rank, node, local in ranks))
    # nothing but "sh" is on a command line
    same({line.split(" ", 2)[2] for line in calls(p)}, {"sh"})


def test_more_hosts_than_connections_at_a_time(p):
    out = p.crun(on(p, "h[1-40]", "sh", "-c", "echo $WORLD_SIZE"), 0)
    same(out, "40\n" * 40)


def test_one_host_is_a_job_of_one_node(p):
    same(p.crun(on(p, "h1", "--nproc-per-node=3", "sh", "-c", "echo $WORLD_SIZE"), 0), "3\n" * 3)


def test_standard_input_reaches_rank_0(p):
    path = p.file("input", "line\n" * 100000)
    with open(path) as f:
        same(p.crun(on(p, "h1:2,h2:2", "cat"), 0, stdin=f), "line\n" * 100000)
    made = p.start(CRUN, *on(p, "h1:2,h2:2", "cat"), stdin=subprocess.PIPE)
    out, _ = made.communicate(b"x" * 1000000, timeout=TIMEOUT)
    same((made.returncode, len(out)), (0, 1000000))


def test_streams_stay_apart(p):
    made = p.start(CRUN, *on(p, "h1,h2", "--host-prefix", "sh", "-c", "echo out; echo err >&2"),
                   stdin=subprocess.DEVNULL)
    out, err = made.communicate(timeout=TIMEOUT)
    same(sorted(out.decode().splitlines()), ["h1: out", "h2: out"])
    same(sorted(line for line in err.decode().splitlines() if "crun:" not in line),
         ["h1: err", "h2: err"])


def test_the_worker_gives_the_exit_code(p):
    """One line says that the job has formed, and one report how it has failed."""
    made = p.start(CRUN, *on(p, "h1,h2,h3", "sh", "-c", "exit $((RANK == 1 ? 7 : 0))"),
                   stdin=subprocess.DEVNULL)
    _, err = made.communicate(timeout=TIMEOUT)
    same((made.returncode, err.count(b" formed: 3 nodes"), err.count(b"first failure"),
          err.count(b"exited with code 7")), (7, 1, 1, 1))


def test_a_terminal_is_as_on_one_node(p):
    script = "trap '' INT TERM; printf 'name? '; read name; echo hello $name; exec sleep 1000"
    t = Terminal(p, *on(p, "h1,h2", "sh", "-c", f'[ $RANK = 1 ] || {{ {script}; }}; exec sleep 1000'))
    t.wait_for(b"name? ")
    t.type(b"you\n")
    t.wait_for(b"hello you")
    t.type(b"\x03")
    t.wait_for(b"stopping")
    t.type(b"\x03")
    t.end(130)
    same(t.p.returncode, -signal.SIGINT)


def test_failures_are_gathered(p):
    said = ["5 of 6 hosts cannot take part", "closed1: did not answer: ssh: connect to",
            "key1, key2: ", "refused the key", "changed1: unknown host key (\"ssh HOST\" once"]
    # words that differ are not put together
    said[2] = "key1: refused the key: key1: Permission denied (publickey)."
    p.crun(on(p, "h1,closed1,key1,key2,changed1,closed2", "true"), 69, *said)
    p.crun(on(p, "h1,h2", "--wdir", "/nowhere", "true"), 2,
           "h1, h2: no such folder: /nowhere: No such file or directory")
    p.crun(on(p, "h1,h2", "no-such-program"), 2, "h1, h2: no such program: no-such-program")
    p.crun(on(p, "h1,h2", "--max-restarts=x", "true"), 2)
    p.crun(["--rsh", "no-such-ssh", "-H", "a,b", "true"], 2, "a, b: cannot be reached")


def test_fewer_hosts_start_with_a_range(p):
    out = p.crun(on(p, "closed1,h2,h3", "--nnodes=2:3", "sh", "-c", "echo $RANK $WORLD_SIZE"), 0,
                 "closed1: did not answer", "the job starts with 2 of 3 hosts")
    same(sorted(out.splitlines()), ["0 2", "1 2"])
    p.crun(on(p, "closed1,h2,closed3", "--nnodes=2:3", "true"), 69, "the job needs 2 hosts")


def test_hosts_that_lie_take_no_part(p):
    """None of their messages crashes the launcher, or lets it wait."""
    p.env["CRUN_TEST_VERSION"] = p.crun(["--version"], 0).split()[1]
    liar = p.file("liar", LIAR)
    for host, words in (("twice", "a message out of order"), ("early", "a message out of order"),
                        ("many", "\"addresses\" is missing or malformed"),
                        ("ended", "ended before the job began")):
        p.crun(["--rsh", liar, "-H", host, "true"], 69, words)


def test_a_busy_sshd_is_tried_again(p):
    p.crun(on(p, "busy1,h2", "true"), 0)
    same(len([line for line in calls(p) if " busy1 " in line]), 2)


def test_a_full_disk_is_named(p):
    if os.getuid() != 0:
        return
    full = f"{p.path}/full"
    os.mkdir(full)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", full], check=True)
    try:
        with contextlib.suppress(OSError), open(f"{full}/all", "wb") as f:
            f.write(b"x" * 8192)
        p.crun(on(p, "h1", "-x", f"TMPDIR={full}", "true"), 69, "h1: no space left")
    finally:
        subprocess.run(["umount", full], check=True)


def test_a_host_without_crun_gets_it(p):
    if os.getuid() != 0:
        return  # the hosts need a file system of their own
    folder = f"{p.path}/only here"
    os.makedirs(f"{folder}/bin")
    crun = f"{folder}/bin/crun"
    shutil.copy(CRUN, crun)
    shutil.copytree(ROOT / "worker-lib/python", f"{folder}/lib/crun/python")
    library = next(line.split()[2] for line in subprocess.run(
        ["ldd", CRUN], capture_output=True, text=True, check=True).stdout.splitlines()
        if "libcjson" in line)
    # the first host has no such file, the second one another program in its place, the third
    # one no library that crun needs
    p.file("fakessh", FAKE.replace('exec sh -c "exec $*"', f"""case $host in
h1) exec unshare -m sh -c 'mount -t tmpfs none "{folder}"; exec "$@"' sh "$@" ;;
h2) exec unshare -m sh -c 'mount --bind /bin/true "{crun}"; exec "$@"' sh "$@" ;;
*) exec unshare -m sh -c 'mount -t tmpfs none "{folder}"; mount --bind /dev/null {library}
exec "$@"' sh "$@" ;; esac"""))
    for _ in range(2):  # the second time it is there
        made = p.start(crun, *on(p, "h1,h2,h3", "sh", "-c", "echo $RANK"),
                       stdin=subprocess.DEVNULL)
        same(sorted(p.end(made, 0).split()), ["0", "1", "2"])
    for host in "h1", "h2", "h3":
        names = os.listdir(f"{p.path}/home.{host}/.cache/crun")
        same(len(names), 1)
        copy = f"{p.path}/home.{host}/.cache/crun/{names[0]}"
        same(read(f"{copy}/bin/crun"), read(CRUN))
        same(os.stat(copy).st_mode & 0o777, 0o700)
        same(sorted(os.listdir(f"{copy}/lib/crun/python")), ["bootstrap", "crun", "for_jax"])
    script = p.file("finders.py", "import sys\nprint(sys.meta_path[0])\n")
    made = p.start(crun, *on(p, "h1,h2", script), stdin=subprocess.DEVNULL)
    same(p.end(made, 0).splitlines(), ["<class 'sitecustomize.Finder'>"] * 2)


def test_a_folder_of_others_gets_no_copy(p):
    if os.getuid() != 0:
        return
    folder = f"{p.path}/only here"
    os.mkdir(folder)
    shutil.copy(CRUN, f"{folder}/crun")
    p.file("fakessh", FAKE.replace('exec sh -c "exec $*"', f"""
exec unshare -m sh -c 'mount -t tmpfs none "{folder}"; exec "$@"' sh "$@" """))
    for host, user, mode in (("h1", 65534, 0o755), ("h2", 0, 0o775), ("h3", 0, 0o777)):
        cache = f"{p.path}/home.{host}/.cache/crun"
        os.makedirs(cache)
        os.chown(cache, user, user)
        os.chmod(cache, mode)
        made = p.start(f"{folder}/crun", *on(p, host, "true"), stdin=subprocess.DEVNULL)
        p.end(made, 69, f"cannot use its copy of crun: {cache} is not yours alone: set XDG_CACHE_HOME there")
        same(os.listdir(cache), [])


def test_a_copy_that_does_not_fit_is_named(p):
    if os.getuid() != 0:
        return
    folder, home = f"{p.path}/only here", f"{p.path}/home.h1"
    for path in folder, home:
        os.mkdir(path)
    shutil.copy(CRUN, f"{folder}/crun")
    p.file("fakessh", FAKE.replace('exec sh -c "exec $*"', f"""
exec unshare -m sh -c 'mount -t tmpfs none "{folder}"; mount -t tmpfs -o size=64k none "$HOME";
exec "$@"' sh "$@" """))
    made = p.start(f"{folder}/crun", *on(p, "h1,h2", "true"), stdin=subprocess.DEVNULL)
    p.end(made, 69, "h1: no space left: crun could not be copied to ")


def test_ctrl_c_ends_the_job(p):
    script = "trap 'echo bye; exit 0' INT TERM; echo x >>up; sleep 1000 & wait"
    made = p.start(CRUN, *on(p, "h1,h2", "sh", "-c", script), stdin=subprocess.DEVNULL)
    written(p, "up", 2)
    made.send_signal(signal.SIGINT)
    same(sorted(p.end(made, 130).split()), ["bye", "bye"])
    os.remove(f"{p.path}/up")
    made = p.start(CRUN, *on(p, "h1,h2", "sh", "-c", "trap '' INT TERM; echo x >>up; sleep 1000"),
                   stdin=subprocess.DEVNULL)
    written(p, "up", 2)
    made.send_signal(signal.SIGINT)
    time.sleep(0.3)  # a person's second Ctrl-C
    made.send_signal(signal.SIGINT)
    p.end(made, 130)


def test_sigterm_ends_the_job(p):
    made = p.start(CRUN, *on(p, "h1,h2", "sh", "-c", "echo x >>up; exec sleep 1000"),
                   stdin=subprocess.DEVNULL)
    written(p, "up", 2)
    made.send_signal(signal.SIGTERM)
    p.end(made, 143)


def test_it_is_suspended_and_goes_on(p):
    """Also if it is continued before each process has stopped itself."""
    for wait in "all", "workers", "none":
        made = p.start(CRUN, *on(p, "h1,h2", "sh", "-c", "echo $$ >>up; while [ ! -e enough ]; do "
                                 "sleep 0.02; done"), stdin=subprocess.DEVNULL)
        pids = [int(pid) for pid in written(p, "up", 2)]
        made.send_signal(signal.SIGTSTP)
        # D: a shell waits in vfork for a child that was stopped before it could execute sleep
        if wait != "none":
            until(lambda: all(stat_of(pid).state in "TD" for pid in pids) and
                  (wait != "all" or stat_of(made.pid).state == "T"), "all are stopped", TIMEOUT)
        made.send_signal(signal.SIGCONT)
        p.file("enough")
        p.end(made, 0)
        os.remove(f"{p.path}/up")
        os.remove(f"{p.path}/enough")


def test_the_launchers_death_ends_the_job(p):
    made = p.start(CRUN, *on(p, "h1,h2", "sh", "-c", "echo $$ >>up; exec sleep 1000"),
                   stdin=subprocess.DEVNULL)
    pids = written(p, "up", 2)
    made.kill()
    made.wait()
    until(lambda: not any(lives(int(pid)) for pid in pids), "the workers' end", TIMEOUT)


def test_a_lost_connection_ends_the_job(p):
    for lost in ("h1", "h2"):
        made = p.start(CRUN, *on(p, "h1,h2", "sh", "-c", "echo $$ >>up; exec sleep 1000"),
                       stdin=subprocess.DEVNULL)
        pids = written(p, "up", 2)
        os.kill(far_side(p, lost), signal.SIGKILL)
        p.end(made, 69, f"the connection to {lost} is lost", "the job ends")
        until(lambda: not any(lives(int(pid)) for pid in pids), "the workers' end", TIMEOUT)
        os.remove(f"{p.path}/up")
        os.remove(f"{p.path}/calls")


def far_side(p, host):
    """The fake ssh becomes the far side."""
    return int(next(line for line in calls(p) if line.split()[1] == host).split()[0])


def test_an_elastic_job_goes_on_without_a_host(p):
    script = "echo $$ >>up; while [ $WORLD_SIZE = 3 ]; do sleep 0.05; done"
    made = p.start(CRUN, *on(p, "h1,h2,h3", "--nnodes=2:3", "sh", "-c", script),
                   stdin=subprocess.DEVNULL)
    written(p, "up", 3)
    os.kill(far_side(p, "h3"), signal.SIGKILL)
    p.end(made, 0, "the connection to h3 is lost", "goes on without it")


def detach(p, *words):
    """The commands that it prints. crunctl here sees nothing of what the hosts have."""
    p.env.update(APART="1", CRUN_RUNTIME_DIR=f"{p.path}/mine")
    os.makedirs(f"{p.path}/mine", 0o700, exist_ok=True)
    return re.findall("  crunctl (.*)", p.crun(on(p, "h1,h2", "--detach", *words), 0))


def ctl(p, *words):
    r = subprocess.run([CRUNCTL, *words], capture_output=True, text=True, env=p.env)
    return r.stdout + r.stderr


def gone(pids):
    until(lambda: not any(lives(int(pid)) for pid in pids), "the workers' end", TIMEOUT)


def until_ctl(p, text, *words):
    until(lambda: text in ctl(p, *words), lambda: f"{text} in {ctl(p, *words)}", TIMEOUT)


def test_a_detached_job_is_followed(p):
    """Where it was typed, crunctl follows it to its hosts, and knows its end later."""
    script = ("echo hello $RANK; echo $$ >>up; while [ ! -e enough ]; do sleep 0.05; done; "
              "exit $((RANK * 7))")
    same(detach(p, "bash", "-c", script), ["status bash", "logs bash", "stop bash"])
    written(p, "up", 2)
    until_ctl(p, "2 workers on 2 nodes", "status")
    until_ctl(p, "hello 1\n", "logs", "bash", "1")
    matches(ctl(p, "page", "bash"), r"for a browser on h1\n|http://127")
    p.file("down")
    matches(ctl(p, "status"), r"bash  unknown\nh1 cannot be asked \(.*No route to host\); its "
            r"output is in h1:/.*\.log")
    matches(ctl(p, "stop", "bash"), r'unknown whether job "bash" runs: h1 cannot be asked')
    os.remove(f"{p.path}/down")
    p.file("cut")  # the connection breaks in the middle of the answer
    matches(ctl(p, "status"), r"bash  unknown\nh1 cannot be asked \(its answer was cut off\)")
    os.remove(f"{p.path}/cut")
    p.file("enough")

    def end_is_known():
        """For good: crun says that it has failed before its record tells the end."""
        known = re.search("failed .* ago", ctl(p, "status"))
        p.file("down")
        if known and "cannot be asked" not in ctl(p, "status"):
            return True
        os.remove(f"{p.path}/down")
        return False
    until(end_is_known, lambda: ctl(p, "status"), TIMEOUT)
    matches(ctl(p, "status", "bash"), r"exit code 7\n(.*\n)+.*first failure   rank 1")
    matches(ctl(p, "logs", "bash"), r"has ended; its output is in h1:/.*\.log, h2:/.*\.log")
    log = re.search(r"h1:(/.*?\.log)", ctl(p, "logs", "bash"))[1]
    matches(read(log).decode(), "hello 0\n")
    same(os.path.exists(f"{p.path}/config/crun/jobs"), False)  # no key of it


def test_a_detached_job_is_stopped_or_killed(p):
    name = detach(p, "--rdzv-id=mine", "sh", "-c", "echo $$ >>up; exec sleep 1000")[0].split()[1]
    pids = written(p, "up", 2)
    until_ctl(p, "running", "status", name)
    ctl(p, "stop", name)
    gone(pids)
    until_ctl(p, "stopped", "status", name)
    os.remove(f"{p.path}/up")
    for n in 1, 2:  # two jobs of one name are two
        detach(p, "--rdzv-id=two", "sh", "-c", "echo $$ >>up; exec sleep 1000")
        pids = written(p, "up", 2 * n)
    twins = re.findall(r"two \(pid (\d+)\)", ctl(p, "stop", "two"))
    same(len(twins), 2)
    for pid in twins:
        ctl(p, "stop", pid)
    gone(pids)
    os.remove(f"{p.path}/up")
    detach(p, "--rdzv-id=other", "sh", "-c", "echo $$ >>up; exec sleep 1000")
    pids = written(p, "up", 2)
    until_ctl(p, "running", "status", "other")
    for home in "run.h1", "run.h2":
        for sock in os.listdir(f"{p.path}/{home}"):
            if sock.endswith(".sock"):
                os.kill(int(sock.split(".")[0]), signal.SIGKILL)
    gone(pids)
    until_ctl(p, "killed", "status")
    matches(ctl(p, "status", "other"), "its crun on h1 has left no result; its output is in h1:/")


def test_a_detached_job_may_be_short(p):
    if detach(p, "true"):
        until_ctl(p, "finished", "status", "true")
    else:
        same(ctl(p, "status"), "no jobs\n")


def test_nothing_shows_in_ps(p):
    made = p.start(CRUN, *on(p, "h1,h2", "sh", "-c", "echo x >>up; exec sleep 1000", "hidden-word"),
                   stdin=subprocess.DEVNULL)
    written(p, "up", 2)
    words = read(f"/proc/{far_side(p, 'h1')}/cmdline")
    same(words, CRUN.encode() + b"\0--agent-stdin\0")
    for pid in p.living():
        assert b"crun1:" not in read(f"/proc/{pid}/environ") + read(f"/proc/{pid}/cmdline")
    made.send_signal(signal.SIGINT)
    p.end(made, 130)


def read_slowly(p):
    """All output arrives, or crun counts what it has lost. How much that is; and the launcher's peak
    of memory in KiB."""
    made = p.start(CRUN, *on(p, "h1,h2", "sh", "-c", "yes | head -c 20000000; echo x >>up"),
                   stdin=subprocess.DEVNULL)
    got = peak = 0
    while data := made.stdout.read(1 << 20):
        got += len(data)
        memory = read(f"/proc/{made.pid}/status").decode().partition("VmHWM:")[2].split()
        peak = max(peak, int(memory[0]) if memory else 0)
        if got < 8 << 20:
            time.sleep(0.02)
    said = made.stderr.read().decode()
    lost = sum(map(int, re.findall(r"(\d+) bytes of output lost: it was too slow", said)))
    same((made.wait(), got + lost), (74 if lost else 0, 40000000))
    return lost, peak


def test_a_slow_reader_slows_the_workers(p):
    """The launcher holds little of the output. Nothing of it is lost if all of these processes can
    run twice a second, which a busy machine does not let them."""
    runs = [read_slowly(p)]
    while runs[-1][0] and len(runs) < 5:
        runs.append(read_slowly(p))
    assert not runs[-1][0] or slowdown() > 1.5, runs
    peak = max(peak for _, peak in runs)
    assert 0 < peak < 40000, f"{peak} KiB"


def test_what_a_node_says_last_arrives(p):
    """It has ended when the connection still carries what came before."""
    p.file("fakessh", FAKE.replace('exec sh -c "exec $*"', f'sh -c "exec $*" | {p.file("thin", THIN)}'))
    made = p.start(CRUN, *on(p, "h1", "sh", "-c", "head -c 380000 /dev/zero; echo x >>up"),
                   stdin=subprocess.DEVNULL)
    written(p, "up", 1)
    until(lambda: sum(b"--agent-stdin" in read(f"/proc/{pid}/cmdline") for pid in p.living()) == 1,
          "the node's end", TIMEOUT)
    time.sleep(1.5)  # it is not waited for what others hold open: REMOTE_DRAIN_MS
    p.file("go")
    same(len(p.end(made, 0)), 380000)


def test_a_host_that_hangs_is_named(p):
    made = p.start(CRUN, *on(p, "h1,hangs1", "true"), stdin=subprocess.DEVNULL)
    until(lambda: len(calls(p)) == 2, "both calls", TIMEOUT)
    made.send_signal(signal.SIGINT)
    p.end(made, 130)


def test_flags_about_hosts_need_hosts(p):
    p.crun(["--detach", "true"], 2, "--detach needs a list of hosts")


def test_dry_run_starts_nothing(p):
    out = p.crun(["-H", "h1:8,h2:4", "--ssh-args", "-p 2222", "--dry-run", "train.py"], 0)
    matches(out, r"# node rank 1, h2, 4 workers\nssh .* -p 2222 .* h2 sh\n")
    same(calls(p), [])



if __name__ == "__main__":
    run([with_place(make_place, f) for name, f in list(globals().items()) if name.startswith("test_")])
