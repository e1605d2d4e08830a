# SPDX-License-Identifier: MIT
"""
A real Slurm cluster on one machine: slurmctld and the commands on the host "login", slurmd
on n1, n2 and n3, each host with network, host name, processes and /dev/shm of its own.
Needs root and Debian's slurmctld, slurmd and slurm-client; no daemon of the machine.

    with slurm.Cluster() as cluster:
        job = cluster.sbatch("srun crun train.py", "-N2")

The test runs in namespaces of its own (host.enclose), so that nothing outlives it.
"""
import contextlib
import functools
import os
import pathlib
import re
import shutil
import stat
import subprocess

import host
from process import SECONDS, fail, skip
from process import until as until_soon

until = functools.partial(until_soon, pause=0.1)  # to ask Slurm costs a process

NODES = 3
CGROUPS = pathlib.Path("/sys/fs/cgroup")
CONTROLLERS = ("freezer", "memory")  # what slurmstepd uses, as hierarchies of version 1
GROUP = "crun-slurm-"

# KillWait is 30 s on most clusters; a job that may be queued again waits cred_expire
CONF = """
ClusterName=crun
SlurmctldHost=login
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
DefMemPerCPU=400
KillWait=10
SlurmdTimeout=6
LaunchParameters=use_interactive_step
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
{tracking}
NodeName=n[1-3] CPUs=64 RealMemory=60000 Gres=gpu:16 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""
WITH_CGROUPS = """
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/none
"""
WITHOUT_CGROUPS = """
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
"""
CGROUP_CONF = """
CgroupPlugin=cgroup/v1
CgroupMountpoint={directory}/cgroup
ConstrainRAMSpace=yes
"""


def need():
    """Ends a test that cannot run here; else the test goes on in namespaces of its own."""
    what = "crun was not tried under a real Slurm (scripts/setup installs it)"
    for program in ("slurmctld", "slurmd", "srun", "sbatch"):
        if not shutil.which(program):
            skip(f"{program} is not installed", what)
    why = host.available()
    if why:
        skip(f"several nodes on one machine: {why}", what)
    if "CRUN_TEST_ENCLOSED" not in os.environ:
        remove_stale_groups()
    host.enclose()


def has_cgroups():
    return all(os.access(CGROUPS / c / "cgroup.procs", os.W_OK) for c in CONTROLLERS)


def remove_stale_groups():
    """Those of killed tests, where frozen processes may wait for their end."""
    for path in CONTROLLERS:
        for group in (CGROUPS / path).glob(f"{GROUP}*"):
            if not os.path.exists(f"/proc/{group.name[len(GROUP):]}"):
                thaw(group)
                remove_groups(group)


def thaw(group):
    """A frozen process cannot be killed. Groups are thawed from the top."""
    for path in sorted(group.glob("**/freezer.state")):
        with contextlib.suppress(OSError):  # slurmd has removed it meanwhile
            path.write_text("THAWED")


class Node(host.Node):
    """A host of the cluster. Its network namespace is entered without a new /sys, which would
    hide the cgroups."""

    def __init__(self, cluster, index):
        super().__init__(cluster, index)
        self.name = f"n{index}" if index else "login"
        self.init = None

    def start(self, command, env=None, **options):
        return self._start(["--uts"], 'exec "$@"', command, env, options)

    def start_slurmd(self):
        """Below an init of its own: with it, everything on the host ends."""
        script = 'mount -t tmpfs none /dev/shm; "$@" & wait; wait'
        self.init = self._start(["--uts", "--mount", "--pid", "--fork", "--kill-child",
                                 "--mount-proc"], script, ["slurmd", "-D", "-N", self.name], {}, {})

    def _start(self, namespaces, script, command, env, options):
        p = host.Process(["nsenter", f"--net=/run/netns/{self.ns}", "unshare", *namespaces,
                          "sh", "-c", f'hostname {self.name}; {script}', "sh", *command],
                         where=f" on {self.name}", start_new_session=True,
                         env={**os.environ, **self.cluster.environment, **(env or {})},
                         **options)
        p.node, p.command = self, [str(word) for word in command]
        self.cluster.processes.append(p)
        return p

    def kill(self, pid):
        """The process that has this number there."""
        subprocess.run(["nsenter", f"--pid=/proc/{self.init.pid}/ns/pid_for_children", "sh", "-c",
                        f"kill -KILL {pid}"], check=True)

    def lose(self):
        """As if its power failed: the link is dead before its processes are."""
        self.cut()
        self.init.end()


class Cluster(host.Cluster):
    node_class = Node

    def __init__(self):
        super().__init__(NODES + 1)
        self.login = self.nodes[0]
        self.cgroups = [CGROUPS / c / f"{GROUP}{host.outer_pid}" for c in CONTROLLERS]
        if not has_cgroups():
            self.cgroups = []
        self.conf = f"{self.directory}/slurm.conf"
        # no variable of an allocation that this test itself might run in
        for name in [n for n in os.environ if n.startswith(("SLURM", "SBATCH", "SALLOC"))]:
            del os.environ[name]
        self.environment = {"SLURM_CONF": self.conf}

    def __enter__(self):
        super().__enter__()
        try:
            self._write_files()
            self.login.start(["slurmctld", "-D", "-i"])
            for node in self.nodes[1:]:
                node.start_slurmd()
            until(lambda: self.ask("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * NODES,
                  self._why_not_idle, 30)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for group in self.cgroups:
            thaw(group)
        for p in self.processes:
            p.end()
        for group in self.cgroups:
            remove_groups(group)
            subprocess.run(["umount", self._shown_at(group)], capture_output=True)
        super().__exit__()

    def _shown_at(self, group):
        return pathlib.Path(self.directory) / "cgroup" / group.parent.name

    def _write_files(self):
        at = pathlib.Path(self.directory)
        (at / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{node.address} {node.name}\n" for node in self.nodes))
        subprocess.run(["mount", "--bind", at / "hosts", "/etc/hosts"], check=True)
        for i in range(16):
            os.mknod(at / f"gpu{i}", stat.S_IFCHR | 0o600, os.makedev(1, 3))  # /dev/null
        (at / "slurm.conf").write_text(CONF.format(
            directory=at, tracking=WITH_CGROUPS if self.cgroups else WITHOUT_CGROUPS))
        (at / "gres.conf").write_text(f"Name=gpu File={at}/gpu[0-15]\n")
        (at / "cgroup.conf").write_text(CGROUP_CONF.format(directory=at))
        for group in self.cgroups:  # Slurm's are made below it, apart from those of other tests
            group.mkdir()
            self._shown_at(group).mkdir(parents=True)
            subprocess.run(["mount", "--bind", group, self._shown_at(group)], check=True)
        for name in ["state"] + [f"spool-{node.name}" for node in self.nodes[1:]]:
            (at / name).mkdir()

    def _why_not_idle(self):
        logs = [p.read_text(errors="replace") for p in pathlib.Path(self.directory).glob("*.log")]
        return "Slurm's nodes are idle\n" + "".join(log[-2000:] for log in logs)

    def ask(self, *command):
        """What a command of Slurm prints; with its errors if it fails."""
        p = subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.login.ns}", *map(str, command)],
            env={**os.environ, **self.environment}, capture_output=True, text=True)
        return p.stdout if p.returncode == 0 else p.stdout + p.stderr

    def start(self, *command, **options):
        """srun, salloc, ... on the login host, in the cluster's directory."""
        return self.login.start(command, cwd=self.directory, **options)

    def sbatch(self, script, *flags):
        """The id of a batch job whose output is in output(job)."""
        p = subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.login.ns}", "sbatch", "--parsable",
             "--output=%j.out", "--open-mode=append", *flags],
            input=f"#!/bin/sh\n{script}\n", env={**os.environ, **self.environment},
            cwd=self.directory, capture_output=True, text=True)
        if not p.stdout.strip().isdigit():
            fail("sbatch", *flags, ":", p.stdout + p.stderr)
        return p.stdout.strip()

    def output(self, job):
        path = pathlib.Path(self.directory) / f"{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def job(self, job):
        """What scontrol shows of the job: {"JobState": "RUNNING", ...}"""
        return dict(re.findall(r"(\S+?)=(\S*)", self.ask("scontrol", "-o", "show", "job", job)))

    def is_frozen(self, job):
        """Whether Slurm has suspended the processes of its first step, on all nodes."""
        states = [p.read_text() for p in self.cgroups[0].glob(
            f"slurm_*/uid_0/job_{job}/step_0/freezer.state")]
        return len(states) > 0 and all(state == "FROZEN\n" for state in states)

    def until_said(self, job, text, seconds=SECONDS):
        until(lambda: text in self.output(job),
              lambda: f"{text!r} in the output of job {job}: {self.job(job)}\n"
                      f"{self.output(job)}", seconds)

    def until_ended(self, job, seconds=SECONDS):
        """The job's facts once it has ended."""
        def ended():
            facts = self.job(job)
            busy = ("PENDING", "RUNNING", "COMPLETING", "REQUEUED", "CONFIGURING")
            return facts if facts.get("JobState", "PENDING") not in busy else None
        return until(ended, lambda: f"job {job} ends: {self.job(job)}\n{self.output(job)}",
                     seconds)


def remove_groups(path):
    """The cgroup and those below it, once what runs there has ended."""
    if not path.is_dir():
        return
    for below in sorted(path.glob("**/"), key=lambda p: -len(p.parts)):
        def removed():
            try:
                os.rmdir(below)
            except FileNotFoundError:
                pass
            except OSError:
                return False
            return True
        until(removed, f"the cgroup {below} is empty")
