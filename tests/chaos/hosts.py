# SPDX-License-Identifier: MIT
"""
Hosts for chaos: network namespaces behind a switch that can be made bad (relay.c), each
with a cgroup that can be frozen and folders on small disks of their own. Processes are
started into them directly, so that a process id is the program's own.
"""
import ctypes
import os
import resource
import signal
import subprocess
import time

from host import add_host, ip
from process import own_cgroup, read

CLONE_NEWNET, CLONE_NEWUTS = 0x40000000, 0x04000000
LIBC = ctypes.CDLL(None, use_errno=True)


def freezer_works():
    folder = own_cgroup()
    probe = f"{folder}/chaos-probe-{os.getpid()}"
    try:
        os.mkdir(probe)
    except (OSError, TypeError):
        return False
    works = os.path.exists(probe + "/cgroup.freeze")
    os.rmdir(probe)
    return works


def small_disks_work():
    folder = f"/tmp/chaos-probe-{os.getpid()}"
    os.mkdir(folder)
    works = mount_disk(folder, "64k")
    if works:
        unmount(folder)
    os.rmdir(folder)
    return works


def mount_disk(folder, size):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "chaos", folder],
                          capture_output=True).returncode == 0


def unmount(folder):
    subprocess.run(["umount", "-l", folder], capture_output=True)


class Process:
    """A program on a host; its output is in files."""

    def __init__(self, host, name, command, env):
        self.host, self.name = host, name
        self.out_path, self.err_path = (f"{host.folder}/{name}.{s}" for s in ("out", "err"))
        with open(self.out_path, "ab") as out, open(self.err_path, "ab") as err:
            self.popen = subprocess.Popen(
                [str(w) for w in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env=env, start_new_session=True, preexec_fn=host.enter, close_fds=True)
        self.pid = self.popen.pid

    def poll(self):
        return self.popen.poll()

    def kill(self, signo=signal.SIGKILL):
        if self.popen.poll() is None:
            os.kill(self.pid, signo)

    @property
    def err(self):
        return read(self.err_path).decode(errors="replace")


class Host:
    def __init__(self, net, index, name):
        self.net, self.index, self.name = net, index, name
        self.ns = f"chaos{os.getpid()}n{index}"
        self.address = f"10.77.0.{index + 1}"
        self.interface = f"c{os.getpid() % 100000}x{index}"
        self.port = f"r{os.getpid() % 100000}x{index}"
        self.folder = self.cgroup = None
        self.counter = 0

    def make(self):
        add_host(self.ns, self.interface, self.port, self.net.switch, self.address)
        self.ns_fd = os.open(f"/run/netns/{self.ns}", os.O_RDONLY | os.O_CLOEXEC)

    def begin(self, folder):
        """Fresh folders and a fresh cgroup for a run."""
        self.folder = f"{folder}/{self.name}"
        self.counter = 0
        for name in ("", "/tmp", "/logs", "/state"):
            os.makedirs(self.folder + name)
        if self.net.disks:
            for name in ("tmp", "logs"):
                mount_disk(f"{self.folder}/{name}", "16m")
            mount_disk(f"{self.folder}/state", "8m")
        if self.net.freezer:
            self.cgroup = f"{own_cgroup()}/chaos-{os.getpid()}-{self.index}"
            os.mkdir(self.cgroup)

    def enter(self):
        """In the child, before its exec."""
        if LIBC.setns(self.ns_fd, CLONE_NEWNET) or LIBC.unshare(CLONE_NEWUTS):
            os._exit(126)
        name = self.name.encode()
        LIBC.sethostname(name, len(name))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.cgroup:
            with open(self.cgroup + "/cgroup.procs", "w") as f:
                f.write("0")

    def start(self, kind, command, env):
        self.counter += 1
        return Process(self, f"{kind}-{self.counter}", command,
                       {**env, "TMPDIR": self.folder + "/tmp", "CHAOS_NODE": self.name})

    def inside(self, action):
        """Fork a child that does something in the namespace; its process id."""
        pid = os.fork()
        if pid == 0:
            try:
                self.enter()
                action()
            finally:
                os._exit(0)
        return pid

    def freeze(self, frozen):
        with open(self.cgroup + "/cgroup.freeze", "w") as f:
            f.write("1" if frozen else "0")

    def fill(self, name, full):
        path = f"{self.folder}/{name}/filler"
        if not full:
            if os.path.exists(path):
                os.remove(path)
            return
        with open(path, "wb", buffering=0) as f:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        f.write(b"x" * size)
                except OSError:
                    pass

    def keep_state(self):
        """Its state directory, for restore_state."""
        self.shell("rm -rf state-kept; cp -a state state-kept")

    def restore_state(self):
        self.shell("rm -rf state/*; cp -a state-kept/. state")

    def shell(self, line):
        subprocess.run(line, shell=True, cwd=self.folder, check=True)

    def listeners(self):
        """Ports on which somebody listens."""
        text = subprocess.run(["nsenter", f"--net=/run/netns/{self.ns}", "cat",
                               "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True).stdout
        return [int(line.split()[1].rpartition(b":")[2], 16) for line in text.splitlines()
                if len(line.split()) > 3 and line.split()[3] == b"0A"]

    def workers_cgroups(self):
        """Those that a crun has made and not removed."""
        if not self.cgroup:
            return []
        return [n for n in os.listdir(self.cgroup) if n.startswith("crun-")]

    def end(self):
        if self.cgroup:
            self.freeze(False)
            for path, folders, _ in os.walk(self.cgroup, topdown=False):
                remove_cgroup(path)
            self.cgroup = None
        if self.net.disks:
            for name in ("tmp", "logs", "state"):
                unmount(f"{self.folder}/{name}")


def remove_cgroup(path):
    for _ in range(100):
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            with open(path + "/cgroup.kill", "w") as f:
                f.write("1")
            time.sleep(0.01)


class Net:
    """The hosts and the switch between them."""

    def __init__(self, relay_program, names):
        self.switch = f"chaos{os.getpid()}sw"
        self.relay_program, self.relay = relay_program, None
        self.freezer, self.disks = freezer_works(), small_disks_work()
        self.hosts = [Host(self, i, name) for i, name in enumerate(names)]

    def __enter__(self):
        ip("netns", "add", self.switch)
        for host in self.hosts:
            host.make()
        return self

    def begin(self, seed, folder):
        self.relay = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.switch}", self.relay_program, str(seed),
             *(host.port for host in self.hosts)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.relay.stdout.readline() == "ready\n", "the relay does not begin"
        for host in self.hosts:
            host.begin(folder)

    def order(self, *words):
        """To the relay, whose orders relay.c lists."""
        self.relay.stdin.write(" ".join(map(str, words)) + "\n")
        self.relay.stdin.flush()

    def end(self):
        for host in self.hosts:
            if host.folder:
                host.end()
            ip("link", "set", host.port, "up", ns=self.switch, check=False)
        if self.relay:
            self.relay.stdin.close()
            self.relay.wait()
            self.relay.stdout.close()
            self.relay = None

    def __exit__(self, *_):
        self.end()
        for host in self.hosts:
            os.close(host.ns_fd)
            ip("netns", "del", host.ns, check=False)
        ip("netns", "del", self.switch, check=False)

