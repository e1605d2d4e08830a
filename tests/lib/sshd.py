# SPDX-License-Identifier: MIT
"""
Hosts with Debian's sshd on one machine: each has network, host name, processes, accounts,
home folders, host key and /dev/shm of its own. "desk" is where a user sits: it has ssh and
no sshd. Needs root; nothing of the machine's /etc is written.

    with sshd.Hosts({"h1": {}, "h2": {"shell": "/bin/csh"}}) as hosts:
        p = hosts.desk.start(["build/bin/crun", "-H", "h1,h2", ...])

The test runs in namespaces of its own (host.enclose), so that nothing outlives it. The folder
`hosts.folder` has the same path on all hosts and is another one on each.
"""
import concurrent.futures
import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import sys
import time

import host
from process import BIN, Process, children, fail, read, skip, stat_of, until

SSHD = "/usr/sbin/sshd"
USER, UID = "ann", 4711  # an ordinary user of all hosts

SSHD_CONFIG = """
HostKey {at}/host_key
AuthorizedKeysFile {keys}
StrictModes no
UsePAM no
UseDNS no
PidFile none
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintLastLog no
{more}
"""
SSH_CONFIG = """
IdentityFile ~/.ssh/key
HashKnownHosts no
"""


def need(*programs):
    """Ends a test that cannot run here; else the test goes on in namespaces of its own."""
    what = "crun was not tried with a real sshd (scripts/setup installs it)"
    for program in (SSHD, "ssh", "ssh-keygen", *programs):
        if not shutil.which(program):
            skip(f"{program} is not installed", what)
    why = host.available()
    if why:
        skip(f"several nodes on one machine: {why}", what)
    host.enclose()


class Desk(host.Node):
    """Where the launcher runs."""

    def __init__(self, hosts, index, name):
        super().__init__(hosts, index)
        self.name = name
        self.at = pathlib.Path(hosts.directory, name)
        self.home = self.at / "root"
        self.folder = self.at / "folder"

    def make(self):
        super().make()
        for folder in (self.at, self.home, self.at / USER, self.folder):
            folder.mkdir()
        os.chown(self.at / USER, UID, UID)
        os.chmod(self.folder, 0o1777)

    def mounts(self):
        """The commands that make this host's files those that processes find there."""
        return ["mount --bind {} {}".format(self.folder, self.cluster.folder)]

    def start(self, command, env=None, cwd=None, **options):
        # all become the command: the pid is its own
        script = "; ".join([f"hostname {self.name}", *self.mounts(), 'cd "$0"', 'exec "$@"'])
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("SSH_", "XDG_"))}
        environment.update(HOME=str(self.home), **(env or {}))
        p = Process(["nsenter", f"--net=/run/netns/{self.ns}", "unshare", "--uts", "--mount",
                     "sh", "-ec", script, cwd or self.cluster.folder, *map(str, command)],
                    where=f" on {self.name}", start_new_session=True, env=environment, **options)
        p.node, p.command = self, [str(word) for word in command]
        self.cluster.processes.append(p)
        return p


class Host(Desk):
    """
    A host with an sshd. `shell`: the login shell of all its users. `config`: more lines of
    sshd's. `known`: the desk knows its host key. `accepts`: the user's key. `profile`: text
    that is put into the files that login shells read. `mount`: more commands, as in
    "mount -t tmpfs none {home}", in its namespaces.
    """

    def __init__(self, hosts, index, name, shell="/bin/bash", config="", known=True, accepts=True,
                 profile="", mount=()):
        super().__init__(hosts, index, name)
        self.shell, self.config, self.known, self.accepts = shell, config, known, accepts
        self.profile, self.mount = profile, mount
        self.sshd = None

    def mounts(self):
        return [*super().mounts(), "mount -t tmpfs none /dev/shm", "mount -t tmpfs none /run",
                "mkdir /run/sshd", f"mount --bind {self.at}/passwd /etc/passwd",
                *(command.format(home=self.home, folder=self.cluster.folder, bin=BIN, at=self.at)
                  for command in self.mount)]

    def start_sshd(self):
        """Below an init of its own: with it, everything on the host ends."""
        self.cluster.write_passwd(self.at / "passwd", self.at, self.shell)
        keys = self.cluster.directory + "/authorized_keys" if self.accepts else "/dev/null"
        (self.at / "sshd_config").write_text(
            SSHD_CONFIG.format(at=self.at, keys=keys, more=self.config))
        for name in (".bashrc", ".profile", ".cshrc", ".config/fish/config.fish"):
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.profile)
        script = "; ".join([f"hostname {self.name}", *self.mounts(), '"$@" & wait; wait'])
        self.sshd = Process(
            ["nsenter", f"--net=/run/netns/{self.ns}", "unshare", "--uts", "--mount", "--pid",
             "--fork", "--kill-child", "--mount-proc", "sh", "-ec", script, "sh", SSHD, "-D", "-e",
             "-f", self.at / "sshd_config"], where=f" on {self.name}", start_new_session=True,
            env={"PATH": os.environ["PATH"]})
        self.cluster.processes.append(self.sshd)

    def init(self):
        """The pid of its first process, as it is here."""
        return children(self.sshd.pid)[0]

    def processes(self):
        """[pid]: all that run on this host."""
        space = os.stat(f"/proc/{self.init()}/ns/pid").st_ino
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                if namespace_of(pid) == space]

    def sessions(self):
        """[pid]: sshd's processes for each connection."""
        listener = children(self.init())
        return [pid for parent in listener for pid in children(parent)
                if stat_of(pid).name == "sshd"]

    def left(self):
        """{pid: command line}: what runs there, but for sshd."""
        own = self.init()
        return {pid: read(f"/proc/{pid}/cmdline").decode(errors="replace").replace("\0", " ")
                for pid in self.processes()
                if pid != own and stat_of(pid).state not in ("", "Z", "X") and
                stat_of(pid).name != "sshd"}


def namespace_of(pid):
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


class Hosts(host.Cluster):
    """`wanted`: {name: the options of Host}. Two more addresses are names: "mute" accepts
    connections and says nothing, "hole" never answers."""

    def __init__(self, wanted):
        super().__init__(0)
        self.folder = self.directory + "/folder"
        self.desk = Desk(self, 0, "desk")
        self.by_name = {name: Host(self, i + 1, name, **options)
                        for i, (name, options) in enumerate(wanted.items())}
        self.nodes = [self.desk, *self.by_name.values()]
        self._mute = None

    def __getitem__(self, name):
        return self.by_name[name]

    def __enter__(self):
        os.chmod(self.directory, 0o755)
        os.mkdir(self.folder)
        super().__enter__()
        try:
            self._make_keys()
            self._write_etc()
            for node in self.by_name.values():
                node.start_sshd()
            self._make_silent_addresses()
            for node in self.by_name.values():
                until(lambda: "Server listening" in node.sshd.err,
                      lambda: f"sshd on {node.name}: {node.sshd.err}", 20)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self._mute:
            self._mute.close()
        super().__exit__()

    def _make_keys(self):
        ssh = self.desk.home / ".ssh"
        ssh.mkdir(mode=0o700)
        made = [subprocess.Popen(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path])
                for path in [ssh / "key", *(n.at / "host_key" for n in self.by_name.values())]]
        for p in made:
            p.wait()
        shutil.copy(ssh / "key.pub", self.directory + "/authorized_keys")
        (ssh / "config").write_text(SSH_CONFIG)
        (ssh / "known_hosts").write_text("".join(
            f"{n.name},{n.address} {(n.at / 'host_key.pub').read_text()}"
            for n in self.by_name.values() if n.known))

    def write_passwd(self, path, at, shell):
        """This machine's accounts; root and an ordinary user have their homes below `at`."""
        others = [line for line in read("/etc/passwd").decode().splitlines()
                  if line.split(":")[0] not in ("root", USER)]
        path.write_text("\n".join([f"root:x:0:0::{at}/root:{shell}",
                                   f"{USER}:x:{UID}:{UID}::{at}/{USER}:{shell}", *others, ""]))

    def _write_etc(self):
        """Only in the test's own mount namespace."""
        at = pathlib.Path(self.directory)
        self.write_passwd(at / "passwd", at / "desk", "/bin/bash")
        files = {"hosts": "127.0.0.1 localhost\n" + "".join(
                     f"{n.address} {n.name}\n" for n in self.nodes) +
                     "10.77.0.201 mute\n10.77.0.202 hole\n",
                 "shadow": f"root:*:1::::::\n{USER}:*:1::::::\n", "resolv.conf": "",
                 "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
                 "ssh/ssh_config": ""}
        for name, text in files.items():
            path = at / name.replace("/", "-")
            path.write_text(text)
            self._bind(path, "/etc/" + name)
        self._bind(at / "passwd", "/etc/passwd")

    @staticmethod
    def _bind(path, over):
        if os.path.exists(over):
            subprocess.run(["mount", "--bind", path, os.path.realpath(over)], check=True)

    def _make_silent_addresses(self):
        """The neighbour of one is known, but there is none: packets to it vanish."""
        host.ip("addr", "add", "10.77.0.201/32", "dev", self.desk.interface, ns=self.desk.ns)
        host.ip("neigh", "add", "10.77.0.202", "lladdr", "02:00:00:00:00:02", "nud", "permanent",
                "dev", self.desk.interface, ns=self.desk.ns)
        with open(f"/run/netns/{self.desk.ns}") as space, open("/proc/self/ns/net") as here:
            os_setns(space.fileno())
            self._mute = socket.create_server(("10.77.0.201", 22), backlog=64)
            os_setns(here.fileno())


def os_setns(fd):
    """os.setns is of Python 3.12."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


def quoted(*words):
    return " ".join(shlex.quote(str(word)) for word in words)


# -- cases --------------------------------------------------------------------------------


def _run_case(case, given):
    begun = time.monotonic()
    try:
        case(given)
    except (Exception, SystemExit) as e:
        return f"FAILED {case.__name__}: {e}"
    print(f"ok {case.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
    return None


def run_cases(cases, give, at_once):
    """Those that are asked for, side by side, because they mostly wait. give(): what one gets."""
    wanted = [case for case in cases if not sys.argv[1:] or case.__name__ in sys.argv[1:]]
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        failed = [said for said in pool.map(lambda case: _run_case(case, give()), wanted) if said]
    for said in failed:
        print(said)
    if failed:
        fail(f"{len(failed)} of {len(wanted)} cases")
