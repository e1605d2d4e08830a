#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 20 s
# sanitizers: no, 75-remote-hosts runs the same code with a fake ssh
"""
A job that is started over ssh, by Debian's sshd on hosts with different login shells: what
travels to the hosts, what comes back, hosts that cannot take part, and every end of a job. The
cases run side by side, because they mostly wait.

    BUILD=build tests/functional/launch/74-ssh.py [TEST...]
"""
import fcntl
import hashlib
import json
import os
import pathlib
import pty
import re
import signal
import sys
import termios
import threading
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, SECONDS, children, fail, matches, processes, read, same, slowdown, until  # noqa: E402
import sshd  # noqa: E402
from sshd import USER  # noqa: E402

CRUN, CRUNCTL = BIN / "crun", BIN / "crunctl"
SSH_ARGS = ("--ssh-args=-o ConnectTimeout=2 -o ConnectionAttempts=1 "
            "-o ServerAliveInterval=3")
ODD_TEXTS = ["a b", "", "it's", '"double"', "line 1\nline 2", "ä€😀", "$HOME `id` $(id)", "*", "!x",
             "\\", "-x", "--", "a;b|c&d", "~", "#", "{}", "[a]", "%n", "trailing\n"]
ODD_FOLDER = " it's a \"folder\"\n$HOME ä "

SHOW = """
import json, os, socket, sys
e = os.environ
print(json.dumps([int(e["RANK"]), int(e["WORLD_SIZE"]), socket.gethostname(), sys.argv[1:],
                  os.getcwd(), {n: v for n, v in e.items() if n.startswith(("ODD", "USER"))}]))
"""

# It says that it runs, and ends `seconds` after a signal, or when there is a file "NAME-over".
WAIT = """
import os, signal, socket, sys, time
name, seconds = sys.argv[1], float(sys.argv[2])
def end(*_):
    print("stopping", flush=True)
    time.sleep(seconds)
    print("stopped", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGHUP, end)
print("began", os.environ["RANK"], socket.gethostname(), os.getpid(), flush=True)
while not os.path.exists(sys.argv[0] + "-" + name + "-over"):
    time.sleep(0.02)
"""

# A crun of another version, as far as the launcher can tell.
OTHER_CRUN = """#!/bin/sh
echo "crun: unknown flag $1" >&2
exit 2
"""

# One that answers, and is of another version.
OLD_CRUN = f"""#!{sys.executable}
import json, struct, sys
body = json.dumps({{"version": "0.0.1", "channel": 1, "host": "old",
                    "addresses": ["10.77.0.1"]}}).encode()
sys.stdout.buffer.write(b"%crun-agent-1%\\n" + struct.pack("<IBI", len(body), 64, 0) + body)
sys.stdout.flush()
sys.stdin.read()
"""

NO_CRUN = "mount -t tmpfs none {bin}"
HOSTS = {
    "h1": {},
    "h2": {"shell": "/bin/csh"},
    "h3": {"shell": "/usr/bin/fish"},
    "h4": {"shell": "/bin/sh"},
    "noisy": {"shell": "/bin/csh", "profile": "echo this host is for members only\n",
              "config": "Banner /etc/hosts"},
    "bare": {"mount": [NO_CRUN]},
    "bare2": {"shell": "/usr/bin/fish", "mount": [NO_CRUN]},
    "other": {"shell": "/bin/csh", "mount": ["mount --bind {at}/../other-crun {bin}/crun"]},
    "old": {"mount": ["mount --bind {at}/../old-crun {bin}/crun"]},
    "full": {"mount": [NO_CRUN, "mkdir {home}/.cache",
                       "mount -t tmpfs -o size=64k none {home}/.cache"]},
    "nologin": {"shell": "/usr/sbin/nologin"},
    "refuses": {"accepts": False},
    "stranger": {"known": False},
    "busy": {"config": "MaxStartups 1"},
    "lost": {},
    "lost2": {},
    "killed": {},
    "killed2": {"shell": "/bin/csh"},
    "ended": {"shell": "/usr/bin/fish"},
    "ended2": {},
}


# -- what cases share -------------------------------------------------------------------


class Case:
    def __init__(self, hosts):
        self.hosts = hosts

    def crun(self, at, *words, **options):
        return self.hosts.desk.start([CRUN, "-H", at, SSH_ARGS, *words], **options)

    def wait_program(self, name, seconds=0.0):
        return [self.hosts.directory + "/wait.py", name, seconds]

    def over(self, name):
        pathlib.Path(self.hosts.directory, f"wait.py-{name}-over").touch()

    def until_began(self, p, count):
        until(lambda: p.out.count("began ") == count or p.popen.poll() is not None,
              lambda: f"{count} workers of {p} run:\n{p.out}{p.err}")
        if p.out.count("began ") != count:
            fail(f"{p}: {p.popen.poll()}\n{p.out}{p.err}")

    def kill_session(self, host, name):
        """The sshd of the connection whose worker is that of wait_program(name)."""
        found = [pid for pid in self.hosts[host].sessions()
                 if any(f"wait.py\0{name}\0".encode() in line for line in descendants(pid))]
        same(len(found), 1)
        os.kill(found[0], signal.SIGKILL)

    def nothing_is_left(self, p, *names, seconds=SECONDS):
        for name in names:
            until(lambda: not self.hosts[name].left(),
                  lambda: f"nothing is left on {name}: {self.hosts[name].left()}\n{p.out}{p.err}",
                  seconds)


def descendants(pid):
    """The command lines of all processes below that one."""
    found = []
    for child in children(pid):
        found += [read(f"/proc/{child}/cmdline"), *descendants(child)]
    return found


def shown(p):
    """What show.py has printed, by rank."""
    p.expect(0)
    return sorted(json.loads(line) for line in p.out.splitlines())


def lines_with(text, p):
    return [line for line in p.err.splitlines() if text in line]


def says(p, code, *patterns):
    got = p.wait()
    for pattern in patterns:
        if not re.search(pattern, p.err):
            fail(f"{p}: exit code {got}; nothing like {pattern!r} in:\n{p.out}{p.err}")
    if got != code:
        fail(f"{p}: exit code {got}, not {code}:\n{p.out}{p.err}")


# -- what travels -------------------------------------------------------------------------


def any_text_reaches_any_login_shell(case):
    folder = case.hosts.folder + "/" + ODD_FOLDER
    for node in case.hosts.nodes:
        (node.folder / ODD_FOLDER).mkdir()
    odd = {f"ODD{i}": text for i, text in enumerate(ODD_TEXTS)}
    exports = [word for name in odd for word in ("-x", name)]
    p = case.crun("h1:1,h2:2,h3:1,h4:1", *exports, "-x", "ODD=set =\n'here'",
                  case.hosts.directory + "/show.py", *ODD_TEXTS, env=odd, cwd=folder)
    found = shown(p)
    same([rank[0] for rank in found], list(range(5)))
    same([rank[2] for rank in found], ["h1", "h2", "h2", "h3", "h4"])
    for rank in found:
        same(rank[1], 5)
        same(rank[3], ODD_TEXTS)
        same(rank[4], folder)
        same({n: v for n, v in rank[5].items() if n.startswith("ODD")},
             {**odd, "ODD": "set =\n'here'"})
    # on a busy machine it says for which hosts it waits
    matches(p.err, r"\A(.*waiting for hosts: .*\n)*.* formed: .*\n\Z")


def a_user_and_a_folder_of_the_hosts(case):
    found = shown(case.crun(f"{USER}@h2,{USER}@h3", "--nproc-per-node=1", "--wdir=/usr",
                            case.hosts.directory + "/show.py"))
    same([rank[2] for rank in found], ["h2", "h3"])
    same([rank[4] for rank in found], ["/usr", "/usr"])
    same([rank[5].get("USER") for rank in found], [USER, USER])


def standard_input_is_that_of_the_first_worker(case):
    reader, writer = os.pipe()
    data = os.urandom(300_000).hex()
    p = case.crun("h2,h3", "--nproc-per-node=2", "--no-python", "sh", "-c",
                  "[ $RANK != 0 ] || sha256sum", stdin=reader)
    os.close(reader)
    threading.Thread(target=feed, args=(writer, data.encode())).start()
    p.expect(0, hashlib.sha256(data.encode()).hexdigest())


def feed(fd, data):
    with open(fd, "wb") as file:
        file.write(data)


def lines_stay_whole_and_have_a_prefix(case):
    p = case.crun("h1,h2,h3", "--nproc-per-node=2", "--host-prefix", "--no-python", "sh", "-c",
                  "for i in $(seq 500); do echo line $i of $RANK; done; echo to err $RANK >&2")
    p.expect(0)
    lines = p.out.splitlines()
    same(len(lines), 3000)
    for rank in range(6):
        host = f"h{rank // 2 + 1}"
        same([line for line in lines if line.endswith(f" of {rank}")],
             [f"{host}: line {i} of {rank}" for i in range(1, 501)])
        same(len(lines_with(f"{host}: to err {rank}", p)), 1)


def a_noisy_login_does_no_harm(case):
    p = case.crun("noisy,h1", "--nproc-per-node=1", case.hosts.directory + "/show.py")
    same([rank[2] for rank in shown(p)], ["noisy", "h1"])


# -- a host without this crun -------------------------------------------------------------


def a_host_without_crun_gets_it(case):
    hosts = ["bare", "bare2", "other", "old"]
    for _ in range(2):
        found = shown(case.crun(",".join(hosts), "--nproc-per-node=1",
                                case.hosts.directory + "/show.py"))
        same([rank[2] for rank in found], hosts)
        # an incomplete copy has a dot in its name
        pushed = [[path for path in (case.hosts[name].home / ".cache/crun").iterdir()
                   if "." not in path.name] for name in hosts]
        same([len(copies) for copies in pushed], [1] * len(hosts))
        times = [copies[0].stat().st_mtime_ns for copies in pushed]
    same(times, [copies[0].stat().st_mtime_ns for copies in pushed])


# -- hosts that cannot take part ------------------------------------------------------------


def all_failures_are_told_at_once(case):
    for node in case.hosts.nodes:
        if node.name != "h4":
            (node.folder / "not-on-h4").mkdir()
    begun = time.monotonic()
    p = case.crun("h1,refuses,stranger,mute,hole,nowhere,full,h4,nologin,h2", "--nproc-per-node=1",
                  case.hosts.directory + "/show.py", cwd=case.hosts.folder + "/not-on-h4")
    says(p, 2, "refuses.*refused the key", "stranger.*host key", "mute.*did not answer",
         "hole.*did not answer", "nowhere.*(no known address|not resolve)", "full.*no space",
         "h4.*not-on-h4", "nologin.*not available")
    same(p.out, "")
    if time.monotonic() - begun > 10 + 5 * slowdown():
        fail(f"it took {time.monotonic() - begun:.1f} s")
    if re.search(r"\bh[12]\b.*(refused|answer|folder)", p.err):
        fail("hosts that can take part are accused:", p.err)


def sshd_that_takes_one_connection_at_a_time_is_tried_again(case):
    """MaxStartups: the only place is taken until the first attempt has failed."""
    busy = case.hosts["busy"]
    taken = case.hosts.desk.start(["bash", "-c", "exec 3<>/dev/tcp/busy/22; read <&3; echo taken; "
                                                 "exec sleep 1000"])
    until(lambda: "taken" in taken.out, "a connection to busy")
    p = case.crun("busy,h1", "--nproc-per-node=1", case.hosts.directory + "/show.py")
    until(lambda: "MaxStartups" in busy.sshd.err or p.popen.poll() is not None,
          lambda: f"{busy.sshd.err} {p.err}")
    taken.end()
    same([rank[2] for rank in shown(p)], ["busy", "h1"])


# -- the ends of a job ----------------------------------------------------------------------


def interrupted_once_the_workers_finish(case):
    p = case.crun("ended,ended2", "--nproc-per-node=2", *case.wait_program("once", 0.5))
    case.until_began(p, 4)
    p.kill(signal.SIGINT)
    code = p.wait()
    if (code, p.out.count("stopped")) != (130, 4):
        fail(f"{p}: exit code {code}\n{p.out}{p.err}")
    same(len(lines_with("stopping", p)), 1)
    case.nothing_is_left(p, "ended", "ended2")


def interrupted_twice_they_are_killed(case):
    p = case.crun("h1,h2", "--nproc-per-node=1", *case.wait_program("twice", 1000))
    case.until_began(p, 2)
    p.kill(signal.SIGINT)
    until(lambda: p.out.count("stopping") == 2, lambda: f"both workers stop: {p.out}{p.err}")
    p.kill(signal.SIGINT)
    same(p.wait(), 130)


def on_a_terminal(case, name):
    """A crun whose terminal is the master that is returned."""
    master, slave = pty.openpty()
    p = case.crun("h3,h4", "--nproc-per-node=1", *case.wait_program(name, 0.3), stdin=slave,
                  preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(slave)
    case.until_began(p, 2)
    return p, master


def control_c_reaches_the_launcher_alone(case):
    p, master = on_a_terminal(case, "control-c")
    os.write(master, b"\x03")
    same((p.wait(), p.out.count("stopped")), (130, 2))
    same(lines_with("connection", p), [])
    os.close(master)


def a_terminal_that_is_closed_ends_the_job(case):
    p, master = on_a_terminal(case, "hang-up")
    os.close(master)
    same((p.wait(), p.out.count("stopped")), (129, 2))


def a_killed_launcher_leaves_no_worker(case):
    p = case.crun("killed,killed2", "--nproc-per-node=2", *case.wait_program("killed", 0.2))
    case.until_began(p, 4)
    p.kill(signal.SIGKILL)
    case.nothing_is_left(p, "killed", "killed2")


def a_lost_ssh_ends_the_job(case):
    p = case.crun("lost,h1", "--nproc-per-node=1", *case.wait_program("lost", 0.2))
    case.until_began(p, 2)
    case.kill_session("lost", "lost")
    code = p.wait()
    if code in (0, None) or not re.search(r"\blost\b", p.err):
        fail(f"{p}: exit code {code}: {p.out}{p.err}")
    until(lambda: not any(" lost " in line for line in case.hosts["lost"].left().values()),
          lambda: f"its worker ends: {case.hosts['lost'].left()}")


def a_killed_ssh_ends_the_job(case):
    p = case.crun("h1,ended", "--nproc-per-node=1", *case.wait_program("ssh", 0.2))
    case.until_began(p, 2)
    ssh = [pid for pid in children(p.pid) if b"ended" in read(f"/proc/{pid}/cmdline")]
    same(len(ssh), 1)
    os.kill(ssh[0], signal.SIGKILL)
    code = p.wait()
    if code in (0, None) or not re.search(r"\bended\b", p.err):
        fail(f"{p}: exit code {code}: {p.out}{p.err}")
    until(lambda: not any(" ssh " in line for line in case.hosts["ended"].left().values()),
          "its worker ends")


def a_dead_link_ends_the_job(case):
    p = case.crun("lost2,h2", "--nproc-per-node=1", *case.wait_program("link", 0.2))
    case.until_began(p, 2)
    case.hosts["lost2"].cut()
    code = p.wait(90)
    if code in (0, None) or "lost2" not in p.err:
        fail(f"{p}: exit code {code}: {p.out}{p.err}")
    case.nothing_is_left(p, "lost2", seconds=90)


def detached_it_goes_on_and_can_be_looked_at(case):
    own = {"CRUN_RUNTIME_DIR": case.hosts.directory + "/desk-alone"}  # as on a machine of its own
    os.mkdir(own["CRUN_RUNTIME_DIR"], 0o700)
    p = case.crun("h2,h3", "--nproc-per-node=1", "--detach", "--rdzv-id=left",
                  *case.wait_program("detached", 0.2), env=own)
    p.expect(0, "crunctl status left")

    def ctl(*words):
        told = case.hosts.desk.start([CRUNCTL, *words], env=own)
        told.wait()
        return told.out + told.err
    until(lambda: "running" in ctl("status", "left"), lambda: ctl("status", "left"))
    said = ctl("page", "left")
    if not re.search(r"^ssh -N -L (\d+):127.0.0.1:\1 .*h2\nhttp://127.0.0.1:\1/", said):
        fail(said)
    ctl("stop", "left")
    until(lambda: not any("wait.py" in line for name in ("h2", "h3")
                          for line in case.hosts[name].left().values() if "detached" in line),
          "the detached job ends")
    until(lambda: "stopped" in ctl("status", "left"), lambda: ctl("status", "left"))


# -- hosts that come and go -------------------------------------------------------------------


# -- secrets, other programs ------------------------------------------------------------------


def nothing_secret_can_be_seen(case):
    """The key travels on standard input; the environment reaches the workers alone."""
    tee = pathlib.Path(case.hosts.directory, "rsh-tee")
    log = case.hosts.directory + "/order-"
    tee.write_text(f"#!/bin/sh\ntee '{log}'$1 | ssh \"$@\"\n")
    tee.chmod(0o755)
    p = case.hosts.desk.start([CRUN, "-H", "h1,h4", f"--rsh={tee}", "--nproc-per-node=1", "-x",
                               "ODD_TOKEN", *case.wait_program("secret")],
                              env={"ODD_TOKEN": "swordfish"})
    case.until_began(p, 2)
    key = re.search(rb'"key":\s*"([^"]{16,})"', read(log + "h1"))
    if not key:
        fail("no key in", read(log + "h1")[:3000])
    workers = {pid for name in ("h1", "h4") for pid, line in case.hosts[name].left().items()
               if "wait.py" in line}
    for pid in processes():
        for what in ("cmdline", "environ"):
            text = read(f"/proc/{pid}/{what}")
            if key[1] in text:
                fail(f"the key is in {what} of {read(f'/proc/{pid}/cmdline')}")
            if what == "cmdline" and b"swordfish" in text:
                fail(f"a variable is in {what} of {text}")
    if not any(b"swordfish" in read(f"/proc/{pid}/environ") for pid in workers):
        fail("the variable is in no worker")
    case.over("secret")
    p.expect(0)


def another_program_than_ssh(case):
    """As docker exec does it: into the host's namespaces, with its environment."""
    enter = pathlib.Path(case.hosts.directory, "enter")
    enter.write_text("#!/bin/sh\nhost=$1; shift; eval pid=\\$pid_$host\n"
                     "exec nsenter --all --target=$pid \"$@\"\n")
    enter.chmod(0o755)
    env = {f"pid_{name}": str(case.hosts[name].init()) for name in ("h1", "h2")}
    p = case.hosts.desk.start([CRUN, "-H", "h1,h2", f"--rsh={enter}", "--nproc-per-node=1",
                               case.hosts.directory + "/show.py", *ODD_TEXTS], env=env)
    found = shown(p)
    same([rank[2] for rank in found], ["h1", "h2"])
    same([rank[3] for rank in found], [ODD_TEXTS, ODD_TEXTS])


CASES = [
    a_dead_link_ends_the_job,  # the longest
    any_text_reaches_any_login_shell,
    a_user_and_a_folder_of_the_hosts,
    standard_input_is_that_of_the_first_worker,
    lines_stay_whole_and_have_a_prefix,
    a_noisy_login_does_no_harm,
    a_host_without_crun_gets_it,
    all_failures_are_told_at_once,
    sshd_that_takes_one_connection_at_a_time_is_tried_again,
    interrupted_once_the_workers_finish,
    interrupted_twice_they_are_killed,
    a_killed_launcher_leaves_no_worker,
    control_c_reaches_the_launcher_alone,
    a_terminal_that_is_closed_ends_the_job,
    a_killed_ssh_ends_the_job,
    a_lost_ssh_ends_the_job,
    detached_it_goes_on_and_can_be_looked_at,
    nothing_secret_can_be_seen,
    another_program_than_ssh,
]


def main():
    sshd.need("csh", "fish")
    hosts = sshd.Hosts(HOSTS)
    for name, text in (("show.py", SHOW), ("wait.py", WAIT), ("other-crun", OTHER_CRUN),
                       ("old-crun", OLD_CRUN)):
        path = pathlib.Path(hosts.directory, name)
        path.write_text(text)
        path.chmod(0o755)
    with hosts:
        sshd.run_cases(CASES, lambda: Case(hosts), 6)


main()
